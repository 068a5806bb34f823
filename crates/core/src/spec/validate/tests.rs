//! One manifest that each rule catches, and one near miss.

use std::{collections::BTreeSet, fmt::Write};

use crate::{
    finding::Severity,
    lint,
    spec::{
        Checked, CleanPodPolicy, Compat, Framework, Kind, LauncherCreation, Limit, OnNan,
        RestartIn, RestartPolicy, RestartScope, Role, Supervise, TfSuccess, WatchMode, check, read,
    },
};

/// A small valid job of `kind`.
fn manifest(kind: Kind) -> String {
    let mut text = format!(
        "apiVersion: {}\nkind: {}\nmetadata:\n  name: j\nspec:\n  {}:\n",
        kind.api_version(),
        kind.name(),
        kind.replica_map()
    );
    let roles: &[Role] = match kind {
        Kind::Tf => &[Role::Chief, Role::Worker],
        _ => kind.roles(),
    };
    for role in roles {
        write!(
            text,
            "    {role}:\n      replicas: 1\n      template:\n        spec:\n          containers:\n          - name: {}\n            image: registry/{role}\n",
            kind.container()
        )
        .expect("writing to a String cannot fail");
    }
    text
}

/// The manifest of `kind` after each edit, which must change it.
fn edited(kind: Kind, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(manifest(kind), |text, (from, to)| {
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{from:?} is not in the manifest");
        changed
    })
}

