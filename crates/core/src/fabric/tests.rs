use super::*;
use crate::{
    finding::Finding,
    spec::{self, Job, Role},
};

/// A `PyTorchJob` on `roce-a`; `annotations`, `env` and `more` go where their names say.
fn pytorch(annotations: &str, env: &str, more: &str) -> Job {
    let text = format!(
        "apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: j, namespace: team, annotations: {{trainyard.dev/fabric: roce-a}}}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        metadata: {{annotations: {{{annotations}}}}}
        spec:
          containers:
          - {{name: pytorch, image: t, env: [{env}]{more}}}
"
    );
    job(&text)
}

fn mpi(command: &str) -> Job {
    let text = format!(
        "apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: j, namespace: team}}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: {{spec: {{containers: [{{name: l, image: t, command: {command}}}]}}}}
    Worker:
      replicas: 2
      template: {{spec: {{containers: [{{name: w, image: t}}]}}}}
"
    );
    job(&text)
}

fn job(text: &str) -> Job {
    let file = spec::read(text.as_bytes()).unwrap();
    let checked = spec::check(&file.documents[0]);
    checked
        .job
        .unwrap_or_else(|| panic!("{:#?}", checked.findings))
}

fn read_text(spec: &str) -> Read {
    let text = format!(
        "apiVersion: trainyard.dev/v1alpha1\nkind: Fabric\nmetadata: {{name: roce-a}}\nspec: {spec}\n"
    );
    let file = spec::read(text.as_bytes()).unwrap_or_else(|finding| panic!("{finding:?}\n{text}"));
    read(&file.documents[0])
}

fn fabric(spec: &str) -> Fabric {
    let read = read_text(spec);
    read.fabric
        .unwrap_or_else(|| panic!("{:#?}", read.findings))
}

const ROCE: &str = "{attachments: [roce-a], interface: net1, rdma: {resource: rdma/hca}, shm: 64Gi, \
                    variables: {NCCL_IB_GID_INDEX: '3'}}";

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn what_is_added_is_said_word_for_word() {
    let fitted = fit(&pytorch("", "", ""), &fabric(ROCE));
    assert_eq!(
        fitted.added().as_deref(),
        Some(
            "Worker: annotation `k8s.v1.cni.cncf.io/networks: roce-a@net1`, variable `GLOO_SOCKET_IFNAME=net1`, \
             variable `NCCL_IB_GID_INDEX=3`, variable `NCCL_SOCKET_IFNAME==net1`, resource `rdma/hca: 1`, \
             `/dev/shm` of 64Gi in memory"
        )
    );
    assert_eq!(fitted.objections(), None);
}

#[test]
fn fitting_twice_adds_nothing() {
    let jobs = [
        pytorch("", "", ""),
        pytorch("k8s.v1.cni.cncf.io/networks: other", "", ""),
        mpi("[mpirun, train]"),
    ];
    for job in jobs {
        let once = fit(&job, &fabric(ROCE)).job;
        let twice = fit(&once, &fabric(ROCE));
        assert_eq!(twice.job, once);
        assert_eq!(twice.added(), None);
    }
}

#[test]
fn user_settings_stay_and_are_reported() {
    let cases = [
        (
            "a variable",
            pytorch("", "{name: NCCL_SOCKET_IFNAME, value: eth0}", ""),
            "variable `NCCL_SOCKET_IFNAME` is `eth0`, the fabric has `=net1`",
        ),
        (
            "a variable from elsewhere",
            pytorch(
                "",
                "{name: NCCL_IB_GID_INDEX, valueFrom: {configMapKeyRef: {name: m, key: k}}}",
                "",
            ),
            "variable `NCCL_IB_GID_INDEX` is `(from valueFrom)`, the fabric has `3`",
        ),
        (
            "a number of devices",
            pytorch("", "", ", resources: {limits: {rdma/hca: 4}}"),
            "resource `rdma/hca` is `4`, the fabric has `1`",
        ),
        (
            "another network in the place of the first",
            pytorch("k8s.v1.cni.cncf.io/networks: storage", "", ""),
            "the interface of its network is `net2`, the fabric has `net1`",
        ),
    ];
    for (name, job, expected) in cases {
        let fitted = fit(&job, &fabric(ROCE));
        assert_eq!(
            fitted.objections().as_deref(),
            Some(format!("Worker: {expected}").as_str()),
            "{name}"
        );
        let before = serde_json::to_value(&job.roles[&Role::Worker].template).unwrap();
        let after = serde_json::to_value(&fitted.job.roles[&Role::Worker].template).unwrap();
        assert_kept(&before, &after, name);
    }
}

/// Everything in `before` is in `after`; texts may have grown at their end, as the list of networks does.
fn assert_kept(before: &serde_json::Value, after: &serde_json::Value, name: &str) {
    use serde_json::Value::{Array, Object, String};
    match (before, after) {
        (Object(before), Object(after)) => {
            for (key, value) in before {
                assert_kept(value, &after[key], name);
            }
        }
        (Array(before), Array(after)) => {
            for (value, after) in before.iter().zip(after) {
                assert_kept(value, after, name);
            }
            assert!(before.len() <= after.len(), "{name}");
        }
        (String(before), String(after)) => assert!(after.starts_with(before.as_str()), "{name}"),
        (before, after) => assert_eq!(before, after, "{name}"),
    }
}

