//! What is believed of a gang, and what is charged when several things happen at once.

use super::*;
use crate::{diagnose::TransportSeen, job::failed_programs, spec::RequiredTransport};

impl Gang {
    fn uid(&self, slot: Slot) -> String {
        let mut pods = self.world.observed.pods.iter();
        pods.find(|pod| pod.slot == slot).unwrap().uid.clone()
    }

    /// The programs in these slots end by themselves.
    fn all_end(&mut self, ends: &[(Slot, i32)]) {
        let attempt = self.record().attempt;
        let ended = ends.iter().map(|(slot, code)| EndedMember {
            slot: *slot,
            uid: self.uid(*slot),
            attempt,
            exit: ProgramExit {
                code: *code,
                signal: None,
            },
        });
        self.summary.ended = ended.collect();
        self.receive();
    }
}

/// Both workers use sockets in a job that requires InfiniBand.
pub(super) fn use_another_transport(gang: &mut Gang) {
    let required = RequiredTransport::parse_list("NET/IB").unwrap();
    gang.world.job.settings.require_transport = required;
    let ranks = (0..2).map(|rank| TransportSeen {
        rank: Some(rank),
        host: Some(format!("j-worker-{rank}")),
        source: format!("j-worker-{rank}/pytorch"),
        world: Some(2),
        transports: ["NET/Socket".to_owned()].into(),
    });
    gang.world.observed.transports = Some(ReportedTransports {
        attempt: 1,
        ranks: ranks.collect(),
    });
}

#[test]
fn beginning_in_place_outlives_the_condition() {
    let mut gang = Gang::of_three();
    assert_eq!(gang.record().in_place_since(), None);
    gang.ends(worker(1), 1);
    gang.pass();
    gang.go();
    gang.pass();
    assert!(gang.holds(ConditionType::Running) && !gang.holds(ConditionType::Restarting));
    let began = gang.record().last_restart.unwrap().began_at.unwrap();
    let since = gang.record().in_place_since().unwrap();
    let skew = since.duration_since(began).as_millis();
    assert!((1..1_000).contains(&skew), "{skew} ms");
    // Of a status that an earlier version wrote, nothing is known.
    let stored = r#"{"attempt": 2, "stoppingMs": 4, "preparingMs": 5}"#;
    let last: LastRestart = serde_json::from_str(stored).unwrap();
    let record = JobRecord {
        last_restart: Some(last),
        ..gang.record().clone()
    };
    assert_eq!(record.in_place_since(), None);
    // An attempt with new pods has logs of its own.
    gang.world.observed.pods.remove(0);
    gang.pass();
    assert_eq!(
        (gang.record().attempt, gang.record().in_place_since()),
        (3, None)
    );
}

#[test]
fn restart_in_place_is_charged_once() {
    type Change = fn(&mut Gang);
    let cases: [(&str, Change); 2] = [
        ("evicted", |gang| {
            gang.world.observed.status.trainyard.gang = GangPhase::Whole;
            gang.world.observed.seating = Seating::Evicted("for `b`".to_owned());
        }),
        ("another transport", use_another_transport),
    ];
    for (name, change) in cases {
        // Alone, each ends the attempt and is charged.
        let mut gang = Gang::of_three();
        change(&mut gang);
        gang.pass();
        assert_eq!(gang.record().attempt, 2, "{name}");

        let mut gang = Gang::of_three();
        change(&mut gang);
        gang.ends(worker(1), 1);
        gang.pass();
        let charged = Spent {
            user: 1,
            ..Spent::default()
        };
        assert_eq!(gang.record().spent, charged, "{name}");
        assert!(gang.record().barrier.is_some(), "{name}");
        assert_eq!(gang.record().attempt, 1, "{name}");
    }
}

