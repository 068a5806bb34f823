use serde_json::{Value, json};

use super::*;

fn status(metrics: &[(&str, &str)]) -> TrainerStatus {
    let metrics = metrics.iter().map(|(name, value)| Metric {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    });
    TrainerStatus {
        metrics: Some(metrics.collect()),
        ..TrainerStatus::default()
    }
}

fn read(metrics: &[(&str, &str)]) -> Reading {
    status(metrics).reading()
}

#[test]
fn callbacks_of_the_hugging_face_trainer_are_read() {
    let cases = [
        ("at the start", read(&[("total_steps", "500")]), None, None),
        (
            "at a step",
            read(&[
                ("loss", "0.4312"),
                ("grad_norm", "1.5"),
                ("learning_rate", "5e-05"),
                ("epoch", "0.1"),
                ("current_step", "50"),
                ("total_steps", "500"),
                ("current_epoch", "0.1"),
            ]),
            Some(50),
            Some(0.4312),
        ),
        (
            "at the end",
            read(&[
                ("loss", "0.2"),
                ("train_runtime", "12.5"),
                ("train_samples_per_second", "80.0"),
                ("train_loss", "0.9"),
            ]),
            None,
            Some(0.2),
        ),
    ];
    for (name, found, step, loss) in cases {
        assert_eq!((found.step, found.loss), (step, loss), "{name}");
        let last = (name != "at the end").then_some(500);
        assert_eq!(found.last_step, last, "{name}");
        assert_eq!(found.samples_per_second, None, "{name}");
    }
}

#[test]
fn pushed_metrics_use_line_reader_names() {
    let step = |step| Reading {
        step,
        ..Reading::default()
    };
    let loss = |loss| Reading {
        loss,
        ..Reading::default()
    };
    let cases: &[(&[(&str, &str)], Reading)] = &[
        (&[("step", "5")], step(Some(5))),
        (&[("global_step", "5")], step(Some(5))),
        (&[("Train/Global_Step", "5.0")], step(Some(5))),
        (&[("step", "5"), ("global_step", "7")], step(Some(7))),
        (&[("global_step", "7"), ("step", "5")], step(Some(7))),
        (&[("step", "5"), ("step", "6")], step(Some(6))),
        (&[("step", "5"), ("step", "x")], step(Some(5))),
        (&[("step", "-1")], step(None)),
        (&[("step", "1.5")], step(None)),
        (&[("step", "nan")], step(None)),
        (&[("step", "1e300")], step(None)),
        (&[("step", "")], step(None)),
        (&[("micro_step", "5"), ("eval_step", "6")], step(None)),
        (&[("epoch_step_of_nothing", "5")], step(None)),
        (&[("step", "5"), ("total_steps", "3")], step(Some(5))),
        (&[("train_loss", "0.5")], loss(Some(0.5))),
        (&[("loss", "0.4"), ("train_loss", "0.5")], loss(Some(0.4))),
        (&[("train_loss", "0.5"), ("loss", "0.4")], loss(Some(0.4))),
        (&[("loss", "-1.5")], loss(Some(-1.5))),
        (&[("loss", "inf")], loss(Some(f64::INFINITY))),
        (&[("eval_loss", "0.5"), ("val/loss", "1")], loss(None)),
        (&[("accuracy", "0.9"), ("anything at all", "1")], loss(None)),
        (
            &[("learning_rate", "nan"), ("epoch", "-1")],
            Reading::default(),
        ),
        (&[("step_time_ms", "250")], {
            Reading {
                step_seconds: Some(0.25),
                ..Reading::default()
            }
        }),
    ];
    for (metrics, want) in cases {
        assert_eq!(read(metrics), *want, "{metrics:?}");
    }
    let nan = read(&[("step", "6"), ("loss", "nan")]);
    assert!(nan.loss.is_some_and(f64::is_nan), "a NaN is a report");
}

#[test]
fn what_the_protocol_does_not_allow_is_refused() {
    let of = |status: Value| json!({ "trainerStatus": status });
    let metric = json!({"name": "loss", "value": "0.5"});
    let long = "x".repeat(65);
    let cases = [
        (json!({}), ""),
        (json!({"trainerStatus": null}), ""),
        (of(json!({})), ""),
        (of(json!({"progressPercentage": 100, "unknown": [1]})), ""),
        (of(json!({"metrics": vec![&metric; 256]})), ""),
        (of(json!({"metrics": null})), ""),
        (
            of(json!({"lastUpdatedTime": "2026-01-31T12:00:00.123456+00:00"})),
            "",
        ),
        (of(json!({"metrics": vec![&metric; 257]})), "metrics` must"),
        (of(json!({"progressPercentage": 101})), "progressPercentage"),
        (of(json!({"progressPercentage": -1})), "progressPercentage"),
        (of(json!({"progressPercentage": 4.5})), "not an update"),
        (
            of(json!({"estimatedRemainingSeconds": -5})),
            "estimatedRemainingSeconds",
        ),
        (
            of(json!({"estimatedRemainingSeconds": 1_u64 << 40})),
            "not an update",
        ),
        (of(json!({"metrics": [{"name": "loss"}]})), "value` must"),
        (of(json!({"metrics": [{"value": "1"}]})), "name` must"),
        (
            of(json!({"metrics": [{"name": long, "value": "1"}]})),
            "name",
        ),
        (
            of(json!({"metrics": [{"name": "a", "value": long}]})),
            "value",
        ),
        (of(json!({"metrics": [{"name": "a", "value": 1}]})), "form"),
        (
            of(json!({"lastUpdatedTime": "yesterday"})),
            "lastUpdatedTime",
        ),
        (json!([]), "form"),
        (json!("x"), "form"),
        (of(json!([5])), "form"),
        (of(json!({"metrics": [["loss", "1"]]})), "form"),
    ];
    for (body, want) in cases {
        let text = body.to_string();
        match update(text.as_bytes()) {
            Ok(_) => assert_eq!(want, "", "{body}"),
            Err(error) => {
                let error = error.to_string();
                assert!(!want.is_empty() && error.contains(want), "{body}: {error}");
            }
        }
    }
    for text in ["", "{", "{\"trainerStatus\": {\"metrics\": [{\"na", "\u{0}"] {
        assert!(update(text.as_bytes()).is_err(), "{text:?}");
    }
    assert!(update(b"\xff\xfe").is_err());
}

#[test]
fn an_update_is_echoed_as_it_was_sent() {
    let sent = json!({"trainerStatus": {"progressPercentage": 42, "estimatedRemainingSeconds": 120,
        "metrics": [{"name": "accuracy", "value": "0.95"}], "lastUpdatedTime": "2026-01-31T12:00:00Z"}});
    let read = update(sent.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), sent);
    assert_eq!(serde_json::to_value(Update::default()).unwrap(), json!({}));
}
