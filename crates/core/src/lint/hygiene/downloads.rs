//! What is downloaded at every start, in every pod, by a command, an init container or a program in a `ConfigMap`.

use super::super::{
    Rule,
    command::Command,
    scene::{Pod, Scene},
    script::{Found, files, lines_of_all_ranks},
};
use crate::spec::Role;

const CALLS: [&[&str]; 18] = [
    &["pip", "install"],
    &["pip3", "install"],
    &["uv", "pip"],
    &["conda", "install"],
    &["apt-get", "install"],
    &["apt", "install"],
    &["git", "clone"],
    &["huggingface-cli", "download"],
    &["hf", "download"],
    &["aws", "s3"],
    &["gsutil", "cp"],
    &["gsutil", "-m"],
    &["gsutil", "rsync"],
    &["gcloud", "storage"],
    &["azcopy", "copy"],
    &["rclone", "copy"],
    &["rclone", "sync"],
    &["mc", "cp"],
];

/// What a command downloads with: the item and the words.
pub(in crate::lint) fn download_call(command: &Command<'_>) -> Option<(usize, String)> {
    let call = CALLS.iter().find_map(|call| {
        let at = command.words.windows(call.len()).position(|words| {
            words
                .iter()
                .zip(*call)
                .all(|(word, wanted)| word.text == *wanted)
        })?;
        Some((command.words.get(at)?.item, call.join(" ")))
    });
    let fetch = || {
        ["wget", "curl", "s5cmd"].iter().find_map(|name| {
            let at = command.words.iter().position(|word| word.text == *name)?;
            Some((command.words.get(at)?.item, (*name).to_owned()))
        })
    };
    call.or_else(fetch)
}

fn pods(scene: &Scene<'_>, pod: &Pod<'_>) -> String {
    match pod.replicas {
        _ if scene.part => "every pod".to_owned(),
        1 => "the pod".to_owned(),
        count => format!("each of the {count} pods"),
    }
}

pub(super) fn downloads(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        if let Some((item, call)) = download_call(&pod.command()) {
            pod.command_at(item).report_with(
                rule,
                format!(
                    "`{call}` runs in {} of {}, at every start",
                    pods(scene, pod),
                    pod.owner()
                ),
                "build it into the image, or do it once in an init container with a shared volume",
            );
        }
        let several = scene.pod_count() > 1 && pod.role != Role::Launcher;
        if several {
            in_init_containers(rule, scene, pod);
            in_scripts(rule, scene, pod);
        }
    }
}

/// An init container runs in every pod: what it downloads is downloaded as often as there are pods, into one
/// folder where they share a volume.
fn in_init_containers(rule: &Rule, scene: &Scene<'_>, pod: &Pod<'_>) {
    let list = pod.at().key("initContainers");
    for (index, container) in pod.spec.init_containers.iter().flatten().enumerate() {
        let command = Command::of(container);
        // A script that looks whether the files are there, or takes a lock, downloads once.
        let asks = command
            .words
            .iter()
            .any(|word| matches!(word.text, "if" | "[" | "test" | "[[" | "flock" | "||"));
        let Some((item, call)) = download_call(&command).filter(|_| !asks) else {
            continue;
        };
        let before = container.command.as_ref().map_or(0, Vec::len);
        let place = list.index(index);
        let place = match item.checked_sub(before) {
            Some(item) => place.key("args").index(item),
            None => place.key("command").index(item),
        };
        place.report_with(
            rule,
            format!(
                "the init container `{}` runs `{call}` in {} of {}, at every start",
                container.name,
                pods(scene, pod),
                pod.owner()
            ),
            "do it once, in a Job of its own that fills a shared volume, or skip what is there already",
        );
    }
}

fn in_scripts(rule: &Rule, scene: &Scene<'_>, pod: &Pod<'_>) {
    for found in files(scene, pod) {
        let Found::Script(script) = found else {
            continue;
        };
        let lines = lines_of_all_ranks(script.text);
        let download = lines.into_iter().find(|(_, line)| {
            let line = line.replace(' ', "");
            line.contains("download=True") || line.contains("snapshot_download(")
        });
        if let Some((number, _)) = download {
            pod.command_at(script.item).report_with(
                rule,
                format!(
                    "line {number} of `{}` of ConfigMap `{}` downloads the same data in every rank, at every start",
                    script.key, script.map
                ),
                "download in rank 0 to a shared volume and let the others wait, or fill the volume before",
            );
        }
    }
}
