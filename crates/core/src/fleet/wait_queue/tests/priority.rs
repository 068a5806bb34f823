//! Which priority counts, and from when on.

use super::*;
use crate::{
    gang::testing::amounts,
    spec::{JobName, Switch},
};

/// The job under another name, with what `change` does to each template.
fn other(name: &str, change: impl Fn(&mut PodSpec)) -> Job {
    let mut other = job();
    other.name = JobName::parse(name).unwrap();
    for role in other.roles.values_mut() {
        change(role.template.spec.as_mut().unwrap());
    }
    other
}

fn of_class(name: &str, class: &str) -> Job {
    other(name, |spec| {
        spec.priority_class_name = Some(class.to_owned());
    })
}

/// The classes of the tests.
fn classes() -> PriorityClasses {
    let classes = [("high", 1_000), ("zero", 0), ("low", -10)];
    let classes = classes.map(|(name, value)| (name.to_owned(), class(value)));
    classes.into_iter().collect()
}

fn standing(queue: &WaitQueue, job: &Job) -> (i32, i32, bool) {
    let standing = queue.gangs[&GangKey::of(job)].standing(&queue.classes);
    (standing.priority, standing.claim, standing.is_admitted)
}

#[test]
fn job_of_a_higher_class_makes_its_pods_first() {
    let number = other("number", |spec| spec.priority = Some(i32::MAX));
    let mut policy = other("policy", |_| {});
    let scheduling = crate::spec::SchedulingPolicy {
        priority_class: Some("high".to_owned()),
        ..crate::spec::SchedulingPolicy::default()
    };
    policy.run_policy.scheduling = Some(scheduling);
    let mut mixed = of_class("mixed", "high");
    let worker = mixed.roles.values_mut().last().unwrap();
    worker.template.spec.as_mut().unwrap().priority_class_name = None;
    let cases = [
        ("no class", job(), 0, None),
        ("a class worth the default", of_class("a", "zero"), 0, None),
        ("a lower class", of_class("a", "low"), -10, None),
        ("a number without a class", number, 0, None),
        ("a class of the policy of other schedulers", policy, 0, None),
        ("one role without", mixed, 0, None),
        (
            "a higher class",
            of_class("a", "high"),
            0,
            Some("creating the pods first: priority class `high` counts once"),
        ),
        (
            "an unknown class",
            of_class("a", "hgih"),
            0,
            Some("the cluster has no priority class `hgih`, so it counts as 0"),
        ),
    ];
    for (name, job, claim, want) in cases {
        let mut queue = queue();
        queue.set_classes(classes());
        let seating = look_at(&mut queue, &job, (1, 0), &[], NOW);
        match (&seating, want) {
            (Seating::Unasked, None) => {}
            (Seating::Unadmitted(why), Some(want)) => assert!(why.contains(want), "{name}: {why}"),
            _ => panic!("{name}: {seating:?}"),
        }
        assert_eq!(standing(&queue, &job), (claim, claim, false), "{name}");
    }
}

#[test]
fn default_class_of_the_cluster_counts() {
    let mut queue = queue();
    let default = PriorityClass {
        is_default: true,
        ..class(1_000)
    };
    queue.set_class("normal", Some(default));
    queue.set_class("high", Some(class(1_000)));
    for job in [job(), of_class("a", "high"), of_class("b", "normal")] {
        let seating = look_at(&mut queue, &job, (1, 0), &[], NOW);
        assert_eq!(seating, Seating::Unasked, "{}: no more than all", job.name);
        assert_eq!(
            standing(&queue, &job),
            (1_000, 1_000, false),
            "{}",
            job.name
        );
    }
    queue.set_class("normal", Some(class(1_000)));
    assert_eq!(standing(&queue, &job()), (0, 0, false), "no default now");
}

