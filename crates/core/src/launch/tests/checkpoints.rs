//! What programs are given about their checkpoints.

use super::{build::*, *};
use crate::{
    barrier::{Barrier, SlotSet, StopHow},
    checkpoint::CompleteStep,
    job::{CheckpointRecord, JobRecord},
    launch::{Counting, StartPoint},
    spec::{Kind, Role},
};

/// The variables about checkpoints of worker 1 of attempt 3.
fn variables(job: &Job, start: Option<StartPoint>) -> Vec<String> {
    let cluster = Cluster::default();
    let mut plan = Plan::new(job, &cluster).unwrap();
    if let Some(start) = start {
        plan.start_from(start);
    }
    let pod = match plan.pod(Slot::new(Role::Worker, 1), 3).unwrap() {
        LaunchedPod::Pod(pod) => *pod,
        LaunchedPod::Job(job) => panic!("a batch Job: {job:?}"),
    };
    let env = pod
        .spec
        .unwrap()
        .containers
        .remove(0)
        .env
        .unwrap_or_default();
    env.into_iter()
        .filter(|one| one.name.starts_with("TRAINYARD_"))
        .map(|one| format!("{}={}", one.name, one.value.unwrap_or_default()))
        .collect()
}

#[test]
fn checkpoint_variables() {
    let mut job = job(Kind::PyTorch)
        .role(Role::Master, 1)
        .role(Role::Worker, 2)
        .done();
    let known = StartPoint {
        counting: Counting::Store(4),
        step: Some(1200),
    };
    assert_eq!(
        variables(&job, Some(known)),
        [] as [&str; 0],
        "no annotation"
    );
    job.settings.checkpoints = Some("/ckpt".to_owned());
    job.uid = Some("uid".to_owned());
    let record = |attempt, earlier_attempts| CheckpointRecord {
        attempt,
        earlier_attempts,
        resume_step: Some(60),
        newest: Some(CompleteStep {
            step: 90,
            attempt: 2,
            bytes: 0,
            snapshot_ms: None,
            write_ms: None,
            saved_at: None,
        }),
        ..CheckpointRecord::default()
    };
    let barrier = Barrier::begin(2, StopHow::Hang, "a rank ended", SlotSet::default());
    let with = |checkpoint, barrier| JobRecord {
        checkpoint: Some(checkpoint),
        barrier,
        ..JobRecord::default()
    };
    let cases: [(&str, Option<StartPoint>, &[&str]); 7] = [
        ("a file", None, &["TRAINYARD_ATTEMPT=3"]),
        (
            "known",
            Some(known),
            &["TRAINYARD_ATTEMPT=7", "TRAINYARD_RESUME_STEP=1200"],
        ),
        (
            "a status of this attempt",
            Some(StartPoint::of(&with(record(3, Some(0)), None), 3)),
            &["TRAINYARD_ATTEMPT=3", "TRAINYARD_RESUME_STEP=60"],
        ),
        (
            "a status of another attempt",
            Some(StartPoint::of(&with(record(2, Some(0)), None), 3)),
            &["TRAINYARD_ATTEMPT=3"],
        ),
        (
            "a restart in place, whose other programs are given no step",
            Some(StartPoint::of(&with(record(3, Some(0)), Some(barrier)), 3)),
            &["TRAINYARD_ATTEMPT=3"],
        ),
        (
            "a cluster",
            Some(StartPoint::on_cluster(&with(record(3, Some(5)), None), 3)),
            &[
                "TRAINYARD_ATTEMPT=3",
                "TRAINYARD_JOB_UID=uid",
                "TRAINYARD_RESUME_STEP=60",
            ],
        ),
        (
            "a store that cannot be read",
            Some(StartPoint::default()),
            &[],
        ),
    ];
    for (case, start, want) in cases {
        let mut all = vec!["TRAINYARD_CHECKPOINTS=/ckpt"];
        all.extend(want);
        assert_eq!(variables(&job, start), all, "{case}");
    }
}
