//! Every kind of bad input: one clear answer with its position, within the limits.

use crate::{call::Call, golden};

/// A valid job whose `spec` is replaced by `spec`.
fn job(spec: &str) -> String {
    format!("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: bad\nspec:\n{spec}")
}

/// A role with `replicas` as written.
fn role(name: &str, replicas: &str) -> String {
    format!(
        "    {name}:\n      replicas: {replicas}\n      template:\n        spec:\n          \
         containers:\n            - name: pytorch\n              image: example.com/train:1\n"
    )
}

fn with_replicas(replicas: &str) -> String {
    job(&format!(
        "  pytorchReplicaSpecs:\n{}{}",
        role("Master", "1"),
        role("Worker", replicas)
    ))
}

/// Ten levels of ten aliases each: ten thousand million values once expanded.
fn alias_bomb() -> String {
    let first = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    let rest = (1..10).map(|level| {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        format!("a{level}: &a{level} [{below}]\n")
    });
    std::iter::once(first).chain(rest).collect()
}

fn cases() -> Vec<(&'static str, Vec<u8>)> {
    let good = with_replicas("2");
    let mut large = good.clone().into_bytes();
    while large.len() < 50_000_000 {
        large.extend_from_slice(
            b"# nothing but a comment that makes the file longer than it should be\n",
        );
    }
    let mut deep = job("  nested: ").into_bytes();
    deep.extend(vec![b'['; 20_000]);
    let mut invalid_utf8 = good.clone().into_bytes();
    invalid_utf8.extend_from_slice(b"# caf\xe9\n");
    vec![
        ("empty", Vec::new()),
        ("only-comments", b"# nothing here\n---\n".to_vec()),
        (
            "binary",
            b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00".to_vec(),
        ),
        ("large", large),
        ("alias-bomb", alias_bomb().into_bytes()),
        ("no-roles", job("  pytorchReplicaSpecs: {}\n").into_bytes()),
        (
            "no-spec",
            b"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: bad}\n".to_vec(),
        ),
        ("negative-replicas", with_replicas("-1").into_bytes()),
        ("huge-replicas", with_replicas("2147483648").into_bytes()),
        (
            "duplicate-key",
            with_replicas("2\n      replicas: 3").into_bytes(),
        ),
        ("duplicate-job", format!("{good}---\n{good}").into_bytes()),
        ("deep-nesting", deep),
        ("invalid-utf8", invalid_utf8),
        (
            "list-of-jobs",
            format!(
                "apiVersion: v1\nkind: List\nitems:\n  - {}",
                with_replicas("-1").trim_end().replace('\n', "\n    ")
            )
            .into_bytes(),
        ),
        (
            "another-kind",
            b"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n".to_vec(),
        ),
        ("not-a-map", b"- just\n- a list\n".to_vec()),
        (
            "broken-yaml",
            b"apiVersion: kubeflow.org/v1\nkind: [PyTorchJob\n".to_vec(),
        ),
        (
            "broken-json",
            b"{\"apiVersion\": \"kubeflow.org/v1\",, }\n".to_vec(),
        ),
        (
            "tabs",
            b"apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n\tname: bad\n".to_vec(),
        ),
        (
            "escape-sequences",
            job("  \"\\e[31mred\": 1\n").into_bytes(),
        ),
    ]
}

#[test]
fn every_bad_input_is_refused_with_a_sentence() {
    for (name, content) in cases() {
        let file = format!("{name}.yaml");
        let lint = Call::new(&["lint", &file]).file(&file, &content).run();
        let render = Call::new(&["render", &file]).file(&file, &content).run();
        assert!(matches!(lint.code, Some(1 | 2)), "lint of {name}: {lint:?}");
        assert_eq!(render.code, Some(2), "render of {name}: {render:?}");
        assert_eq!(
            render.stdout, "",
            "render of {name} prints nothing on stdout"
        );
        for outcome in [&lint, &render] {
            let said = format!("{}{}", outcome.stdout, outcome.stderr);
            assert!(said.contains("error[TY"), "{name} names its rule: {said}");
            assert!(
                said.contains(&format!("{file}:")),
                "{name} names its place: {said}"
            );
            assert!(
                !said.contains('\u{1b}'),
                "{name} lets no escape sequence through: {said:?}"
            );
        }
        golden::check(&format!("bad-{name}"), &[lint, render]);
    }
}

#[test]
fn files_that_cannot_be_opened() {
    let call = |words: &[&str]| Call::new(words).run();
    golden::check(
        "bad-path",
        &[
            call(&["lint", "missing.yaml"]),
            call(&["render", "missing.yaml"]),
            call(&["lint", "."]),
            call(&["render", "."]),
            call(&["render", "-"]),
        ],
    );
}

#[test]
fn endless_file_read_up_to_limit() {
    let outcome = Call::new(&["render", "/dev/zero"]).run();
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
}

#[test]
fn files_at_the_limits_are_answered_within_the_limits() {
    let around = |annotations: &str, roles: &str, volumes: &str| {
        format!(
            "{{\"apiVersion\": \"kubeflow.org/v1\", \"kind\": \"JAXJob\", \"metadata\": {{\"name\": \"j\", \
             \"annotations\": {{{annotations}}}}}, \"spec\": {{\"jaxReplicaSpecs\": {{{roles}\"Worker\": \
             {{\"template\": {{\"spec\": {{\"containers\": [{{\"name\": \"jax\", \"image\": \"i\"}}], \
             \"volumes\": [{volumes}]}}}}}}}}}}}}"
        )
    };
    let keys = |prefix: &str, value: &str, count: u32| -> Vec<String> {
        (0..count)
            .map(|at| format!("\"{prefix}{at}\": {value}"))
            .collect()
    };
    let cases = [
        (
            "as many values as a file may have",
            around("", &format!("{},", keys("k", "{}", 120_000).join(",")), ""),
        ),
        (
            "as many roles as a job may have",
            around("", &format!("{},", keys("k", "{}", 19_900).join(",")), ""),
        ),
        (
            "as many annotations",
            around(&keys("trainyard.dev/k", "\"1\"", 19_900).join(","), "", ""),
        ),
        (
            "as many volumes",
            around("", "", &vec!["{}"; 19_900].join(",")),
        ),
        (
            "one long line of errors",
            around("", "", &vec!["{\"nme\": 7}"; 9_000].join(",")),
        ),
    ];
    for (name, text) in cases {
        for words in [
            ["lint", "-", "--format=text"],
            ["lint", "-", "--format=json"],
            ["render", "-", "-q"],
        ] {
            let outcome = Call::new(&words).stdin(text.clone()).run();
            assert!(
                matches!(outcome.code, Some(0..=2)),
                "{name}, {words:?}: {:?} {}",
                outcome.code,
                outcome.stderr
            );
        }
    }
}
