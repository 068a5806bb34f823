//! Has the engine of a run record traces.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

use flate2::{Compression, write::GzEncoder};
use trainyard_host::profile::{Detail, Extent, Recorded, Recording, round_up};

use super::{
    Missing,
    files::{self, TraceFile, Traces},
};
use crate::{
    args::Profile,
    failure::{Exit, Failure},
    output,
    printer::Printer,
    stored::{self, Stored},
    words,
};

/// Ranks that are recorded where none is named.
const DEFAULT_RANKS: u32 = 8;
/// Ranks that are recorded at once.
const MOST_RANKS: usize = 64;
/// Steps that are recorded where nothing is stated.
const DEFAULT_STEPS: u32 = 5;

/// Records and analyses.
pub(super) fn run(args: &Profile, job: &str, printer: &mut Printer) -> Result<Exit, Failure> {
    let hint = "`trainyard profile FOLDER` analyses traces that were written before";
    let run = stored::live_for(job, &args.state, "record", hint)?;
    let recording = recording(args, &run)?;
    let ranks = words::counted(recording.ranks.len() as u64, "rank");
    let extent = match recording.extent {
        Extent::Steps { count, .. } => words::counted(count.into(), "step"),
        Extent::Seconds(seconds) => format!("{seconds} s"),
    };
    printer.summary(&format!(
        "recording {extent} of {ranks} of job `{job}`, which may take up to {} s",
        args.timeout
    ));
    let mut recorded = record(job, &run, &recording)?;
    let mut read = files::read(traces(&recorded), printer)?;
    if steps(args).is_some_and(|asked| began_meanwhile(&read, asked)) {
        printer.summary(&format!(
            "the traces of job `{job}` have fewer steps than you asked for, as if it took its first step meanwhile; recording again"
        ));
        // It may have ended since: what there is has some steps.
        match record(job, &run, &recording) {
            Ok(again) => {
                read = files::read(traces(&again), printer)?;
                recorded = again;
            }
            Err(failure) => printer.summary(&format!(
                "warning: the second recording failed, this is the first: {}",
                failure.line()
            )),
        }
    }
    if let Some(folder) = &args.out {
        copy(&recorded, folder)?;
        let traces = words::counted(recorded.traces.len() as u64, "trace");
        printer.summary(&format!("wrote {traces} into {}", folder.display()));
    }
    let missing = recorded.missing.into_iter().map(|it| Missing {
        source: format!("rank {}", it.rank),
        reason: it.reason,
    });
    super::analyse(args, Some(job), read, missing.collect(), printer)
}

/// The steps that are asked for; none where seconds are.
pub(super) fn steps(args: &Profile) -> Option<u64> {
    let steps = args.steps.unwrap_or(DEFAULT_STEPS);
    args.seconds.is_none().then_some(steps.into())
}

/// Has the engine record, once.
fn record(job: &str, run: &Stored, recording: &Recording) -> Result<Recorded, Failure> {
    let recorded = run
        .folder
        .request_profile(recording)
        .map_err(stored::refused)?;
    if recorded.traces.is_empty() {
        return Err(nothing(job, &recorded));
    }
    Ok(recorded)
}

/// Whether a program may have counted no step when it was asked, so that it recorded half a second, and then took one: if so, the next
/// recording has all of them. One with several optimizers looks the same: each counts as a step.
fn began_meanwhile(read: &Traces, asked: u64) -> bool {
    let mut steps = read.summaries.iter().map(|(_, it)| it.values.steps);
    steps.any(|steps| 0 < steps && steps < asked)
}

fn traces(recorded: &Recorded) -> Vec<TraceFile> {
    let traces = recorded.traces.iter().map(|trace| TraceFile {
        path: trace.path.clone(),
        rank: Some(trace.rank),
        named: true,
    });
    traces.collect()
}

