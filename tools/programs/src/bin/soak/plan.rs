//! The jobs of a run: which shape, which end, how often each fails on the way. All of it follows from the seed.

use crate::random::Random;

/// The kind of a job, and which roles it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    PyTorch,
    PyTorchWorkers,
    PyTorchElastic,
    Tf,
    MpiV1,
    MpiV2,
    XgBoost,
    Paddle,
    PaddleMaster,
    Jax,
}

impl Shape {
    pub(crate) const ALL: [Self; 10] = [
        Self::PyTorch,
        Self::PyTorchWorkers,
        Self::PyTorchElastic,
        Self::Tf,
        Self::MpiV1,
        Self::MpiV2,
        Self::XgBoost,
        Self::Paddle,
        Self::PaddleMaster,
        Self::Jax,
    ];

    /// The kind as reports name it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::PyTorch | Self::PyTorchWorkers | Self::PyTorchElastic => "PyTorchJob",
            Self::Tf => "TFJob",
            Self::MpiV1 | Self::MpiV2 => "MPIJob",
            Self::XgBoost => "XGBoostJob",
            Self::Paddle | Self::PaddleMaster => "PaddleJob",
            Self::Jax => "JAXJob",
        }
    }

    /// The shape as reports name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PyTorch => "PyTorchJob",
            Self::PyTorchWorkers => "PyTorchJob, workers only",
            Self::PyTorchElastic => "PyTorchJob, elastic",
            Self::Tf => "TFJob",
            Self::MpiV1 => "MPIJob v1",
            Self::MpiV2 => "MPIJob v2beta1",
            Self::XgBoost => "XGBoostJob",
            Self::Paddle => "PaddleJob",
            Self::PaddleMaster => "PaddleJob, with master",
            Self::Jax => "JAXJob",
        }
    }

    pub(crate) fn is_mpi(self) -> bool {
        matches!(self, Self::MpiV1 | Self::MpiV2)
    }

    /// Whether one failed pod begins the next attempt of the whole job, by default.
    pub(crate) fn restarts_as_gang(self) -> bool {
        !matches!(
            self,
            Self::PyTorchElastic | Self::Tf | Self::XgBoost | Self::PaddleMaster
        )
    }
}

/// How a job is meant to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Its pods end with 0.
    Succeeds,
    /// The program fails this often, then succeeds.
    Recovers(u32),
    /// The program always fails, and `backoffLimit` is this.
    Exhausts(u32),
    /// The program ends with an exit code that is not retried.
    Permanent,
    /// It is suspended while it runs, resumed, and then succeeds.
    Resumes,
    /// It never ends and is deleted while it runs.
    Deleted,
    /// It runs for longer than `activeDeadlineSeconds`.
    Expires,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Succeeds => "succeeds",
            Self::Recovers(_) => "fails, then succeeds",
            Self::Exhausts(_) => "fails until its limit",
            Self::Permanent => "fails for good",
            Self::Resumes => "suspended and resumed",
            Self::Deleted => "deleted while it runs",
            Self::Expires => "runs into its deadline",
        }
    }

    /// The condition it ends with; none where it is deleted before.
    pub(crate) fn condition(self) -> Option<&'static str> {
        match self {
            Self::Succeeds | Self::Recovers(_) | Self::Resumes => Some("Succeeded"),
            Self::Exhausts(_) | Self::Permanent | Self::Expires => Some("Failed"),
            Self::Deleted => None,
        }
    }

    /// What is on the user's account at the end.
    pub(crate) fn user_failures(self) -> u32 {
        match self {
            Self::Recovers(failures) | Self::Exhausts(failures) => failures,
            _ => 0,
        }
    }

    /// Whether this program, and not an annotation of the pod, says when a pod ends.
    pub(crate) fn is_driven(self) -> bool {
        matches!(self, Self::Recovers(_) | Self::Resumes)
    }
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) namespace: &'static str,
    pub(crate) shape: Shape,
    pub(crate) outcome: Outcome,
    pub(crate) workers: u32,
    /// GPUs of each pod.
    pub(crate) gpus: u32,
    /// Whether the operator assigns nodes to all of its pods at once.
    pub(crate) placed: bool,
    pub(crate) clean_pod_policy: &'static str,
    /// How long its pods run, and how long a job is left alone before something is done to it.
    pub(crate) runs_for: u64,
    /// How long it is watched after its end, and then deleted.
    pub(crate) held_for: u64,
}

/// Where the jobs are.
pub(crate) const NAMESPACES: [&str; 2] = ["soak-a", "soak-b"];

impl Plan {
    /// The job with this number.
    pub(crate) fn new(seed: u64, number: u32) -> Self {
        let mut random = Random::new(seed, 1_000 + u64::from(number));
        // Every shape comes once in ten jobs, in an order of its own.
        let mut shapes = Shape::ALL;
        let round = u64::from(number) / shapes.len() as u64;
        Random::new(seed, 500_000 + round).shuffle(&mut shapes);
        let shape = shapes[number as usize % shapes.len()];
        let outcome = match random.between(0, 99) {
            30..=49 => Outcome::Recovers(u32::try_from(random.between(1, 2)).unwrap_or(1)),
            50..=66 => Outcome::Exhausts(u32::try_from(random.between(1, 3)).unwrap_or(1)),
            // What an exit code means is not asked of the batch Job that runs the launcher.
            67..=74 if !shape.is_mpi() => Outcome::Permanent,
            75..=86 => Outcome::Resumes,
            87..=93 => Outcome::Deleted,
            94..=99 => Outcome::Expires,
            // Below 30.
            _ => Outcome::Succeeds,
        };
        let gpus = random.one_of(&[0, 0, 1, 4, 8]);
        Self {
            name: format!("soak-{number:05}"),
            namespace: random.one_of(&NAMESPACES),
            shape,
            outcome,
            workers: u32::try_from(random.between(1, 4)).unwrap_or(1),
            gpus,
            placed: random.percent(65),
            clean_pod_policy: random.one_of(&["All", "Running"]),
            runs_for: random.between(1, 8),
            held_for: random.between(2, 15),
        }
    }

    /// A gang that needs every GPU of `nodes` nodes: it gets them only if nothing else holds any.
    pub(crate) fn whole_cluster(nodes: u32) -> Self {
        Self {
            name: "soak-all".to_owned(),
            namespace: NAMESPACES[0],
            shape: Shape::PyTorchWorkers,
            outcome: Outcome::Succeeds,
            workers: nodes,
            gpus: 8,
            placed: true,
            clean_pod_policy: "All",
            runs_for: 1,
            held_for: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_jobs() {
        let jobs = |seed| (0..50).map(|at| Plan::new(seed, at)).collect::<Vec<_>>();
        assert_eq!(jobs(1), jobs(1));
        assert_ne!(jobs(1), jobs(2));
    }

    #[test]
    fn plans_cover_every_shape_and_end() {
        for seed in 0..20 {
            let shapes: BTreeSet<Shape> = (20..30).map(|at| Plan::new(seed, at).shape).collect();
            assert_eq!(shapes.len(), Shape::ALL.len(), "seed {seed}");
            let ends: BTreeSet<&str> = (0..300)
                .map(|at| Plan::new(seed, at).outcome.name())
                .collect();
            assert_eq!(ends.len(), 7, "seed {seed}");
        }
    }

    #[test]
    fn launchers_are_asked_for_no_permanent_exit_code() {
        let jobs = (0..2_000).map(|at| Plan::new(9, at));
        let mut mpi = jobs.filter(|plan| plan.shape.is_mpi());
        assert!(mpi.all(|plan| plan.outcome != Outcome::Permanent));
    }
}
