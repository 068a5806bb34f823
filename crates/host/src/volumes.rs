//! What earlier runs left in the volumes of a job, and whether this run starts from it.
//!
//! Claims outlive runs, so a program that resumes from a checkpoint finds its work done once a run has
//! succeeded. Owns what follows from that: volumes that start empty (`--fresh`), volumes of a run's own
//! for injected faults, and whether a run found nothing left to do.
//!
//! Invariant: nothing that a run left is deleted. A volume that starts fresh is moved into
//! `replaced/<run>/` of the store; volumes of a run's own lie in its folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use trainyard_core::spec::Job;

use crate::{
    HostError,
    request::RunRequest,
    store::{Outcome, RunReport, Store},
};

/// Where volumes of a run's own lie in its folder.
const OWN: &str = "volumes";

/// How the volumes of a run begin.
#[derive(Debug, Default)]
pub(crate) struct Volumes {
    run_id: String,
    start: Start,
    /// Claims that held something when the run began, and that pods may write.
    held: BTreeSet<String>,
    /// The last run that did the job's work, where the job's last run succeeded.
    finished: Option<Finished>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Start {
    /// As earlier runs left them.
    #[default]
    Kept,
    /// Empty; what they held is moved aside.
    Fresh,
    /// Empty ones of the run's own; the others stay as they are.
    Own,
}

#[derive(Debug)]
struct Finished {
    run_id: String,
    last_step: Option<u64>,
}

impl Volumes {
    /// How the volumes of the run `run_id` begin.
    pub(crate) fn plan(
        request: &RunRequest,
        job: &Job,
        store: &Store,
        run_id: &str,
    ) -> Result<Self, HostError> {
        let name = job.name.as_str();
        let root = store.volumes();
        let held: BTreeSet<String> = writable_claims(job)
            .into_iter()
            .filter(|claim| holds_anything(&root.join(claim)))
            .collect();
        let finished = finished(store, name, run_id);
        let declared = declared_claims(&request.companions);
        let mut volumes = Self {
            run_id: run_id.to_owned(),
            start: Start::Kept,
            held,
            finished,
        };
        if request.options.fresh {
            volumes.may_renew(store, name)?;
            volumes.start = Start::Fresh;
        } else if !request.options.inject.is_empty() && volumes.finished.is_some() {
            // A claim that comes with the job starts empty on a cluster, too. Others may hold data that the job needs.
            let own: BTreeSet<String> = volumes
                .held
                .iter()
                .filter(|claim| declared.contains(*claim) && !root.join(claim).is_symlink())
                .cloned()
                .collect();
            if !own.is_empty() {
                volumes.held = own;
                volumes.start = Start::Own;
            }
        }
        Ok(volumes)
    }

