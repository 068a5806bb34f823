//! The condition list, by the contract's rules. Its order is what users see as the state.
//!
//! Invariant: once Failed or Succeeded is true nothing in the list changes any more; at most one
//! of the two is ever true; the conditions of ours are never last.

use jiff::Timestamp;

use super::{Condition, ConditionStatus, ConditionType};
use crate::spec::Kind;

/// Whether `kind` is in the list and true.
pub(super) fn holds(conditions: &[Condition], kind: ConditionType) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == ConditionStatus::True)
}

/// The condition `kind`, where it is in the list.
pub(super) fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Whether the job has ended.
pub(super) fn ended(conditions: &[Condition]) -> bool {
    holds(conditions, ConditionType::Succeeded) || holds(conditions, ConditionType::Failed)
}

/// Sets a condition. The reason is the kind's name and `word`.
pub(super) fn set(
    conditions: &mut Vec<Condition>,
    job: Kind,
    (kind, status, word): (ConditionType, ConditionStatus, &str),
    message: String,
    now: Timestamp,
) {
    if ended(conditions) {
        return;
    }
    let reason = format!("{job}{word}");
    let mut last_transition_time = now;
    if let Some(old) = find(conditions, kind)
        && old.status == status
    {
        if old.reason == reason {
            return;
        }
        last_transition_time = old.last_transition_time;
    }
    conditions.retain(|condition| {
        condition.kind != kind
            && !matches!(
                (kind, condition.kind),
                (ConditionType::Restarting, ConditionType::Running)
                    | (ConditionType::Running, ConditionType::Restarting)
            )
    });
    if matches!(kind, ConditionType::Succeeded | ConditionType::Failed) {
        for condition in conditions.iter_mut() {
            if matches!(
                condition.kind,
                ConditionType::Running | ConditionType::Degraded
            ) {
                condition.status = ConditionStatus::False;
            }
        }
    }
    conditions.push(Condition {
        kind,
        status,
        reason,
        message,
        last_update_time: now,
        last_transition_time,
    });
}

/// Turns Running to false because of a suspension.
pub(super) fn suspend_running(
    conditions: &mut Vec<Condition>,
    job: Kind,
    message: String,
    now: Timestamp,
) {
    let Some(at) = conditions.iter().position(|condition| {
        condition.kind == ConditionType::Running && condition.status == ConditionStatus::True
    }) else {
        return;
    };
    let mut running = conditions.remove(at);
    running.status = ConditionStatus::False;
    running.reason = format!("{job}Suspended");
    running.message = message;
    running.last_update_time = now;
    running.last_transition_time = now;
    conditions.push(running);
}

/// Sets Degraded; without a message it does not hold any more, if it ever did.
pub(super) fn set_degraded(
    conditions: &mut Vec<Condition>,
    job: Kind,
    message: Option<String>,
    now: Timestamp,
) {
    let kind = ConditionType::Degraded;
    let before = find(conditions, kind).map(|condition| condition.message.clone());
    let (status, message) = match (message, before) {
        (Some(message), _) => (ConditionStatus::True, message),
        (None, Some(before)) => (ConditionStatus::False, before),
        (None, None) => return,
    };
    set_beside(conditions, job, (kind, status, kind.name()), message, now);
}

