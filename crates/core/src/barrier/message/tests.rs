use super::*;
use crate::{
    barrier::limits::MAX_MEMBERS,
    checkpoint::CompleteStep,
    spec::{Role, Slot},
};

fn slot(index: u32) -> Slot {
    Slot::new(Role::Worker, index)
}

fn envelope<M>(message: M) -> Envelope<M> {
    Envelope {
        job: "3f1c".to_owned(),
        message,
    }
}

#[test]
fn messages_survive_encoding() {
    let how = StopHow::Grace(Duration::from_millis(5_500));
    let commands = [
        Command::Prepare { attempt: 1 },
        Command::Go { attempt: u32::MAX },
        Command::Stop { attempt: 7, how },
    ];
    for command in commands {
        let sent = envelope(LeaderMessage::Command(command));
        assert_eq!(Envelope::decode(&sent.encode().unwrap()).unwrap(), sent);
        let roster: Roster = (0..3)
            .map(|index| (slot(index), format!("u{index}")))
            .collect();
        let sent = envelope(OperatorMessage::Order(Order { command, roster }));
        assert_eq!(Envelope::decode(&sent.encode().unwrap()).unwrap(), sent);
    }
    let exit = ProgramExit {
        code: 0,
        signal: Some(9),
    };
    for state in [MemberState::Ready, MemberState::Ended(exit)] {
        let sent = envelope(Hello {
            uid: "u".to_owned(),
            slot: slot(2),
            attempt: 3,
            state,
        });
        assert_eq!(Envelope::decode(&sent.encode().unwrap()).unwrap(), sent);
    }
    let sent = envelope(Summary {
        fence: Some(Fence::new(4, Stage::Stop)),
        roster: u64::MAX,
        groups: vec![Group {
            attempt: 4,
            state: StateName::Stopped,
            slots: [0, 1, 2, 9].into_iter().map(slot).collect(),
        }],
        ended: vec![EndedMember {
            slot: slot(1),
            uid: "u".to_owned(),
            attempt: 4,
            exit,
        }],
        hang: Some(HangReport {
            attempt: 4,
            slot: slot(2),
            rank: None,
            label: "hang_all_alike".to_owned(),
            sentence: "No rank trains".to_owned(),
        }),
        store: Some(StoreReport {
            attempt: 4,
            seen: Some(Box::default()),
            why: String::new(),
        }),
    });
    assert_eq!(Envelope::decode(&sent.encode().unwrap()).unwrap(), sent);
}

#[test]
fn report_about_a_store_is_bounded() {
    let save = CompleteStep {
        step: u64::MAX,
        attempt: u32::MAX,
        bytes: u64::MAX,
        snapshot_ms: Some(u64::MAX),
        write_ms: Some(u64::MAX),
        saved_at: None,
    };
    let report = |saves: usize, why: usize| {
        let summary = Summary {
            store: Some(StoreReport {
                attempt: 1,
                seen: Some(Box::new(StoreSeen {
                    saves: vec![save.clone(); saves],
                    why: Some("x".repeat(why)),
                    ..StoreSeen::empty()
                })),
                why: "y".repeat(why),
            }),
            ..Summary::default()
        };
        Envelope::<Summary>::decode(&serde_json::to_vec(&envelope(summary)).unwrap()).is_ok()
    };
    assert!(report(MAX_SAVES, MAX_SENTENCE));
    assert!(!report(MAX_SAVES + 1, 0));
    assert!(!report(0, MAX_SENTENCE + 1));
}

#[test]
fn order_for_the_largest_gang_fits() {
    let pod = |index| {
        (
            slot(index),
            "a8098c1a-f86e-11da-bd1a-00112444be1e".to_owned(),
        )
    };
    let roster: Roster = (0..MAX_MEMBERS).map(pod).collect();
    let command = Command::Go { attempt: u32::MAX };
    let sent = envelope(OperatorMessage::Order(Order { command, roster }));
    let bytes = sent.encode().unwrap();
    assert!(bytes.len() <= MAX_MESSAGE, "{} bytes", bytes.len());
    assert_eq!(Envelope::decode(&bytes).unwrap(), sent);
}

#[test]
fn what_is_too_large_is_refused() {
    let summary = |message: &str| format!(r#"{{"job":"j","message":{message}}}"#);
    let groups = r#"{"attempt":1,"state":"ready","slots":{}},"#.repeat(65);
    let groups = groups.trim_end_matches(',');
    let long = "u".repeat(MAX_TEXT + 1);
    let huge = r#"[{"attempt":1,"state":"ready","slots":{"Worker":[[0,4000000000]]}}]"#;
    let cases = [
        (
            summary(&format!(r#"{{"roster":1,"groups":[{groups}],"ended":[]}}"#)),
            "groups",
        ),
        (
            summary(&format!(r#"{{"roster":1,"groups":{huge},"ended":[]}}"#)),
            "4000000001 slots",
        ),
        (
            format!(r#"{{"job":"{long}","message":{{"roster":1,"groups":[],"ended":[]}}}}"#),
            "the job uid",
        ),
        (" ".repeat(MAX_MESSAGE + 1), "larger than"),
        ("{}".to_owned(), "missing field"),
        (String::new(), "EOF"),
    ];
    for (bytes, want) in cases {
        let error = Envelope::<Summary>::decode(bytes.as_bytes()).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let words = format!("{error}: {}", source.unwrap_or_default());
        assert!(words.contains(want), "{words}");
    }
    let hello = format!(
        r#"{{"job":"j","message":{{"uid":"{long}","slot":{{"role":"Worker","index":0}},"attempt":1,"state":"ready"}}}}"#
    );
    let error = Envelope::<Hello>::decode(hello.as_bytes()).unwrap_err();
    assert!(error.to_string().contains("the pod uid"), "{error}");
    let order = format!(
        r#"{{"job":"j","message":{{"order":{{"command":{{"go":{{"attempt":1}}}},"roster":{{"Worker":{{"0":"{long}"}}}}}}}}}}"#
    );
    assert!(Envelope::<OperatorMessage>::decode(order.as_bytes()).is_err());
}

#[test]
fn fences_grow_through_attempts() {
    let order = [
        Fence::new(1, Stage::Prepare),
        Fence::new(1, Stage::Go),
        Fence::new(1, Stage::Stop),
        Fence::new(2, Stage::Prepare),
    ];
    assert!(order.is_sorted_by(|one, next| one < next));
}