#[test]
fn container_of_an_ended_program_is_kept_for_a_while() {
    let mut gang = Gang::of_three();
    let role = gang.world.job.roles.get_mut(&Role::Worker).unwrap();
    role.restart_policy = RestartPolicy::ExitCode;
    gang.world.job.run_policy.clean_pod_policy = Some(CleanPodPolicy::Running);
    gang.ends(worker(1), 3);
    let decision = gang.pass();
    assert_eq!(gang.world.observed.pods.len(), 1);
    let ended = gang.world.observed.status.completion_time.unwrap();
    let until = ended.checked_add(Limits::default().hold).unwrap();
    assert_eq!(decision.wake_at, Some(until));
    // Its supervisor has not ended it: what the leader reported is not believed any more.
    gang.world.now += 31;
    gang.pass();
    assert_eq!(gang.world.observed.pods, []);
}

#[test]
fn hang_report_is_not_trusted() {
    type Change = fn(&mut HangReport);
    let cases: [(&str, bool, Change); 4] = [
        ("good", true, |_| {}),
        ("no such slot", false, |hang| hang.slot = worker(9)),
        ("another label", false, |hang| {
            hang.label = "cuda_oom".to_owned();
        }),
        ("a label with a colour", false, |hang| {
            hang.label = "hang_cpu_side\u{1b}[31m".to_owned();
        }),
    ];
    for (name, acts, change) in cases {
        let mut gang = Gang::of_three();
        gang.hangs("hang_cpu_side");
        let hang = gang.summary.hang.as_mut().unwrap();
        hang.sentence = "rank 2 \u{1b}[31msleeps\nat train.py:11".to_owned();
        change(hang);
        gang.receive();
        // A program fails, too: a report that is not trusted is no verdict on it.
        gang.ends(worker(1), 1);
        let decision = gang.pass();
        let last = gang.record().last_failure.clone().unwrap();
        assert_eq!(last.verdict.is_some(), acts, "{name}: {last:?}");
        let event = &decision.events[0].message;
        assert!(!event.contains(char::is_control), "{name}: {event:?}");
        let sentence = last.verdict.map(|verdict| verdict.sentence);
        if let Some(sentence) = sentence {
            assert_eq!(sentence, "rank 2  [31msleeps at train.py:11");
        }
    }
}

#[test]
fn killed_program_is_asked_about_first() {
    let mut gang = Gang::of_three();
    gang.all_end(&[(worker(0), 1), (worker(1), 137)]);
    let observed = &gang.world.observed;
    let asked = failed_first(&gang.world.job, observed).unwrap();
    assert_eq!(asked.slot, worker(1));
    gang.pass();
    let last = gang.record().last_failure.clone().unwrap();
    assert_eq!(last.pod, gang.world.job.pod_name(worker(1)), "the headline");
}

#[test]
fn only_current_failures_of_programs_count() {
    type Change = fn(&mut EndedMember);
    let cases: [(&str, usize, Change); 5] = [
        ("as it is", 1, |_| {}),
        ("an earlier attempt", 0, |ended| ended.attempt = 0),
        ("another slot", 0, |ended| ended.slot = worker(0)),
        ("an unknown pod", 0, |ended| ended.uid = "other".to_owned()),
        ("it ended well", 0, |ended| ended.exit.code = 0),
    ];
    for (name, count, change) in cases {
        let mut gang = Gang::of_three();
        gang.ends(worker(1), 1);
        change(&mut gang.summary.ended[0]);
        gang.receive();
        let found = failed_programs(&gang.world.observed);
        assert_eq!(found.len(), count, "{name}");
    }
}

#[test]
fn pods_of_an_unknown_template_are_not_kept() {
    let mut gang = Gang::of_three();
    gang.world.observed.status.trainyard.pod_template = None;
    gang.ends(worker(1), 1);
    let decision = gang.pass();
    assert_eq!(
        (gang.record().attempt, gang.record().barrier.clone()),
        (2, None)
    );
    let event = &decision.events[0].message;
    assert!(
        event.contains("because the pod template changed."),
        "{event}"
    );
}