#[test]
fn networks_are_joined_with_those_of_the_user() {
    let two = "{attachments: [net/roce-a, net/roce-b@rail1], interface: net1}";
    let cases = [
        ("none", "", two, "net/roce-a@net1,net/roce-b@rail1", "=net1"),
        (
            "one",
            "other",
            two,
            "other,net/roce-a,net/roce-b@rail1",
            "=net2",
        ),
        (
            "the same",
            "net/roce-a@fast",
            two,
            "net/roce-a@fast,net/roce-b@rail1",
            "=fast",
        ),
        (
            "JSON",
            r#"[{"name": "other", "interface": "x"}]"#,
            two,
            r#"[{"interface":"x","name":"other"},{"interface":"net1","name":"roce-a","namespace":"net"},{"interface":"rail1","name":"roce-b","namespace":"net"}]"#,
            "=net1",
        ),
        (
            "the same by default",
            "roce-a",
            "{attachments: [team/roce-a], interface: net1}",
            "roce-a",
            "=net1",
        ),
    ];
    for (name, own, spec, want, interface) in cases {
        let annotations = match own {
            "" => String::new(),
            own => format!("{NETWORKS}: '{own}'"),
        };
        let fitted = fit(&pytorch(&annotations, "", ""), &fabric(spec));
        let template = &fitted.job.roles[&Role::Worker].template;
        let annotations = template.metadata.as_ref().unwrap().annotations.as_ref();
        let joined = &annotations.unwrap()[NETWORKS];
        if want.starts_with('[') {
            assert_eq!(parsed(joined), parsed(want), "{name}");
        } else {
            assert_eq!(joined, want, "{name}");
        }
        let container = &template.spec.as_ref().unwrap().containers[0];
        let env = container.env.iter().flatten();
        let found = env.into_iter().find(|one| one.name == "NCCL_SOCKET_IFNAME");
        assert_eq!(found.unwrap().value.as_deref(), Some(interface), "{name}");
    }
}

#[test]
fn a_launcher_hands_the_variables_on() {
    let spec = "{attachments: [roce-a], rdma: {resource: rdma/hca}, variables: {UCX_TLS: rc}}";
    let cases = [
        (
            "mpirun",
            "[mpirun, -np, '2', train]",
            "mpirun -x UCX_TLS -np 2 train",
            None,
        ),
        (
            "by a path",
            "[/usr/bin/mpirun, train]",
            "/usr/bin/mpirun -x UCX_TLS train",
            None,
        ),
        (
            "forwarded already",
            "[mpirun, -x, UCX_TLS, train]",
            "mpirun -x UCX_TLS train",
            None,
        ),
        (
            "forwarded with another value",
            "[mpirun, -x, UCX_TLS=tcp, train]",
            "mpirun -x UCX_TLS=tcp train",
            Some("Launcher: `-x UCX_TLS` is `tcp`, the fabric has `rc`"),
        ),
        (
            "a script",
            "[sh, -c, mpirun train]",
            "sh -c mpirun train",
            Some(
                "Launcher: `-x UCX_TLS`: no item of the command is `mpirun`, add them where it is called",
            ),
        ),
    ];
    for (name, command, want, objection) in cases {
        let fitted = fit(&mpi(command), &fabric(spec));
        let launcher = &fitted.job.roles[&Role::Launcher].template;
        let container = &launcher.spec.as_ref().unwrap().containers[0];
        assert_eq!(
            container.command.as_ref().unwrap().join(" "),
            want,
            "{name}"
        );
        assert_eq!(fitted.objections().as_deref(), objection, "{name}");
        assert_eq!(container.resources, None, "{name}: a launcher has no ranks");
    }
}

#[test]
fn local_fit_keeps_variables_without_interface() {
    let fitted = fit_locally(&pytorch("", "", ""), &fabric(ROCE));
    assert_eq!(
        fitted.added().as_deref(),
        Some("Worker: variable `NCCL_IB_GID_INDEX=3`")
    );
    assert_eq!(
        fitted.objections().as_deref(),
        Some(
            "Worker: the network `roce-a`, `rdma/hca: 1`, variable `GLOO_SOCKET_IFNAME`, \
             variable `NCCL_SOCKET_IFNAME`"
        )
    );
}

