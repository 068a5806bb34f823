use super::*;
use crate::{barrier::message::StateName, spec::Role};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn member(begin: Begin, on_success: OnSuccess) -> (Member, Vec<MemberAction>) {
    let setup = MemberSetup {
        job: "job".to_owned(),
        uid: "pod-3".to_owned(),
        slot: Slot::new(Role::Worker, 3),
        attempt: 2,
        begin,
        on_success,
        limits: Limits::default(),
    };
    Member::new(setup, at(0))
}

fn command(command: Command) -> Envelope<LeaderMessage> {
    Envelope {
        job: "job".to_owned(),
        message: LeaderMessage::Command(command),
    }
}

fn go(attempt: u32) -> Command {
    Command::Go { attempt }
}

fn prepare(attempt: u32) -> Command {
    Command::Prepare { attempt }
}

fn stop(attempt: u32) -> Command {
    Command::Stop {
        attempt,
        how: StopHow::Grace(at(5)),
    }
}

fn exit(code: i32) -> ProgramExit {
    ProgramExit { code, signal: None }
}

/// What happens to a member.
#[derive(Clone, Copy, Debug)]
enum Input {
    Order(Command),
    Ended(u32, i32),
    Stopped(u32),
    CannotStop(u32),
}

/// Actions in short.
fn brief(actions: &[MemberAction]) -> Vec<String> {
    let words = actions.iter().filter_map(|action| match action {
        MemberAction::Start { attempt } => Some(format!("start {attempt}")),
        MemberAction::Stop { attempt, how } => Some(match how {
            StopHow::Grace(_) => format!("stop {attempt}"),
            StopHow::Hang => format!("kill {attempt}"),
        }),
        MemberAction::Exit { code } => Some(format!("exit {code}")),
        MemberAction::Send(_) | MemberAction::Redial { .. } => None,
    });
    words.collect()
}

type Case = (
    &'static str,
    Begin,
    &'static [Input],
    (u32, StateName),
    &'static [&'static str],
);

#[test]
fn each_transition() {
    use Input::{CannotStop, Ended, Order, Stopped};
    use StateName as State;
    const STOP_2: Input = Order(Command::Stop {
        attempt: 2,
        how: StopHow::Grace(Duration::from_secs(5)),
    });
    const STOP_3: Input = Order(Command::Stop {
        attempt: 3,
        how: StopHow::Grace(Duration::from_secs(5)),
    });
    const HANG_2: Input = Order(Command::Stop {
        attempt: 2,
        how: StopHow::Hang,
    });
    const PREPARE_2: Input = Order(Command::Prepare { attempt: 2 });
    const PREPARE_3: Input = Order(Command::Prepare { attempt: 3 });
    const GO_1: Input = Order(Command::Go { attempt: 1 });
    const GO_2: Input = Order(Command::Go { attempt: 2 });
    const GO_3: Input = Order(Command::Go { attempt: 3 });
    const STOP_1: Input = Order(Command::Stop {
        attempt: 1,
        how: StopHow::Hang,
    });
    let run = Begin::Run;
    let wait = Begin::Wait;
    let cases: &[Case] = &[
        ("runs at once", run, &[], (2, State::Running), &["start 2"]),
        ("waits for Go", wait, &[], (2, State::Ready), &[]),
        (
            "Go starts it",
            wait,
            &[GO_2],
            (2, State::Running),
            &["start 2"],
        ),
        (
            "Go twice starts it once",
            wait,
            &[GO_2, GO_2],
            (2, State::Running),
            &["start 2"],
        ),
        (
            "Go of its own attempt",
            run,
            &[GO_2],
            (2, State::Running),
            &["start 2"],
        ),
        (
            "stop",
            run,
            &[STOP_2],
            (2, State::Stopping),
            &["start 2", "stop 2"],
        ),
        (
            "stop twice",
            run,
            &[STOP_2, STOP_2],
            (2, State::Stopping),
            &["start 2", "stop 2"],
        ),
        (
            "a hang overrides grace",
            run,
            &[STOP_2, HANG_2],
            (2, State::Stopping),
            &["start 2", "stop 2", "kill 2"],
        ),
        (
            "grace does not override a hang",
            run,
            &[HANG_2, STOP_2],
            (2, State::Stopping),
            &["start 2", "kill 2"],
        ),
        (
            "stopped",
            run,
            &[STOP_2, Stopped(2)],
            (2, State::Stopped),
            &["start 2", "stop 2"],
        ),
        (
            "an ended program is cleaned up",
            run,
            &[Ended(2, 1), STOP_2],
            (2, State::Stopping),
            &["start 2", "stop 2"],
        ),
        (
            "end while stopping",
            run,
            &[STOP_2, Ended(2, 1)],
            (2, State::Stopping),
            &["start 2", "stop 2"],
        ),
        (
            "ready",
            run,
            &[STOP_2, Stopped(2), PREPARE_3],
            (3, State::Ready),
            &["start 2", "stop 2"],
        ),
        (
            "whole restart",
            run,
            &[STOP_2, Stopped(2), PREPARE_3, GO_3],
            (3, State::Running),
            &["start 2", "stop 2", "start 3"],
        ),
        (
            "Go after Stop of the same attempt",
            run,
            &[STOP_2, Stopped(2), GO_2],
            (2, State::Stopped),
            &["start 2", "stop 2"],
        ),
        (
            "Prepare after Stop of the same attempt",
            run,
            &[STOP_2, Stopped(2), PREPARE_2],
            (2, State::Stopped),
            &["start 2", "stop 2"],
        ),
        (
            "Stop before Go",
            wait,
            &[STOP_2, GO_2],
            (2, State::Stopped),
            &[],
        ),
        (
            "older orders",
            run,
            &[STOP_1, GO_1],
            (2, State::Running),
            &["start 2"],
        ),
        (
            "Prepare implies Stop",
            run,
            &[PREPARE_3, Stopped(2)],
            (3, State::Ready),
            &["start 2", "kill 2"],
        ),
        (
            "Go implies Stop and Prepare",
            run,
            &[GO_3, Stopped(2)],
            (3, State::Running),
            &["start 2", "kill 2", "start 3"],
        ),
        (
            "Prepare while stopping",
            run,
            &[STOP_2, PREPARE_3, Stopped(2)],
            (3, State::Ready),
            &["start 2", "stop 2"],
        ),
        (
            "Stop of a later attempt",
            run,
            &[STOP_3, Stopped(2)],
            (3, State::Stopped),
            &["start 2", "stop 2"],
        ),
        (
            "cannot stop",
            run,
            &[STOP_2, CannotStop(2)],
            (2, State::CannotStop),
            &["start 2", "stop 2"],
        ),
        (
            "stops late",
            run,
            &[STOP_2, CannotStop(2), Stopped(2)],
            (2, State::Stopped),
            &["start 2", "stop 2"],
        ),
        (
            "end of another attempt",
            run,
            &[Ended(1, 1)],
            (2, State::Running),
            &["start 2"],
        ),
        (
            "stop of another attempt",
            run,
            &[STOP_2, Stopped(1)],
            (2, State::Stopping),
            &["start 2", "stop 2"],
        ),
    ];
    for (name, begin, inputs, want, actions) in cases {
        let (mut member, mut done) = member(*begin, OnSuccess::Hold);
        for input in *inputs {
            done.extend(match *input {
                Order(order) => member.receive(&command(order), at(1)),
                Ended(attempt, code) => member.program_ended(attempt, exit(code), at(1)),
                Stopped(attempt) => member.program_stopped(attempt, at(1)),
                CannotStop(attempt) => member.cannot_stop(attempt, at(1)),
            });
        }
        let got = (member.attempt(), member.state().name());
        assert_eq!(got, *want, "{name}");
        assert_eq!(brief(&done), *actions, "{name}");
    }
}

