//! Pods that exist and do not run.

use super::{
    Answer, Cause, ClaimState, EventFacts, Facts, PodFacts, Trouble, ended, pods_of, seats,
};
use crate::{
    launch,
    pod::{NodeHealth, PodPhase, Wait},
    reason::{Code, Reason},
};

/// Kubelet reasons for an image that cannot be pulled.
const IMAGE_WORDS: [&str; 6] = [
    "ImagePullBackOff",
    "ErrImagePull",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];
/// Kubelet reasons for a container that cannot be created.
const CONFIG_WORDS: [&str; 4] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
];

/// Whether a container that waits with this kubelet reason will not start without help.
pub fn will_not_start(reason: &str) -> bool {
    IMAGE_WORDS.contains(&reason) || CONFIG_WORDS.contains(&reason)
}

/// Pods that will not run without help.
pub(super) fn broken(facts: &Facts) -> Option<Answer> {
    let live: Vec<&PodFacts> = live(facts);
    config(facts, &live)
        .or_else(|| image(facts, &live))
        .or_else(|| volumes(facts, &live))
        .or_else(|| claims(facts, &live))
        .or_else(|| crash_loop(facts, &live))
        .or_else(|| silent_node(facts, &live))
}

/// Pods that wait for another component.
pub(super) fn waiting(facts: &Facts) -> Option<Answer> {
    let live: Vec<&PodFacts> = live(facts);
    gates(facts, &live)
        .or_else(|| seats::waiting(facts, &live))
        .or_else(|| starting(facts, &live))
}

/// The pods of the current attempt that have not ended.
fn live(facts: &Facts) -> Vec<&PodFacts> {
    facts
        .current()
        .filter(|pod| !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed))
        .filter(|pod| pod.deleted_at.is_none())
        .collect()
}

fn troubled<'a>(pods: &[&'a PodFacts], words: &[&str]) -> Vec<(&'a PodFacts, &'a Trouble)> {
    let pods = pods
        .iter()
        .filter_map(|pod| Some((*pod, pod.trouble.as_ref()?)));
    pods.filter(|(_, trouble)| words.contains(&trouble.reason.as_str()))
        .collect()
}

fn and_more(count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        count => format!(" (and of {} more)", pods_of(count - 1)),
    }
}

fn config(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let troubled = troubled(pods, &CONFIG_WORDS);
    let (pod, trouble) = *troubled.first()?;
    let message = &trouble.message;
    let missing = ["secret", "configmap"].into_iter().find_map(|kind| {
        let (_, rest) = message.split_once(&format!("{kind} \""))?;
        let (name, rest) = rest.split_once('"')?;
        rest.starts_with(" not found").then_some((kind, name))
    });
    let more = and_more(troubled.len());
    let (sentence, next) = match missing {
        Some((kind, name)) => (
            format!(
                "container `{}` of pod `{}`{more} cannot start: the {kind} `{name}` does not exist",
                trouble.container, pod.name
            ),
            format!(
                "create the {kind} `{name}` in namespace `{}`; the pods start once it exists",
                facts.job.namespace
            ),
        ),
        None => (
            format!(
                "container `{}` of pod `{}`{more} cannot start: {message}",
                trouble.container, pod.name
            ),
            "correct the container in the template as the message says".to_owned(),
        ),
    };
    let from = format!("pod `{}`, {}", pod.name, trouble.reason);
    Some(Answer::waits(Cause::ContainerConfig, sentence, next).because(from, message))
}

fn image(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let troubled = troubled(pods, &IMAGE_WORDS);
    let (pod, trouble) = *troubled.first()?;
    let event = last_event(facts, &pod.name, &["Failed"]);
    let words = match event {
        // `Back-off pulling image` says less than the event before it.
        Some(event) if trouble.message.is_empty() || trouble.message.starts_with("Back-off") => {
            &event.message
        }
        _ => &trouble.message,
    };
    let lower = words.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let image = &trouble.image;
    let (why, next) = if trouble.reason == "InvalidImageName" {
        (
            "the image name is invalid",
            "correct `image` in the template".to_owned(),
        )
    } else if has(&[
        "unauthorized",
        "denied",
        "forbidden",
        "authentication",
        "no basic auth",
    ]) {
        (
            "the registry denied access",
            "add `imagePullSecrets` with access to the image to the template".to_owned(),
        )
    } else if has(&[
        "no such host",
        "timeout",
        "refused",
        "unreachable",
        "deadline",
    ]) {
        (
            "the registry cannot be reached",
            "check that nodes can reach the registry".to_owned(),
        )
    } else if has(&["not found", "manifest unknown", "does not exist"]) {
        (
            "the registry has no such image or tag",
            "correct `image` in the template, or push it".to_owned(),
        )
    } else {
        ("", format!("check that nodes can pull `{image}`"))
    };
    let why = if why.is_empty() {
        String::new()
    } else {
        format!(": {why}")
    };
    let answer = Answer::waits(
        Cause::ImagePull,
        format!(
            "the image `{image}` of pod `{}`{} cannot be pulled{why}",
            pod.name,
            and_more(troubled.len())
        ),
        next,
    );
    let answer = answer.because(format!("pod `{}`, {}", pod.name, trouble.reason), words);
    Some(answer)
}

