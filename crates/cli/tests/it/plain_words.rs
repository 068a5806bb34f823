//! What goes wrong below us is said in sentences: no text of a library reaches the user.

use crate::call::{Call, Outcome};

/// Pieces of texts that only the authors of libraries understand.
const RAW: [&str; 16] = [
    "os error",
    "failed to infer config",
    "failed to read kubeconfig",
    "failed to parse",
    "failed to load",
    "failed to determine",
    "incluster",
    "error trying to connect",
    "client error (Connect)",
    "ServiceError",
    "HyperError",
    "auth error",
    "missing field",
    "invalid type",
    "did not match any variant",
    "invalid digit",
];

fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
         current-context: c\n"
    )
}

/// Every command that talks to a cluster.
const CLUSTER: [&[&str]; 11] = [
    &["ps", "--cluster"],
    &["status", "x", "--cluster"],
    &["logs", "x", "--cluster"],
    &["explain", "x", "--cluster"],
    &["suspend", "x", "--cluster"],
    &["delete", "x", "--cluster"],
    &["nodes"],
    &["place", "job.yaml"],
    &["lint", "job.yaml", "--cluster"],
    &["preflight", "--cluster"],
    &["operator", "--no-leader-elect"],
];

const JOB: &str = "apiVersion: kubeflow.org/v1\nkind: JAXJob\nmetadata: {name: j}\nspec:\n  jaxReplicaSpecs:\n    \
     Worker:\n      template: {spec: {containers: [{name: jax, image: 'i:1', command: ['true']}]}}\n";

/// Calls with a home that is empty and no cluster around it.
fn call(words: &[&str], variable: &'static str, content: &str) -> Outcome {
    Call::new(words)
        .file("job.yaml", JOB)
        .file("kubeconfig", content)
        .variable("HOME", "/nonexistent")
        .variable("KUBECONFIG", variable)
        .run()
}

fn must_be_a_sentence(case: &str, outcome: &Outcome, want: &str) {
    assert_eq!(outcome.code, Some(2), "{case}: {outcome:?}");
    let said = &outcome.stderr;
    assert!(said.contains(want), "{case}: {want:?} in {said}");
    assert!(
        said.contains("\n\nhint: "),
        "{case} says what to do: {said}"
    );
    for raw in RAW {
        assert!(!said.contains(raw), "{case} says {raw:?}: {said}");
    }
}

#[test]
fn no_cluster_is_configured() {
    for words in CLUSTER {
        let outcome = call(words, "", "");
        let want = "no cluster configured: `KUBECONFIG` is not set, there is no `/nonexistent/.kube/config`";
        must_be_a_sentence(&words.join(" "), &outcome, want);
    }
}

#[test]
fn kubeconfigs_that_cannot_be_used() {
    let refused = kubeconfig("server: 'http://127.0.0.1:1'", "");
    let plugin = "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-helper, interactiveMode: Never}";
    let helper = kubeconfig("server: 'http://127.0.0.1:1'", plugin);
    let authority = kubeconfig(
        "server: 'https://127.0.0.1:1', certificate-authority: /nonexistent/ca.crt",
        "",
    );
    let no_server = kubeconfig("", "");
    let cases: [(&str, &str, &str); 9] = [
        (
            "missing",
            "none",
            "cannot read the kubeconfig `none`: there is no such file",
        ),
        (
            "a folder",
            "/",
            "cannot read the kubeconfig `/`: it is a folder",
        ),
        ("empty", "", "the kubeconfig has no `current-context`"),
        (
            "no YAML",
            "a: [",
            "the kubeconfig is not YAML of the right form: ",
        ),
        (
            "text",
            "just text",
            "the kubeconfig is not YAML of the right form: ",
        ),
        (
            "no server",
            &no_server,
            "the cluster in the kubeconfig has no `server`",
        ),
        (
            "no authority",
            &authority,
            "cannot read `/nonexistent/ca.crt`, which the kubeconfig names as `certificate-authority`: there is no such file",
        ),
        (
            "no helper",
            &helper,
            "cannot start the credentials program of the kubeconfig (`exec`)",
        ),
        (
            "nobody listens",
            &refused,
            "cannot list pytorchjobs: the API server `http://127.0.0.1:1` is not reachable: connection refused",
        ),
    ];
    for (name, content, want) in cases {
        let variable = match name {
            "missing" => "none",
            "a folder" => "/",
            _ => "kubeconfig",
        };
        must_be_a_sentence(name, &call(&["ps", "--cluster"], variable, content), want);
    }
    let binary = Call::new(&["ps", "--cluster"])
        .file("kubeconfig", b"\x7fELF\xff\xfe\x00")
        .variable("KUBECONFIG", "kubeconfig")
        .run();
    must_be_a_sentence(
        "binary",
        &binary,
        "cannot read the kubeconfig `kubeconfig`: it is not text",
    );
}

#[test]
fn every_command_says_that_nobody_listens() {
    let refused = kubeconfig("server: 'http://127.0.0.1:1'", "");
    // The operator waits for its cluster instead.
    let commands = CLUSTER.iter().filter(|words| words[0] != "operator");
    for words in commands {
        let outcome = call(words, "kubeconfig", &refused);
        let want = "the API server `http://127.0.0.1:1` is not reachable: connection refused";
        must_be_a_sentence(&words.join(" "), &outcome, want);
    }
}

#[test]
fn files_that_cannot_be_written() {
    let plain = |words: &[&str]| Call::new(words).file("text", "mine\n").run();
    let cases: [(&[&str], &str); 3] = [
        (
            &["new", "jax", "-o", "none/x.yaml"],
            "folder `none` does not exist",
        ),
        (
            &["new", "jax", "-o", "text/x.yaml"],
            "a part of the path is not a folder",
        ),
        (&["new", "jax", "-o", ".", "--force"], "it is a folder"),
    ];
    for (words, want) in cases {
        let outcome = plain(words);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        let said = &outcome.stderr;
        assert!(said.contains(want), "{words:?}: {said}");
        assert!(!said.contains("os error"), "{words:?}: {said}");
    }
}

#[test]
fn numbers_that_are_none() {
    let cases = [
        ("x", "not a whole number"),
        ("", "not a whole number"),
        ("99999999999999999999999", "the number is too large"),
    ];
    for (number, want) in cases {
        let outcome = Call::new(&["simulate", "--gpus", number]).run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains(want), "{}", outcome.stderr);
    }
}

/// Supervisors need a certificate and an image, which is said before a cluster is asked.
#[test]
fn gang_bind_names_what_it_needs() {
    let cases: [(&[&str], &str); 2] = [
        (
            &["operator", "--gang-bind=:0", "--agent-image=i:1"],
            "`--gang-bind` needs the webhook certificate, and the webhooks are disabled",
        ),
        (
            &["operator", "--gang-bind=:0", "--webhook-bind=:0"],
            "`--gang-bind` needs an image with the supervisor, and `--agent-image` is not set",
        ),
    ];
    for (words, want) in cases {
        must_be_a_sentence(&words.join(" "), &call(words, "", ""), want);
    }
}