fn checked(text: &str) -> Checked {
    let file = read(text.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{text}"));
    check(&file.documents[0])
}

/// The findings as `code line:column path`.
fn found(checked: &Checked) -> Vec<String> {
    let line = |finding: &crate::finding::Finding| {
        let span = finding.span;
        format!(
            "{} {}:{} {}",
            finding.code, span.line, span.column, finding.path
        )
    };
    checked.findings.iter().map(line).collect()
}

mod cases;

use cases::CASES;

type Case<'a> = (&'a str, Kind, &'a [(&'a str, &'a str)], &'a [&'a str]);

const SPEC: &str = "spec:\n  ";

#[test]
fn each_rule_catches_and_spares() {
    let mut wrong = Vec::new();
    for (name, kind, edits, want) in CASES {
        let text = edited(*kind, edits);
        let checked = checked(&text);
        if found(&checked) != *want {
            wrong.push(format!(
                "{name}: found {:?}, want {want:?}\n{text}",
                found(&checked)
            ));
        }
        let failed = checked
            .findings
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        assert_eq!(checked.job.is_none(), failed, "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_of_one_document_has_a_case() {
    let covered: BTreeSet<&str> = CASES
        .iter()
        .flat_map(|(_, _, _, want)| want.iter().filter_map(|line| line.split(' ').next()))
        .collect();
    // Those of files, of other kinds, of changes and of too many findings have tests of their own, and so do TrainJobs.
    let elsewhere = [
        "TY101", "TY102", "TY103", "TY140", "TY142", "TY145", "TY147", "TY149", "TY175", "TY176",
        "TY177", "TY178", "TY179",
    ];
    for rule in lint::rules() {
        let shape =
            rule.is_contract() && rule.code.starts_with("TY1") && !elsewhere.contains(&rule.code);
        assert!(
            !shape || covered.contains(rule.code),
            "{} has no case",
            rule.code
        );
    }
}

#[test]
fn every_kind_is_valid_and_defaulted() {
    for kind in Kind::ALL {
        let checked = checked(&manifest(kind));
        assert_eq!(found(&checked), Vec::<String>::new(), "{kind:?}");
        let job = checked.job.unwrap();
        assert_eq!(job.kind, kind);
        assert_eq!(job.namespace.as_str(), "default");
        assert_eq!(job.run_policy, crate::spec::RunPolicy::default());
        for (role, spec) in &job.roles {
            assert_eq!(spec.replicas, 1);
            assert_eq!(spec.restart_policy, kind.default_restart_policy(*role));
            assert_eq!(
                job.rendezvous_port(*role),
                kind.port().map(|(_, number)| number)
            );
            let container = &spec.template.spec.as_ref().unwrap().containers[0];
            let announced = container
                .ports
                .as_ref()
                .map(|ports| (ports[0].name.as_deref().unwrap(), ports[0].container_port));
            assert_eq!(announced, kind.port(), "{kind:?}");
        }
    }
}

type Sentence<'a> = (Kind, &'a [(&'a str, &'a str)], &'a str, Option<&'a str>);

#[test]
fn sentences_have_the_numbers_in_them() {
    let long = "a".repeat(58);
    let cases: &[Sentence<'_>] = &[
        (
            Kind::Jax,
            &[
                ("name: j", &format!("name: {long}")),
                ("replicas: 1", "replicas: 1024"),
            ],
            &format!(
                "the last pod would be named `{long}-worker-1023`: 58 characters of the job and 12 of `-worker-1023` make 70, at most 63 are allowed"
            ),
            Some("shorten the name to at most 51 characters"),
        ),
        (
            Kind::Tf,
            &[("replicas: 1", "replicas: 2147483648")],
            "`replicas` of Chief must be from 0 to 100000, found 2147483648",
            None,
        ),
        (
            Kind::Tf,
            &[
                ("replicas: 1", "replicas: 60000"),
                ("replicas: 1", "replicas: 60000"),
            ],
            "the roles together want 120000 pods (Chief 60000, Worker 60000), at most 100000 are allowed",
            None,
        ),
        (
            Kind::PyTorch,
            &[("Worker:", "Wroker:")],
            "a PyTorchJob has no role `Wroker`, only `Master` or `Worker`",
            Some("did you mean `Worker`?"),
        ),
        (
            Kind::PyTorch,
            &[("replicas: 1", "replicas: 1\n      restartPolicy: onFailure")],
            "`restartPolicy` must be `Always`, `OnFailure`, `Never` or `ExitCode`, found `onFailure`",
            Some("did you mean `OnFailure`?"),
        ),
        (
            Kind::PyTorch,
            &[(SPEC, "spec:\n  nprocPerNode: 4\n  ")],
            "`nprocPerNode` must be a string, found the number `4`",
            Some("quote it to make it a string: `\"4\"`"),
        ),
        (
            Kind::Jax,
            &[(SPEC, "spec:\n  backoffLimit: 3\n  ")],
            "`spec` has no field `backoffLimit`, it is ignored",
            Some("`backoffLimit` belongs in `spec.runPolicy`"),
        ),
        (
            Kind::Jax,
            &[("name: j", "name: 1_a")],
            "invalid job name `1_a`: character `1` at position 1 is not allowed: a name starts with a lower-case letter",
            Some("use a name such as `job-1-a`"),
        ),
    ];
    for (kind, edits, message, hint) in cases {
        let checked = checked(&edited(*kind, edits));
        let finding = &checked.findings[0];
        assert_eq!(finding.message, *message);
        assert_eq!(finding.hint.as_deref(), *hint, "{message}");
    }
}

#[test]
fn elastic_bounds_defaults() {
    let cases = [
        ("{}", (3, 3)),
        ("{minReplicas: 2}", (2, 2)),
        ("{maxReplicas: 4}", (4, 4)),
        ("{minReplicas: 1, maxReplicas: 5}", (1, 5)),
    ];
    for (policy, want) in cases {
        let text = edited(
            Kind::PyTorch,
            &[
                (SPEC, &format!("spec:\n  elasticPolicy: {policy}\n  ")),
                ("Worker:\n      replicas: 1", "Worker:\n      replicas: 3"),
            ],
        );
        let job = checked(&text).job.unwrap();
        let elastic = job.elastic().unwrap();
        assert_eq!(
            (elastic.min_replicas, elastic.max_replicas),
            want,
            "{policy}"
        );
        assert_eq!(elastic.rdzv_backend, "c10d");
    }
}

#[test]
fn nproc_per_node_defaults_to_auto() {
    let nproc = |spec: &str| {
        let text = edited(Kind::PyTorch, &[(SPEC, &format!("spec:\n  {spec}\n  "))]);
        match checked(&text).job.unwrap().framework {
            Framework::PyTorch(pytorch) => pytorch.nproc_per_node,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(nproc("runPolicy: {}").as_deref(), Some("auto"));
    assert_eq!(nproc("nprocPerNode: gpu").as_deref(), Some("gpu"));
    assert_eq!(nproc("elasticPolicy: {nProcPerNode: 2}"), None);
}

#[test]
fn fields_of_the_kinds_arrive() {
    let text = edited(
        Kind::Tf,
        &[(
            SPEC,
            "spec:\n  successPolicy: AllWorkers\n  enableDynamicWorker: true\n  ",
        )],
    );
    let Framework::Tf(tf) = checked(&text).job.unwrap().framework else {
        panic!("not a TFJob")
    };
    assert_eq!(
        (tf.success, tf.dynamic_worker),
        (TfSuccess::AllWorkers, true)
    );

    let text = edited(
        Kind::MpiV2,
        &[(
            SPEC,
            "spec:\n  slotsPerWorker: 8\n  runLauncherAsWorker: true\n  launcherCreationPolicy: Later\n  ",
        )],
    );
    let Framework::MpiV2(mpi) = checked(&text).job.unwrap().framework else {
        panic!("not an MPIJob")
    };
    assert_eq!(
        (mpi.slots_per_worker, mpi.run_launcher_as_worker),
        (8, true)
    );
    assert_eq!(mpi.ssh_auth_mount_path, "/root/.ssh");
    assert_eq!(mpi.launcher_creation, LauncherCreation::WaitForWorkersReady);

    let text = edited(
        Kind::MpiV1,
        &[(
            SPEC,
            "spec:\n  cleanPodPolicy: All\n  runPolicy: {cleanPodPolicy: Running, suspend: true}\n  ",
        )],
    );
    let job = checked(&text).job.unwrap();
    assert_eq!(
        job.run_policy.clean_pod_policy,
        Some(CleanPodPolicy::Running)
    );
    assert!(job.run_policy.suspend);
    let text = edited(Kind::MpiV1, &[(SPEC, "spec:\n  cleanPodPolicy: All\n  ")]);
    let job = checked(&text).job.unwrap();
    assert_eq!(job.run_policy.clean_pod_policy, Some(CleanPodPolicy::All));
    assert_eq!(
        job.roles[&Role::Launcher].restart_policy,
        RestartPolicy::Never
    );
}

#[test]
fn annotations_are_read() {
    let annotated = |key: &str, value: &str| {
        let edit = format!("name: j\n  annotations:\n    trainyard.dev/{key}: \"{value}\"");
        checked(&edited(Kind::Jax, &[("name: j", &edit)]))
    };
    let seconds = [
        ("90s", 90),
        ("10m", 600),
        ("2h", 7_200),
        ("1h30m", 5_400),
        ("1d", 86_400),
    ];
    for (text, want) in seconds {
        let settings = annotated("lost-after", text).job.unwrap().settings;
        assert_eq!(settings.lost_after.as_secs(), want, "{text}");
    }
    for text in [
        "",
        "90",
        "s",
        "1.5h",
        "-1s",
        "0s",
        "1w",
        "99999999999999999999s",
        "4000d",
        "1 h",
    ] {
        let checked = annotated("hang-after", text);
        assert_eq!(checked.findings.len(), 1, "{text}");
        assert_eq!(checked.findings[0].code, "TY138", "{text}");
    }
    for (text, want) in [
        ("/checkpoints/run1", "/checkpoints/run1"),
        (" /checkpoints/ ", "/checkpoints"),
        ("/with space/ö", "/with space/ö"),
    ] {
        let settings = annotated("checkpoints", text).job.unwrap().settings;
        assert_eq!(settings.checkpoints.as_deref(), Some(want), "{text}");
    }
    let long = format!("/{}", "x".repeat(1_024));
    for text in [
        "", "/", "relative", "/a/../b", "/a/./b", "/a//b", "/..", "/$(HOME)", "s3://b/c", &long,
    ] {
        let checked = annotated("checkpoints", text);
        assert_eq!(checked.findings.len(), 1, "{text}");
        assert_eq!(checked.findings[0].code, "TY138", "{text}");
    }
    for (key, bad) in [
        ("watch", "acts"),
        ("watch", ""),
        ("hang-floor", "0s"),
        ("first-step-within", "soon"),
        ("on-nan", "ignore"),
        ("restart-in", "here"),
        ("supervise", "on"),
        ("stop-grace", "0s"),
        ("stop-grace", "26s"),
        ("hold-on-failure", "0s"),
        ("hold-on-failure", "25h"),
        ("hold-on-failure", "long"),
        ("no-progress", "never"),
        ("no-progress", "-1"),
        ("no-progress", "1001"),
    ] {
        let checked = annotated(key, bad);
        assert_eq!(checked.findings.len(), 1, "{key}: {bad}");
        assert_eq!(checked.findings[0].code, "TY138", "{key}: {bad}");
    }
    let settings = |key: &str, value: &str| annotated(key, value).job.unwrap().settings;
    assert_eq!(settings("watch", "report").watch, WatchMode::Report);
    assert_eq!(settings("hang-floor", "2s").hang_floor.as_secs(), 2);
    let within = settings("first-step-within", "1h").first_step_within;
    assert_eq!(within.as_secs(), 3_600);
    assert_eq!(settings("on-nan", "stop").on_nan, OnNan::Stop);
    assert_eq!(settings("restart-in", "pods").restart_in, RestartIn::Pods);
    assert_eq!(settings("supervise", "off").supervise, Supervise::Off);
    assert_eq!(settings("stop-grace", "25s").stop_grace.as_secs(), 25);
    let hold = settings("hold-on-failure", "24h").hold_on_failure;
    assert_eq!(hold.map(|hold| hold.as_secs()), Some(86_400));
    assert_eq!(settings("stop-grace", "25s").hold_on_failure, None);
    assert_eq!(settings("no-progress", " 5 ").no_progress, Some(5));
    assert_eq!(settings("no-progress", "0").no_progress, Some(0));
    assert_eq!(settings("on-nan", "stop").no_progress, None);
    let settings = annotated("restart", " now ").job.unwrap().settings;
    assert_eq!(settings.restart.as_deref(), Some("now"));
    for text in ["", &"x".repeat(65)] {
        assert_eq!(annotated("restart", text).findings.len(), 1, "{text}");
    }
    let settings = annotated("budget", "user=3, preemption=unlimited")
        .job
        .unwrap()
        .settings;
    assert_eq!(settings.budget.user, Some(Limit::At(3)));
    assert_eq!(settings.budget.preemption, Some(Limit::Unlimited));
    assert_eq!(settings.budget.platform, None);
    for text in ["user", "user=-1", "user=x", "me=1", "user=1,user=2"] {
        assert_eq!(annotated("budget", text).findings.len(), 1, "{text}");
    }
    let settings = annotated("compat", "init-container,launcher-early")
        .job
        .unwrap()
        .settings;
    assert_eq!(
        settings.compat,
        BTreeSet::from([Compat::InitContainer, Compat::LauncherEarly])
    );
    assert_eq!(settings.restart_scope, None);
    let settings = annotated("compat", "all").job.unwrap().settings;
    assert_eq!(settings.compat, BTreeSet::from(Compat::ALL));
    assert_eq!(settings.restart_scope, Some(RestartScope::Pod));
    let settings = annotated("compat", "all\"\n    trainyard.dev/restart-scope: \"gang")
        .job
        .unwrap()
        .settings;
    assert_eq!(settings.restart_scope, Some(RestartScope::Gang));
    let finding = &annotated("compat", "init-containers").findings[0];
    assert_eq!(
        finding.message,
        "`trainyard.dev/compat` has no value `init-containers`, did you mean `init-container`?"
    );
}
