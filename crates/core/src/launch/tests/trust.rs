//! What a job may not have: the operator's account, rights that nobody gave, ports that others reach.

use serde_json::{Value, json};

use super::build::{Build, job};
use crate::{
    launch::{
        Account, Cluster, LaunchError, NetworkPolicyMode, Object, Plan, account_refusal,
        names_account, preflight_policy, render, transport,
    },
    spec::{Job, Kind, MpiTransport, Preflight, Role},
};

fn run_by(account: &str) -> Cluster {
    Cluster {
        own_account: Account::of_user(account),
        ..Cluster::default()
    }
}

#[test]
fn accounts_are_read_from_users() {
    let account = |namespace: &str, name: &str| {
        Some(Account {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    };
    let cases = [
        (
            "system:serviceaccount:n:trainyard",
            account("n", "trainyard"),
        ),
        ("system:serviceaccount:n:", None),
        ("system:serviceaccount::x", None),
        ("system:serviceaccount:n:x:y", None),
        ("system:node:n", None),
        ("kubernetes-admin", None),
        ("", None),
    ];
    for (user, want) in cases {
        assert_eq!(Account::of_user(user), want, "{user}");
    }
}

#[test]
fn no_job_runs_as_the_operator() {
    let trainer = |name: Option<&str>, old: Option<&str>| {
        job(Kind::PyTorch)
            .role(Role::Master, 1)
            .role(Role::Worker, 2)
            .pod(Role::Worker, |spec| {
                spec.service_account_name = name.map(str::to_owned);
                spec.service_account = old.map(str::to_owned);
            })
            .done()
    };
    let own = "system:serviceaccount:n:trainyard";
    let cases = [
        ("its name", own, trainer(Some("trainyard"), None), true),
        (
            "its name, in the old field",
            own,
            trainer(None, Some("trainyard")),
            true,
        ),
        (
            "an empty name beside it",
            own,
            trainer(Some(""), Some("trainyard")),
            true,
        ),
        (
            "the new field wins",
            own,
            trainer(Some("trainer"), Some("trainyard")),
            false,
        ),
        ("another name", own, trainer(Some("trainer"), None), false),
        ("no name", own, trainer(None, None), false),
        (
            "no name, and it runs as `default`",
            "system:serviceaccount:n:default",
            trainer(None, None),
            true,
        ),
        (
            "its name, elsewhere",
            "system:serviceaccount:other:trainyard",
            trainer(Some("trainyard"), None),
            false,
        ),
        ("a person", "admin", trainer(Some("trainyard"), None), false),
    ];
    for (what, user, job, refused) in cases {
        let refusal = account_refusal(&job, &run_by(user));
        assert_eq!(refusal.is_some(), refused, "{what}: {refusal:?}");
    }
    let refusal = account_refusal(&trainer(Some("trainyard"), None), &run_by(own)).unwrap();
    assert_eq!(
        refusal,
        "the template of Worker names ServiceAccount `trainyard`, which is the operator's own in namespace `n` and \
         would give the job its rights; name another account, or create the job in another namespace"
    );
}

fn mpi(kind: Kind) -> Build {
    job(kind).role(Role::Launcher, 1).role(Role::Worker, 2)
}

fn stating(kind: Kind, transport: MpiTransport) -> Job {
    let mut job = mpi(kind).done();
    job.settings.mpi_transport = Some(transport);
    job
}

#[test]
fn kubectl_needs_the_launcher_rights() {
    use MpiTransport::{Agent, Kubectl, Ssh};
    let cluster = |image: bool| Cluster {
        agent_image: image.then(|| "trainyard:1".to_owned()),
        launcher_rights: false,
        ..Cluster::default()
    };
    let named = mpi(Kind::MpiV1).container(Role::Launcher, |container| {
        container.command = Some(vec!["kubectl".to_owned(), "get".to_owned()]);
    });
    let cases = [
        (
            "v1 by the agent",
            mpi(Kind::MpiV1).done(),
            true,
            Ok(Some(Agent)),
        ),
        (
            "v1 without an agent",
            mpi(Kind::MpiV1).done(),
            false,
            Err(LaunchError::NoAgentNorRights),
        ),
        (
            "v1 that says kubectl",
            stating(Kind::MpiV1, Kubectl),
            true,
            Err(LaunchError::NoLauncherRights),
        ),
        (
            "v1 that calls kubectl",
            named.done(),
            true,
            Err(LaunchError::NoLauncherRights),
        ),
        ("v2 by ssh", mpi(Kind::MpiV2).done(), false, Ok(Some(Ssh))),
    ];
    for (what, job, image, want) in cases {
        let cluster = cluster(image);
        assert_eq!(transport(&job, &cluster), want, "{what}");
        let plan = Plan::new(&job, &cluster);
        assert_eq!(plan.err(), want.err(), "{what}");
    }
    for error in [LaunchError::NoAgentNorRights, LaunchError::NoLauncherRights] {
        let text = error.to_string();
        assert!(text.contains("`--mpi-launcher-rights`"), "{text}");
        assert!(text.contains("`mpi.launcherRights=true`"), "{text}");
    }
}

#[test]
fn without_launcher_rights_no_account_is_made() {
    let job = mpi(Kind::MpiV1)
        .pod(Role::Launcher, |spec| {
            spec.service_account_name = Some("trainer".to_owned());
        })
        .done();
    assert!(names_account(&job, "trainer"));
    assert!(!names_account(&job, "j-launcher"));
    for rights in [true, false] {
        let cluster = Cluster {
            agent_image: Some("trainyard:1".to_owned()),
            launcher_rights: rights,
            ..Cluster::default()
        };
        let made = render(&job, &cluster).unwrap();
        let accounts = made
            .iter()
            .filter(|object| matches!(object, Object::ServiceAccount(_)));
        assert_eq!(accounts.count(), usize::from(rights), "{rights}");
    }
}

fn policies(job: &Job, mode: NetworkPolicyMode) -> Vec<Value> {
    let cluster = Cluster {
        agent_image: Some("trainyard:1".to_owned()),
        network_policy: mode,
        ..Cluster::default()
    };
    let objects = render(job, &cluster).unwrap();
    let policies = objects
        .iter()
        .filter(|object| matches!(object, Object::NetworkPolicy(_)));
    policies.map(Object::to_value).collect()
}

#[test]
fn policies_close_the_port_of_the_agent() {
    let range = |protocol: &str, first: u16, last: u16| json!({"protocol": protocol, "port": first, "endPort": last});
    let others = json!({"ports": [
        range("TCP", 1, 28021),
        range("TCP", 28023, 65535),
        range("UDP", 1, 65535),
        range("SCTP", 1, 65535),
    ]});
    for kind in [Kind::MpiV1, Kind::MpiV2] {
        let labels = json!({"matchLabels": {
            "training.kubeflow.org/operator-name": kind.controller(),
            "training.kubeflow.org/job-name": "j",
        }});
        let among = json!({"from": [{"podSelector": labels}]});
        let job = mpi(kind).uid().done();
        assert_eq!(policies(&job, NetworkPolicyMode::Off), [Value::Null; 0]);
        for (mode, ingress) in [
            (NetworkPolicyMode::Ports, json!([among, others])),
            (NetworkPolicyMode::Job, json!([among])),
        ] {
            let made = policies(&job, mode);
            let [policy] = &made[..] else {
                panic!("{made:?}");
            };
            assert_eq!(policy["metadata"]["name"], "j-agent");
            assert_eq!(policy["metadata"]["ownerReferences"][0]["controller"], true);
            assert_eq!(policy["spec"]["podSelector"], labels, "{kind:?}");
            assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
            assert_eq!(policy["spec"]["ingress"], ingress, "{kind:?} {mode:?}");
        }
        // Every pod of the job is among those that are meant.
        for object in render(&job, &Cluster::default()).unwrap() {
            let value = object.to_value();
            let labels_of_pod = match object {
                Object::Pod(_) => &value["metadata"]["labels"],
                Object::Job(_) => &value["spec"]["template"]["metadata"]["labels"],
                _ => continue,
            };
            let wanted = labels["matchLabels"].as_object().unwrap();
            for (key, value) in wanted {
                assert_eq!(&labels_of_pod[key], value, "{kind:?} {key}");
            }
        }
    }
    // Nothing listens in these.
    for job in [
        stating(Kind::MpiV2, MpiTransport::Ssh),
        job(Kind::PyTorch).role(Role::Worker, 2).done(),
    ] {
        assert_eq!(policies(&job, NetworkPolicyMode::Ports), [Value::Null; 0]);
    }
}

#[test]
fn policies_close_the_port_of_preflights() {
    let mut job = job(Kind::PyTorch).role(Role::Worker, 2).uid().done();
    assert_eq!(policies(&job, NetworkPolicyMode::Ports), [Value::Null; 0]);
    job.settings.preflight = Preflight::Required;
    let made = policies(&job, NetworkPolicyMode::Ports);
    let [policy] = &made[..] else {
        panic!("{made:?}");
    };
    let pods = json!({"matchLabels": {"trainyard.dev/preflight-of": job.uid}});
    assert_eq!(policy["metadata"]["name"], "j-preflight");
    assert_eq!(policy["spec"]["podSelector"], pods);
    let ingress = &policy["spec"]["ingress"];
    assert_eq!(ingress[0], json!({"from": [{"podSelector": pods}]}));
    assert_eq!(ingress[1]["ports"][0]["endPort"], 29399);
    assert_eq!(ingress[1]["ports"][1]["port"], 29401);
    job.uid = None;
    let cluster = Cluster {
        network_policy: NetworkPolicyMode::Ports,
        ..Cluster::default()
    };
    assert_eq!(preflight_policy(&job, &cluster), None);
}