fn recording(args: &Profile, run: &Stored) -> Result<Recording, Failure> {
    let count = run.record.ranks.count(&run.record.replicas);
    let ranks = match args.ranks.as_deref() {
        None | Some("all") if count <= DEFAULT_RANKS => (0..count).collect(),
        None => spread(count),
        Some("all") => (0..count).collect(),
        Some(list) => parse_ranks(list)?,
    };
    if ranks.len() > MOST_RANKS {
        return Err(Failure::new(format!(
            "{} ranks are too many to record at once: at most {MOST_RANKS}",
            ranks.len()
        ))
        .hint("name some with `--ranks`, such as one of each node"));
    }
    let seconds = run.progress_record().and_then(|it| it.step_seconds);
    let seconds = seconds.and_then(|it| it.to_string().parse().ok());
    Ok(Recording {
        extent: match args.seconds {
            Some(seconds) => Extent::Seconds(seconds),
            None => Extent::Steps {
                count: args.steps.unwrap_or(DEFAULT_STEPS),
                round_up: round_up(seconds, ranks.len()),
            },
        },
        ranks,
        detail: if args.detailed {
            Detail::Detailed
        } else {
            Detail::Plain
        },
        timeout_seconds: args.timeout,
    })
}

/// Ranks at equal distances, the first with them.
fn spread(count: u32) -> Vec<u32> {
    (0..DEFAULT_RANKS)
        .map(|at| at * (count / DEFAULT_RANKS))
        .collect()
}

/// Ranks from a list such as `0,3,8-11`.
fn parse_ranks(list: &str) -> Result<Vec<u32>, Failure> {
    let wrong = || {
        Failure::new(format!("cannot read the ranks `{list}`"))
            .hint("write numbers and ranges, such as `--ranks 0,3,8-11`, or `--ranks all`")
    };
    let mut ranks = Vec::new();
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (from, to) = (number(from)?, number(to)?);
        if from > to {
            return Err(wrong());
        }
        // One more than the bound is enough to refuse the list.
        ranks.extend((from..=to).take(MOST_RANKS + 1));
    }
    ranks.sort_unstable();
    ranks.dedup();
    Ok(ranks)
}

/// Why no rank has a trace. Ranks with the same reason are listed once.
fn nothing(job: &str, recorded: &Recorded) -> Failure {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for it in &recorded.missing {
        let rank = it.rank.to_string();
        match reasons.iter_mut().find(|(reason, _)| *reason == it.reason) {
            Some((_, ranks)) => ranks.push(rank),
            None => reasons.push((it.reason.clone(), vec![rank])),
        }
    }
    let reasons: Vec<String> = reasons
        .into_iter()
        .map(|(reason, ranks)| format!("rank {}: {reason}", ranks.join(", ")))
        .collect();
    Failure::new(format!("no rank of job `{job}` wrote a trace: {}", reasons.join("; "))).hint(
        "programs are prepared when they start, with PyTorch 2.10 or newer; set `TRAINYARD_PROFILE=on` in the environment of the \
         container for older ones and run the job again; see docs/guides/profile.md",
    )
}

/// Packs the traces into `folder`.
fn copy(recorded: &Recorded, folder: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, error: io::Error| {
        let context = format!("cannot write `{}`", path.display());
        Failure::from(anyhow::Error::new(error).context(context))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for trace in &recorded.traces {
        let path = folder.join(format!("rank-{}.json.gz", trace.rank));
        pack(&trace.path, &path).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

fn pack(from: &Path, to: &Path) -> io::Result<()> {
    output::write_pieces_in_folder(to, |file| {
        let mut packed = GzEncoder::new(file, Compression::fast());
        let mut failed = None;
        files::blocks(from, &files::bounds(), |block| {
            failed = packed.write_all(block).err();
            failed.is_none()
        })?;
        match failed {
            Some(error) => Err(error),
            None => packed.finish().map(drop),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_list() {
        let cases: [(&str, Option<&[u32]>); 9] = [
            ("0", Some(&[0])),
            ("0,3,8-11", Some(&[0, 3, 8, 9, 10, 11])),
            ("3, 1,1-2", Some(&[1, 2, 3])),
            ("", None),
            ("a", None),
            ("3-1", None),
            ("1-", None),
            ("-1", None),
            ("99999999999", None),
        ];
        for (list, want) in cases {
            assert_eq!(parse_ranks(list).ok().as_deref(), want, "{list}");
        }
        assert_eq!(parse_ranks("0-4294967295").unwrap().len(), MOST_RANKS + 1);
        assert_eq!(spread(64), [0, 8, 16, 24, 32, 40, 48, 56]);
    }
}
