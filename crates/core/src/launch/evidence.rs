//! The variables that make a training program leave evidence of a hang: `PyTorch`'s Flight Recorder and Python's fault handler.
//!
//! Owns the names. They are set where programs are watched and the user has set none of their names. What they cost: some megabytes of memory for
//! the last 2,000 collectives of a rank, which `PyTorch` records by default in newer versions.
//!
//! Facts are of the headers of `PyTorch` 2.15. Names changed from `TORCH_NCCL_` to `TORCH_FR_`; a version reads the one or the other, or prefers
//! the newer. So both are set, and neither where the user has set one of them.

/// Collectives that are kept for each rank.
const ENTRIES: &str = "2000";
/// The variables with how the names of dumps begin; where both are set the first counts.
const DUMP_PREFIX: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
/// The variable with how the names of pipes begin: a byte that is written to one makes the rank dump.
const PIPE_PREFIX: &str = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";

/// The variables, with files whose paths begin with `prefix`. Those that `is_set` are left out, and their other names with them.
pub fn variables(prefix: &str, is_set: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    let dumps = dump_prefix(prefix);
    let groups: [(&[&'static str], &str); 6] = [
        (&["PYTHONFAULTHANDLER"], "1"),
        (
            &["TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"],
            ENTRIES,
        ),
        (
            &["TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"],
            "1",
        ),
        (&DUMP_PREFIX, &dumps),
        (&[PIPE_PREFIX], &pipe_prefix(prefix)),
        // With stacks a dump needs Python's lock, which a rank that hangs may hold.
        (&["TORCH_INCLUDE_STACK_TRACE"], "0"),
    ];
    let unset = groups
        .into_iter()
        .filter(|(names, _)| !names.iter().any(|name| is_set(name)));
    let all = unset.flat_map(|(names, value)| names.iter().map(|name| (*name, value.to_owned())));
    all.collect()
}

/// How the names of dumps begin; the rank follows.
pub fn dump_prefix(prefix: &str) -> String {
    format!("{prefix}trace_")
}

/// How the names of pipes begin; the rank and `.pipe` follow.
pub fn pipe_prefix(prefix: &str) -> String {
    format!("{prefix}pipe_")
}

/// How the names of dumps and pipes begin for a program in whose environment `lookup` finds values, with [`variables`] added.
pub fn prefixes(prefix: &str, lookup: impl Fn(&str) -> Option<String>) -> (String, String) {
    let dumps = DUMP_PREFIX.iter().find_map(|name| lookup(name));
    let pipes = lookup(PIPE_PREFIX);
    (
        dumps.unwrap_or_else(|| dump_prefix(prefix)),
        pipes.unwrap_or_else(|| pipe_prefix(prefix)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_variables_win() {
        let names = |is_set: &[&str]| -> Vec<&str> {
            let all = variables("/run/", |name| is_set.contains(&name));
            all.into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&[]).len(), 9);
        let some = names(&["TORCH_NCCL_TRACE_BUFFER_SIZE", "PYTHONFAULTHANDLER"]);
        assert_eq!(some.len(), 6, "{some:?}");
        assert!(!some.contains(&"TORCH_FR_BUFFER_SIZE"));
        let all = variables("/run/", |_| false);
        assert!(all.contains(&(DUMP_PREFIX[1], "/run/trace_".to_owned())));
        assert!(all.contains(&(PIPE_PREFIX, "/run/pipe_".to_owned())));
        let own = |name: &str| (name == DUMP_PREFIX[1]).then(|| "/mine_".to_owned());
        let (dumps, pipes) = prefixes("/run/", own);
        assert_eq!((dumps.as_str(), pipes.as_str()), ("/mine_", "/run/pipe_"));
    }
}
