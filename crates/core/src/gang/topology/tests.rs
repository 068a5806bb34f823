use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn names(topology: &Topology) -> Vec<&str> {
    topology
        .levels
        .iter()
        .map(|level| level.name.as_str())
        .collect()
}

/// What it is, the labels of a node, and the levels that they show.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [&'static str],
);

#[test]
fn well_known_labels_are_found_from_wide_to_narrow() {
    let cases: &[Case] = &[
        ("none", &[("kubernetes.io/hostname", "a")], &[]),
        (
            "Google Cloud with NVLink",
            &[
                ("nvidia.com/gpu.clique", "c"),
                ("cloud.google.com/gce-topology-subblock", "s"),
                ("cloud.google.com/gce-topology-block", "b"),
                ("topology.kubernetes.io/zone", "z"),
            ],
            &["zone", "block", "rack", "nvlink"],
        ),
        (
            "AWS",
            &[
                ("topology.k8s.aws/network-node-layer-3", "3"),
                ("topology.k8s.aws/network-node-layer-1", "1"),
                ("topology.k8s.aws/network-node-layer-2", "2"),
            ],
            &["spine", "block", "rack"],
        ),
        (
            "Kueue's examples",
            &[
                ("cloud.provider.com/topology-rack", "r"),
                ("cloud.provider.com/topology-block", "b"),
            ],
            &["block", "rack"],
        ),
    ];
    for (case, pairs, want) in cases {
        let node = labels(pairs);
        let (topology, warnings) = Topology::detect([&node]);
        assert_eq!(names(&topology), *want, "{case}");
        assert_eq!(warnings, [""; 0], "{case}");
    }
}

#[test]
fn inconsistent_labels_are_reported() {
    let key = |name: &str| format!("cloud.provider.com/topology-{name}");
    let (block, rack) = (key("block"), key("rack"));
    let nodes = [
        labels(&[(&block, "b1"), (&rack, "r1")]),
        labels(&[(&block, "b2"), (&rack, "r1")]),
        labels(&[(&block, "b2")]),
        labels(&[("topology.k8s.aws/network-node-layer-1", "n")]),
    ];
    let (topology, warnings) = Topology::detect(&nodes);
    assert_eq!(names(&topology), ["block", "rack"]);
    assert_eq!(
        warnings,
        [
            "3 nodes have the topology labels of Kueue's examples, and 1 those of AWS; the latter are ignored",
            "1 of 4 nodes have no label `cloud.provider.com/topology-block`, so they are in no block",
            "2 of 4 nodes have no label `cloud.provider.com/topology-rack`, so they are in no rack",
            "rack `r1` lies under blocks `b1` and `b2`; each is taken as a rack of its own",
        ]
    );
}

#[test]
fn own_keys_are_called_by_their_end() {
    let topology = Topology::of_keys([
        "example.com/topology-row",
        "example.com/rack",
        "kubernetes.io/hostname",
        "example.com/rack",
        "other.com/rack",
    ]);
    assert_eq!(names(&topology), ["row", "rack", "other.com/rack"]);
    assert_eq!(topology.find("example.com/rack"), Some(1));
    assert_eq!(topology.find("rack"), Some(1));
    assert_eq!(topology.find("zone"), None);
}