#[test]
fn mistakes_are_found_where_they_are() {
    let cases = [
        ("{}", &[][..]),
        ("{interfaces: net1}", &["TY106 spec.interfaces"]),
        ("{interface: 7}", &["TY104 spec.interface"]),
        (
            "{interface: an-interface-of-twenty}",
            &["TY149 spec.interface"],
        ),
        (
            "{attachments: [a@net1, b@net1]}",
            &["TY149 spec.attachments[1]"],
        ),
        ("{attachments: [A_B]}", &["TY149 spec.attachments[0]"]),
        (
            "{attachments: [a@x], interface: net1}",
            &["TY149 spec.interface"],
        ),
        (
            "{rdma: {count: 0}}",
            &["TY149 spec.rdma", "TY149 spec.rdma.count"],
        ),
        ("{rdma: {resource: cpu}}", &["TY149 spec.rdma.resource"]),
        ("{variables: {1A: x}}", &["TY149 spec.variables.1A"]),
        ("{variables: {A: 3}}", &["TY104 spec.variables.A"]),
        ("{shm: none}", &["TY104 spec.shm"]),
        ("{shm: 0}", &["TY149 spec.shm"]),
        (
            "{expects: {transport: infiniband, mtu: 9}}",
            &["TY149 spec.expects.transport", "TY149 spec.expects.mtu"],
        ),
        (
            "{network: {plugin: mac-vlan}}",
            &["TY149 spec.network.plugin"],
        ),
        ("{network: {plugin: macvlan}}", &["TY149 spec.network"]),
        ("{network: {plugin: host-device}}", &["TY149 spec.network"]),
        (
            "{network: {plugin: ib-sriov, resourceName: r/x, mode: l2}}",
            &["TY149 spec.network.mode"],
        ),
        (
            "{network: {plugin: ipvlan, master: e, addresses: {by: host-local}}}",
            &["TY149 spec.network.addresses"],
        ),
        (
            "{network: {plugin: ipvlan, master: e, addresses: {by: whereabouts, range: 10.0.0.0/24, first: 10.0.1.1}}}",
            &["TY149 spec.network.addresses.first"],
        ),
        (
            "{network: {plugin: ipvlan, master: e, addresses: {by: whereabouts, range: 10.0.0.0/24, exclude: [10.0.1.0/30]}}}",
            &["TY149 spec.network.addresses.exclude[0]"],
        ),
    ];
    for (spec, want) in cases {
        let read = read_text(spec);
        let line = |finding: &Finding| format!("{} {}", finding.code, finding.path);
        let found: Vec<String> = read.findings.iter().map(line).collect();
        assert_eq!(found, want, "{spec}: {:#?}", read.findings);
        assert!(read.findings.iter().all(|finding| finding.span.line > 0));
    }
}

#[test]
fn attachments_are_generated_for_every_plugin() {
    let cases = [
        (
            "{attachments: [net/roce-a], expects: {mtu: 9000}, network: {plugin: macvlan, master: ens1, addresses: {by: host-local, range: 10.1.0.0/24, first: 10.1.0.10, last: 10.1.0.99}}}",
            r#"{"cniVersion":"1.0.0","ipam":{"ranges":[[{"rangeEnd":"10.1.0.99","rangeStart":"10.1.0.10","subnet":"10.1.0.0/24"}]],"type":"host-local"},"master":"ens1","mode":"bridge","mtu":9000,"name":"roce-a","type":"macvlan"}"#,
        ),
        (
            "{network: {plugin: ipvlan, master: ens1, addresses: {by: whereabouts, range: 10.1.0.0/24, exclude: [10.1.0.0/30]}}}",
            r#"{"cniVersion":"1.0.0","ipam":{"exclude":["10.1.0.0/30"],"range":"10.1.0.0/24","type":"whereabouts"},"master":"ens1","mode":"l2","name":"roce-a","type":"ipvlan"}"#,
        ),
        (
            "{network: {plugin: host-device, device: ens2, addresses: {by: dhcp}}}",
            r#"{"cniVersion":"1.0.0","device":"ens2","ipam":{"type":"dhcp"},"name":"roce-a","type":"host-device"}"#,
        ),
        (
            "{network: {plugin: ib-sriov, resourceName: nvidia.com/ib, pkey: '0x8001'}}",
            r#"{"cniVersion":"1.0.0","name":"roce-a","pkey":"0x8001","type":"ib-sriov"}"#,
        ),
    ];
    for (spec, want) in cases {
        let made = attachment(&fabric(spec)).unwrap();
        let config = made["spec"]["config"].as_str().unwrap();
        assert_eq!(parsed(config), parsed(want), "{spec}");
        assert_eq!(made["metadata"]["name"], "roce-a", "{spec}");
    }
    let made = attachment(&fabric(cases[0].0)).unwrap();
    assert_eq!(made["metadata"]["namespace"], "net");
    let made = attachment(&fabric(cases[3].0)).unwrap();
    assert_eq!(
        made["metadata"]["annotations"][RESOURCE_NAME],
        "nvidia.com/ib"
    );
}

#[test]
fn an_object_of_the_api_is_read_like_a_document() {
    let object = serde_json::json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "roce-a", "uid": "u", "resourceVersion": "7"},
        "spec": {"interface": "net1"},
    });
    assert_eq!(read_value(&object), Ok(fabric("{interface: net1}")));
    let mut wrong = object;
    wrong["spec"]["shm"] = "0".into();
    assert_eq!(
        read_value(&wrong).unwrap_err().to_string(),
        "TY149: `shm` must be a size such as `64Gi`, found `0` (at `spec.shm`)"
    );
}