type Steps = fn(&mut Member);

#[test]
fn every_wait_ends() {
    let limits = Limits::default();
    let idle = limits.idle_within();
    let cases: [(&str, Begin, Steps, Duration, &str); 5] = [
        (
            "ended",
            Begin::Run,
            |member| drop(member.program_ended(2, exit(7), at(0))),
            limits.hold,
            "exit 7",
        ),
        (
            "killed",
            Begin::Run,
            |member| {
                let signal = Some(9);
                drop(member.program_ended(2, ProgramExit { code: 0, signal }, at(0)));
            },
            limits.hold,
            "exit 137",
        ),
        ("ready", Begin::Wait, |_| {}, idle, "exit 143"),
        (
            "stopped",
            Begin::Run,
            |member| {
                drop(member.receive(&command(stop(2)), at(0)));
                drop(member.program_stopped(2, at(0)));
            },
            idle,
            "exit 143",
        ),
        (
            "cannot stop",
            Begin::Run,
            |member| {
                drop(member.receive(&command(stop(2)), at(0)));
                drop(member.cannot_stop(2, at(0)));
            },
            limits.farewell,
            "exit 89",
        ),
    ];
    for (name, begin, steps, bound, want) in cases {
        let (mut member, _) = member(begin, OnSuccess::Hold);
        steps(&mut member);
        assert_eq!(member.wake_at(), Some(bound), "{name}");
        let early = member.tick(bound.saturating_sub(Duration::from_millis(1)));
        assert!(brief(&early).is_empty(), "{name}: {early:?}");
        assert_eq!(brief(&member.tick(bound)), [want], "{name}");
        assert!(member.has_exited() && member.wake_at().is_none(), "{name}");
        let after = member.receive(&command(go(9)), bound);
        assert!(after.is_empty(), "{name}: {after:?}");
    }
}

#[test]
fn held_container_stays_as_long_as_ordered() {
    let hold = |attempt, within| Command::Hold { attempt, within };
    let spare = Limits::default().hold;
    let (mut member, _) = member(Begin::Run, OnSuccess::Exit);
    drop(member.program_ended(2, exit(7), at(0)));
    drop(member.receive(&command(hold(2, at(600))), at(10)));
    assert_eq!(member.wake_at(), Some(at(610) + spare));
    // The same order again does not count again, another length counts from the first.
    drop(member.receive(&command(hold(2, at(600))), at(300)));
    assert_eq!(member.wake_at(), Some(at(610) + spare));
    drop(member.receive(&command(hold(2, at(1_200))), at(300)));
    assert_eq!(member.wake_at(), Some(at(1_210) + spare));
    drop(member.receive(&command(go(2)), at(301)));
    assert_eq!(member.wake_at(), Some(at(1_210) + spare), "Go is older");
    assert_eq!(brief(&member.tick(at(1_210) + spare)), ["exit 7"]);
}

