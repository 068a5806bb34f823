//! Commands of people against an API server that fails.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use trainyard_core::spec::Kind;

use crate::{
    clock,
    look::{LogOf, LogPart, Look},
    scripted::{Fault, Server, Verb, job, job_name, rule::Rule},
};

/// The test waits for nothing but the command, whose runtime has its clock paused.
fn look(server: &Server) -> Look {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let client = {
        let _entered = runtime.enter();
        server.client()
    };
    Look::for_test(runtime, client)
}

#[test]
fn every_failure_of_a_list_is_one_sentence() {
    let garbage = Fault::Garbage("<html>".to_owned());
    let cases = [
        ("403", Fault::status(403), "exceeded quota"),
        ("500", Fault::status(500), "an error on the server"),
        ("cut", Fault::Cut, ""),
        ("silent", Fault::Silent, ""),
        ("unfinished", Fault::Unfinished, ""),
        ("torn", Fault::Torn, ""),
        ("no JSON", garbage, ""),
        ("no end", Fault::Endless, ""),
    ];
    for (name, fault, words) in cases {
        let server = Server::new();
        server.on(Rule::new(Verb::List, "/pytorchjobs", fault));
        let error = look(&server).jobs(None).err().unwrap().to_string();
        assert!(
            !error.is_empty() && !error.contains('\n'),
            "{name}: {error}"
        );
        assert!(error.contains(words), "{name}: {error}");
    }
}

#[test]
fn a_change_is_made_to_the_object_that_was_seen() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "a", 1));
    let look = look(&server);
    let seen = look.called("n", "a", None).unwrap();
    let name = job_name(Kind::PyTorch, "a");
    look.suspend(&seen[0], true).unwrap();
    let suspended =
        server.see(|world| world.objects[&name]["spec"]["runPolicy"]["suspend"].clone());
    assert_eq!(suspended, true);
    // Deleted, and made again under the same name.
    server.with(|world| world.put(&name, None));
    server.add_job(job(Kind::PyTorch, "a", 1));
    assert!(look.suspend(&seen[0], true).is_err(), "it is another job");
    look.delete(&seen[0]).err();
    assert!(
        server.see(|world| world.objects.contains_key(&name)),
        "it stays"
    );
    let seen = look.called("n", "a", None).unwrap();
    server.on(Rule::new(Verb::Delete, "/pytorchjobs", Fault::Lost).times(1));
    assert!(look.delete(&seen[0]).is_err(), "the answer was lost");
    look.wait_until_gone(&seen[0], Duration::from_mins(1))
        .unwrap();
}

#[test]
fn a_part_of_a_log_is_what_the_api_server_is_asked_for() {
    let server = Server::new();
    server.add_job(job(Kind::PyTorch, "a", 1));
    // Above half a second, so that a time that was rounded up would leave out the lines it names.
    let old =
        Timestamp::from_second(clock::now().as_second()).unwrap() + Duration::from_millis(700);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a-worker-0"},
        "spec": {"containers": [{"name": "pytorch"}]}, "status": {"phase": "Running"}});
    server.add("/api/v1/namespaces/n/pods", pod);
    server.set_log("a-worker-0", "one\ntwo\nthree\nfour\n");
    let newer = old + Duration::from_mins(1);
    server.with(|world| {
        let times = world.kubelet.log_times.get_mut("n/a-worker-0").unwrap();
        times[2] = newer;
        times[3] = newer;
    });
    let look = look(&server);
    let seen = look.called("n", "a", None).unwrap();
    let log = LogOf {
        pod: "a-worker-0".to_owned(),
        uid: String::new(),
        attempt: 1,
        container: "pytorch".to_owned(),
    };
    let (tail, since) = (Some(1), Some(newer));
    let cases = [
        (LogPart::default(), "one\ntwo\nthree\nfour\n"),
        (LogPart { tail, since: None }, "four\n"),
        (LogPart { tail: None, since }, "three\nfour\n"),
        (LogPart { tail, since }, "four\n"),
    ];
    for (part, want) in cases {
        let mut text = Vec::new();
        look.log(&seen[0], &log, false, part, &mut |bytes| {
            text.extend_from_slice(bytes);
            true
        })
        .unwrap();
        assert_eq!(String::from_utf8_lossy(&text), want, "{part:?}");
    }
}