    fn may_renew(&self, store: &Store, job: &str) -> Result<(), HostError> {
        let Some(claim) = self.held.first().cloned() else {
            return Ok(());
        };
        let jobs = store.jobs().map_err(HostError::Store)?;
        let mut others = jobs.into_iter().filter(|other| other != job);
        if let Some(other) = others.find(|other| store.live_run(other).is_some()) {
            return Err(HostError::VolumeInUse { claim, other });
        }
        let mut held = self.held.iter();
        match held.find(|claim| store.volumes().join(claim).is_symlink()) {
            Some(claim) => Err(HostError::VolumeElsewhere {
                claim: claim.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The folders of the volumes that are the run's own, by claim.
    pub(crate) fn own(&self, folder: &Path) -> BTreeMap<String, PathBuf> {
        if self.start != Start::Own {
            return BTreeMap::new();
        }
        let held = self.held.iter();
        held.map(|claim| (claim.clone(), folder.join(OWN).join(claim)))
            .collect()
    }

    /// What the user should know before the run begins.
    pub(crate) fn note(&self) -> Option<String> {
        let finished = &self.finished.as_ref()?.run_id;
        if self.held.is_empty() {
            return None;
        }
        let held = list(&self.held);
        match self.start {
            Start::Kept => Some(format!(
                "run `{finished}` of this job has already succeeded, and {held} keeps its checkpoints: a program \
                 that resumes from them has nothing left to do; `--fresh` starts with empty volumes"
            )),
            Start::Own => Some(format!(
                "run `{finished}` of this job has already succeeded: this run with injected faults gets its own \
                 empty volumes, and {held} does not change"
            )),
            Start::Fresh => None,
        }
    }

    /// Moves aside what the volumes hold, where they are to start fresh, and says where it is.
    pub(crate) fn renew(&self, store: &Store) -> Result<Vec<String>, HostError> {
        let mut notes = Vec::new();
        if self.start != Start::Fresh {
            return Ok(notes);
        }
        for claim in &self.held {
            let kept = store.replaced(&self.run_id).map_err(HostError::Store)?;
            let (from, to) = (store.volumes().join(claim), kept.join(claim));
            fs::rename(&from, &to).map_err(HostError::system(format!(
                "move `{}` to `{}`",
                from.display(),
                to.display()
            )))?;
            notes.push(format!(
                "volume `{claim}` starts empty; its old content is now in `{}`",
                to.display()
            ));
        }
        Ok(notes)
    }

    /// The run that had already succeeded, where one that ended with `outcome` trained nothing after it.
    pub(crate) fn already_succeeded(
        &self,
        outcome: Outcome,
        first_step: Option<u64>,
    ) -> Option<&str> {
        let finished = self.finished.as_ref()?;
        let reached = finished.last_step?;
        let nothing = first_step.is_none_or(|first| first >= reached);
        let resumed = self.start == Start::Kept && !self.held.is_empty();
        (outcome == Outcome::Succeeded && resumed && nothing).then_some(finished.run_id.as_str())
    }
}

/// The run that did the work, where the last run of `job` before `run_id` that used the job's volumes succeeded.
fn finished(store: &Store, job: &str, run_id: &str) -> Option<Finished> {
    // A store that cannot be read is reported where it is needed.
    let runs = store.runs(job).ok()?;
    let report = |id: &str| -> Option<RunReport> {
        let run = runs.iter().find(|run| run.id == id)?;
        run.report().ok().flatten()
    };
    // A run with volumes of its own left nothing in those of the job.
    let mut before = runs.iter().rev().filter(|run| run.id != run_id);
    let last = before.find(|run| !run.path.join(OWN).is_dir())?;
    let last = report(&last.id).filter(|report| report.outcome == Outcome::Succeeded)?;
    let origin = last.already_succeeded.as_deref().and_then(report);
    let did = origin.unwrap_or(last);
    Some(Finished {
        run_id: did.run_id,
        last_step: did.last_step,
    })
}

/// The claims that a pod of the job may write.
fn writable_claims(job: &Job) -> BTreeSet<String> {
    let mut claims = BTreeSet::new();
    for role in job.roles.values() {
        let Some(spec) = &role.template.spec else {
            continue;
        };
        for volume in spec.volumes.iter().flatten() {
            let Some(claim) = &volume.persistent_volume_claim else {
                continue;
            };
            let containers = spec
                .containers
                .iter()
                .chain(spec.init_containers.iter().flatten());
            let mut mounts =
                containers.flat_map(|container| container.volume_mounts.iter().flatten());
            let written =
                mounts.any(|mount| mount.name == volume.name && mount.read_only != Some(true));
            // The name becomes a path; one that points elsewhere is refused when the pod is made.
            let plain = !claim.claim_name.contains('/') && !claim.claim_name.starts_with('.');
            if claim.read_only != Some(true) && written && plain {
                claims.insert(claim.claim_name.clone());
            }
        }
    }
    claims
}

/// The claims that come with the job, in its own files.
fn declared_claims(companions: &[Value]) -> BTreeSet<String> {
    let claims = companions.iter().filter(|companion| {
        companion.get("kind").and_then(Value::as_str) == Some("PersistentVolumeClaim")
    });
    let names = claims.filter_map(|claim| claim.pointer("/metadata/name")?.as_str());
    names.map(str::to_owned).collect()
}

fn holds_anything(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// ``volume `a` ``, or ``volumes `a`, `b` ``.
fn list(claims: &BTreeSet<String>) -> String {
    let names: Vec<String> = claims.iter().map(|claim| format!("`{claim}`")).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    format!("volume{plural} {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_was_done_before() {
        use Outcome::{Failed, Succeeded};

        let volumes = |start, last_step| Volumes {
            run_id: "b".to_owned(),
            start,
            held: ["c".to_owned()].into(),
            finished: Some(Finished {
                run_id: "a".to_owned(),
                last_step,
            }),
        };
        let cases = [
            ("no step", Start::Kept, Some(784), Succeeded, None, true),
            (
                "the last step again",
                Start::Kept,
                Some(784),
                Succeeded,
                Some(784),
                true,
            ),
            (
                "trained all again",
                Start::Kept,
                Some(784),
                Succeeded,
                Some(1),
                false,
            ),
            ("failed", Start::Kept, Some(784), Failed, None, false),
            (
                "never reports steps",
                Start::Kept,
                None,
                Succeeded,
                None,
                false,
            ),
            ("fresh", Start::Fresh, Some(784), Succeeded, None, false),
            (
                "volumes of its own",
                Start::Own,
                Some(784),
                Succeeded,
                None,
                false,
            ),
        ];
        for (name, start, reached, outcome, first, want) in cases {
            let found = volumes(start, reached);
            let found = found.already_succeeded(outcome, first);
            assert_eq!(found, want.then_some("a"), "{name}");
        }
        let nothing_kept = Volumes {
            held: BTreeSet::new(),
            ..volumes(Start::Kept, Some(784))
        };
        assert_eq!(nothing_kept.already_succeeded(Succeeded, None), None);
        assert_eq!(nothing_kept.note(), None);
    }
}
