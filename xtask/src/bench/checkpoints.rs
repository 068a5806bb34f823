//! `cargo xtask bench checkpoints`: what a save costs training, and how fast steps are written and loaded.
//!
//! Two programs measure: `checkpoint-bench` of `tools/programs` the engine beside the disk itself, and `tools/checkpoints/bench.py` the
//! Python package beside `torch.save`, safetensors and `torch.distributed.checkpoint`, all in turns in one process. The figures on a GPU
//! come from the second one by hand: no GPU is needed here.

use std::process::Command;

use super::{Figure, Scratch, judge};
use crate::{Failure, frameworks, report, step};

/// Part of what the disk writes directly at best.
const WRITE: f64 = 0.95;
/// Part of what the disk reads directly.
const LOAD: f64 = 0.9;
/// Speed of a save from its start to its commit, by that of `dcp.save`.
const BY_DCP: f64 = 1.3;
/// Speed of a cold load, by that of safetensors.
const BY_SAFETENSORS: f64 = 2.0;
/// The stall, by the time of one copy of all bytes with all cores.
const STALL: f64 = 1.1;
/// Seconds of a commit after the last piece, of `ls` of 1,000 steps, and for making or reading the large index.
const COMMIT: f64 = 0.5;
const LS: f64 = 0.3;
const INDEX: f64 = 1.0;
/// Seconds of a plan of one rank of another mesh.
const PLAN: f64 = 0.2;
/// Bytes of the large index, and of the memory that it takes.
const INDEX_BYTES: f64 = 8e6;
const INDEX_MEMORY: f64 = 300e6;
/// Bytes read for bytes wanted.
const RESHARD: f64 = 1.05;
/// Growth of the memory over many saves, as a part of the state.
const GROWTH: f64 = 0.01;
/// Saves over which it is measured.
const SAVES: u32 = 100;

/// Measures and judges.
pub(crate) fn checkpoints() -> Result<(), Failure> {
    let (binary, bench) = step::released_with_tool("checkpoint-bench")?;
    let (peers, packages) = frameworks::checkpoint_peers()?;
    let scratch = Scratch::new("checkpoints")?;
    report::progress("the engine beside the disk");
    let mut text = step::capture(Command::new(&bench).arg("index"))?;
    text += &step::capture(Command::new(&bench).arg(&scratch.0).arg(binary))?;
    report::progress("the Python package beside its peers");
    let python = step::capture(
        Command::new(peers.join("bin/python"))
            .arg(step::root().join("tools/checkpoints/bench.py"))
            .arg(&scratch.0)
            .args(["--saves", &SAVES.to_string()])
            .env("PYTHONPATH", packages)
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    )?;
    let missing = |what: &str| {
        Failure::CouldNotRun(format!("{what} did not print every figure: {text}{python}"))
    };
    let mut figures = engine(&text).ok_or_else(|| missing("`checkpoint-bench`"))?;
    figures.extend(package(&python).ok_or_else(|| missing("`tools/checkpoints/bench.py`"))?);
    println!();
    judge(&figures)
}

fn at_most(name: &str, value: f64, bound: f64, words: String) -> Figure {
    Figure {
        name: name.to_owned(),
        measured: words,
        bound: format!("at most {bound}"),
        met: value <= bound,
    }
}

fn at_least(name: &str, value: f64, bound: f64, words: String) -> Figure {
    Figure {
        name: name.to_owned(),
        measured: words,
        bound: format!("at least {bound}"),
        met: value >= bound,
    }
}

fn engine(text: &str) -> Option<Vec<Figure>> {
    let line = |name: &str| -> Option<Vec<f64>> {
        let mut lines = text.lines().map(|line| line.split('\t'));
        let fields =
            lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
        fields.map(|field| field.parse().ok()).collect()
    };
    let [bytes, made, loaded, planned, memory] = line("index")?.try_into().ok()?;
    let [written, disk_write] = line("write")?.try_into().ok()?;
    let [read, disk_read] = line("load")?.try_into().ok()?;
    let [ranks, commit] = line("commit")?.try_into().ok()?;
    let [steps, ls] = line("ls")?.try_into().ok()?;
    let [reshard] = line("reshard")?.try_into().ok()?;
    let speed = |own: f64, disk: f64| {
        format!(
            "{:.2} GB/s, the disk {:.2}: {:.2} of it",
            own / 1e9,
            disk / 1e9,
            own / disk
        )
    };
    let write = written / disk_write;
    let load = read / disk_read;
    let memory = memory * 1024.0;
    Some(vec![
        at_least(
            "save to its commit",
            write,
            WRITE,
            speed(written, disk_write),
        ),
        at_least("cold load, verified", load, LOAD, speed(read, disk_read)),
        at_most(
            &format!("commit of {ranks} ranks, s"),
            commit,
            COMMIT,
            format!("{commit:.3}"),
        ),
        at_most(
            &format!("`ls` of {steps} steps, s"),
            ls,
            LS,
            format!("{ls:.3}"),
        ),
        at_most(
            "index of 1,024 ranks x 10,000 tensors, bytes",
            bytes,
            INDEX_BYTES,
            format!("{bytes}"),
        ),
        at_most("made, s", made, INDEX, format!("{made:.3}")),
        at_most("read, s", loaded, INDEX, format!("{loaded:.3}")),
        at_most(
            "plan of one rank, s",
            planned,
            PLAN,
            format!("{planned:.3}"),
        ),
        at_most(
            "its memory, bytes",
            memory,
            INDEX_MEMORY,
            format!("{memory}"),
        ),
        at_most(
            "bytes read for bytes wanted, 2, 4 and 3 ranks",
            reshard,
            RESHARD,
            format!("{reshard:.3}"),
        ),
    ])
}

