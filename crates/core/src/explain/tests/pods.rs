//! Pods that do not run.

use super::*;

pub(super) fn of_pods() -> Vec<Named> {
    use Standing::Waits;
    let seat = |words: &'static str| {
        facts().pending(move |pod| pod.wait = Some(Wait::Seat(words.to_owned())))
    };
    let mounts = facts().pending(|pod| {
        pod.node = Some("n1".into());
        pod.wait = Some(Wait::Create);
    });
    let claim = |state| Claim {
        name: "data".into(),
        state,
        class: Some("fast".into()),
        last_event: Some("waiting for a volume to be created".into()),
    };
    vec![
        (
            "a secret that is missing",
            facts().trouble("CreateContainerConfigError", "secret \"wandb\" not found"),
            Cause::ContainerConfig,
            Waits,
            vec!["the secret `wandb` does not exist", "and of 1 pod more"],
        ),
        (
            "a config map that is missing",
            facts().trouble(
                "CreateContainerConfigError",
                "configmap \"hosts\" not found",
            ),
            Cause::ContainerConfig,
            Waits,
            vec!["the configmap `hosts` does not exist"],
        ),
        (
            "a key that is missing",
            facts().trouble(
                "CreateContainerConfigError",
                "couldn't find key k in Secret team/s",
            ),
            Cause::ContainerConfig,
            Waits,
            vec!["couldn't find key k"],
        ),
        (
            "no such image",
            facts()
                .trouble(
                    "ImagePullBackOff",
                    "Back-off pulling image \"example.com/train:1\"",
                )
                .event(
                    "j-worker-0",
                    "Failed",
                    "Failed to pull image: manifest unknown",
                ),
            Cause::ImagePull,
            Waits,
            vec![
                "`example.com/train:1`",
                "no such image or tag",
                "manifest unknown",
            ],
        ),
        (
            "an image that may not be had",
            facts().trouble("ErrImagePull", "401 Unauthorized"),
            Cause::ImagePull,
            Waits,
            vec!["denied access", "imagePullSecrets"],
        ),
        (
            "a registry that is away, as the status shows it",
            facts()
                .trouble("ErrImagePull", "dial tcp: lookup r.example: no such host")
                .waits(&Reason::NoImage {
                    pod: "j-worker-0".into(),
                    message: "no such host".into(),
                }),
            Cause::ImagePull,
            Waits,
            vec!["cannot be reached"],
        ),
        (
            "a secret volume that is missing",
            mounts.clone().event(
                "j-worker-1",
                "FailedMount",
                "MountVolume.SetUp failed for volume \"s\" : secret \"wandb\" not found",
            ),
            Cause::VolumeMount,
            Waits,
            vec!["the secret `wandb` does not exist"],
        ),
        (
            "a volume held by another node",
            mounts.event(
                "j-worker-0",
                "FailedAttachVolume",
                "Multi-Attach error for volume",
            ),
            Cause::VolumeMount,
            Waits,
            vec!["attached", "ReadWriteOnce", "Multi-Attach"],
        ),
        (
            "a claim that is not bound",
            seat("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
                .with(|facts| facts.claims.push(claim(ClaimState::Pending))),
            Cause::VolumeClaim,
            Waits,
            vec![
                "`data`",
                "`fast`",
                "describe pvc data",
                "waiting for a volume",
            ],
        ),
        (
            "a claim that is missing",
            seat("persistentvolumeclaim \"data\" not found")
                .with(|facts| facts.claims.push(claim(ClaimState::Missing))),
            Cause::VolumeClaim,
            Waits,
            vec!["does not exist"],
        ),
        (
            "crash loop",
            facts()
                .trouble(
                    "CrashLoopBackOff",
                    "back-off 40s restarting failed container",
                )
                .with(|facts| {
                    for pod in &mut facts.pods {
                        pod.phase = PodPhase::Running;
                        pod.restarts = 4;
                        pod.exit = Some(exit(139, false));
                    }
                }),
            Cause::CrashLoop,
            Waits,
            vec!["SIGSEGV", "4 times", "logs --previous"],
        ),
        (
            "a node that does not respond",
            facts()
                .pending(|pod| {
                    pod.phase = PodPhase::Running;
                    pod.node = Some("n1".into());
                })
                .with(|facts| {
                    facts
                        .nodes
                        .insert("n1".into(), NodeHealth::SilentSince(at(40)));
                }),
            Cause::NodeSilent,
            Waits,
            vec!["node `n1`", "has not responded", "lost-after"],
        ),
        (
            "a gate of Kueue",
            facts().pending(|pod| {
                pod.wait = Some(Wait::Gate);
                pod.gates.push("kueue.x-k8s.io/admission".into());
            }),
            Cause::Gated,
            Waits,
            vec!["2 of 4 pods", "kueue.x-k8s.io/admission", "get workloads"],
        ),
        (
            "our own gate",
            facts()
                .pending(|pod| {
                    pod.wait = Some(Wait::Gate);
                    pod.gates.push("trainyard.dev/seat".into());
                })
                .waits(&no_nodes(
                    "needs 3 nodes with 8 free GPUs; the cluster has 1",
                    false,
                )),
            Cause::Unschedulable,
            Waits,
            vec![
                "waiting for nodes: needs 3 nodes",
                "nodes` shows which jobs",
            ],
        ),
        (
            "our own gate, and no room ever",
            facts()
                .pending(|pod| {
                    pod.wait = Some(Wait::Gate);
                    pod.gates.push("trainyard.dev/seat".into());
                })
                .waits(&no_nodes(
                    "needs a seat with 1 CPUs; no node reports any `ephemeral-storage`",
                    true,
                )),
            Cause::Unschedulable,
            Waits,
            vec!["no node reports any", "it never starts on these"],
        ),
        (
            "no GPU free",
            seat(
                "0/30 nodes are available: 10 node(s) had untolerated taint(s), 20 Insufficient \
                 nvidia.com/gpu. preemption: 0/30 nodes are available: 30 No preemption victims found.",
            ),
            Cause::Unschedulable,
            Waits,
            vec![
                "`Insufficient nvidia.com/gpu`",
                "wait until `nvidia.com/gpu` is free",
            ],
        ),
        (
            "no GPU free, with a plugin's remark",
            seat(
                "0/30 nodes are available: 30 Insufficient nvidia.com/gpu. no new claims to \
                 deallocate, preemption: 0/30 nodes are available: 30 Preemption is not helpful for \
                 scheduling.",
            ),
            Cause::Unschedulable,
            Waits,
            vec![
                "report `Insufficient nvidia.com/gpu`",
                "until `nvidia.com/gpu` is free",
            ],
        ),
        (
            "tainted nodes",
            seat("0/3 nodes are available: 3 node(s) had untolerated taint {gpu: true}."),
            Cause::Unschedulable,
            Waits,
            vec!["toleration"],
        ),
        (
            "a selector that no node has",
            seat("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."),
            Cause::Unschedulable,
            Waits,
            vec!["nodeSelector"],
        ),
        (
            "a scheduler that is not there",
            facts().pending(|pod| {
                pod.wait = Some(Wait::Seat(String::new()));
                pod.scheduler = "volcano".into();
            }),
            Cause::NoScheduler,
            Waits,
            vec!["`volcano`"],
        ),
        (
            "starting",
            facts().pending(|pod| {
                pod.node = Some("n1".into());
                pod.wait = Some(Wait::Pull);
            }),
            Cause::Starting,
            Waits,
            vec!["2 of 4 pods", "being pulled"],
        ),
    ]
}

fn no_nodes(why: &str, never_fits: bool) -> Reason {
    Reason::NoNodes {
        why: why.to_owned(),
        never_fits,
        unfit: Vec::new(),
    }
}
