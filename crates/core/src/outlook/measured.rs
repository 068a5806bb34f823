//! What finished jobs measured, in place of published figures: restarts, saves and failures of their timelines.
//!
//! Owns what `trainyard status JOB --format json` says of that. A figure that no job shows stays as it was.

use serde::Deserialize;
use thiserror::Error;

use super::world::{PathSeconds, World};
use crate::ledger::Phase;

/// The parts of a job's status that are read.
#[derive(Debug, Deserialize)]
struct Job {
    timeline: Vec<(u32, Phase, u64)>,
}

/// Why a text is not a job's status.
#[derive(Debug, Error)]
#[error("it is not the output of `trainyard status JOB --format json`: {why}")]
pub struct JobError {
    why: String,
}

/// Figures of several jobs together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Jobs.
    pub jobs: u32,
    /// Seconds of all of them, without those in a queue.
    pub seconds: f64,
    /// Attempts after the first ones.
    pub restarts: u32,
    restarting: f64,
    starts: u32,
    starting: f64,
    saves: u32,
    saving: f64,
    training: f64,
}

/// A figure that the user gave, which no measured one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// How long a restart takes.
    Restart,
    /// From the start of processes to the first step.
    Start,
    /// How long training waits for a checkpoint.
    Blocking,
    /// Training between checkpoints.
    SaveEvery,
}

