//! `cluster status`: what runs, as a table or as JSON.

use std::fmt::Write as _;

use super::{Cluster, binaries, control_plane, namespace::Namespaces, nodes, piece, state::State};
use crate::{Failure, report};

/// One piece as it is shown.
struct Row {
    name: String,
    state: &'static str,
    pid: Option<u32>,
    resident_bytes: u64,
}

/// Prints the state of the cluster; one that is not ready is a failure.
pub(super) fn print(name: &str, format: &str) -> Result<(), Failure> {
    if !["text", "json"].contains(&format) {
        return Err(Failure::CouldNotRun(format!(
            "unknown format `{format}`; expected text or json"
        )));
    }
    let state = State::of(name)?;
    let Some(namespaces) = Namespaces::find(&state) else {
        if format == "json" {
            println!("{{\"version\":1,\"name\":\"{name}\",\"state\":\"absent\"}}");
        } else {
            println!("cluster `{name}`: absent");
        }
        return Err(Failure::Reported);
    };
    let cluster = Cluster { state, namespaces };
    let nodes = nodes::node_readiness(&cluster);
    let rows: Vec<Row> = piece::all(&cluster)
        .into_iter()
        .map(|(piece, process)| Row {
            state: match &process {
                None => "ended",
                Some(_) if is_ready(&cluster, &piece, &nodes) => "ready",
                Some(_) => "starting",
            },
            pid: process.as_ref().map(|process| process.pid),
            resident_bytes: process.map_or(0, |process| process.resident_bytes()),
            name: piece,
        })
        .collect();
    let ready = !rows.is_empty() && rows.iter().all(|row| row.state == "ready");
    let word = if ready { "ready" } else { "not ready" };
    let seconds = cluster.namespaces.age().map_or(0, |age| age.as_secs());
    let ready_nodes = nodes.iter().filter(|(_, ready)| *ready).count();
    if format == "json" {
        let count = format!("{{\"ready\":{ready_nodes},\"all\":{}}}", nodes.len());
        print!("{}", json(&cluster, &rows, word, seconds, &count));
    } else {
        println!(
            "cluster `{name}`: {word}, up for {seconds} s\n\
             kubernetes  {}\nnodes       {ready_nodes} of {} ready\nserver      https://{}:443\nkubeconfig  {}\nlogs        {}\n\n{}",
            binaries::KUBERNETES,
            nodes.len(),
            control_plane::ADDRESS,
            cluster.state.text("kubeconfig"),
            cluster.state.text("logs"),
            table(&rows)
        );
    }
    if ready {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

/// A kubelet is ready when its node is; of the others, those know that can be asked.
fn is_ready(cluster: &Cluster, piece: &str, nodes: &[(String, bool)]) -> bool {
    match nodes::of_kubelet(piece) {
        Some(node) => nodes.contains(&(node.name.to_owned(), true)),
        None => control_plane::is_ready(cluster, piece),
    }
}

fn table(rows: &[Row]) -> String {
    let mut cells = vec![
        ["piece", "state", "pid", "memory"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for row in rows {
        cells.push(vec![
            row.name.clone(),
            row.state.to_owned(),
            row.pid.map_or(String::new(), |pid| pid.to_string()),
            format!("{} MiB", row.resident_bytes / 1024 / 1024),
        ]);
    }
    report::table(&cells)
}

fn json(cluster: &Cluster, rows: &[Row], word: &str, seconds: u64, nodes: &str) -> String {
    let mut pieces = Vec::new();
    for row in rows {
        let mut piece = format!("{{\"name\":{},\"state\":\"{}\"", text(&row.name), row.state);
        if let Some(pid) = row.pid {
            write!(piece, ",\"pid\":{pid}").expect("a string takes whatever is written");
        }
        write!(piece, ",\"residentBytes\":{}}}", row.resident_bytes)
            .expect("a string takes whatever is written");
        pieces.push(piece);
    }
    format!(
        "{{\"version\":1,\"name\":{},\"state\":\"{word}\",\"uptimeSeconds\":{seconds},\
         \"kubernetes\":\"{}\",\"nodes\":{nodes},\"server\":\"https://{}:443\",\"kubeconfig\":{},\"logs\":{},\
         \"pieces\":[{}]}}\n",
        text(cluster.state.name()),
        binaries::KUBERNETES,
        control_plane::ADDRESS,
        text(&cluster.state.text("kubeconfig")),
        text(&cluster.state.text("logs")),
        pieces.join(",")
    )
}

/// `value` as a string of JSON.
fn text(value: &str) -> String {
    let mut out = String::from("\"");
    for letter in value.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if u32::from(letter) < 0x20 => {
                write!(out, "\\u{:04x}", u32::from(letter))
                    .expect("a string takes whatever is written");
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        for (value, want) in [
            ("plain", "\"plain\""),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nline", r#""line\u000aline""#),
        ] {
            assert_eq!(text(value), want);
        }
    }
}
