use serde_json::json;

use super::*;

#[test]
fn names_that_speak_of_secrets() {
    let cases = [
        ("HF_TOKEN", true),
        ("WANDB_API_KEY", true),
        ("AWS_SECRET_ACCESS_KEY", true),
        ("AWS_ACCESS_KEY_ID", true),
        ("DB_PASSWORD", true),
        ("GOOGLE_APPLICATION_CREDENTIALS", true),
        ("--api-key", true),
        ("KEY", true),
        ("TOKENIZERS_PARALLELISM", false),
        ("MAX_TOKENS", false),
        ("tokensPerSecond", false),
        ("secretName", true),
        ("MONKEY", false),
        ("NCCL_DEBUG", false),
        ("PATH", false),
    ];
    for (name, want) in cases {
        assert_eq!(is_secret(name), want, "{name}");
    }
    assert!(is_harmless("NCCL_DEBUG") && is_harmless("RANK"));
    assert!(!is_harmless("NCCL_TOKEN") && !is_harmless("HOME"));
}

#[test]
fn secrets_are_replaced_wherever_they_are() {
    let mut redactor = Redactor::new();
    redactor.learn("HF_TOKEN", "hunter2-hunter2");
    redactor.learn("LONGER_TOKEN", "hunter2-hunter2-and-more");
    redactor.learn("HOME", "/home/ada");
    redactor.learn("PIN_SECRET", "1234");
    let cases = [
        ("login hunter2-hunter2 ok", "login [redacted HF_TOKEN] ok"),
        ("hunter2-hunter2-and-more", "[redacted LONGER_TOKEN]"),
        ("step 1234 in /home/ada", "step 1234 in /home/ada"),
        ("api_key=abcdef123", "api_key=[redacted]"),
        ("password: 'opensesame'", "password: '[redacted]'"),
        (r#"{"token": "abcdef123"}"#, r#"{"token": "[redacted]"}"#),
        (
            "run --token abcdef123 --lr 1",
            "run --token [redacted] --lr 1",
        ),
        (
            "export WANDB_API_KEY=abcdef123",
            "export WANDB_API_KEY=[redacted]",
        ),
        ("max_tokens=4096000", "max_tokens=4096000"),
        ("token throughput: 123456", "token throughput: 123456"),
        (
            "https://ada:opensesame@example.com/x",
            "https[redacted]example.com/x",
        ),
        ("hf_abcdefghijklmnopqrstuv", "[redacted]"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
        ("plain text, loss=0.5", "plain text, loss=0.5"),
    ];
    for (text, want) in cases {
        assert_eq!(redactor.text(text), want);
    }
    assert_eq!(redactor.count, 10);
}

#[test]
fn a_job_is_shown_without_values() {
    let job = json!({
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{all of it}"}},
        "spec": {"containers": [{
            "command": ["train", "--api-key", "abcdef123", "--lr", "0.1", "--token=abcdef123"],
            "env": [
                {"name": "HF_TOKEN", "value": "hunter2-hunter2"},
                {"name": "DATA", "value": "/mnt/data"},
                {"name": "NCCL_DEBUG", "value": "INFO"},
                {"name": "NUMBER", "value": 7},
                {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
        }]},
        "beside": {"kind": "Secret", "data": {"a": "b"}, "stringData": {"c": "d"}},
        "replicas": 2,
        "apiToken": "abcdef", "secretName": "mine", "tokensPerSecond": 123_456,
    });
    let mut redactor = Redactor::new();
    redactor.learn_job(&job);
    assert_eq!(redactor.text("x hunter2-hunter2"), "x [redacted HF_TOKEN]");
    let want = json!({
        "metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "[redacted]"}},
        "spec": {"containers": [{
            "command": ["train", "--api-key", "[redacted]", "--lr", "0.1", "--token=[redacted]"],
            "env": [
                {"name": "HF_TOKEN", "value": "[redacted]"},
                {"name": "DATA", "value": "[redacted]"},
                {"name": "NCCL_DEBUG", "value": "INFO"},
                {"name": "NUMBER", "value": "[redacted]"},
                {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
        }]},
        "beside": {"kind": "Secret", "data": "[redacted]", "stringData": "[redacted]"},
        "replicas": 2,
        "apiToken": "[redacted]", "secretName": "mine", "tokensPerSecond": 123_456,
    });
    assert_eq!(redactor.document(&job), want);
    let names: Vec<&str> = variables(&job).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 5, "{names:?}");
}