impl Figures {
    /// Adds a job's status.
    pub fn add(&mut self, text: &str) -> Result<(), JobError> {
        let job: Job = serde_json::from_str(text).map_err(|error| JobError {
            why: error.to_string(),
        })?;
        self.jobs += 1;
        let (mut last_attempt, mut last_phase) = (None, None);
        for (attempt, phase, millis) in job.timeline {
            #[expect(
                clippy::cast_precision_loss,
                reason = "a double holds years of milliseconds"
            )]
            let seconds = millis as f64 / 1e3;
            if last_attempt.is_some_and(|last| attempt > last) {
                self.restarts += 1;
            }
            let entered = last_phase != Some(phase) || last_attempt != Some(attempt);
            (last_attempt, last_phase) = (Some(attempt), Some(phase));
            if !matches!(phase, Phase::Queued | Phase::Suspended) {
                self.seconds += seconds;
            }
            match phase {
                Phase::Restarting => self.restarting += seconds,
                Phase::Starting => {
                    self.starts += u32::from(entered);
                    self.starting += seconds;
                }
                Phase::Saving => {
                    self.saves += u32::from(entered);
                    self.saving += seconds;
                }
                Phase::Training | Phase::Redoing => self.training += seconds,
                _ => {}
            }
        }
        Ok(())
    }

    /// Failures per 1,000 GPU-hours of jobs with `gpus` GPUs each; none where no job restarted.
    pub fn failure_rate(&self, gpus: u32) -> Option<f64> {
        let hours = self.seconds / 3_600.0 * f64::from(gpus);
        (self.restarts > 0 && hours > 0.0).then(|| 1_000.0 * f64::from(self.restarts) / hours)
    }

    /// Puts what was measured in place of the world's own figures, except those that are `given`; says in words what that is.
    pub fn apply(&self, world: &mut World, given: &[Given]) -> Vec<String> {
        let mut said = Vec::new();
        if self.restarts > 0 && !given.contains(&Given::Restart) {
            let seconds = (self.restarting / f64::from(self.restarts)).max(1.0);
            world.path_seconds = PathSeconds::same(seconds);
            said.push(format!("restart {seconds:.0} s"));
        }
        if self.starts > 0 && !given.contains(&Given::Start) {
            world.start_seconds = self.starting / f64::from(self.starts);
            said.push(format!("start {:.0} s", world.start_seconds));
        }
        if self.saves > 0 {
            let saves = f64::from(self.saves);
            let mut words = Vec::new();
            if !given.contains(&Given::Blocking) {
                world.checkpoints.blocking = self.saving / saves;
                words.push(format!("{:.1} s", world.checkpoints.blocking));
            }
            if !given.contains(&Given::SaveEvery) {
                world.checkpoints.every = (self.training / saves).max(1.0);
                words.push(format!("every {:.0} s", world.checkpoints.every));
            }
            if !words.is_empty() {
                said.push(format!("save {}", words.join(" ")));
            }
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_timelines() {
        let mut figures = Figures::default();
        figures
            .add(
                r#"{"job":"a","timeline":[[1,"queued",900000],[1,"starting",60000],[1,"training",3000000],[1,"saving",20000],
                    [1,"training",3000000],[1,"saving",40000],[2,"restarting",90000],[2,"starting",80000],[2,"training",910000]]}"#,
            )
            .unwrap();
        assert_eq!((figures.jobs, figures.restarts), (1, 1));
        assert!((figures.seconds - 7_200.0).abs() < 1e-9, "{figures:?}");
        // One failure in two hours of 8 GPUs.
        assert!((figures.failure_rate(8).unwrap() - 62.5).abs() < 1e-9);
        let mut world = World::usual(1, 1.0, 0.1);
        let said = figures.apply(&mut world, &[]);
        assert_eq!(
            said,
            ["restart 90 s", "start 70 s", "save 30.0 s every 3455 s"]
        );
        assert!((world.start_seconds - 70.0).abs() < 1e-9);
        assert!((world.checkpoints.blocking - 30.0).abs() < 1e-9);
    }

    #[test]
    fn given_figures_are_kept() {
        let mut figures = Figures::default();
        figures
            .add(
                r#"{"timeline":[[1,"starting",60000],[1,"training",3000000],[1,"saving",20000],[2,"restarting",90000],
                    [2,"training",1000]]}"#,
            )
            .unwrap();
        let cases: [(&[Given], &[&str]); 5] = [
            (
                &[],
                &["restart 90 s", "start 60 s", "save 20.0 s every 3001 s"],
            ),
            (
                &[Given::Restart],
                &["start 60 s", "save 20.0 s every 3001 s"],
            ),
            (
                &[Given::Start, Given::Blocking],
                &["restart 90 s", "save every 3001 s"],
            ),
            (
                &[Given::SaveEvery],
                &["restart 90 s", "start 60 s", "save 20.0 s"],
            ),
            (
                &[
                    Given::Restart,
                    Given::Start,
                    Given::Blocking,
                    Given::SaveEvery,
                ],
                &[],
            ),
        ];
        for (given, want) in cases {
            let mut world = World::usual(1, 1.0, 0.1);
            let before = world.clone();
            assert_eq!(figures.apply(&mut world, given), want, "{given:?}");
            let kept = |which, one: f64, other: f64| {
                given.contains(&which) == one.total_cmp(&other).is_eq()
            };
            let (now, then) = (&world.checkpoints, &before.checkpoints);
            assert!(kept(
                Given::Start,
                world.start_seconds,
                before.start_seconds
            ));
            assert!(kept(Given::Blocking, now.blocking, then.blocking));
            assert!(kept(Given::SaveEvery, now.every, then.every));
            assert_eq!(
                given.contains(&Given::Restart),
                world.path_seconds == before.path_seconds
            );
        }
    }

    #[test]
    fn jobs_without_failures_change_nothing() {
        let mut figures = Figures::default();
        figures
            .add(r#"{"timeline":[[1,"training",1000]]}"#)
            .unwrap();
        let mut world = World::usual(1, 1.0, 0.1);
        let before = world.clone();
        assert!(figures.apply(&mut world, &[]).is_empty());
        assert_eq!(world, before);
        assert_eq!(figures.failure_rate(8), None);
        let error = figures.add("{}").unwrap_err().to_string();
        assert!(error.starts_with(
            "it is not the output of `trainyard status JOB --format json`: missing field `timeline`"
        ));
    }
}
