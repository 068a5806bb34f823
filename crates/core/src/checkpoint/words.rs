//! Ranks in sentences: bounded, so that a world of 10,000 fits into a line.

/// How many ranks a sentence names.
const NAMED: usize = 8;

/// `rank 3`, or `ranks 1, 2, 3 (and 40 more)`.
pub fn ranks_named(ranks: &[u32]) -> String {
    let names: Vec<String> = ranks.iter().take(NAMED).map(ToString::to_string).collect();
    let names = names.join(", ");
    match ranks.len() {
        1 => format!("rank {names}"),
        count if count <= NAMED => format!("ranks {names}"),
        count => format!("ranks {names} (and {} more)", count - NAMED),
    }
}

/// `the piece of rank 3`, or `the pieces of ranks 1, 2, 3 (and 40 more)`.
pub(super) fn pieces_of(ranks: &[u32]) -> String {
    let pieces = if ranks.len() == 1 { "piece" } else { "pieces" };
    format!("the {pieces} of {}", ranks_named(ranks))
}