fn last_event<'a>(facts: &'a Facts, pod: &str, reasons: &[&str]) -> Option<&'a EventFacts> {
    let mut events = facts.events.iter().rev();
    events.find(|event| event.pod == pod && reasons.contains(&event.reason.as_str()))
}

fn volumes(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let stuck: Vec<(&PodFacts, &EventFacts)> = pods
        .iter()
        .filter(|pod| pod.phase == PodPhase::Pending && pod.node.is_some())
        .filter_map(|pod| {
            let event = last_event(facts, &pod.name, &["FailedMount", "FailedAttachVolume"])?;
            Some((*pod, event))
        })
        .collect();
    let (pod, event) = *stuck.first()?;
    let message = &event.message;
    let missing = ["secret", "configmap"].into_iter().find_map(|kind| {
        let (_, rest) = message.split_once(&format!("{kind} \""))?;
        let (name, rest) = rest.split_once('"')?;
        rest.starts_with(" not found").then_some((kind, name))
    });
    let (why, next) = match missing {
        Some((kind, name)) => (
            format!("the {kind} `{name}` does not exist"),
            format!(
                "create the {kind} `{name}` in namespace `{}`; the pods start once it exists",
                facts.job.namespace
            ),
        ),
        None if event.reason == "FailedAttachVolume" => (
            "its volume cannot be attached to the node".to_owned(),
            "check which node uses the volume: `ReadWriteOnce` allows only one".to_owned(),
        ),
        None => (
            "its node cannot mount it".to_owned(),
            "check that the node can reach the storage".to_owned(),
        ),
    };
    let answer = Answer::waits(
        Cause::VolumeMount,
        format!(
            "a volume of pod `{}`{} cannot be mounted: {why}",
            pod.name,
            and_more(stuck.len())
        ),
        next,
    );
    Some(answer.because_of(event))
}

fn claims(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    if !pods.iter().any(|pod| pod.phase == PodPhase::Pending) {
        return None;
    }
    let claim = facts.claims.first()?;
    let name = &claim.name;
    let (sentence, next) = match claim.state {
        ClaimState::Missing => (
            format!("its pods mount the volume claim `{name}`, which does not exist"),
            format!(
                "create the claim `{name}` in namespace `{}`",
                facts.job.namespace
            ),
        ),
        ClaimState::Lost => (
            format!("the volume of its claim `{name}` is gone"),
            format!("create the claim `{name}` again; the data on the volume is lost"),
        ),
        ClaimState::Pending => {
            let class = match &claim.class {
                Some(class) => format!("of storage class `{class}`"),
                None => "without a storage class".to_owned(),
            };
            (
                format!("its volume claim `{name}`, {class}, has no volume yet"),
                format!(
                    "{} shows what its storage class waits for",
                    facts.kubectl(&format!("describe pvc {name}"))
                ),
            )
        }
    };
    let answer = Answer::waits(Cause::VolumeClaim, sentence, next);
    let event = claim.last_event.clone().unwrap_or_default();
    let answer = answer.because(format!("claim `{name}`"), event);
    let seat = pods.iter().find_map(|pod| match &pod.wait {
        Some(Wait::Seat(words)) => Some((pod, words)),
        _ => None,
    });
    Some(match seat {
        Some((pod, words)) => answer.because(format!("scheduler, of pod `{}`", pod.name), words),
        None => answer,
    })
}