#[test]
fn claim_is_what_all_pods_were_admitted_with() {
    type Change = fn(&mut Vec<GangPod<'_>>);
    let cases: &[(&str, Change, (i32, i32, bool))] = &[
        ("all", |_| {}, (1_000, 1_000, true)),
        ("lowest", |pods| pods[1].priority = 7, (7, 7, true)),
        (
            "one is missing",
            |pods| {
                pods.pop();
            },
            (1_000, 0, false),
        ),
        (
            "one is going",
            |pods| pods[0].leaving = true,
            (1_000, 0, false),
        ),
        (
            "one has failed",
            |pods| pods[0].phase = PodPhase::Failed,
            (1_000, 0, false),
        ),
        (
            "of another attempt",
            |pods| pods[2].attempt = 2,
            (1_000, 0, false),
        ),
        (
            "below the default, one is missing",
            |pods| {
                pods.pop();
                pods[0].priority = -5;
            },
            (-5, -5, false),
        ),
    ];
    let urgent = urgent();
    let names = names(&urgent);
    for (name, change, want) in cases {
        let mut queue = queue();
        queue.set_classes(classes());
        let mut pods = gated(&names, 1_000);
        change(&mut pods);
        look_at(&mut queue, &urgent, (1, 0), &pods, NOW);
        assert_eq!(standing(&queue, &urgent), *want, "{name}");
    }
}

#[test]
fn smaller_pods_do_not_raise_priority() {
    let urgent = urgent();
    let names = names(&urgent);
    let less = amounts(&[(GPU, 1), ("pods", 1)]);
    let enough = amounts(&[(GPU, 8), ("cpu", 10), ("pods", 1)]);
    for (requests, want) in [(&less, (1_000, 0, false)), (&enough, (1_000, 1_000, true))] {
        let mut queue = queue();
        queue.set_classes(classes());
        let mut pods = gated(&names, 1_000);
        for pod in &mut pods {
            pod.requests = Some(requests);
        }
        let seating = look_at(&mut queue, &urgent, (1, 0), &pods, NOW);
        assert_eq!(seating, Seating::Unasked, "it may ask all the same");
        assert_eq!(standing(&queue, &urgent), want, "{requests:?}");
    }
}

/// A wait queue in which the job runs on all nodes, with pods of this priority.
fn running_with(priority: i32) -> (WaitQueue, Vec<String>) {
    let mut queue = seated();
    queue.set_classes(classes());
    run(&mut queue, false);
    let names = names(&job());
    look(&mut queue, 1, &on_nodes(&names, priority), NOW);
    (queue, names)
}

fn on_nodes(names: &[String], priority: i32) -> Vec<GangPod<'_>> {
    let pods = names.iter().zip(["a", "b", "c"]);
    pods.map(|(name, node)| GangPod {
        priority,
        ..running(name, node)
    })
    .collect()
}

#[test]
fn missing_pods_evict_no_gang() {
    let attackers = [
        of_class("x", "high"),
        of_class("x", "system-node-critical"),
        other("x", |spec| spec.priority = Some(i32::MAX)),
        other("x", |_| {}),
    ];
    for mut attacker in attackers {
        attacker.settings.preemption = Some(Switch::On);
        let (mut queue, names) = running_with(-10);
        look_at(&mut queue, &attacker, (1, 0), &[], NOW);
        // Whatever made it ask.
        queue.ask(&GangKey::of(&attacker), time(NOW));
        queue.place(time(NOW));
        let victim = look(&mut queue, 1, &on_nodes(&names, -10), NOW);
        assert_eq!(given(&victim), ["a", "b", "c"]);
        // As soon as its pods are there, it is worth another look.
        queue.take_placement_due();
        let own = super::names(&attacker);
        look_at(&mut queue, &attacker, (1, 0), &gated(&own, 0), NOW);
        queue.ask(&GangKey::of(&attacker), time(NOW));
        assert!(queue.take_placement_due());
        queue.place(time(NOW));
        let victim = look(&mut queue, 1, &on_nodes(&names, -10), NOW);
        assert!(matches!(victim, Seating::Evicted(_)), "{victim:?}");
    }
}

#[test]
fn eviction_is_cancelled_when_pods_are_gone() {
    let (mut queue, names) = running_with(0);
    ask_urgently(&mut queue);
    queue.place(time(NOW));
    let low = on_nodes(&names, 0);
    assert!(matches!(
        look(&mut queue, 1, &low, NOW),
        Seating::Evicted(_)
    ));
    let left = look_at(&mut queue, &urgent(), (1, 0), &[], NOW);
    assert!(matches!(left, Seating::Unadmitted(_)), "{left:?}");
    assert!(queue.take_placement_due(), "worth a look");
    let looked = queue.place(time(NOW));
    assert_eq!(looked.changed, [GangKey::of(&job())]);
    assert_eq!(given(&look(&mut queue, 1, &low, NOW)), ["a", "b", "c"]);
}

