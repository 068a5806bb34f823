//! Many stacks as people can read them: identical ones once, with the ranks that have them.

use std::{collections::BTreeMap, fmt};

use crate::{Frame, ThreadStack};

/// One stack and who has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// The ranks, in ascending order, each once.
    pub ranks: Vec<u32>,
    /// Whether it is the stack of main threads.
    pub main: bool,
    /// How many threads of these ranks have it.
    pub threads: usize,
    /// The calls, innermost first.
    pub frames: Vec<Frame>,
    /// Whether calls further out were left off.
    pub truncated: bool,
}

/// The different stacks of all ranks: those of main threads first, then by how many ranks have them, most first.
///
/// Threads without a frame of Python are left off.
pub fn fold(ranks: &[(u32, Vec<ThreadStack>)]) -> Vec<Fold> {
    let mut groups: BTreeMap<_, (Vec<u32>, usize)> = BTreeMap::new();
    for (rank, threads) in ranks {
        for thread in threads.iter().filter(|thread| !thread.frames.is_empty()) {
            // `false` comes first.
            let key = (!thread.main, thread.frames.as_slice(), thread.truncated);
            let group = groups.entry(key).or_default();
            group.0.push(*rank);
            group.1 += 1;
        }
    }
    let mut folds: Vec<Fold> = groups
        .into_iter()
        .map(|((other, frames, truncated), (mut ranks, threads))| {
            ranks.sort_unstable();
            ranks.dedup();
            Fold {
                ranks,
                main: !other,
                threads,
                frames: frames.to_vec(),
                truncated,
            }
        })
        .collect();
    // Stable, so equal ones keep the order of their calls.
    folds.sort_by_key(|fold| {
        let most_first = usize::MAX - fold.ranks.len();
        (!fold.main, most_first, fold.ranks.first().copied())
    });
    folds
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.ranks.len() == 1 {
            "rank"
        } else {
            "ranks"
        };
        write!(f, "{noun} {}", Ranges(&self.ranks))?;
        match (self.main, self.threads) {
            (true, _) => writeln!(f, ": main thread")?,
            (false, 1) => writeln!(f, ": 1 other thread")?,
            (false, count) => writeln!(f, ": {count} other threads")?,
        }
        for frame in &self.frames {
            match frame.line {
                Some(line) => writeln!(f, "  {} ({}:{line})", frame.function, frame.file)?,
                None => writeln!(f, "  {} ({})", frame.function, frame.file)?,
            }
        }
        if self.truncated {
            writeln!(f, "  … further calls were not read")?;
        }
        Ok(())
    }
}

/// Numbers in ascending order as `0-1,3`.
#[derive(Debug, Clone, Copy)]
pub struct Ranges<'a>(pub &'a [u32]);

impl fmt::Display for Ranges<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs = self
            .0
            .chunk_by(|one, next| one.checked_add(1) == Some(*next));
        for (index, run) in runs.enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(main: bool, calls: &[(&str, u32)]) -> ThreadStack {
        let frames = calls.iter().map(|(function, line)| Frame {
            file: "train.py".to_owned(),
            function: (*function).to_owned(),
            line: Some(*line),
        });
        ThreadStack {
            thread_id: 1,
            task: None,
            name: None,
            main,
            holds_gil: None,
            frames: frames.collect(),
            truncated: false,
            torn: false,
        }
    }

    #[test]
    fn ranges() {
        let cases: &[(&[u32], &str)] = &[
            (&[], ""),
            (&[7], "7"),
            (&[0, 1, 3], "0-1,3"),
            (&[0, 1, 2, 5, 6, 9], "0-2,5-6,9"),
            (&[u32::MAX - 1, u32::MAX], "4294967294-4294967295"),
        ];
        for (ranks, expected) in cases {
            assert_eq!(Ranges(ranks).to_string(), *expected);
        }
    }

    #[test]
    fn identical_stacks_once() {
        let waits = || thread(true, &[("all_reduce", 19), ("main", 40)]);
        let loader = || thread(false, &[("get", 171)]);
        let ranks = [
            (3, vec![waits(), loader(), loader()]),
            (0, vec![waits(), loader()]),
            (
                2,
                vec![
                    thread(true, &[("load", 7), ("main", 38)]),
                    thread(false, &[]),
                ],
            ),
            (1, vec![waits()]),
        ];
        let text: String = fold(&ranks).iter().map(ToString::to_string).collect();
        let expected = "\
ranks 0-1,3: main thread
  all_reduce (train.py:19)
  main (train.py:40)
rank 2: main thread
  load (train.py:7)
  main (train.py:38)
ranks 0,3: 3 other threads
  get (train.py:171)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn truncated_stacks_say_so() {
        let mut deep = thread(true, &[("f", 2)]);
        deep.truncated = true;
        deep.frames[0].line = None;
        let folds = fold(&[(0, vec![deep])]);
        let expected = "rank 0: main thread\n  f (train.py)\n  … further calls were not read\n";
        assert_eq!(folds[0].to_string(), expected);
    }
}