fn crash_loop(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let troubled = troubled(pods, &["CrashLoopBackOff"]);
    let (pod, trouble) = *troubled.first()?;
    let how = match ended::last_failure(facts) {
        Some(failed) if failed.pod == pod.name => ended::how(&failed),
        _ => "keeps exiting".to_owned(),
    };
    let answer = Answer::waits(
        Cause::CrashLoop,
        format!(
            "container `{}` of pod `{}`{} {how}; the kubelet has restarted it {} times and is backing off",
            trouble.container,
            pod.name,
            and_more(troubled.len()),
            pod.restarts
        ),
        format!(
            "{} prints its log from before the last restart",
            facts.ours("logs --previous")
        ),
    );
    Some(answer.because(
        format!("pod `{}`, {}", pod.name, trouble.reason),
        &trouble.message,
    ))
}

fn silent_node(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let mut on = pods.iter().filter_map(|pod| {
        let node = pod.node.as_deref()?;
        Some((*pod, node, facts.nodes.get(node)?))
    });
    let (pod, node, health) = on.find(|(.., health)| **health != NodeHealth::Ready)?;
    let what = match health {
        NodeHealth::Deleted => "was deleted".to_owned(),
        NodeHealth::SilentSince(since) => format!("has not responded since {since}"),
        NodeHealth::Ready => return None,
    };
    let answer = Answer::waits(
        Cause::NodeSilent,
        format!("node `{node}` of pod `{}` {what}", pod.name),
        format!(
            "nothing: the operator replaces the pod after `trainyard.dev/lost-after`; `kubectl \
             describe node {node}` shows more"
        ),
    );
    let waiting = facts.status.trainyard.waiting.as_ref();
    Some(match waiting {
        Some(waiting) => answer.because("status.trainyard.waiting", waiting.message.clone()),
        None => answer,
    })
}

fn gates(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let gated: Vec<&PodFacts> = pods
        .iter()
        .filter(|pod| pod.wait == Some(Wait::Gate))
        .copied()
        .collect();
    let first = *gated.first()?;
    let reason = facts.status.trainyard.waiting.as_ref();
    if first.gates == [launch::GATE]
        && let Some(reason) = reason.filter(|reason| reason.code == Code::WaitingForSeats)
    {
        let never_fits = matches!(
            reason.params,
            Some(Reason::NoNodes {
                never_fits: true,
                ..
            })
        );
        let next = if never_fits {
            format!(
                "request less, or add nodes with what it requests: it never starts on these; `{} nodes` shows \
                 what they have",
                facts.job.program
            )
        } else {
            format!(
                "nothing: it starts as soon as all its pods fit; `{} nodes` shows which jobs use the nodes; \
                 the annotation `trainyard.dev/gang: \"off\"` lets its pods start one by one",
                facts.job.program
            )
        };
        let answer = Answer::waits(
            Cause::Unschedulable,
            format!("the gang is waiting for nodes: {}", reason.message),
            next,
        );
        return Some(answer.because("status.trainyard.waiting", reason.message.clone()));
    }
    let gate = first.gates.first().map_or("?", String::as_str);
    let next = if gate.contains("kueue") {
        format!(
            "Kueue removes it when the queue has room: {} shows its state",
            facts.kubectl("get workloads.kueue.x-k8s.io")
        )
    } else {
        format!("the controller that set the gate `{gate}` must remove it")
    };
    let answer = Answer::waits(
        Cause::Gated,
        format!(
            "{} of {} pods are held back by the scheduling gate `{gate}`",
            gated.len(),
            facts.job.wanted.max(1)
        ),
        next,
    );
    Some(answer.because(
        format!("pod `{}`, schedulingGates", first.name),
        first.gates.join(", "),
    ))
}

fn starting(facts: &Facts, pods: &[&PodFacts]) -> Option<Answer> {
    let pending = pods.iter().filter(|pod| pod.phase == PodPhase::Pending);
    let pending: Vec<&&PodFacts> = pending.collect();
    let first = pending.first()?;
    let doing = match &first.wait {
        Some(Wait::Pull) => "its image is being pulled",
        _ => "its containers are being created",
    };
    let answer = Answer::waits(
        Cause::Starting,
        format!(
            "{} of {} pods are not running yet (first: `{}`): {doing}",
            pending.len(),
            facts.job.wanted.max(1),
            first.name
        ),
        format!(
            "wait; {} shows more if one takes long",
            facts.kubectl(&format!("describe pod {}", first.name))
        ),
    );
    let mut events = facts.events.iter().rev();
    Some(match events.find(|event| event.pod == first.name) {
        Some(event) => answer.because_of(event),
        None => answer,
    })
}