#[test]
fn seats_are_protected_between_attempts() {
    let (mut queue, _) = running_with(1_000);
    look(&mut queue, 2, &[], NOW);
    assert_eq!(standing(&queue, &job()), (1_000, 0, false));
    // Another gang of a class in between does not get them meanwhile.
    queue.set_class("middle", Some(class(500)));
    let mut middle = of_class("middle", "middle");
    middle.settings.preemption = Some(Switch::On);
    let names = names(&middle);
    look_at(&mut queue, &middle, (1, 0), &gated(&names, 500), NOW);
    queue.ask(&GangKey::of(&middle), time(NOW));
    queue.place(time(NOW));
    assert_eq!(given(&look(&mut queue, 2, &[], NOW)), ["a", "b", "c"]);
}

#[test]
fn gang_that_never_preempts_evicts_nobody() {
    for by_pod in [true, false] {
        let (mut queue, names) = running_with(0);
        let never = PriorityClass {
            never_preempts: !by_pod,
            ..class(1_000)
        };
        queue.set_class("high", Some(never));
        let own = super::names(&urgent());
        let mut pods = gated(&own, 1_000);
        pods[1].never_preempts = by_pod;
        look_at(&mut queue, &urgent(), (1, 0), &pods, NOW);
        queue.ask(&GangKey::of(&urgent()), time(NOW));
        queue.place(time(NOW));
        let victim = look(&mut queue, 1, &on_nodes(&names, 0), NOW);
        assert_eq!(given(&victim), ["a", "b", "c"]);
        let Seating::Queued(Some(why)) = look_at(&mut queue, &urgent(), (1, 0), &pods, NOW) else {
            panic!("it waits and says why");
        };
        let why = why.message;
        assert!(why.ends_with("(`preemptionPolicy: Never`)"), "{why}");
    }
}

#[test]
fn large_launcher_needs_its_own_pod() {
    for (launcher_gpus, want) in [("0", true), ("8", false)] {
        let mut own = testing::job(Kind::MpiV2);
        own.settings.preemption = Some(Switch::On);
        for (role, template) in &mut own.roles {
            let gpus = if *role == crate::spec::Role::Launcher {
                launcher_gpus
            } else {
                "8"
            };
            let limits = [(GPU.to_owned(), serde_json::from_value(gpus.into()).unwrap())];
            template.template.spec = Some(PodSpec {
                priority_class_name: Some("high".to_owned()),
                containers: vec![Container {
                    name: "mpi".to_owned(),
                    resources: Some(ResourceRequirements {
                        limits: Some(limits.into()),
                        ..ResourceRequirements::default()
                    }),
                    ..Container::default()
                }],
                ..PodSpec::default()
            });
        }
        let names: Vec<String> = names(&own)
            .into_iter()
            .filter(|name| !name.contains("launcher"))
            .collect();
        let mut queue = queue();
        queue.set_classes(classes());
        let pods = gated(&names, 1_000);
        let seating = look_at(&mut queue, &own, (1, 0), &pods, NOW);
        assert_eq!(seating, Seating::Unasked, "it may ask in any case");
        assert_eq!(standing(&queue, &own).2, want, "{launcher_gpus} GPUs");
    }
}

#[test]
fn scope_of_preemption_is_kept_and_reported_once() {
    let (mut queue, names) = running_with(0);
    queue.set_preemption(PreemptionScope::Off);
    ask_urgently(&mut queue);
    let high = GangKey::of(&urgent());
    let looked = queue.place(time(NOW));
    assert_eq!(looked.out_of_scope, std::slice::from_ref(&high));
    assert_eq!(queue.place(time(NOW + 1)).out_of_scope, [], "once");
    let victim = look(&mut queue, 1, &on_nodes(&names, 0), NOW);
    assert_eq!(given(&victim), ["a", "b", "c"]);
    let own = super::names(&urgent());
    let waits = look_at(&mut queue, &urgent(), (1, 0), &gated(&own, 1_000), NOW);
    let Seating::Queued(Some(why)) = waits else {
        panic!("{waits:?}");
    };
    assert!(
        why.message.ends_with("preemption is off (`--preemption`)"),
        "{why:?}"
    );
}