/// Sets a condition of ours right after Created, so that it is never the state that users see; its message carries
/// numbers and is refreshed. Without another condition behind it, it is left out.
pub(super) fn set_beside(
    conditions: &mut Vec<Condition>,
    job: Kind,
    (kind, status, word): (ConditionType, ConditionStatus, &str),
    message: String,
    now: Timestamp,
) {
    if ended(conditions) {
        return;
    }
    let reason = format!("{job}{word}");
    let mut known = conditions.iter_mut();
    let Some(condition) = known.find(|condition| condition.kind == kind) else {
        if conditions.len() > 1 {
            let condition = Condition {
                kind,
                status,
                reason,
                message,
                last_update_time: now,
                last_transition_time: now,
            };
            conditions.insert(1, condition);
        }
        return;
    };
    if condition.status != status {
        condition.status = status;
        condition.last_transition_time = now;
        condition.last_update_time = now;
    }
    if condition.message != message || condition.reason != reason {
        condition.message = message;
        condition.reason = reason;
        condition.last_update_time = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConditionStatus::{False, True};
    use ConditionType::{Created, Degraded, Failed, Restarting, Running, Succeeded, Suspended};

    type Step = (ConditionType, ConditionStatus, &'static str);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn list(conditions: &[Condition]) -> String {
        let words: Vec<String> = conditions
            .iter()
            .map(|c| match c.status {
                True => c.kind.name().to_owned(),
                status => format!("{}({status:?})", c.kind.name()),
            })
            .collect();
        words.join(",")
    }

    #[test]
    fn lists_of_the_contract() {
        let created: Step = (Created, True, "Created");
        let running: Step = (Running, True, "Running");
        let cases: &[(&[Step], &str)] = &[
            (&[created], "Created"),
            (&[created, running], "Created,Running"),
            (
                &[created, running, (Succeeded, True, "Succeeded")],
                "Created,Running(False),Succeeded",
            ),
            (
                &[created, running, (Restarting, True, "Restarting")],
                "Created,Restarting",
            ),
            (
                &[created, (Restarting, True, "Restarting"), running],
                "Created,Running",
            ),
            (
                &[created, (Suspended, True, "Suspended")],
                "Created,Suspended",
            ),
            (
                &[
                    created,
                    (Suspended, True, "Suspended"),
                    (Suspended, False, "Resumed"),
                    running,
                ],
                "Created,Suspended(False),Running",
            ),
            (
                &[created, (Failed, True, "Failed"), running],
                "Created,Failed",
            ),
            (
                &[
                    created,
                    (Succeeded, True, "Succeeded"),
                    (Failed, True, "Failed"),
                ],
                "Created,Succeeded",
            ),
        ];
        for (steps, want) in cases {
            let mut conditions = Vec::new();
            for (second, step) in steps.iter().enumerate() {
                let now = at(i64::try_from(second).unwrap());
                set(&mut conditions, Kind::PyTorch, *step, "m".into(), now);
            }
            assert_eq!(list(&conditions), *want, "{steps:?}");
        }
    }

    #[test]
    fn suspended_while_running() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            Kind::Jax,
            (Created, True, "Created"),
            String::new(),
            at(0),
        );
        set(
            &mut conditions,
            Kind::Jax,
            (Running, True, "Running"),
            String::new(),
            at(1),
        );
        suspend_running(&mut conditions, Kind::Jax, String::new(), at(2));
        set(
            &mut conditions,
            Kind::Jax,
            (Suspended, True, "Suspended"),
            String::new(),
            at(2),
        );
        assert_eq!(list(&conditions), "Created,Running(False),Suspended");
        assert_eq!(conditions[1].reason, "JAXJobSuspended");
        set(
            &mut conditions,
            Kind::Jax,
            (Suspended, False, "Resumed"),
            String::new(),
            at(3),
        );
        assert_eq!(list(&conditions), "Created,Running(False),Suspended(False)");
        set(
            &mut conditions,
            Kind::Jax,
            (Running, True, "Running"),
            String::new(),
            at(4),
        );
        assert_eq!(list(&conditions), "Created,Suspended(False),Running");
    }

    #[test]
    fn times_and_messages() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            Kind::Tf,
            (Running, True, "Running"),
            "first".into(),
            at(1),
        );
        set(
            &mut conditions,
            Kind::Tf,
            (Running, True, "Running"),
            "second".into(),
            at(2),
        );
        assert_eq!(
            (
                conditions[0].message.as_str(),
                conditions[0].last_update_time
            ),
            ("first", at(1))
        );
        set(
            &mut conditions,
            Kind::Tf,
            (Running, True, "Other"),
            "third".into(),
            at(3),
        );
        assert_eq!(
            (
                conditions[0].last_update_time,
                conditions[0].last_transition_time
            ),
            (at(3), at(1))
        );
    }

    #[test]
    fn degraded_is_never_the_state() {
        let mut conditions = Vec::new();
        set(
            &mut conditions,
            Kind::PyTorch,
            (Created, True, "Created"),
            String::new(),
            at(0),
        );
        set_degraded(&mut conditions, Kind::PyTorch, Some("3 of 4".into()), at(0));
        assert_eq!(list(&conditions), "Created");
        set(
            &mut conditions,
            Kind::PyTorch,
            (Running, True, "Running"),
            String::new(),
            at(1),
        );
        set_degraded(&mut conditions, Kind::PyTorch, Some("3 of 4".into()), at(1));
        set_degraded(&mut conditions, Kind::PyTorch, Some("2 of 4".into()), at(2));
        assert_eq!(list(&conditions), "Created,Degraded,Running");
        assert_eq!(
            (
                conditions[1].message.as_str(),
                conditions[1].last_transition_time
            ),
            ("2 of 4", at(1))
        );
        assert!(holds(&conditions, Degraded));
        set_degraded(&mut conditions, Kind::PyTorch, None, at(3));
        assert_eq!(list(&conditions), "Created,Degraded(False),Running");
    }
}
