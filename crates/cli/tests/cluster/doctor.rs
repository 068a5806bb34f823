//! `trainyard doctor --job NAME --cluster`: real pods, read where they write.

use serde_json::json;

use crate::{namespace::on_real_nodes, on_nodes};

/// Worker 1 raises an exception, as Python writes it; the others wait for it.
const MISTAKE: &str = "\
echo begin; case $HOSTNAME in *-worker-1) ;; *) exec sleep 1000;; esac
echo 'Traceback (most recent call last):'
echo '  File \"/app/train.py\", line 7, in main'
echo \"    rate = config['rate']\"
echo \"KeyError: 'rate'\"
exit 1";

#[test]
fn doctor_knows_ranks_and_nodes_of_pods() {
    on_real_nodes("doctor", |fixture| {
        let _operator = fixture.operator();
        let mut job = on_nodes("broken", MISTAKE);
        // Its pods are left as they are when it has failed.
        job["spec"]["pytorchReplicaSpecs"]["Worker"]["restartPolicy"] = json!("Never");
        fixture.put(&job);
        fixture.until_status("broken", |status| status["state"] == "Failed");
        let words = ["doctor", "--job", "broken", "--format", "json"];
        let found = fixture.trainyard(&words);
        assert_eq!(found.code, Some(1), "{found:?}");
        let report = found.json();
        let verdict = &report["verdicts"][0];
        assert_eq!(verdict["label"], "user_code_error", "{report:#}");
        assert_eq!(verdict["ranks"], json!([1]), "{report:#}");
        let evidence = &verdict["evidence"][0];
        assert_eq!(evidence["file"], "broken-worker-1/pytorch", "{report:#}");
        let node = evidence["node"].as_str().unwrap_or_default();
        assert!(node.starts_with("node-"), "{report:#}");

        let found = fixture.trainyard(&["doctor", "--job", "broken", "--attempt", "7"]);
        assert_eq!(found.code, Some(2), "{found:?}");
        let sentence = "no pod of attempt 7 of job `broken` is left";
        assert!(found.stderr.contains(sentence), "{found:?}");
        let found = fixture.trainyard(&["doctor", "--job", "brokn"]);
        assert_eq!(found.code, Some(2), "{found:?}");
        assert!(found.stderr.contains("did you mean `broken`?"), "{found:?}");
    });
}

#[test]
fn what_failed_first_outlives_its_pod() {
    on_real_nodes("kept", |fixture| {
        let _operator = fixture.operator();
        // The second attempt runs on, and the pods of the first are gone by then.
        let script = format!("test $TRAINYARD_TEST_ATTEMPT = 1 || exec sleep 1000\n{MISTAKE}");
        let mut job = on_nodes("kept", &script);
        let container =
            &mut job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0];
        container["env"] = json!([{"name": "TRAINYARD_TEST_ATTEMPT", "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.labels['trainyard.dev/attempt']"}}}]);
        fixture.put(&job);
        fixture.until_status("kept", |status| {
            status["state"] == "Running" && status["attempts"] == 2
        });
        for words in [
            &["--first-failure"][..],
            &["--attempt", "1", "--first-failure"],
        ] {
            let asked = [&["logs", "kept"], words].concat();
            let found = fixture.wait("the lines are kept", || {
                let found = fixture.trainyard(&asked);
                (found.code == Some(0)).then_some(found)
            });
            assert!(found.stdout.starts_with("begin\nTraceback"), "{found:?}");
            assert!(found.stdout.ends_with("KeyError: 'rate'\n"), "{found:?}");
            let note = "pod `kept-worker-1` of attempt 1 was deleted";
            assert!(found.stderr.contains(note), "{found:?}");
        }
        // What the others wrote until then is kept, too.
        let asked = ["logs", "kept", "--attempt", "1", "--pod", "worker-0"];
        let found = fixture.wait("the lines of the other pod are kept", || {
            let found = fixture.trainyard(&asked);
            (found.code == Some(0)).then_some(found)
        });
        assert_eq!(found.stdout, "begin\n", "{found:?}");
        let words = [
            "doctor",
            "--job",
            "kept",
            "--attempt",
            "1",
            "--format",
            "json",
        ];
        let found = fixture.trainyard(&words);
        assert_eq!(found.code, Some(1), "{found:?}");
        let verdict = &found.json()["verdicts"][0];
        assert_eq!(verdict["label"], "user_code_error", "{found:?}");
        assert_eq!(verdict["ranks"], json!([1]), "{found:?}");
        let none = fixture.trainyard(&["logs", "kept", "--attempt", "2", "--first-failure"]);
        assert_eq!(none.code, Some(2), "{none:?}");
        assert!(none.stderr.contains("no log tail was kept"), "{none:?}");
        // It goes with its job.
        fixture.kubectl(&[
            "delete",
            "pytorchjob",
            "kept",
            "--cascade=foreground",
            "--timeout=60s",
        ]);
        let left = fixture.kubectl(&["get", "configmaps", "--output=name"]);
        assert!(!left.contains("kept-failures-"), "{left}");
    });
}