fn package(text: &str) -> Option<Vec<Figure>> {
    let lines: Vec<[&str; 3]> = text
        .lines()
        .filter_map(|line| line.split('\t').collect::<Vec<_>>().try_into().ok())
        .collect();
    let table = |wanted: &'static str| {
        let found = lines.iter().filter(move |line| line[0] == wanted);
        found.filter_map(|[_, name, value]| Some((*name, value.parse::<f64>().ok()?)))
    };
    let figure = |wanted, name: &str| Some(table(wanted).find(|found| found.0 == name)?.1);
    let ours = "trainyard";
    let stall = figure("stall", ours)?;
    let total = figure("total", ours)?;
    let copy = figure("copy", "all cores")?;
    let growth = figure("growth", ours)?;
    let best = table("stall")
        .filter(|(name, _)| *name != ours)
        .min_by(|one, two| one.1.total_cmp(&two.1))?;
    let dcp = figure("total", "dcp.save")?;
    let (load, safetensors) = (figure("load", ours)?, figure("load", "safetensors")?);
    Some(vec![
        at_most(
            "stall by one copy of the state",
            stall / copy,
            STALL,
            format!(
                "{stall:.3} s, the copy {copy:.3} s: {:.2} of it",
                stall / copy
            ),
        ),
        at_most(
            &format!("stall by the best peer, {}", best.0),
            stall / best.1,
            1.0,
            format!(
                "{stall:.3} s, the peer {:.3} s: {:.2} of it",
                best.1,
                stall / best.1
            ),
        ),
        at_least(
            "save to its commit by dcp.save",
            dcp / total,
            BY_DCP,
            format!(
                "{total:.3} s, the peer {dcp:.3} s: {:.2} times as fast",
                dcp / total
            ),
        ),
        at_least(
            "cold load by safetensors",
            safetensors / load,
            BY_SAFETENSORS,
            format!(
                "{load:.3} s, the peer {safetensors:.3} s: {:.2} times as fast",
                safetensors / load
            ),
        ),
        at_most(
            // The bench takes the memory after a quarter of them as the start.
            &format!(
                "growth of the memory over {} saves, of the state",
                SAVES - SAVES / 4
            ),
            growth,
            GROWTH,
            format!("{growth:.4}"),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::{engine, package};

    #[test]
    fn a_missing_figure_is_noticed() {
        let text = "index\t2791182\t0.04\t0.06\t0.07\t30980\nwrite\t9e8\t1e9\nload\t9e8\t1e9\n\
                    commit\t64\t0.02\nls\t1000\t0.1\nreshard\t1.01\n";
        let met = |text| -> Option<Vec<bool>> {
            Some(engine(text)?.iter().map(|figure| figure.met).collect())
        };
        let all = met(text).unwrap();
        assert_eq!(all.iter().filter(|met| !**met).count(), 1, "the write");
        assert_eq!(met(&text.replace("ls\t1000", "ls")), None);

        let text = "stall\ttrainyard\t0.1\nstall\tdcp.save\t2\ntotal\ttrainyard\t1\ntotal\tdcp.save\t2\n\
                    load\ttrainyard\t1\nload\tsafetensors\t1.5\ncopy\tall cores\t0.1\ngrowth\ttrainyard\t0\n";
        let missed: Vec<String> = (package(text).unwrap().into_iter())
            .filter(|figure| !figure.met)
            .map(|figure| figure.name)
            .collect();
        assert_eq!(missed, ["cold load by safetensors"]);
        assert!(package(&text.replace("growth", "x")).is_none());
    }
}
