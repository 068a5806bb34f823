//! The trainer as real processes: they train, die and resume.
#![forbid(unsafe_code)]

mod group;

use std::{
    error::Error,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use crate::group::{Ended, Group, Signal};

type Tested = Result<(), Box<dyn Error>>;

/// How soon the others end once a rank is lost. They wait on nothing, so this leaves room only for
/// a busy machine; the limit for a silent peer is a minute.
const SOON: Duration = Duration::from_secs(5);

fn folder_flag(folder: &Path) -> String {
    format!("--checkpoint-dir={}", folder.display())
}

/// The value behind `word` in the last line of rank 0 that holds it.
fn value_after(ended: &Ended, word: &str) -> Option<String> {
    let mut lines = ended.lines.iter().rev();
    lines.find_map(|line| {
        let (_, rest) = line.split_once(word)?;
        Some(rest.split_whitespace().next()?.to_owned())
    })
}

fn weights(ended: &Ended) -> Option<String> {
    value_after(ended, "weights ")
}

fn assert_done(ended: &[Ended]) {
    for (rank, ended) in ended.iter().enumerate() {
        assert_eq!(ended.code, Some(0), "rank {rank}: {ended:?}");
    }
    let last = ended[0]
        .lines
        .last()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(last.starts_with("done: test accuracy 0.9"), "{last}");
}

#[test]
fn any_number_of_ranks_reaches_the_target() -> Tested {
    for size in [1, 2, 4] {
        let ended = Group::start(size, &[])?.finish()?;
        assert_done(&ended);
        for (rank, ended) in ended.iter().enumerate() {
            let ready = format!("rank {rank} of {size} ready");
            assert!(ended.lines.contains(&ready), "{ended:?}");
        }
        let accuracy: f32 = value_after(&ended[0], "test accuracy ")
            .ok_or("no accuracy")?
            .parse()?;
        assert!(accuracy >= 0.93, "{size} ranks: {accuracy}");
        let losses: Vec<f32> = ended[0]
            .lines
            .iter()
            .filter_map(|line| line.split_once(" loss ")?.1.split(' ').next()?.parse().ok())
            .collect();
        let (first, last) = (
            losses.first().ok_or("no loss")?,
            losses.last().ok_or("no loss")?,
        );
        assert!(
            last * 10.0 < *first,
            "{size} ranks: the loss went from {first} to {last}"
        );
    }
    Ok(())
}

#[test]
fn reports_have_their_form() -> Tested {
    let ended = Group::start(1, &["--epochs=2", "--report-every=40"])?.finish()?;
    let shape = |line: &str| {
        let words = line.split(' ');
        let words = words.map(|word| {
            let is_value = word.starts_with(|first: char| first.is_ascii_digit());
            if is_value && !word.contains('/') {
                "#"
            } else {
                word
            }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = ended[0].lines.iter().map(|line| shape(line)).collect();
    let wanted = [
        "rank # of # ready",
        "step 40/98 epoch # loss # accuracy # samples/s #",
        "step 80/98 epoch # loss # accuracy # samples/s #",
        "step 98/98 epoch # loss # accuracy # samples/s #",
    ];
    assert_eq!(lines[..4], wanted, "{ended:?}");
    Ok(())
}

#[test]
fn the_same_ranks_give_the_same_bits() -> Tested {
    let flags = ["--epochs=3", "--target-accuracy=0.5"];
    let first = Group::start(3, &flags)?.finish()?;
    let second = Group::start(3, &flags)?.finish()?;
    assert!(weights(&first[0]).is_some(), "{first:?}");
    assert_eq!(weights(&first[0]), weights(&second[0]));
    let other = Group::start(3, &[&flags[..], &["--seed=2"]].concat())?.finish()?;
    assert_ne!(weights(&first[0]), weights(&other[0]));
    Ok(())
}

#[test]
fn killed_rank_ends_the_others_and_is_named() -> Tested {
    for (killed, delay) in [
        (2, "--step-delay=1"),
        (0, "--step-delay=1"),
        (3, "--step-delay=100000"),
    ] {
        let mut group = Group::start(4, &["--epochs=10000", "--report-every=1", delay])?;
        if delay == "--step-delay=1" {
            group.wait_for(0, "step 20/")?;
        } else {
            for rank in 0..4 {
                group.wait_for(rank, &format!("rank {rank} of 4 ready"))?;
            }
        }
        group.signal(killed, Signal::Kill)?;
        let begun = Instant::now();
        let ended = group.finish()?;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != killed) {
            assert_eq!(ended.code, Some(1), "rank {rank}: {ended:?}");
            let wanted = format!("error: lost rank {killed}: its connection closed");
            assert!(ended.errors.starts_with(&wanted), "rank {rank}: {ended:?}");
        }
    }
    Ok(())
}

#[test]
fn killed_group_resumes_bit_for_bit() -> Tested {
    let folder = tempfile::tempdir()?;
    let flags = ["--epochs=4", "--save-every=50", "--target-accuracy=0.8"];
    let straight = Group::start(2, &flags)?.finish()?;
    assert_done(&straight);

    let at = folder_flag(folder.path());
    let kept = [&flags[..], &[&at]].concat();
    let mut group = Group::start(2, &[&kept[..], &["--step-delay=20"]].concat())?;
    group.wait_for(0, "saved step 100 ")?;
    group.signal(0, Signal::Kill)?;
    group.signal(1, Signal::Kill)?;
    group.finish()?;

    let resumed = Group::start(2, &kept)?.finish()?;
    assert_done(&resumed);
    let from: u64 = value_after(&resumed[0], "resumed from step ")
        .ok_or("not resumed")?
        .parse()?;
    assert!((100..196).contains(&from), "resumed from {from}");
    assert!(weights(&straight[0]).is_some());
    assert_eq!(weights(&resumed[0]), weights(&straight[0]));

    // What is complete stays complete.
    let again = Group::start(2, &kept)?.finish()?;
    assert_done(&again);
    assert!(
        again[0].lines.contains(&"resumed from step 196".to_owned()),
        "{again:?}"
    );
    assert_eq!(weights(&again[0]), weights(&straight[0]));
    Ok(())
}

#[test]
fn a_lost_rank_costs_no_step() -> Tested {
    let folder = tempfile::tempdir()?;
    let at = folder_flag(folder.path());
    let flags = ["--epochs=8", "--save-every=1000", "--report-every=1", &at];
    let mut group = Group::start(3, &[&flags[..], &["--step-delay=5"]].concat())?;
    group.wait_for(0, "step 40/")?;
    group.signal(1, Signal::Kill)?;
    let ended = group.finish()?;
    let saved: u64 = value_after(&ended[0], "saved step ")
        .ok_or("not saved")?
        .parse()?;
    assert!(saved >= 40, "{saved}");
    let resumed = Group::start(3, &[&flags[..], &["--target-accuracy=0.8"]].concat())?.finish()?;
    assert_done(&resumed);
    assert!(
        resumed[0]
            .lines
            .contains(&format!("resumed from step {saved}")),
        "{resumed:?}"
    );
    assert!(
        resumed[0].lines[2].starts_with(&format!("step {}/392", saved + 1)),
        "{resumed:?}"
    );
    Ok(())
}

#[test]
fn kill_during_save_leaves_whole_checkpoint() -> Tested {
    let flags = ["--epochs=6", "--target-accuracy=0.5", "--save-every=1"];
    let straight = Group::start(1, &flags)?.finish()?;
    let folder = tempfile::tempdir()?;
    let at = folder_flag(folder.path());
    let kept = [&flags[..], &[&at]].concat();
    for round in 0..12 {
        let mut group = Group::start(1, &kept)?;
        for _ in 0..=round % 3 {
            group.wait_for(0, "saved step ")?;
        }
        group.signal(0, Signal::Kill)?;
        let ended = group.finish()?;
        assert!(
            !ended[0]
                .lines
                .iter()
                .any(|line| line.starts_with("warning")),
            "{ended:?}"
        );
    }
    let resumed = Group::start(1, &kept)?.finish()?;
    assert_done_with(&resumed, 0.5)?;
    assert_eq!(weights(&resumed[0]), weights(&straight[0]));
    Ok(())
}

fn assert_done_with(ended: &[Ended], target: f32) -> Tested {
    assert_eq!(ended[0].code, Some(0), "{ended:?}");
    let accuracy: f32 = value_after(&ended[0], "test accuracy ")
        .ok_or("no accuracy")?
        .parse()?;
    assert!(accuracy >= target, "{accuracy}");
    Ok(())
}

#[test]
fn resume_with_another_world_size() -> Tested {
    let folder = tempfile::tempdir()?;
    let at = folder_flag(folder.path());
    let flags = ["--epochs=6", "--save-every=10", &at];
    for (size, stop_at, was) in [(4, "saved step 50 ", None), (2, "saved step ", Some(4))] {
        let mut group = Group::start(size, &[&flags[..], &["--step-delay=5"]].concat())?;
        group.wait_for(0, stop_at)?;
        group.signal(0, Signal::Kill)?;
        let ended = group.finish()?;
        let sentence = was.map(|was| format!("world size is {size}, was {was}"));
        assert!(
            sentence.is_none_or(|line| ended[0].lines.contains(&line)),
            "{ended:?}"
        );
    }
    let ended = Group::start(3, &flags)?.finish()?;
    assert_done(&ended);
    // As many steps as without any restart: no sample was skipped, none came twice.
    let last = ended[0].lines.last().ok_or("no lines")?;
    assert!(last.ends_with("after 294 steps"), "{last}");
    Ok(())
}

#[test]
fn corrupt_latest_checkpoint_is_skipped() -> Tested {
    let folder = tempfile::tempdir()?;
    let at = folder_flag(folder.path());
    let flags = [
        "--epochs=4",
        "--save-every=60",
        "--target-accuracy=0.8",
        &at,
    ];
    let whole = Group::start(2, &flags)?.finish()?;
    assert_done(&whole);
    let latest = fs::read_to_string(folder.path().join("latest"))?;
    assert_eq!(latest, "step-00000196.checkpoint\n");
    let latest = folder.path().join(latest.trim_end());
    let mut bytes = fs::read(&latest)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&latest, bytes)?;

    let ended = Group::start(2, &flags)?.finish()?;
    assert_done(&ended);
    let warning = format!(
        "warning: skipped `{}`: its checksum does not match: it is incomplete or was altered",
        latest.display()
    );
    assert_eq!(ended[0].lines.first(), Some(&warning));
    assert!(
        ended[0].lines.contains(&"resumed from step 180".to_owned()),
        "{ended:?}"
    );
    assert_eq!(weights(&ended[0]), weights(&whole[0]));
    Ok(())
}

#[test]
fn sigterm_saves_and_exits() -> Tested {
    // To all, as at the end of a pod's time; to one that does not save itself; to one alone.
    for (size, asked) in [(3, vec![0, 1, 2]), (3, vec![1]), (1, vec![0])] {
        let folder = tempfile::tempdir()?;
        let at = folder_flag(folder.path());
        // The run that is stopped would be long; the one that goes on need not be.
        let flags = ["--epochs=4", "--save-every=1000", "--report-every=1", &at];
        let mut group = Group::start(
            size,
            &[&flags[..], &["--step-delay=5", "--epochs=400"]].concat(),
        )?;
        group.wait_for(0, "step 30/")?;
        for rank in &asked {
            group.signal(*rank, Signal::Terminate)?;
        }
        let ended = group.finish()?;
        for (rank, ended) in ended.iter().enumerate() {
            assert_eq!(
                ended.code,
                Some(143),
                "rank {rank}, {asked:?} asked: {ended:?}"
            );
            let last = ended.lines.last().map(String::as_str).unwrap_or_default();
            assert!(
                last.starts_with("asked to stop: stopped after step "),
                "{ended:?}"
            );
        }
        let stopped = value_after(&ended[0], "stopped after step ").ok_or("no step")?;
        let resumed = Group::start(size, &[&flags[..], &["--target-accuracy=0.8"]].concat())?;
        let resumed = resumed.finish()?;
        assert_done(&resumed);
        let line = format!("resumed from step {stopped}");
        assert!(resumed[0].lines.contains(&line), "{resumed:?}");
    }
    Ok(())
}

#[test]
fn sigterm_while_joining_exits_at_once() -> Tested {
    let mut group = Group::start_some(3, &[0, 2], &["--join-timeout=600"])?;
    group.wait_for(0, "rank 0 has waited 5 s for rank 1")?;
    let begun = Instant::now();
    group.signal(0, Signal::Terminate)?;
    group.signal(2, Signal::Terminate)?;
    for ended in group.finish()? {
        assert_eq!(ended.code, Some(143), "{ended:?}");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    Ok(())
}

#[test]
fn missing_rank_is_named() -> Tested {
    let group = Group::start_some(4, &[0, 2], &["--join-timeout=1"])?;
    for ended in group.finish()? {
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.errors.contains("rank"), "{ended:?}");
    }
    Ok(())
}

#[test]
fn failed_save_warns_and_last_save_must_succeed() -> Tested {
    let place = tempfile::tempdir()?;
    let folder = place.path().join("checkpoints");
    let at = folder_flag(&folder);
    let mut group = Group::start(2, &["--epochs=6", "--save-every=20", "--step-delay=5", &at])?;
    group.wait_for(0, "saved step 20 ")?;
    fs::remove_dir_all(&folder)?;
    fs::write(&folder, "in the way")?;
    group.wait_for(0, "warning: cannot save step ")?;
    let ended = group.finish()?;
    assert_eq!(ended[0].code, Some(1), "{ended:?}");
    assert!(
        ended[0]
            .errors
            .starts_with("error: cannot save step 294 to "),
        "{ended:?}"
    );
    assert_eq!(
        ended[1].errors,
        "error: lost rank 0: it gave up, see its own output\n"
    );
    Ok(())
}

#[test]
fn invalid_options_and_files_are_refused() -> Tested {
    let folder = tempfile::tempdir()?;
    let at = folder_flag(folder.path());
    let made = Group::start(1, &["--epochs=1", "--target-accuracy=0", &at])?.finish()?;
    assert_done_with(&made, 0.0)?;
    let checkpoint = folder.path().join("step-00000049.checkpoint");
    let file = format!("--checkpoint-dir={}/below", checkpoint.display());
    let cases: [(&str, Vec<&str>, i32, String); 5] = [
        (
            "an unknown flag",
            vec!["--epoch=1"],
            2,
            "error: unknown argument `--epoch=1`; see `--help`".to_owned(),
        ),
        (
            "a folder of another run",
            vec!["--seed=5", &at],
            2,
            format!(
                "error: `{}` was saved with another `--seed`: 1, this run has 5; use the same, or \
                 another `--checkpoint-dir`",
                checkpoint.display()
            ),
        ),
        (
            "a folder that cannot be made",
            vec![&file],
            2,
            format!(
                "error: cannot use the checkpoint folder `{}/below`",
                checkpoint.display()
            ),
        ),
        (
            "a rate that diverges",
            vec!["--learning-rate=1e12"],
            1,
            "error: the loss is not finite at step ".to_owned(),
        ),
        (
            "a target out of reach",
            vec!["--epochs=1", "--target-accuracy=1"],
            1,
            String::new(),
        ),
    ];
    for (name, flags, code, sentence) in cases {
        let ended = Group::start(1, &flags)?.finish()?;
        assert_eq!(ended[0].code, Some(code), "{name}: {ended:?}");
        assert!(ended[0].errors.starts_with(&sentence), "{name}: {ended:?}");
    }
    Ok(())
}

#[test]
fn example_job_runs_unchanged() -> Tested {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/smoke/pytorchjob.yaml");
    let text = fs::read_to_string(file)?;
    let (master, worker) = text.split_once("    Worker:\n").ok_or("no Worker")?;
    let flags = |role: &'static str, of: &str| -> Vec<String> {
        let flags = of
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- --"));
        let flags: Vec<String> = flags.map(|flag| format!("--{flag}")).collect();
        assert!(flags.len() >= 3, "{role}: {flags:?}");
        flags
    };
    let folder = tempfile::tempdir()?;
    let at = folder_flag(folder.path());
    let master = flags("Master", master);
    let here = |flag: &str| flag.replace("--checkpoint-dir=/checkpoints", &at);
    let master: Vec<String> = master.iter().map(|flag| here(flag)).collect();
    assert!(master.contains(&at), "{master:?}");

    let ended = Group::start_each(4, |rank| {
        if rank == 0 {
            master.clone()
        } else {
            flags("Worker", worker)
        }
    })?
    .finish()?;
    assert_done(&ended);
    assert_eq!(
        fs::read_dir(folder.path())?.count(),
        4,
        "three checkpoints and `latest`"
    );
    Ok(())
}

#[test]
fn the_help_is_printed() -> Tested {
    let ended = Group::start(1, &["--help"])?.finish()?;
    assert_eq!(ended[0].code, Some(0));
    assert!(
        ended[0]
            .lines
            .iter()
            .any(|line| line.contains("--checkpoint-dir DIR"))
    );
    Ok(())
}
