use serde_json::json;
use trainyard_core::spec::Kind;

use super::*;

fn view(spec: u32, annotation: &str, note: &str, version: &str) -> JobView {
    serde_json::from_value(json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {
            "name": "j", "namespace": "n", "uid": "u", "resourceVersion": version,
            "annotations": {"trainyard.dev/restart": annotation, "example.com/note": note},
        },
        "spec": {"nprocPerNode": spec.to_string()},
        "status": {"trainyard": {"attempt": version.len()}},
    }))
    .unwrap()
}

fn key() -> JobKey {
    JobKey {
        kind: Kind::PyTorch,
        namespace: "n".into(),
        name: "j".into(),
    }
}

#[test]
fn content_is_what_the_user_wrote() {
    let first = content(&view(1, "a", "x", "1"));
    assert_eq!(
        first,
        content(&view(1, "a", "y", "200")),
        "status, notes of others"
    );
    assert_ne!(first, content(&view(2, "a", "x", "1")), "spec");
    assert_ne!(first, content(&view(1, "b", "x", "1")), "our annotation");
}

#[tokio::test]
async fn crashes_are_counted_across_processes() {
    let folder = tempfile::tempdir().unwrap();
    let view = view(1, "a", "x", "1");
    let mark = Mark::new(&key(), &view);
    for crash in 1..=CRASHES {
        let poison = Poison::open(folder.path()).unwrap();
        assert_eq!(
            poison.judge(&mark, &view),
            Judgement::Clear,
            "crash {crash}"
        );
        // The process is killed inside of a step: what it would have done afterwards never happens.
        let journal = poison.journal.as_ref().unwrap();
        std::mem::forget(journal.enter(&record_of(&mark)));
    }
    let poison = Poison::open(folder.path()).unwrap();
    let Judgement::SetAside(sentence) = poison.judge(&mark, &view) else {
        unreachable!("two crashes are enough")
    };
    assert!(
        sentence.starts_with("the operator crashed 2 times while processing this job; "),
        "{sentence}"
    );
    drop(poison);
    let poison = Poison::open(folder.path()).unwrap();
    let edited = self::view(2, "a", "x", "3");
    assert!(matches!(poison.judge(&mark, &view), Judgement::SetAside(_)));
    assert_eq!(poison.judge(&mark, &edited), Judgement::Released);
    assert_eq!(poison.judge(&mark, &edited), Judgement::Clear);
}

#[tokio::test]
async fn only_the_job_that_computes_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let in_work = || std::fs::read(folder.path().join("in-work")).unwrap();
    let poison = Poison::open(folder.path()).unwrap();
    let view = view(1, "a", "x", "1");
    let mark = Mark::new(&key(), &view);
    let (send, wait) = tokio::sync::oneshot::channel::<()>();
    let work = poison.watch(&mark, async {
        assert_eq!(in_work(), record_of(&mark), "while it computes");
        wait.await.unwrap();
        assert_eq!(in_work(), record_of(&mark), "after it waited");
    });
    let beside = async {
        assert_eq!(in_work()[0], b'-', "while it waits, another job computes");
        send.send(()).unwrap();
    };
    tokio::join!(work, beside);
    assert_eq!(in_work()[0], b'-');
}
