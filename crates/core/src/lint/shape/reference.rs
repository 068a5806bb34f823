//! References to variables that nothing replaces.

use k8s_openapi::api::core::v1::Container;

use super::{
    super::{
        Rule,
        advice::{Advice, Look, ODD, rule},
        command::Command,
        hygiene::is_filled_secret,
        scene::{Scene, variables},
    },
    RANK_VARIABLES,
};

/// The rules about references.
pub(in crate::lint) static RULES: &[Advice] = &[Advice {
    rule: rule(
        "TY164",
        ODD,
        "variable that nothing replaces",
        "Kubernetes replaces `$(NAME)` in `command`, `args` and the values of `env`, where the container has \
         a variable of that name, in `env` above the place. It leaves `$NAME` and `${NAME}` alone: only a \
         shell replaces those, and only in the script it is given. So `PATH` with the value `$PATH:/opt/bin` \
         loses every folder but the last.",
    ),
    look: Look::Job(unreplaced),
}];

/// A reference in a text: what is written, and the name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reference<'a> {
    /// `$(NAME)`, which Kubernetes replaces.
    Kubernetes(&'a str),
    /// `$NAME` or `${NAME}`, which a shell replaces.
    Shell(&'a str),
}

/// The references in `text`. Names are those of variables as they are commonly written, in capitals:
/// `${a.b}` is a form of configuration files.
fn references(text: &str) -> Vec<Reference<'_>> {
    let mut found = Vec::new();
    let mut parts = text.split('$');
    let mut before = parts.next();
    for part in parts {
        // `$$` is how a `$` is written.
        let escaped =
            before == Some("") && !found.is_empty() || before.is_some_and(|it| it.ends_with('\\'));
        before = Some(part);
        if escaped {
            continue;
        }
        let (closing, inner) = match part.split_at_checked(1) {
            Some(("(", rest)) => (Some(')'), rest),
            Some(("{", rest)) => (Some('}'), rest),
            _ => (None, part),
        };
        let end = inner
            .find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
            .unwrap_or(inner.len());
        let (name, rest) = inner.split_at_checked(end).unwrap_or((inner, ""));
        let is_name = name.len() > 1 && !name.starts_with(|c: char| c.is_ascii_digit());
        match closing {
            _ if !is_name => {}
            Some(')') if rest.starts_with(')') => found.push(Reference::Kubernetes(name)),
            Some('}') if rest.starts_with('}') => found.push(Reference::Shell(name)),
            None if !rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
                found.push(Reference::Shell(name));
            }
            _ => {}
        }
    }
    found
}

/// Whether the operator or the cluster may set the variable in a container.
fn may_be_injected(name: &str) -> bool {
    let begins = [
        "JOB_COMPLETION_INDEX",
        "KUBERNETES_",
        "K_MPI_",
        "LWS_",
        "MEGASCALE_",
        "OMPI_",
        "PADDLE_",
        "PET_",
        "TPU_",
        "TRAINER",
        "TRAINING_",
        "VC_",
        "VK_",
    ];
    let ends = ["_ADDRS", "_ADDRESS", "_HOST", "_PORT"];
    let others = ["HOSTNAME", "NUM_PROCESSES", "PROCESS_ID", "TF_CONFIG"];
    begins.iter().any(|start| name.starts_with(start))
        || ends.iter().any(|end| name.ends_with(end))
        || others.contains(&name)
        // Where these are not set, another rule reports it.
        || RANK_VARIABLES.contains(&name)
}

fn unreplaced(rule: &Rule, scene: &Scene<'_>) {
    for pod in &scene.pods {
        for (container, place) in pod.containers() {
            for (name, value, place) in variables(container, &place) {
                // Another rule reports it as the secret that it will be.
                if is_filled_secret(name, value) {
                    continue;
                }
                let by_shell = references(value).into_iter().find_map(|found| match found {
                    Reference::Shell(name) => Some(name),
                    Reference::Kubernetes(_) => None,
                });
                if let Some(name) = by_shell {
                    place.report_with(
                        rule,
                        format!("`${name}` stays as it is: in `env` only `$({name})` is replaced"),
                        format!("write `$({name})` if the variable is above it in `env`; what the image sets is known to a shell only, in `command`"),
                    );
                }
            }
            let command = Command::of(container);
            if command.is_shell {
                continue;
            }
            let before = container.command.as_ref().map_or(0, Vec::len);
            for word in &command.words {
                let Some((message, hint)) = in_command(container, word.text) else {
                    continue;
                };
                let place = match word.item.checked_sub(before) {
                    Some(index) => place.key("args").index(index),
                    None => place.key("command").index(word.item),
                };
                place.report_with(rule, message, hint);
            }
        }
    }
}

/// What is wrong with the references in a word of a command that no shell reads.
fn in_command(container: &Container, word: &str) -> Option<(String, String)> {
    let has = |name: &str| {
        let mut own = container.env.iter().flatten();
        own.any(|variable| variable.name == name)
    };
    references(word).into_iter().find_map(|found| match found {
        Reference::Shell(name) => Some((
            format!("`${name}` stays as it is: no shell reads the command"),
            format!(
                "write `$({name})`, or let a shell run it, `[sh, -c, …]`; fill a template in first"
            ),
        )),
        Reference::Kubernetes(name)
            if !has(name) && container.env_from.is_none() && !may_be_injected(name) =>
        {
            Some((
                format!("`$({name})` stays as it is: the container has no variable `{name}`"),
                "add the variable to `env`".to_owned(),
            ))
        }
        Reference::Kubernetes(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_other_dollars() {
        use Reference::{Kubernetes, Shell};
        let cases: &[(&str, &[Reference<'_>])] = &[
            ("$PATH:/opt/bin", &[Shell("PATH")]),
            ("/lib:${LD_LIBRARY_PATH}", &[Shell("LD_LIBRARY_PATH")]),
            ("--nnodes=$(NODES)", &[Kubernetes("NODES")]),
            ("$(A_B)$C_D", &[Kubernetes("A_B"), Shell("C_D")]),
            ("${oc.env:NODES}", &[]),
            ("${NODES:-1}", &[]),
            ("$1 pa$Word costs $5 $ $$", &[]),
            ("$(hostname)", &[]),
            ("\\$HOME", &[]),
            ("none", &[]),
        ];
        for (text, want) in cases {
            assert_eq!(references(text), *want, "{text}");
        }
    }
}
