//! What goes where: closed pipes, full disks, colour, quiet.

use std::{fs::File, process::Stdio};

use crate::call::Call;

const JOB: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: j
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 400
      template:
        spec:
          containers:
            - {name: pytorch, image: example.com/train:1}
";

const WRONG: &str = "\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: Bad_Name
spec:
  pytorchReplicaSpecs: {}
";

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for (words, content, want) in [
        (["render", "job.yaml"], JOB, 0),
        // The exit code still shows what was found.
        (["lint", "job.yaml"], WRONG, 1),
    ] {
        let call = Call::new(&words).file("job.yaml", content);
        let mut child = call
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(want), "{words:?}: {said}");
        assert!(
            !said.contains("pipe") && !said.contains("panicked"),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn full_disk_is_reported() {
    let call = Call::new(&["render", "job.yaml"]).file("job.yaml", JOB);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = call
        .command()
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: cannot write to stdout\n  caused by: "),
        "{said}"
    );
}

#[test]
fn colour_is_used_where_it_is_wanted() {
    let painted = |words: &[&str], variables: &[(&'static str, &'static str)]| {
        let mut call = Call::new(words).file("job.yaml", WRONG);
        for (name, value) in variables {
            call = call.variable(name, value);
        }
        call.run().stdout.contains('\u{1b}')
    };
    assert!(!painted(&["lint", "job.yaml"], &[]), "a pipe gets none");
    assert!(painted(&["lint", "job.yaml", "--color", "always"], &[]));
    assert!(!painted(&["lint", "job.yaml"], &[("NO_COLOR", "1")]));
    assert!(
        painted(
            &["lint", "job.yaml", "--color", "always"],
            &[("NO_COLOR", "1")]
        ),
        "a flag is nearer than a variable"
    );
    assert!(!painted(
        &["lint", "job.yaml", "--color", "never"],
        &[("TERM", "xterm")]
    ));
}

#[test]
fn quiet_leaves_data_alone() {
    let loud = Call::new(&["lint", "job.yaml"])
        .file("job.yaml", WRONG)
        .run();
    let quiet = Call::new(&["lint", "-q", "job.yaml"])
        .file("job.yaml", WRONG)
        .run();
    assert_eq!(quiet.stdout, loud.stdout);
    assert_eq!(quiet.stderr, "");
    assert_ne!(loud.stderr, "");
}
