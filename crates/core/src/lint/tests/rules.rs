//! Every rule of every family on the manifest it must catch and on the one it must spare.

use std::collections::BTreeSet;

use super::{examples::Example, *};
use crate::finding::Severity;

const BASES: [&str; 3] = [examples::PYTORCH, examples::ELASTIC, examples::MPI];

fn reviewed(text: &str, profile: Profile) -> Vec<Finding> {
    let file = read(text.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{text}"));
    review(&[&file], Some(profile)).concat()
}

/// What is found in the manifest of a rule: beside a cluster where the rule looks at one.
fn reviewed_example(example: &Example, profile: Profile) -> Vec<Finding> {
    match advice::look_of(example.code) {
        Some(Look::Cluster(_) | Look::ClusterCompanion(_)) => {
            let file = read(example.text.as_bytes()).unwrap();
            review_in(&[&file], Some(profile), &cluster::example_cluster()).concat()
        }
        _ => reviewed(&example.text, profile),
    }
}

fn lines(findings: &[Finding]) -> Vec<String> {
    let line = |finding: &Finding| {
        let span = finding.span;
        format!(
            "{} {}:{} {} {}",
            finding.code, span.line, span.column, finding.path, finding.message
        )
    };
    findings.iter().map(line).collect()
}

#[test]
fn every_rule_catches_and_spares_its_examples() {
    let (examples, mut wrong) = examples::read();
    for example in &examples {
        let Example {
            code, caught, file, ..
        } = example;
        let found = reviewed_example(example, Profile::Production);
        let here: Vec<&Finding> = found
            .iter()
            .filter(|finding| finding.code == *code)
            .collect();
        if here.is_empty() == *caught {
            wrong.push(format!("{file}: {:#?}", lines(&found)));
        }
        let production = rule(code).unwrap().production;
        for finding in here {
            if finding.span.line == 0 || finding.hint.is_none() || finding.severity != production {
                wrong.push(format!(
                    "{file}: no place, no hint or another severity: {finding:?}"
                ));
            }
        }
        if BASES.contains(&example.text.as_str()) {
            wrong.push(format!("{file} changes nothing of its base"));
        }
        let read = read(example.text.as_bytes()).unwrap();
        let has_job = Contents::of([&read]).has_job();
        let invalid = lint(&read);
        if has_job && !invalid.is_empty() {
            wrong.push(format!("{file} is not valid: {:#?}", lines(&invalid)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn example_files_belong_to_rules() {
    let read: BTreeSet<String> = examples::all().into_iter().map(|it| it.file).collect();
    for folder in examples::names(&examples::folder()) {
        if folder == "base" || folder == "README.md" {
            continue;
        }
        for name in examples::names(&examples::folder().join(&folder)) {
            let file = format!("{folder}/{name}");
            assert!(
                read.contains(&file),
                "`testdata/lint/{file}` proves nothing: name it `catches*.yaml` or `spares*.yaml`, in the folder of a rule that looks at jobs"
            );
        }
    }
}

#[test]
fn the_bases_have_no_findings_in_any_profile() {
    for base in BASES {
        for profile in Profile::ALL {
            assert_eq!(
                lines(&reviewed(base, profile)),
                Vec::<String>::new(),
                "{profile:?}\n{base}"
            );
            let file = read(base.as_bytes()).unwrap();
            let cluster = cluster::example_cluster();
            let found = review_in(&[&file], Some(profile), &cluster).concat();
            assert_eq!(
                lines(&found),
                Vec::<String>::new(),
                "{profile:?} in a cluster"
            );
        }
    }
}

#[test]
fn a_demo_is_never_judged_harder_than_production() {
    for example in examples::all().iter().filter(|example| example.caught) {
        let Example { code, file, .. } = example;
        let severity = |profile| {
            reviewed_example(example, profile)
                .into_iter()
                .filter(|found| found.code == *code)
                .map(|found| found.severity)
                .max()
        };
        let (demo, production) = (severity(Profile::Demo), severity(Profile::Production));
        assert_eq!(demo, rule(code).unwrap().demo, "{file}");
        assert!(demo <= production, "{file}");
    }
}

#[test]
fn codes_are_unique_ordered_and_well_formed() {
    let all: Vec<&Rule> = rules().collect();
    for pair in all.windows(2) {
        assert!(
            pair[0].code < pair[1].code,
            "{} {}",
            pair[0].code,
            pair[1].code
        );
    }
    for rule in &all {
        let digits = rule.code.strip_prefix("TY").unwrap();
        assert!(
            digits.len() == 3 && digits.bytes().all(|b| b.is_ascii_digit()),
            "{rule:?}"
        );
        assert!(
            !rule.title.ends_with('.') && rule.explanation.ends_with('.'),
            "{rule:?}"
        );
        assert!(!rule.explanation.contains("  "), "{rule:?}");
    }
    let titles: BTreeSet<&str> = all.iter().map(|rule| rule.title).collect();
    assert!(
        all.len() >= 100 && titles.len() + 1 >= all.len(),
        "{} rules, {} titles",
        all.len(),
        titles.len()
    );
    assert_eq!(rule("TY101"), Some(&catalogue::NOT_A_JOB));
    assert_eq!(rule("TY999"), None);
}

#[test]
fn profile_annotation_is_the_default() {
    let text = examples::PYTORCH.replacen("train:1.4.0", "train", 1);
    let stated = |word: &str| {
        text.replacen(
            "  name: train\n",
            &format!("  name: train\n  annotations: {{trainyard.dev/profile: {word}}}\n"),
            1,
        )
    };
    let severity = |text: &str, profile| {
        let file = read(text.as_bytes()).unwrap();
        let found = review(&[&file], profile).concat();
        assert_eq!(found.len(), 1, "{:?}", lines(&found));
        found[0].severity
    };
    let cases = [
        ("none", text.clone(), None, Severity::Warning),
        ("annotation", stated("production"), None, Severity::Error),
        (
            "given",
            text.clone(),
            Some(Profile::Production),
            Severity::Error,
        ),
        (
            "given over annotation",
            stated("production"),
            Some(Profile::Demo),
            Severity::Warning,
        ),
    ];
    for (name, text, profile, want) in cases {
        assert_eq!(severity(&text, profile), want, "{name}");
    }
    let bad = reviewed(&stated("prod"), Profile::Demo);
    assert_eq!(bad[0].code, "TY138", "{:?}", lines(&bad));
}

#[test]
fn what_is_allowed_needs_a_reason_and_a_finding() {
    let cases: [(&str, &str, &[&str]); 7] = [
        ("a reason", "TY601: built every night", &[]),
        ("no reason", "TY601", &["TY610", "TY601"]),
        ("an empty reason", "\"TY601: \"", &["TY610", "TY601"]),
        ("several", "\"TY601: nightly; TY402: one node\"", &["TY611"]),
        ("another code", "\"TY602: nightly\"", &["TY611", "TY601"]),
        ("an unknown code", "\"TY999: why\"", &["TY611", "TY601"]),
        ("the contract", "\"TY101: why\"", &["TY611", "TY601"]),
    ];
    for (name, value, want) in cases {
        let text = examples::PYTORCH
            .replacen("train:1.4.0", "train", 1)
            .replacen(
                "  name: train\n",
                &format!(
                    "  name: train\n  annotations:\n    trainyard.dev/lint-allow: {}\n",
                    if value.starts_with('"') || !value.contains(": ") {
                        value.to_owned()
                    } else {
                        format!("\"{value}\"")
                    }
                ),
                1,
            );
        let found = reviewed(&text, Profile::Demo);
        let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, want, "{name}: {:?}", lines(&found));
    }
}

#[test]
fn allow_entry_for_unseen_object_is_kept() {
    let entry = "  name: train\n  annotations: {trainyard.dev/lint-allow: \"TY402: one node\"}\n";
    let text = examples::PYTORCH.replacen("  name: train\n", entry, 1);
    let codes = |text: &str| -> Vec<&str> {
        let found = reviewed(text, Profile::Demo);
        found.iter().map(|finding| finding.code).collect()
    };
    assert_eq!(codes(&text), ["TY611"]);
    assert_eq!(codes(text.split("---\n").next().unwrap()), [""; 0]);
}

#[test]
fn allow_entry_for_other_profile_is_kept() {
    let entry =
        "  name: train\n  annotations: {trainyard.dev/lint-allow: \"TY206: no taints here\"}\n";
    let text = examples::PYTORCH.replacen("  name: train\n", entry, 1);
    let codes = |profile| -> Vec<&str> {
        let found = reviewed(&text, profile);
        found.iter().map(|finding| finding.code).collect()
    };
    assert_eq!(codes(Profile::Demo), [""; 0]);
    assert_eq!(codes(Profile::Production), ["TY611"]);
}

#[test]
fn a_name_that_the_cluster_makes_is_a_name() {
    let named = |line: &str| examples::PYTORCH.replacen("  name: train\n", line, 1);
    let cases: [(&str, &str, &[&str]); 4] = [
        ("a beginning", "  generateName: train-\n", &[]),
        ("both", "  name: train\n  generateName: train-\n", &[]),
        (
            "an invalid beginning",
            "  generateName: Train-\n",
            &["TY107"],
        ),
        ("neither", "  labels: {}\n", &["TY107"]),
    ];
    for (name, line, want) in cases {
        let found = reviewed(&named(line), Profile::Production);
        let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, want, "{name}: {:?}", lines(&found));
    }
}

/// What real files do that a rule must not hold against them, and the same thing done wrong.
#[test]
fn near_misses_and_catches_beyond_the_first() {
    let pytorch = |edits: &[(&str, &str)]| edited(examples::PYTORCH, edits);
    let mpi = |edits: &[(&str, &str)]| edited(examples::MPI, edits);
    let before = "            - mpirun\n            - -np\n            - \"16\"\n            - -x\n            - NCCL_DEBUG\n            - python\n            - ring.py\n";
    let script = |text: &str| {
        let script = format!(
            "            - bash\n            - -c\n            - |\n              {text}\n"
        );
        mpi(&[
            (before, &script),
            (
                "            env:\n            - name: NCCL_DEBUG\n              value: WARN\n",
                "",
            ),
        ])
    };
    let init = "          containers:\n          - name: launcher\n";
    let mounting = |volume: &str| {
        let text = format!(
            "          initContainers:\n          - name: wait\n            image: registry.example.com/team/wait:1\n            volumeMounts: [{{name: {volume}, mountPath: /etc/mpi}}]\n            resources: {{requests: {{cpu: 1}}}}\n{init}"
        );
        mpi(&[(init, &text)])
    };
    let efa = (
        "                nvidia.com/gpu: 8\n            volumeMounts",
        "                nvidia.com/gpu: 8\n                vpc.amazonaws.com/efa: 4\n            volumeMounts",
    );
    let hca = (
        "                nvidia.com/gpu: 8\n            volumeMounts",
        "                nvidia.com/gpu: 8\n                rdma/hca: 4\n            volumeMounts",
    );
    let host_devices = (
        "            - name: work\n              mountPath: /work\n          volumes:\n",
        "            - name: work\n              mountPath: /work\n            - name: ib\n              mountPath: /dev/infiniband\n          volumes:\n          - name: ib\n            hostPath: {path: /dev/infiniband}\n",
    );
    let no_claim = (
        "          - name: work\n            persistentVolumeClaim:\n              claimName: work\n",
        "          - name: work\n            emptyDir: {}\n",
    );
    let per_node = ("slotsPerWorker: 8", "slotsPerWorker: 1");
    let two = ("\"16\"", "\"2\"");
    let torchrun = |words: &str| pytorch(&[("[torchrun,", words)]);
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("a volume that the operator adds", mounting("mpi-job-config"), &[]),
        ("a volume that nobody adds", mounting("mpi-job-configs"), &["TY163"]),
        ("EFA pins by itself", mpi(&[efa]), &[]),
        ("verbs do not", mpi(&[hca]), &["TY210"]),
        ("nor do the devices of the node", mpi(&[host_devices]), &["TY210", "TY604"]),
        ("a benchmark saves nothing", mpi(&[no_claim, ("            - python\n            - ring.py", "            - /opt/all_reduce_perf")]), &[]),
        ("training does", mpi(&[no_claim]), &["TY401"]),
        ("a benchmark tries values out", script("mpirun -x NCCL_DEBUG=WARN -x NCCL_ALGO=Ring all_reduce_perf"), &[]),
        ("a rank for each worker that starts the others", mpi(&[per_node, two, ("            - python\n", "            - torchrun\n")]), &[]),
        ("a rank for each worker", mpi(&[per_node, two]), &["TY155"]),
        ("a number of the program", script("mpirun -x NCCL_DEBUG=WARN ring -n 100"), &[]),
        ("a number of mpirun", script("mpirun -x NCCL_DEBUG=WARN -n 100 ring -n 1"), &["TY153"]),
        ("a number by a variable", script("SLOTS=32\n              mpirun -x NCCL_DEBUG=WARN -np $SLOTS ring"), &["TY153"]),
        ("a removed variable by -x", script("mpirun -x NCCL_DEBUG=WARN -x NCCL_TREE_THRESHOLD=0 ring"), &["TY311"]),
        ("a comment", script("# mpirun -x NCCL_TREE_THRESHOLD=0 ring\n              mpirun -x NCCL_DEBUG=WARN ring"), &[]),
        ("two findings in one script", script("export NCCL_ALGO=Ring NCCL_PROTO=Simple\n              mpirun -x NCCL_DEBUG=WARN ring"), &["TY310", "TY310"]),
        ("an interface that no worker has", script("mpirun -x NCCL_DEBUG=WARN -x NCCL_SOCKET_IFNAME=ib0 ring"), &["TY301"]),
        ("a secret in a script", script("export HF_TOKEN=abc; mpirun -x NCCL_DEBUG=WARN ring"), &["TY602"]),
        ("a secret of elsewhere in a script", script("export HF_TOKEN=$(cat /run/token); mpirun -x NCCL_DEBUG=WARN ring"), &[]),
        ("host network of an MPIJob", mpi(&[("          terminationGrace", "          hostNetwork: true\n          terminationGrace")]), &[]),
        ("nodes by a variable", torchrun("[torchrun, --nnodes=$(NODES),").replacen("            - name: NCCL_DEBUG", "            - name: NODES\n              value: \"8\"\n            - name: NCCL_DEBUG", 1), &["TY150"]),
        ("nodes that are processes", torchrun("[torchrun, --nnodes=$(WORLD_SIZE),"), &["TY150"]),
        ("nodes that are pods", torchrun("[torchrun, --nnodes=$(WORLD_SIZE),").replacen("nprocPerNode: \"8\"", "nprocPerNode: gpu", 1), &[]),
        ("machines", torchrun("[accelerate, launch, --num_machines=3,"), &["TY150"]),
        ("no shell", torchrun("[torchrun, --nnodes=$NODES,"), &["TY164"]),
        ("a variable that is not there", torchrun("[torchrun, --lr=$(RATE),"), &["TY164"]),
        ("a variable that the operator sets", torchrun("[torchrun, --rdzv-id=$(PET_NNODES),"), &[]),
        ("a placeholder for the image", pytorch(&[("registry.example.com/team/train:1.4.0", "<account>.example.com/train:latest")]), &["TY601", "TY148"]),
        ("a placeholder for the tag", pytorch(&[("train:1.4.0", "train:${TAG}")]), &["TY148"]),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|(name, text, want)| {
            let found = reviewed(text, Profile::Production);
            let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
            (codes != *want).then(|| format!("{name}: {:#?}", lines(&found)))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn edited(base: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(base.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn files_are_judged_together() {
    let (job, rest) = examples::PYTORCH.split_once("---\n").unwrap();
    let once = rest.replacen("ReadWriteMany", "ReadWriteOnce", 1);
    let chart = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n";
    let file = |text: &str| read(text.as_bytes()).unwrap();
    let (job, claim, chart) = (file(job), file(&once), file(chart));
    let codes = |files: &[&File]| -> Vec<Vec<&'static str>> {
        let found = review(files, Some(Profile::Production));
        found
            .iter()
            .map(|list| list.iter().map(|finding| finding.code).collect())
            .collect()
    };
    assert_eq!(
        codes(&[&job]),
        [Vec::<&str>::new()],
        "a claim that is not in the files is not judged"
    );
    assert_eq!(
        codes(&[&job, &claim]),
        [vec!["TY402"], vec![]],
        "nor is the file of the claim a file without a job"
    );
    assert_eq!(
        codes(&[&job, &chart]),
        [Vec::<&str>::new(), vec![]],
        "the rest of a chart"
    );
    let values = file("replicas: 4\nresources: {limits: {}}\n");
    assert_eq!(
        codes(&[&job, &values]),
        [Vec::<&str>::new(), vec![]],
        "not an object"
    );
    assert_eq!(codes(&[&values]), [vec!["TY101"]]);
    let half = file("metadata: {name: j}\nspec: {}\n");
    assert_eq!(codes(&[&job, &half]), [vec![], vec!["TY101"]]);
    assert_eq!(
        codes(&[&claim]),
        [Vec::<&str>::new()],
        "judged for what it is"
    );
    assert_eq!(codes(&[&chart]), [vec!["TY101"]]);
}

/// A webhook sees the job alone. It says what the linter says of a file with nothing else in it, and
/// nothing that the rest of the file would have taken back.
#[test]
fn an_object_is_judged_as_its_file_is() {
    for Example {
        code, file, text, ..
    } in examples::all()
    {
        let whole = reviewed(&text, Profile::Production);
        let alone = text.split("---\n").next().unwrap();
        let codes = |found: &[Finding]| -> BTreeSet<&str> {
            found.iter().map(|finding| finding.code).collect()
        };
        let in_file = codes(&reviewed(alone, Profile::Production));
        let object = read(alone.as_bytes()).unwrap().documents[0].tree.to_json();
        let mut as_object = codes(&review_object(&object, Some(Profile::Production)));
        assert_eq!(in_file, as_object, "{file}");
        if let Some(Look::Companion(_)) = advice::look_of(code) {
            // What is said of an object beside a job may be answered by the next object.
            as_object.remove(code);
        }
        assert!(as_object.is_subset(&codes(&whole)), "{file}: {as_object:?}");
        if let Some(Look::Job(_)) = advice::look_of(code) {
            let finds = |found: &BTreeSet<&str>| found.contains(code);
            assert_eq!(finds(&as_object), finds(&codes(&whole)), "{file}");
        }
    }
}

#[test]
fn cluster_objects_count_and_unread_ones_do_not() {
    let codes = |text: &str, cluster: &ClusterFacts| -> Vec<&str> {
        let file = read(text.as_bytes()).unwrap();
        let found = review_in(&[&file], Some(Profile::Production), cluster).concat();
        found.iter().map(|finding| finding.code).collect()
    };
    let example = cluster::example_cluster();
    let changed = |change: &dyn Fn(&mut ClusterFacts)| {
        let mut cluster = example.clone();
        change(&mut cluster);
        cluster
    };
    let once = changed(&|cluster| {
        let claims = cluster.claims.get_mut("team").unwrap();
        claims.insert("models".to_owned(), vec!["ReadWriteOnce".to_owned()]);
    });
    let unread = ClusterFacts::default();
    let elsewhere = changed(&|cluster| cluster.namespace = "other".to_owned());
    let job = examples::PYTORCH.split("---\n").next().unwrap();
    let bare = job.replacen("  namespace: team\n", "", 1);
    let of_cluster = job
        .replacen("networks: roce-a", "networks: roce-b", 1)
        .replacen("claimName: checkpoints", "claimName: models", 1);
    let cases: [(&str, &str, &ClusterFacts, &[&str]); 8] = [
        ("all in the cluster", &of_cluster, &example, &[]),
        ("nothing could be read", job, &unread, &[]),
        ("nothing there", job, &example, &["TY803", "TY804"]),
        (
            "the namespace of the context",
            &bare,
            &example,
            &["TY803", "TY804"],
        ),
        ("a namespace that was not read", &bare, &elsewhere, &[]),
        ("a claim for one node", &of_cluster, &once, &["TY402"]),
        (
            "nodes that went to zero",
            &of_cluster,
            &changed(&|cluster| cluster.nodes = Some(BTreeMap::new())),
            &[],
        ),
        (
            "nodes without devices",
            &of_cluster,
            &changed(&|cluster| {
                let nodes = cluster.nodes.as_mut().unwrap();
                for node in nodes.values_mut() {
                    node.allocatable.set("nvidia.com/gpu", 0);
                }
            }),
            &["TY802"],
        ),
    ];
    for (name, text, cluster, want) in cases {
        assert_eq!(codes(text, cluster), want, "{name}");
    }
}
