//! `trainyard top`: the runs of this machine, or the jobs of a cluster, in the terminal, as they change.
//!
//! Joins the three sides: [`asker`] answers in a thread of its own, `tui` decides what is asked and drawn, its screen is the terminal.

mod asker;
mod shown;

use std::{
    io::{self, IsTerminal as _},
    sync::mpsc::TryRecvError,
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use trainyard_tui::{Depth, Effects, Event, Input, Look, Screen, Source, State, once};

use self::{
    asker::{Answers, Asker, answer},
    shown::Shown,
};
use crate::{
    args::Top,
    environment,
    failure::{Exit, Failure},
    paint::Paint,
    printer::Printer,
    run::Signals,
};

/// How soon an answer is shown.
const BUSY: Duration = Duration::from_millis(30);
/// How soon a signal, and another size of the terminal, are noticed where nothing is asked.
const IDLE: Duration = Duration::from_millis(250);
/// Columns of one frame where stdout is no terminal.
const COLUMNS: u16 = 120;

pub(super) fn run(args: &Top, printer: &mut Printer) -> Result<Exit, Failure> {
    if args.once {
        let shown = Shown::open(args)?;
        return print_once(&shown, shown.source(args), printer);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::new(
            "`trainyard top` draws on a terminal, and stdin or stdout is none",
        )
        .hint(
            "use `trainyard top --once`, `trainyard ps --watch` or `trainyard ps --format json`",
        ));
    }
    let shown = Shown::open(args)?;
    let source = shown.source(args);
    let signals = Signals::listen().context("cannot install signal handlers")?;
    let (asker, answers) = Asker::start(shown)?;
    let state = State::new(
        source,
        Screen::size(),
        look(printer),
        now(),
        trainyard_tui::measure,
    );
    let mut screen = Screen::open().context("cannot set the modes of the terminal")?;
    let ended = show(state, &mut screen, &asker, &answers, &signals);
    // What is printed now is printed on the screen as it was before.
    drop(screen);
    ended.map(|()| Exit::Done)
}

/// The list of jobs, once.
fn print_once(shown: &Shown, source: Source, printer: &mut Printer) -> Result<Exit, Failure> {
    let columns = if printer.stdout_is_terminal() {
        Screen::size().0
    } else {
        COLUMNS
    };
    let mut state = State::new(
        source,
        (columns, 24),
        Look::PLAIN,
        now(),
        trainyard_tui::measure,
    );
    for ask in state.start().ask.unwrap_or_default() {
        let answer = answer(shown, &ask, Timestamp::now());
        if let Err(trouble) = &answer {
            return Err(Failure::new(trouble.message.clone()).hint(trouble.hint.clone()));
        }
        state.update(Event::Answered { ask, answer });
    }
    printer.data(once(&state, columns).as_bytes())?;
    Ok(Exit::Done)
}

/// Shows what changes until a key or a signal ends it, or the terminal is gone.
fn show(
    mut state: State,
    screen: &mut Screen,
    asker: &Asker,
    answers: &Answers,
    signals: &Signals,
) -> Result<(), Failure> {
    let mut effects = state.start();
    loop {
        if let Some(asks) = effects.ask.take() {
            asker.ask(asks);
        }
        if effects.quit || signals.take() {
            return Ok(());
        }
        if effects.redraw {
            screen.draw(&state).context("cannot draw on the terminal")?;
        }
        effects = Effects::default();
        let wait = if asker.is_busy() { BUSY } else { IDLE };
        match screen.read(wait).context("cannot read keys")? {
            Input::Closed => return Ok(()),
            Input::Nothing => {}
            Input::Keys(keys) => {
                for key in keys {
                    add(&mut effects, state.update(Event::Key(key)));
                }
            }
        }
        let (columns, rows) = Screen::size();
        add(&mut effects, state.update(Event::Resized(columns, rows)));
        add(&mut effects, state.update(Event::Clock(now())));
        loop {
            match answers.try_recv() {
                Ok((ask, answer)) => {
                    add(&mut effects, state.update(Event::Answered { ask, answer }));
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(Failure::new(
                        "the thread that reads what is shown ended by itself",
                    )
                    .hint("start it again; if it happens again, report it"));
                }
            }
        }
    }
}

/// What two events ask for together: the last questions count.
fn add(effects: &mut Effects, more: Effects) {
    effects.redraw |= more.redraw;
    effects.quit |= more.quit;
    effects.ask = more.ask.or(effects.ask.take());
}

fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The colours of the terminal, where colour is wanted.
fn look(printer: &Printer) -> Look {
    let variable = |name| environment::lookup(name).unwrap_or_default();
    let term = variable("TERM");
    let look = Look::of(&variable("COLORTERM"), &term, &variable("COLORFGBG"));
    match printer.stdout_paint() {
        Paint::Styled => look,
        Paint::Plain => Look {
            depth: Depth::None,
            ..look
        },
    }
}
