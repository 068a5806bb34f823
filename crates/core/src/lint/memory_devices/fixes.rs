//! Fixes of this family: lines that are added to the template of a pod.

use crate::{
    finding::{Above, Fix, Span},
    lint::scene::Pod,
    quantity,
};

fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(|line| (*line).to_owned()).collect()
}

/// An item for the list `key`: above the first one, or with the list above `sibling` where there is none.
fn item(list: Option<Span>, key: &str, sibling: Option<Span>, lines: Vec<String>) -> Option<Above> {
    if let Some(span) = list {
        return Some(Above { span, lines });
    }
    // The key and the list in one, so that the first line is no item.
    let mut all = vec![format!("{key}:")];
    all.extend(lines);
    Some(Above {
        span: sibling?,
        lines: all,
    })
}

/// GiB of shared memory that a pod is given: 8 for each GPU, and at most half of its memory.
pub(super) fn shared_memory_size(pod: &Pod<'_>) -> u64 {
    let limit = super::limits(pod.trainer).and_then(|limits| limits.get("memory"));
    let half = limit
        .and_then(quantity::units)
        .map_or(u64::MAX, |limit| (limit >> 31).max(1));
    pod.gpus().max(1).saturating_mul(8).min(half)
}

/// A memory-backed volume at `/dev/shm`.
pub(super) fn shared_memory(pod: &Pod<'_>) -> Option<Fix> {
    let taken = |name: &str| {
        let mut volumes = pod.spec.volumes.iter().flatten();
        volumes.any(|volume| volume.name == name)
    };
    let name = ["shm", "dshm", "dev-shm"]
        .into_iter()
        .find(|name| !taken(name))?;
    let trainer = pod.trainer_at();
    let mounts = trainer.key("volumeMounts");
    let mount = lines(&[&format!("- name: {name}"), "  mountPath: /dev/shm"]);
    let volumes = pod.at().key("volumes");
    let volume = lines(&[
        &format!("- name: {name}"),
        "  emptyDir:",
        "    medium: Memory",
        &format!("    sizeLimit: {}Gi", shared_memory_size(pod)),
    ]);
    Some(Fix::Above(vec![
        item(
            mounts.first_span(),
            "volumeMounts",
            trainer.key_span("resources").filter(|_| !mounts.is_there()),
            mount,
        )?,
        item(
            volumes.first_span(),
            "volumes",
            pod.at()
                .key_span("containers")
                .filter(|_| !volumes.is_there()),
            volume,
        )?,
    ]))
}

/// A toleration for nodes that are tainted with `device`.
pub(super) fn toleration(pod: &Pod<'_>, device: &str) -> Option<Fix> {
    let list = pod.at().key("tolerations");
    let above = pod.at().key_span("containers").filter(|_| !list.is_there());
    let toleration = lines(&[&format!("- key: {device}"), "  operator: Exists"]);
    let added = item(list.first_span(), "tolerations", above, toleration)?;
    Some(Fix::Above(vec![added]))
}

/// The capability to pin memory.
pub(super) fn ipc_lock(pod: &Pod<'_>) -> Option<Fix> {
    let trainer = pod.trainer_at();
    let context = trainer.key("securityContext");
    let capabilities = context.key("capabilities");
    let add = capabilities.key("add");
    let above = if let Some(span) = add.first_span() {
        Above {
            span,
            lines: lines(&["- IPC_LOCK"]),
        }
    } else if let Some(span) = capabilities.first_span().filter(|_| !add.is_there()) {
        Above {
            span,
            lines: lines(&["add:", "- IPC_LOCK"]),
        }
    } else if let Some(span) = context.first_span().filter(|_| !capabilities.is_there()) {
        Above {
            span,
            lines: lines(&["capabilities:", "  add:", "  - IPC_LOCK"]),
        }
    } else {
        let span = trainer
            .key_span("resources")
            .filter(|_| !context.is_there())?;
        let all = [
            "securityContext:",
            "  capabilities:",
            "    add:",
            "    - IPC_LOCK",
        ];
        Above {
            span,
            lines: lines(&all),
        }
    };
    Some(Fix::Above(vec![above]))
}
