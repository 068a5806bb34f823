//! The variables that `mpirun` forwards to its ranks: `-x NAME`, where the command is a plain list.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;

const PROGRAMS: [&str; 3] = ["mpirun", "mpiexec", "orterun"];

/// The result of adding `-x` options to `mpirun`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Forwarded {
    /// The names that were added.
    pub(super) added: Vec<String>,
    /// Names that the command forwards with a value of its own, with that value.
    pub(super) kept: Vec<(String, String)>,
    /// The names that are not forwarded: no item of the command is `mpirun`.
    pub(super) missed: Vec<String>,
}

/// Adds `-x NAME` for each of `variables` to the command of `container`.
pub(super) fn forward(
    container: &mut Container,
    variables: &BTreeMap<String, String>,
) -> Forwarded {
    let mut result = Forwarded::default();
    let given: BTreeMap<String, Option<String>> = {
        let words: Vec<&String> = [&container.command, &container.args]
            .into_iter()
            .flatten()
            .flatten()
            .collect();
        let named = words.windows(2).filter(|pair| pair[0] == "-x");
        named
            .map(|pair| match pair[1].split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (pair[1].clone(), None),
            })
            .collect()
    };
    let mut missing = Vec::new();
    for (name, value) in variables {
        match given.get(name) {
            Some(Some(own)) if own != value => result.kept.push((name.clone(), own.clone())),
            Some(_) => {}
            None => missing.push(name.clone()),
        }
    }
    if missing.is_empty() {
        return result;
    }
    for list in [&mut container.command, &mut container.args] {
        let Some(items) = list else { continue };
        let Some(at) = items.iter().position(|item| is_mpirun(item)) else {
            continue;
        };
        let after = items.split_off(at + 1);
        let options = missing
            .iter()
            .flat_map(|name| ["-x".to_owned(), name.clone()]);
        items.extend(options.chain(after));
        result.added = missing;
        return result;
    }
    result.missed = missing;
    result
}

fn is_mpirun(item: &str) -> bool {
    let program = item.rsplit('/').next().unwrap_or(item);
    PROGRAMS.contains(&program)
}
