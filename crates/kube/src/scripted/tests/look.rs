//! Commands of people against an API server that fails.

use std::time::Duration;

use trainyard_core::spec::Kind;

use crate::{
    look::Look,
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
