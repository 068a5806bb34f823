//! Jobs that state more pods than the operator has memory for, and claims on nodes that no pod can make true.

use super::*;
use crate::spec::{JobName, Namespace, Role};

/// A job of `namespace` with so many workers beside its master.
fn large(namespace: &str, name: &str, workers: u32) -> Job {
    let mut large = job();
    large.namespace = Namespace::parse(namespace).unwrap();
    large.name = JobName::parse(name).unwrap();
    if let Some(role) = large.roles.get_mut(&Role::Worker) {
        role.replicas = workers;
    }
    large
}

fn pods_known(queue: &WaitQueue) -> usize {
    let gangs = queue.gangs.values();
    gangs.map(|entry| entry.gang.pods.len()).sum()
}

#[test]
fn jobs_that_state_many_pods_take_bounded_memory() {
    let mut queue = queue();
    let hostile: Vec<Job> = (0..8)
        .map(|at| large("evil", &format!("x-{at}"), 99_000))
        .collect();
    let mut refused = 0;
    for job in &hostile {
        match look_at(&mut queue, job, (1, 0), &[], NOW) {
            Seating::Queued(Some(why)) => {
                assert!(why.message.contains("of namespace `evil`"), "{why:?}");
                refused += 1;
            }
            found => assert_eq!(found, Seating::Unasked),
        }
        queue.ask(&GangKey::of(job), time(NOW));
    }
    assert_eq!(refused, 6);
    assert!(pods_known(&queue) <= NAMESPACE_PODS_MAX);
    // Others are not kept out.
    assert_eq!(look(&mut queue, 1, &[], NOW), Seating::Unasked);
    queue.ask(&GangKey::of(&job()), time(NOW));
    assert_eq!(queue.place(time(NOW)).seated, [GangKey::of(&job())]);
    // One that is not known gets its turn once another has gone, and no other gets a pass for nothing.
    let unknown = |queue: &mut WaitQueue| {
        let mut changed = queue.place(time(NOW)).changed;
        changed.retain(|key| hostile[2..].iter().any(|job| GangKey::of(job) == *key));
        changed
    };
    assert_eq!(unknown(&mut queue), []);
    queue.forget(&GangKey::of(&hostile[0]));
    assert!(queue.take_placement_due());
    assert_eq!(unknown(&mut queue), [GangKey::of(&hostile[2])]);
    let seating = look_at(&mut queue, &hostile[2], (1, 0), &[], NOW);
    assert_eq!(seating, Seating::Unasked);
    assert_eq!(unknown(&mut queue), []);
}

#[test]
fn no_node_is_kept_for_what_it_cannot_run() {
    let mut queue = queue();
    // Somebody else made the pods of a job that never fits, and wrote down which nodes they hold.
    let mut wide = large("evil", "x", 2);
    for role in wide.roles.values_mut() {
        let spec = role.template.spec.as_mut().unwrap();
        let gpus = [(
            GPU.to_owned(),
            serde_json::from_value("800".into()).unwrap(),
        )];
        let resources = spec.containers[0].resources.as_mut().unwrap();
        resources.limits = Some(gpus.into());
    }
    let names = names(&wide);
    let pods: Vec<GangPod<'_>> = names
        .iter()
        .zip(["a", "b", "c"])
        .map(|(name, node)| GangPod {
            phase: PodPhase::Pending,
            node: None,
            ..running(name, node)
        })
        .collect();
    look_at(&mut queue, &wide, (1, 0), &pods, NOW);
    for (name, node) in names.iter().zip(["a", "b", "c"]) {
        let key = PodKey {
            namespace: "evil".to_owned(),
            name: name.clone(),
        };
        let resident = Resident {
            node: node.to_owned(),
            gang: Some(GangKey::of(&wide)),
            requests: crate::gang::testing::amounts(&[(GPU, 800)]),
            ..Resident::default()
        };
        queue.set_tied(key, Some(resident));
    }
    look(&mut queue, 1, &[], NOW);
    queue.ask(&GangKey::of(&job()), time(NOW));
    assert_eq!(queue.place(time(NOW)).seated, [GangKey::of(&job())]);
}

#[test]
fn gang_that_nobody_processes_keeps_nodes_with_pods() {
    for has_pod in [false, true] {
        let mut queue = queue();
        let stale = large("evil", "x", 2);
        let key = GangKey::of(&stale);
        look_at(&mut queue, &stale, (1, 0), &[], NOW);
        queue.ask(&key, time(NOW));
        assert_eq!(queue.place(time(NOW)).seated, std::slice::from_ref(&key));
        if has_pod {
            let resident = Resident {
                node: "a".to_owned(),
                gang: Some(key.clone()),
                requests: crate::gang::testing::amounts(&[(GPU, 8)]),
                ..Resident::default()
            };
            let pod = PodKey {
                namespace: "evil".to_owned(),
                name: names(&stale)[0].clone(),
            };
            queue.update_pod(pod, Some(resident));
        }
        look(&mut queue, 1, &[], NOW);
        queue.ask(&GangKey::of(&job()), time(NOW));
        assert_eq!(queue.place(time(NOW)).seated, []);
        queue.release_unused_seats(&key);
        assert!(queue.take_placement_due());
        let seated = queue.place(time(NOW)).seated;
        assert_eq!(seated.len(), usize::from(!has_pod), "pod: {has_pod}");
    }
}
