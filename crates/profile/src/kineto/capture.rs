//! The recording of one rank, as a machine of what was seen.
//!
//! A client reports no success: what can be seen are its requests (free or busy) and its files.

/// How far the recording of a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its client has not asked for work since.
    Waiting,
    /// It was given the configuration.
    Armed,
    /// It was seen busy, or its unfinished file was.
    Tracing,
    /// Its file is whole.
    Written,
    /// It was seen busy and is free again, but no file is there.
    Lost,
}

/// The recording of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    stage: Stage,
    /// Requests since it was seen free again without a file.
    free_again: u32,
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            stage: Stage::Waiting,
            free_again: 0,
        }
    }
}

/// Requests of a free client after which the file of its trace is not expected any more.
const PATIENCE: u32 = 5;

impl Capture {
    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Whether nothing more follows.
    pub fn is_settled(&self) -> bool {
        matches!(self.stage, Stage::Written | Stage::Lost)
    }

    /// Its client asks for work. Whether it is to be given the configuration.
    pub fn asked(&mut self, free: bool) -> bool {
        match (self.stage, free) {
            (Stage::Waiting, true) => {
                self.stage = Stage::Armed;
                return true;
            }
            (Stage::Armed, false) => self.stage = Stage::Tracing,
            (Stage::Tracing, true) => {
                self.free_again += 1;
                if self.free_again > PATIENCE {
                    self.stage = Stage::Lost;
                }
            }
            _ => {}
        }
        false
    }

    /// Its files as they are: an unfinished one, or the whole one.
    pub fn files(&mut self, unfinished: bool, whole: bool) {
        if whole {
            self.stage = Stage::Written;
        } else if unfinished && !self.is_settled() {
            self.stage = Stage::Tracing;
        }
    }

    /// Why there is no trace, once nobody waits any longer.
    pub fn reason(&self, by_steps: bool) -> &'static str {
        match self.stage {
            Stage::Waiting => {
                "its PyTorch did not ask for work: the program uses none, was started without the profiler's variables, or profiles itself"
            }
            Stage::Armed if by_steps => {
                "it took the request and did not begin in time: the next step that all ranks count alike is further away than `--timeout`, the program calls no `torch.optim` optimizer, or it profiles itself; try `--seconds 2`"
            }
            Stage::Armed => "it took the request and never began: the program profiles itself",
            Stage::Tracing => "it still records; try fewer steps, or a longer `--timeout`",
            Stage::Lost => "it recorded and wrote no file; look for `kineto` in its log",
            Stage::Written => "its file was removed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_by_what_is_seen() {
        enum Seen {
            Asked(bool),
            Files(bool, bool),
        }
        use Seen::{Asked, Files};
        let cases: [(&str, &[Seen], Stage, usize); 8] = [
            ("nothing", &[], Stage::Waiting, 0),
            (
                "busy with another",
                &[Asked(false), Asked(false)],
                Stage::Waiting,
                0,
            ),
            ("given once", &[Asked(true), Asked(true)], Stage::Armed, 1),
            ("busy", &[Asked(true), Asked(false)], Stage::Tracing, 1),
            (
                "its unfinished file",
                &[Asked(true), Files(true, false)],
                Stage::Tracing,
                1,
            ),
            (
                "whole",
                &[Asked(true), Asked(false), Files(false, true), Asked(true)],
                Stage::Written,
                1,
            ),
            (
                "free, and the file comes",
                &[Asked(true), Asked(false), Asked(true), Files(false, true)],
                Stage::Written,
                1,
            ),
            (
                "free for long without a file",
                &[
                    Asked(true),
                    Asked(false),
                    Asked(true),
                    Asked(true),
                    Asked(true),
                    Asked(true),
                    Asked(true),
                    Asked(true),
                ],
                Stage::Lost,
                1,
            ),
        ];
        for (name, all, want, given) in cases {
            let mut capture = Capture::default();
            let mut count = 0;
            for seen in all {
                match seen {
                    Asked(free) => count += usize::from(capture.asked(*free)),
                    Files(unfinished, whole) => capture.files(*unfinished, *whole),
                }
            }
            assert_eq!((capture.stage(), count), (want, given), "{name}");
        }
    }
}
