//! What a job means where its file says nothing.

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodTemplateSpec};

use super::{Kind, Role};

/// How many pods a role wants that states no number.
pub(super) fn replicas(kind: Kind, role: Role) -> u32 {
    match (kind, role) {
        (Kind::MpiV1 | Kind::MpiV2, Role::Worker) => 0,
        _ => 1,
    }
}

/// The container that trains: the one with the kind's name, else the first. MPI always takes the
/// first.
pub(super) fn training_container(kind: Kind, template: &PodTemplateSpec) -> Option<usize> {
    let containers = &template.spec.as_ref()?.containers;
    let named = containers
        .iter()
        .position(|container| !kind.is_mpi() && container.name == kind.container());
    named.or((!containers.is_empty()).then_some(0))
}

/// The rendezvous port in a pod of `template`: the one with the kind's port name, else the
/// kind's own number.
pub(super) fn rendezvous_port(kind: Kind, template: &PodTemplateSpec) -> Option<i32> {
    let (name, number) = kind.port()?;
    let stated = training_container(kind, template)
        .and_then(|index| template.spec.as_ref()?.containers.get(index))
        .and_then(|container| container.ports.as_ref())
        .and_then(|ports| ports.iter().find(|port| port.name.as_deref() == Some(name)))
        .map(|port| port.container_port);
    Some(stated.unwrap_or(number))
}

/// Makes the training container announce the kind's port.
pub(super) fn add_port(kind: Kind, template: &mut PodTemplateSpec) {
    let Some(((name, number), index)) = kind.port().zip(training_container(kind, template)) else {
        return;
    };
    let containers = template.spec.as_mut().map(|spec| &mut spec.containers);
    if let Some(container) = containers.and_then(|containers| containers.get_mut(index)) {
        announce(container, name, number);
    }
}

fn announce(container: &mut Container, name: &str, number: i32) {
    let ports = container.ports.get_or_insert_default();
    if ports.iter().any(|port| port.name.as_deref() == Some(name)) {
        return;
    }
    let is_tcp = |port: &ContainerPort| matches!(port.protocol.as_deref(), None | Some("TCP"));
    let same = ports
        .iter_mut()
        .find(|port| port.container_port == number && is_tcp(port));
    match same {
        // A Service with the same number twice is refused, so the number is announced once. A
        // port without a name can take ours; one with a name may be referred to by it.
        Some(port) => {
            port.name.get_or_insert_with(|| name.to_owned());
        }
        None => ports.push(ContainerPort {
            name: Some(name.to_owned()),
            container_port: number,
            ..ContainerPort::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;

    use super::*;

    fn port(name: Option<&str>, number: i32, protocol: Option<&str>) -> ContainerPort {
        ContainerPort {
            name: name.map(str::to_owned),
            container_port: number,
            protocol: protocol.map(str::to_owned),
            ..ContainerPort::default()
        }
    }

    fn template(containers: &[(&str, Vec<ContainerPort>)]) -> PodTemplateSpec {
        PodTemplateSpec {
            spec: Some(PodSpec {
                containers: containers
                    .iter()
                    .map(|(name, ports)| Container {
                        name: (*name).to_owned(),
                        ports: (!ports.is_empty()).then(|| ports.clone()),
                        ..Container::default()
                    })
                    .collect(),
                ..PodSpec::default()
            }),
            ..PodTemplateSpec::default()
        }
    }

    #[test]
    fn the_port_is_announced_once() {
        let ours = || port(Some("pytorchjob-port"), 23456, None);
        let cases = [
            ("no port", vec![], vec![ours()]),
            (
                "another port",
                vec![port(Some("web"), 80, None)],
                vec![port(Some("web"), 80, None), ours()],
            ),
            (
                "our name with another number",
                vec![port(Some("pytorchjob-port"), 29500, None)],
                vec![port(Some("pytorchjob-port"), 29500, None)],
            ),
            (
                "our number without a name",
                vec![port(None, 23456, None)],
                vec![ours()],
            ),
            (
                "our number under another name",
                vec![port(Some("rdzv"), 23456, Some("TCP"))],
                vec![port(Some("rdzv"), 23456, Some("TCP"))],
            ),
            (
                "our number in another protocol",
                vec![port(Some("rdzv"), 23456, Some("UDP"))],
                vec![port(Some("rdzv"), 23456, Some("UDP")), ours()],
            ),
        ];
        for (name, before, want) in cases {
            let mut pod = template(&[("side", vec![]), ("pytorch", before)]);
            add_port(Kind::PyTorch, &mut pod);
            assert_eq!(
                pod,
                template(&[("side", vec![]), ("pytorch", want)]),
                "{name}"
            );
        }
        let mut first = template(&[("a", vec![]), ("b", vec![])]);
        add_port(Kind::PyTorch, &mut first);
        assert_eq!(first, template(&[("a", vec![ours()]), ("b", vec![])]));
        let mut mpi = template(&[("mpi", vec![])]);
        add_port(Kind::MpiV1, &mut mpi);
        assert_eq!(mpi, template(&[("mpi", vec![])]));
    }

    #[test]
    fn the_rendezvous_port_goes_by_name() {
        let cases = [
            (
                vec![port(Some("pytorchjob-port"), 29500, None)],
                Some(29500),
            ),
            (vec![port(Some("rdzv"), 23456, None)], Some(23456)),
            (vec![port(Some("rdzv"), 1, None)], Some(23456)),
        ];
        for (ports, want) in cases {
            let pod = template(&[("pytorch", ports)]);
            assert_eq!(rendezvous_port(Kind::PyTorch, &pod), want);
        }
        assert_eq!(
            rendezvous_port(Kind::MpiV2, &template(&[("m", vec![])])),
            None
        );
    }
}
