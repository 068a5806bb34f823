//! Volumes that checkpoints go to.

use super::{Scene, Want};
use crate::probe::{
    Check, Probed, VolumeNeeds, VolumeTrial, amounts,
    catalogue::{
        Entry, VOLUME_FREE, VOLUME_READ_SPEED, VOLUME_RENAME, VOLUME_WRITABLE, VOLUME_WRITE_SPEED,
    },
};

/// Bytes in a second below which a checkpoint of a few gigabytes takes minutes.
const SLOW: u64 = 50_000_000;
/// Free bytes below which no checkpoint fits.
const FREE_LEAST: u64 = 1 << 30;

pub(super) fn examine(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    if scene.reading.volumes.is_empty() {
        let why = "the job has no persistent volume";
        return checks.push(VOLUME_WRITABLE.skip("not checked", why));
    }
    for (path, trial) in &scene.reading.volumes {
        let mut needs = scene.needs.volumes.iter().flatten();
        let needs = needs.rfind(|needs| needs.path.as_ref() == Some(path));
        let needs = needs.cloned().unwrap_or_default();
        let all = volume(path, trial, &needs);
        checks.extend(all.into_iter().map(|check| check.about(path)));
    }
}

fn volume(path: &str, trial: &Probed<VolumeTrial>, needs: &VolumeNeeds) -> Vec<Check> {
    let want = if needs.written == Some(true) {
        Want::Required
    } else {
        Want::Present
    };
    let needed = "files can be written";
    let trial = match trial {
        Probed::Read(trial) => trial,
        Probed::Absent => {
            return vec![want.bad(
                &VOLUME_WRITABLE,
                "not there",
                needed,
                "the volume is not mounted here, or the path is another one",
                format!("check `mount | grep {path}` and the events of the pod"),
            )];
        }
        Probed::Unreadable(why) => {
            return vec![want.bad(
                &VOLUME_WRITABLE,
                why,
                needed,
                "the volume is mounted for reading only, is full, or belongs to another user",
                "check `accessModes` of the claim, and `fsGroup` or `runAsUser` of the pod",
            )];
        }
        probed => return probed_check(&VOLUME_WRITABLE, probed, needed),
    };
    let mut checks = vec![VOLUME_WRITABLE.pass(format!("written, {}", trial.space.kind), needed)];
    checks.push(pace(
        &VOLUME_WRITE_SPEED,
        trial,
        &trial.write_micros,
        needs.write_bytes_per_second,
    ));
    checks.push(pace(
        &VOLUME_READ_SPEED,
        trial,
        &trial.read_micros,
        needs.read_bytes_per_second,
    ));
    checks.push(rename(want, &trial.rename));
    checks.push(free(trial, needs.free_bytes));
    checks
}

fn probed_check<T>(entry: &Entry, probed: &Probed<T>, needed: &str) -> Vec<Check> {
    entry
        .value_or_check(probed, needed)
        .err()
        .map(|check| *check)
        .into_iter()
        .collect()
}

fn pace(entry: &Entry, trial: &VolumeTrial, micros: &Probed<u64>, wanted: Option<u64>) -> Check {
    let least = wanted.unwrap_or(SLOW);
    let by = if wanted.is_some() {
        ", for the job"
    } else {
        ""
    };
    let needed = format!("{}{by}", amounts::speed(least));
    let micros = match micros {
        Probed::Unreadable(why) => {
            return entry.fail(
                why,
                needed,
                "the volume loses or changes what is written, or is far too slow",
                "do not save there; check the logs of the storage and of the node that mounts it",
            );
        }
        probed => match entry.value_or_check(probed, &*needed) {
            Ok(micros) => (*micros).max(1),
            Err(check) => return *check,
        },
    };
    let speed = u128::from(trial.bytes) * 1_000_000 / u128::from(micros);
    let speed = u64::try_from(speed).unwrap_or(u64::MAX);
    let found = format!(
        "{}, {} in {}",
        amounts::speed(speed),
        amounts::bytes(trial.bytes),
        amounts::micros(micros)
    );
    if speed >= least {
        return entry.pass(found, needed);
    }
    let cause = "the storage is slow, far away, or shared with others who use it now";
    let next = "measure again when it is idle; save less often, or to storage nearer by";
    entry.fail_if(wanted.is_some(), found, needed, cause, next)
}

fn rename(want: Want, probed: &Probed<bool>) -> Check {
    let needed = "the new file in place of the old";
    match VOLUME_RENAME.value_or_check(probed, needed) {
        Ok(true) => VOLUME_RENAME.pass("atomic", needed),
        Ok(false) => want.bad(
            &VOLUME_RENAME,
            "the old content was still there",
            needed,
            "the file system copies instead of renaming, as object store mounts do",
            "save checkpoints under a new name each, with a marker that is written last",
        ),
        Err(check) => *check,
    }
}

fn free(trial: &VolumeTrial, wanted: Option<u64>) -> Check {
    let least = wanted.unwrap_or(FREE_LEAST);
    let by = if wanted.is_some() { " for the job" } else { "" };
    let needed = format!("at least {}{by}", amounts::bytes(least));
    let free = match VOLUME_FREE.value_or_check(&trial.space.free, &*needed) {
        Ok(free) => *free,
        Err(check) => return *check,
    };
    let found = format!("{} free", amounts::bytes(free));
    if free >= least {
        return VOLUME_FREE.pass(found, needed);
    }
    let cause = "older checkpoints and logs fill the volume";
    let next = "remove what is no longer needed, or enlarge the claim";
    VOLUME_FREE.fail_if(wanted.is_some(), found, needed, cause, next)
}
