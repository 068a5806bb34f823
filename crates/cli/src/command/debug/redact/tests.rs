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
        ("wandb_key", true),
        ("sshKey", true),
        ("ssh-key", true),
        ("key", false),
        ("topologyKey", false),
        ("KEYBOARD", false),
        ("TOKENIZER_API_KEY", true),
        ("MAX_TOKENS_SECRET", true),
        ("AUTHOR", false),
        ("GIT_AUTHOR_NAME", false),
        ("CERTIFICATE_AUTHORITY", false),
        ("AUTHORIZATION", true),
        ("HTTP_AUTH", true),
        ("AUTHOR_TOKEN", true),
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

/// A word before an assignment does not hide it.
#[test]
fn a_name_beside_another_hides_nothing() {
    let cases = [
        (
            "credentials password=opensesame",
            "credentials password=[redacted]",
        ),
        ("token HF_TOKEN=abcdef123", "token HF_TOKEN=[redacted]"),
        ("tokenizer secret=abcdef1", "tokenizer secret=[redacted]"),
        ("tokenizer: secret=abcdef1", "tokenizer: secret=[redacted]"),
        (
            "max_tokens=409600 password=opensesame",
            "max_tokens=409600 password=[redacted]",
        ),
        ("token: bearer abc123xyz", "token: [redacted]"),
        ("wandb_key=abcdef123", "wandb_key=[redacted]"),
        ("sshKey: abcdef123", "sshKey: [redacted]"),
        ("author: Ada Lovelace", "author: Ada Lovelace"),
        ("multi-token prediction", "multi-token prediction"),
        ("run\n--token abcdef123", "run\n--token [redacted]"),
        ("monkey=abcdef123", "monkey=abcdef123"),
    ];
    for (text, want) in cases {
        assert_eq!(Redactor::new().text(text), want);
    }
}

#[test]
fn headers_hold_no_secret() {
    let cases = [
        ("Authorization: Bearer xyz", "Authorization: [redacted]"),
        (
            "curl -H 'authorization: Basic YWRhOnB3' -v",
            "curl -H 'authorization: [redacted]' -v",
        ),
        (
            r#"{"Authorization": "Bearer xyz", "n": 1}"#,
            r#"{"Authorization": "[redacted]", "n": 1}"#,
        ),
        (
            "Set-Cookie: id=1; csrf=2\nnext",
            "Set-Cookie: [redacted]\nnext",
        ),
        ("sent Bearer abcdefghij0123456789", "sent Bearer [redacted]"),
        (
            "bearer authentication failed",
            "bearer authentication failed",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(Redactor::new().text(text), want);
    }
}

/// Of a private key nothing stays, also where one of its ends lies outside of what is kept.
#[test]
fn private_keys_are_replaced_as_a_whole() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7";
    let (begin, end) = (
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END RSA PRIVATE KEY-----",
    );
    let cases = [
        format!("a\n{begin}\n{line}\n{line}\nAb12==\n{end}\nb"),
        format!("a\n{begin}\nProc-Type: 4,ENCRYPTED\n\n{line}\n{end}\nb"),
        format!("a\n[rank0] {begin}\n[rank0] {line}\n[rank0] {end}\nb"),
        format!("a\nkey: \"{begin}\\n{line}\\n{line}\\n{end}\"\nb"),
        format!("a\n{begin}\n{line}\n{line}\nb"),
        format!("a\n{line}\n{line}\nAb12==\n{end}\nb"),
    ];
    for text in cases {
        let shown = Redactor::new().text(&text);
        assert!(
            !shown.contains("MIIE") && !shown.contains("Ab12"),
            "{shown}"
        );
        assert!(
            shown.starts_with("a\n") && shown.ends_with("\nb"),
            "{shown}"
        );
        assert!(shown.contains(REDACTED), "{shown}");
    }
}

/// A secret at the place where a value is cut is replaced as a whole.
#[test]
fn values_are_cut_after_they_are_redacted() {
    let mut redactor = Redactor::new();
    redactor.learn("HF_TOKEN", "hunter2-hunter2");
    let long = format!("{}hunter2-hunter2", "x".repeat(VALUE_CHARS - 4));
    let shown = redactor.value("NCCL_X", &long).unwrap();
    assert!(!shown.contains("hunt"), "{shown}");
    assert_eq!(shown.chars().count(), VALUE_CHARS);
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

/// Each `key=` may be the name of a value that reaches to the end of the text.
#[test]
fn texts_that_take_too_long_are_left_out() {
    let hostile = "key=".repeat(6 << 10);
    let honest = format!("step 1\n{}API_KEY=hunter2hunter2\n", "x ".repeat(LONG));
    let mut redactor = Redactor::new();
    let shown = redactor.text(&honest);
    assert!(shown.ends_with("API_KEY=[redacted]\n") && redactor.count == 1);
    redactor.within = Duration::ZERO;
    for _ in 0..LATE_MAX {
        let shown = redactor.text(&hostile);
        assert_eq!(
            shown,
            "[left out: 24576 bytes that take too long to redact]"
        );
    }
    redactor.within = WITHIN;
    let shown = redactor.text(&honest);
    assert!(shown.starts_with("[left out: "), "it was late too often");
    let shown = redactor.text("API_KEY=hunter2hunter2");
    assert_eq!(shown, "API_KEY=[redacted]", "short texts are redacted");
}
