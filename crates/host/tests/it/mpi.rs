//! An unmodified `mpirun`, without ssh, keys or a cluster.

use serde_json::json;

use crate::harness::{Harness, sh};

fn harness(api_version: &str, launcher: &str) -> Harness {
    let workers = json!({"spec": {"containers": [{"name": "mpi"}]}});
    // Version 2 has the batch default of workers that serve ssh; version 1 that of workers that sleep.
    Harness::new(2, json!({}))
        .set("apiVersion", json!(api_version))
        .set("kind", json!("MPIJob"))
        .set(
            "roles",
            json!({
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": sh(launcher)},
                "Worker": {"replicas": 2, "restartPolicy": "Never", "template": workers},
            }),
        )
}

#[test]
fn commands_run_in_the_pod_they_are_sent_to() {
    let cases = [
        ("kubeflow.org/v1", "$OMPI_MCA_plm_rsh_agent j-worker-1"),
        (
            "kubeflow.org/v2beta1",
            "$OMPI_MCA_plm_rsh_agent $OMPI_MCA_plm_rsh_args j-worker-1.j.default.svc",
        ),
    ];
    for (version, agent) in cases {
        let script = format!(
            "cat /etc/mpi/hostfile; {agent} hostname 2>/dev/null; {agent} 'exit 9' 2>/dev/null; echo code $?; \
             {agent} cat /proc/self/stat 2>/dev/null | grep -q cat && echo ran"
        );
        let ended = harness(version, &script).for_ordinary_user().run();
        assert_eq!(ended.code, Some(0), "{version}: {:#?}", ended.seen);
        let output = &ended.output(1)["Launcher 0"];
        let lines: Vec<&str> = output.lines().collect();
        assert!(
            lines[1].starts_with("j-worker-1") && lines[1].ends_with("slots=1"),
            "{lines:?}"
        );
        assert_eq!(lines[2..], ["j-worker-1", "code 9", "ran"], "{version}");
    }
}

#[test]
fn mpirun_starts_a_rank_in_every_worker() {
    if std::process::Command::new("mpirun")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIPPED: no `mpirun` on this machine; install Open MPI to run this test");
        return;
    }
    for version in ["kubeflow.org/v1", "kubeflow.org/v2beta1"] {
        let script = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; \
                      exec mpirun -np 2 sh -c 'echo rank $OMPI_COMM_WORLD_RANK on $(hostname)' 2>errors";
        let harness = harness(version, script).for_ordinary_user();
        let ended = harness.run();
        assert_eq!(
            ended.code,
            Some(0),
            "{version}: {:#?}\n{}",
            ended.seen,
            harness.read("errors")
        );
        let output = &ended.output(1)["Launcher 0"];
        let mut lines: Vec<&str> = output.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["rank 0 on j-worker-0", "rank 1 on j-worker-1"],
            "{version}"
        );
    }
}
