//! The terminal: the only part of this crate that touches one.
//!
//! Invariant: its modes are as they were before, however the program ends: when the screen is dropped, and before a panic is reported.

use std::{
    io::{self, Write as _},
    os::fd::AsFd as _,
    panic,
    sync::{Mutex, Once, PoisonError},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
    unistd,
};
use ratatui_core::{buffer::Buffer, layout::Rect};

use crate::{
    ansi,
    draw::draw,
    keys::{Key, Keys},
    state::State,
};

/// Bytes that are read at once.
const READ_MAX: usize = 1_024;
/// How long the rest of an escape sequence may take.
const REST_WITHIN: Duration = Duration::from_millis(50);
/// Columns and rows that are drawn on, whatever the terminal says it has.
const MOST: (u16, u16) = (1_000, 400);
/// What a terminal has that does not say.
const USUAL: (u16, u16) = (80, 24);

/// The modes of the terminal as they were, while they are changed.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// These keys.
    Keys(Vec<Key>),
    /// Nothing, for as long as was waited.
    Nothing,
    /// Nothing, ever again: the terminal is gone.
    Closed,
}

/// A terminal that is drawn on, from stdin to stdout.
#[derive(Debug)]
pub struct Screen {
    keys: Keys,
    shown: Option<Buffer>,
}

impl Screen {
    /// Takes the terminal.
    pub fn open() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        let stdin = io::stdin();
        let modes = tcgetattr(stdin.as_fd())?;
        let mut raw = modes.clone();
        cfmakeraw(&mut raw);
        *before() = Some(modes);
        HOOK.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                restore();
                report(info);
            }));
        });
        // From here on, dropping it restores.
        let screen = Self {
            keys: Keys::default(),
            shown: None,
        };
        tcsetattr(stdin.as_fd(), SetArg::TCSADRAIN, &raw)?;
        write(ansi::ENTER)?;
        Ok(screen)
    }

    /// Its columns and rows.
    pub fn size() -> (u16, u16) {
        let size = terminal_size::terminal_size_of(io::stdout());
        let (columns, rows) = size.map_or(USUAL, |(width, height)| (width.0, height.0));
        (columns.clamp(1, MOST.0), rows.clamp(1, MOST.1))
    }

    /// Waits for keys, no longer than that.
    pub fn read(&mut self, within: Duration) -> io::Result<Input> {
        let within = if self.keys.is_unfinished() {
            within.min(REST_WITHIN)
        } else {
            within
        };
        let stdin = io::stdin();
        let mut wanted = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        match poll(&mut wanted, timeout) {
            Ok(0) => {
                let keys = self.keys.flush();
                return Ok(if keys.is_empty() {
                    Input::Nothing
                } else {
                    Input::Keys(keys)
                });
            }
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Input::Nothing),
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; READ_MAX];
        match unistd::read(stdin.as_fd(), &mut bytes) {
            // A terminal whose other end is gone.
            Ok(0) | Err(Errno::EIO) => Ok(Input::Closed),
            Ok(count) => {
                let bytes = bytes.get(..count).unwrap_or_default();
                Ok(Input::Keys(self.keys.push(bytes)))
            }
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(Input::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Draws a state: what differs from the frame before.
    pub fn draw(&mut self, state: &State) -> io::Result<()> {
        let (columns, rows) = state.size;
        let area = Rect::new(0, 0, columns, rows);
        let mut frame = Buffer::empty(area);
        draw(state, &mut frame);
        let shown = self.shown.take().filter(|shown| *shown.area() == area);
        let (text, before) = match shown {
            Some(shown) => (String::new(), shown),
            None => (ansi::CLEAR.to_owned(), Buffer::empty(area)),
        };
        let text = text + &ansi::paint(before.diff_iter(&frame));
        self.shown = Some(frame);
        write(&text)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn before() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the terminal back, once.
fn restore() {
    let Some(modes) = before().take() else {
        return;
    };
    // A terminal that is gone has no modes, and there is nowhere to report it.
    drop(write(ansi::LEAVE));
    tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, &modes).ok();
}

fn write(text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