#[test]
fn program_runs_while_its_container_is_held() {
    let (mut member, _) = member(Begin::Run, OnSuccess::Exit);
    let within = at(600);
    let held = member.receive(&command(Command::Hold { attempt: 2, within }), at(1));
    assert!(brief(&held).is_empty());
    assert_eq!(member.state(), MemberState::Running);
    drop(member.program_ended(2, exit(1), at(5)));
    assert_eq!(member.wake_at(), Some(at(601) + Limits::default().hold));
    let stopped = member.receive(&command(stop(2)), at(400));
    assert_eq!(brief(&stopped), ["stop 2"]);
    drop(member.program_stopped(2, at(400)));
    drop(member.receive(&command(prepare(3)), at(400)));
    assert_eq!(
        brief(&member.receive(&command(go(3)), at(401))),
        ["start 3"]
    );
    drop(member.program_ended(3, exit(1), at(410)));
    assert_eq!(
        member.wake_at(),
        Some(at(440)),
        "the hold was that of attempt 2"
    );
}

#[test]
fn success_ends_a_held_container() {
    let (mut member, _) = member(Begin::Run, OnSuccess::Exit);
    let within = at(600);
    drop(member.receive(&command(Command::Hold { attempt: 2, within }), at(1)));
    assert_eq!(brief(&member.program_ended(2, exit(0), at(5))), ["exit 0"]);
}

#[test]
fn stop_that_takes_too_long_is_reported() {
    let (mut member, _) = member(Begin::Run, OnSuccess::Hold);
    drop(member.receive(&command(stop(2)), at(0)));
    drop(member.tick(Limits::default().stop_within));
    assert_eq!(member.state(), MemberState::CannotStop);
}

#[test]
fn success_rule_decides_about_exit_code_0() {
    let cases: [(OnSuccess, i32, &[&str]); 3] = [
        (OnSuccess::Exit, 0, &["exit 0"]),
        (OnSuccess::Hold, 0, &[]),
        (OnSuccess::Exit, 1, &[]),
    ];
    for (rule, code, want) in cases {
        let (mut member, _) = member(Begin::Run, rule);
        let actions = member.program_ended(2, exit(code), at(1));
        assert_eq!(brief(&actions), want, "{rule:?} {code}");
    }
}

#[test]
fn reports_at_once_and_again() {
    let limits = Limits::default();
    let (mut member, _) = member(Begin::Run, OnSuccess::Hold);
    let states = |actions: Vec<MemberAction>| -> Vec<StateName> {
        let sent = actions.into_iter().filter_map(|action| match action {
            MemberAction::Send(envelope) => Some(envelope.message.state.name()),
            _ => None,
        });
        sent.collect()
    };
    assert_eq!(states(member.connected(at(0))), [StateName::Running]);
    assert_eq!(member.wake_at(), Some(limits.report_every));
    assert_eq!(
        states(member.tick(limits.report_every)),
        [StateName::Running]
    );
    let ended = member.program_ended(2, exit(1), at(6));
    assert_eq!(states(ended), [StateName::Ended]);
    assert_eq!(states(member.tick(at(7))), [StateName::Ended]);
    // Ready and Running in one call are one report.
    drop(member.receive(&command(stop(2)), at(8)));
    let stopped = member.program_stopped(2, at(8));
    assert_eq!(states(stopped), [StateName::Stopped]);
    let started = member.receive(&command(go(3)), at(8));
    assert_eq!(states(started), [StateName::Running]);
}

#[test]
fn silent_leader_is_dialed_again() {
    let limits = Limits::default();
    let (mut member, _) = member(Begin::Run, OnSuccess::Hold);
    drop(member.connected(at(0)));
    let redials = |actions: &[MemberAction]| -> Vec<u64> {
        let pauses = actions.iter().filter_map(|action| match action {
            MemberAction::Redial { after } => Some(after.as_secs()),
            _ => None,
        });
        pauses.collect()
    };
    assert_eq!(redials(&member.tick(limits.silent_after)), [1]);
    assert_eq!(redials(&member.disconnected()), [2]);
    drop(member.connected(at(20)));
    drop(member.receive(&command(prepare(1)), at(20)));
    assert_eq!(redials(&member.disconnected()), [1]);
}

#[test]
fn other_jobs_change_nothing() {
    let (mut member, _) = member(Begin::Run, OnSuccess::Hold);
    let foreign = Envelope {
        job: "other".to_owned(),
        ..command(stop(9))
    };
    assert!(member.receive(&foreign, at(1)).is_empty());
    assert_eq!(member.state(), MemberState::Running);
    assert_eq!(member.fence(), Fence::new(2, Stage::Go));
}
