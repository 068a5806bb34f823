//! The ranks as a table: one row for all ranks with equal values.

use std::collections::{BTreeMap, BTreeSet};

use trainyard_core::diagnose::RankFacts;

/// The most rows that are shown.
const MAX_ROWS: usize = 24;
/// The widest cell.
const MAX_CELL: usize = 44;

/// Heading and value of each column, apart from rank and node.
type Column = (&'static str, fn(&RankFacts) -> String);

const COLUMNS: [Column; 9] = [
    ("WORLD", |facts| option(facts.world)),
    ("NCCL", |facts| {
        facts.nccl.version.clone().unwrap_or_default()
    }),
    ("NETWORK", |facts| {
        facts.nccl.network.clone().unwrap_or_default()
    }),
    ("INTERFACE", |facts| {
        facts.nccl.interface.clone().unwrap_or_default()
    }),
    ("CHANNELS VIA", transports),
    ("INIT", init),
    ("STEP", |facts| {
        facts.fields.get("step").cloned().unwrap_or_default()
    }),
    ("LAST COLLECTIVE", collective),
    ("END", end),
];

/// The table, ready to print; empty where no rank is known.
pub(super) fn render(ranks: &[RankFacts]) -> Vec<String> {
    let mut rows: Vec<(BTreeSet<u32>, BTreeSet<&str>, Vec<String>)> = Vec::new();
    let mut known: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for facts in ranks {
        let cells: Vec<String> = COLUMNS.iter().map(|(_, cell)| cut(&cell(facts))).collect();
        let index = *known.entry(cells.clone()).or_insert_with(|| {
            rows.push((BTreeSet::new(), BTreeSet::new(), cells));
            rows.len() - 1
        });
        if let Some((in_row, nodes, _)) = rows.get_mut(index) {
            in_row.extend(facts.rank);
            nodes.extend(facts.node.as_deref());
        }
    }
    // Columns that say nothing are left out.
    let filled: Vec<usize> = (0..COLUMNS.len())
        .filter(|column| rows.iter().any(|(_, _, cells)| !cells[*column].is_empty()))
        .collect();
    if rows.is_empty() || filled.is_empty() {
        return Vec::new();
    }
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut headings = vec!["RANK".to_owned(), "NODE".to_owned()];
    headings.extend(filled.iter().map(|column| COLUMNS[*column].0.to_owned()));
    lines.push(headings);
    let left_out = rows.len().saturating_sub(MAX_ROWS);
    for (in_row, nodes, cells) in rows.into_iter().take(MAX_ROWS) {
        let mut line = vec![runs(&in_row), node_words(&nodes)];
        line.extend(filled.iter().map(|column| cells[*column].clone()));
        lines.push(line);
    }
    let mut printed = align(&lines);
    if left_out > 0 {
        printed.push(format!(
            "… and {left_out} more rows; `--format json` has every rank"
        ));
    }
    printed
}

fn align(lines: &[Vec<String>]) -> Vec<String> {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = lines.iter().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    lines
        .iter()
        .map(|line| {
            let cells = line.iter().zip(&widths);
            let padded: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            padded.join("  ").trim_end().to_owned()
        })
        .collect()
}

/// `0-3,7`, as short as it can be said.
pub(super) fn runs(ranks: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .take(12)
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    let more = if runs.len() > 12 { ",…" } else { "" };
    format!("{}{more}", shown.join(","))
}

fn node_words(nodes: &BTreeSet<&str>) -> String {
    let mut nodes = nodes.iter();
    match (nodes.next(), nodes.len()) {
        (None, _) => String::new(),
        (Some(node), 0) => (*node).to_owned(),
        (Some(node), more) => format!("{node} +{more}"),
    }
}

fn option<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn transports(facts: &RankFacts) -> String {
    let names: Vec<&str> = facts.nccl.transports.keys().map(String::as_str).collect();
    names.join(", ")
}

fn init(facts: &RankFacts) -> String {
    match (facts.nccl.communicators, facts.nccl.communicators_pending) {
        (0, 0) => String::new(),
        (0, _) => "begun only".to_owned(),
        (_, 0) => "complete".to_owned(),
        (_, pending) => format!("{pending} begun only"),
    }
}

fn collective(facts: &RankFacts) -> String {
    match (&facts.work.collective, facts.work.last_enqueued) {
        (Some(collective), _) => format!("{} {}", collective.operation, collective.sequence),
        (None, Some(last)) => format!("entered {last}"),
        (None, None) => String::new(),
    }
}

fn end(facts: &RankFacts) -> String {
    let exception = facts.end.exception.as_ref().map(|text| {
        let name = text.split(':').next().unwrap_or_default();
        name.rsplit('.').next().unwrap_or(name).to_owned()
    });
    match (exception, &facts.end.exit) {
        (Some(exception), Some(exit)) => format!("{exception}, {exit}"),
        (Some(exception), None) => exception,
        (None, Some(exit)) => exit.clone(),
        (None, None) => String::new(),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_CELL {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MAX_CELL - 1).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use trainyard_core::diagnose::RankNccl;

    use super::*;

    #[test]
    fn equal_ranks_share_a_row() {
        let rank = |rank: u32, node: &str, network: &str| RankFacts {
            rank: Some(rank),
            node: Some(node.to_owned()),
            nccl: RankNccl {
                network: Some(network.to_owned()),
                ..RankNccl::default()
            },
            ..RankFacts::default()
        };
        let ranks = [
            rank(0, "a", "IB"),
            rank(1, "a", "IB"),
            rank(2, "b", "IB"),
            rank(3, "b", "Socket"),
        ];
        assert_eq!(
            render(&ranks),
            [
                "RANK  NODE  NETWORK",
                "0-2   a +1  IB",
                "3     b     Socket"
            ]
        );
        assert!(render(&[]).is_empty());
    }
}
