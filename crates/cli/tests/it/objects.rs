//! `render`: every object a job becomes.

use crate::{call::Call, golden};

const TWO_WORKERS: &str = "\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: j
  namespace: team
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: tensorflow
              image: example.com/train:1
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  mode: 0o644
  answer: 'yes'
";

const WARNED: &str = "\
apiVersion: kubeflow.org/v1
kind: JAXJob
metadata:
  name: j
spec:
  runPolcy: {}
  jaxReplicaSpecs:
    Worker:
      replicas: 1
      template:
        spec:
          containers:
            - {name: jax, image: example.com/train:1}
";

#[test]
fn objects_in_both_formats() {
    let call = |words: &[&str]| Call::new(words).file("job.yaml", TWO_WORKERS).run();
    golden::check(
        "render",
        &[
            call(&["render", "job.yaml"]),
            call(&["render", "--format", "json", "job.yaml"]),
        ],
    );
}

#[test]
fn cluster_domain_from_flag_or_variable() {
    let addresses = |call: Call| {
        let outcome = call.file("job.yaml", TWO_WORKERS).run();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let plain = outcome.stdout.contains("j-worker-1.team.svc:2222");
        let variable = outcome
            .stdout
            .contains("j-worker-1.team.svc.from.variable:2222");
        let flag = outcome
            .stdout
            .contains("j-worker-1.team.svc.from.flag:2222");
        (plain, variable, flag)
    };
    let by_flag = ["render", "--cluster-domain", "from.flag", "job.yaml"];
    let variable = ("CUSTOM_CLUSTER_DOMAIN", "from.variable");
    assert_eq!(
        addresses(Call::new(&["render", "job.yaml"])),
        (true, false, false)
    );
    assert_eq!(
        addresses(Call::new(&["render", "job.yaml"]).variable(variable.0, variable.1)),
        (false, true, false)
    );
    assert_eq!(
        addresses(Call::new(&by_flag).variable(variable.0, variable.1)),
        (false, false, true)
    );
}

#[test]
fn warnings_do_not_stop_it_and_can_be_silenced() {
    let loud = Call::new(&["render", "job.yaml"])
        .file("job.yaml", WARNED)
        .run();
    let quiet = Call::new(&["render", "-q", "job.yaml"])
        .file("job.yaml", WARNED)
        .run();
    assert_eq!((loud.code, quiet.code), (Some(0), Some(0)));
    assert_eq!(loud.stdout, quiet.stdout);
    assert!(loud.stderr.contains("warning[TY"), "{}", loud.stderr);
    assert_eq!(quiet.stderr, "");
}

#[test]
fn one_wrong_job_holds_everything_back() {
    let text = format!(
        "{TWO_WORKERS}---\n{}",
        WARNED.replace("replicas: 1", "replicas: -1")
    );
    let outcome = Call::new(&["render", "job.yaml"])
        .file("job.yaml", text)
        .run();
    assert_eq!(outcome.code, Some(2));
    assert_eq!(outcome.stdout, "");
}

#[test]
fn what_is_printed_is_stable() {
    let text = TWO_WORKERS.replace("replicas: 2", "replicas: 50");
    let runs: Vec<String> = (0..3)
        .map(|_| Call::new(&["render", "-"]).stdin(text.clone()).run().stdout)
        .collect();
    assert!(runs.iter().all(|run| *run == runs[0]));
}
