//! Ranks in sentences: bounded, so that a world of 10,000 fits into a line.

/// How many ranks a sentence names.
const NAMED: usize = 8;

/// `the piece of rank 3`, or `the pieces of ranks 1, 2, 3 (and 40 more)`.
pub(super) fn pieces_of(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    let names = names.join(", ");
    match ranks.len() {
        1 => format!("the piece of rank {names}"),
        count if count <= NAMED => format!("the pieces of ranks {names}"),
        count => format!("the pieces of ranks {names} (and {} more)", count - NAMED),
    }
}
