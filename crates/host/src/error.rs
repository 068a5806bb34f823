//! Why a job cannot run here, each as one sentence.

use std::{io, path::PathBuf};

use thiserror::Error;
use trainyard_core::{
    launch::LaunchError,
    spec::{JobName, Role},
};

use crate::{namespaces, store::StoreError};

/// Why a job could not be run to an end of its own. Nothing of it is left running.
#[derive(Debug, Error)]
pub enum HostError {
    /// The store refused.
    #[error(transparent)]
    Store(StoreError),
    /// The job cannot become pods.
    #[error("cannot build the pods of job `{job}`")]
    Launch {
        /// The job.
        job: JobName,
        /// Why.
        #[source]
        source: LaunchError,
    },
    /// `--replicas` names a role that the job lacks.
    #[error("job `{job}` has no role `{role}` to resize; it has {has}")]
    NoSuchRole {
        /// The job.
        job: JobName,
        /// The role asked for.
        role: Role,
        /// The roles it has.
        has: String,
    },
    /// The job asks for more GPUs than there are.
    #[error("job `{job}` needs {}, this machine has {available}", gpus(*wanted))]
    TooFewGpus {
        /// The job.
        job: JobName,
        /// The sum of its limits.
        wanted: u64,
        /// What is here.
        available: usize,
    },
    /// `--fresh` while another job of the same folder runs.
    #[error("cannot empty volume `{claim}` for `--fresh`: job `{other}` is running and may use it")]
    VolumeInUse {
        /// The volume.
        claim: String,
        /// The job that runs.
        other: String,
    },
    /// `--fresh` of a volume that lies elsewhere.
    #[error("cannot empty volume `{claim}` for `--fresh`: it is a symbolic link")]
    VolumeElsewhere {
        /// The volume.
        claim: String,
    },
    /// A container that relies on its image's entrypoint.
    #[error(
        "container `{container}` of pod `{pod}` has no `command`, and local runs do not use the \
         entrypoint of an image"
    )]
    NoCommand {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
    },
    /// A program that is not there.
    #[error("container `{container}` of pod `{pod}` runs `{program}`, which is not on its `PATH`")]
    NotOnPath {
        /// The pod.
        pod: String,
        /// The container.
        container: String,
        /// The program.
        program: String,
    },
    /// An object of the user's files that cannot be read.
    #[error("{kind} `{name}` cannot be read: {message}")]
    BadObject {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// What was found.
        message: String,
    },
    /// An object that a pod refers to and no file holds.
    #[error("pod `{pod}` needs {what}, which none of the files contains")]
    MissingObject {
        /// The pod.
        pod: String,
        /// The object, such as ``key `a` of ConfigMap `b` ``.
        what: String,
    },
    /// Something that a single machine cannot give.
    #[error("pod `{pod}` needs {what}, which a single machine cannot provide")]
    Unsupported {
        /// The pod.
        pod: String,
        /// What it wants.
        what: String,
    },
    /// A value that cannot be read.
    #[error("pod `{pod}`: {message}")]
    BadValue {
        /// The pod.
        pod: String,
        /// What was found and what was needed.
        message: String,
    },
    /// The kernel refuses the namespaces that keep pods apart.
    #[error("this machine does not allow this user to create namespaces ({step}: {reason})")]
    NoNamespaces {
        /// The step that failed.
        step: String,
        /// The kernel's words.
        reason: String,
        /// Settings that would let it, as `sysctl` takes them; none where no setting forbids it.
        cures: Vec<String>,
    },
    /// A pod whose surroundings could not be made.
    #[error("cannot set up pod `{pod}`: {message}")]
    PodSetup {
        /// The pod.
        pod: String,
        /// What failed.
        message: String,
    },
    /// The program that starts pods cannot be started.
    #[error("cannot start `{}` for pod `{pod}`", program.display())]
    StartPod {
        /// The pod.
        pod: String,
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An injection that names a rank the job lacks.
    #[error("injection `{injection}` names {named}, but the job has only {count}")]
    NoSuchRank {
        /// The injection as written.
        injection: String,
        /// What it names, such as `rank 9`.
        named: String,
        /// How many there are.
        count: u32,
    },
    /// All port numbers or address blocks are taken.
    #[error("no free {what} on this machine")]
    NoneFree {
        /// What ran out.
        what: &'static str,
    },
    /// A call to the operating system that does not fail on a sound machine.
    #[error("cannot {tried}")]
    System {
        /// What was tried.
        tried: String,
        /// The kernel's word.
        #[source]
        source: io::Error,
    },
}

impl HostError {
    /// What the reader can do about it, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Store(error) => return error.hint(),
            Self::TooFewGpus { available: 0, .. } => "run it with `--cpu`".to_owned(),
            Self::TooFewGpus { available, .. } => format!(
                "run it with `--cpu`, or scale it down with `--replicas Worker=N` so that it needs \
                 at most {}",
                gpus(*available as u64)
            ),
            Self::NoCommand { container, .. } => {
                format!("set `command` of container `{container}` in the job file")
            }
            Self::NotOnPath { program, .. } => format!(
                "install `{program}`, or map the image to a virtual environment that has it with \
                 `--image-env IMAGE=PATH`"
            ),
            Self::MissingObject { .. } => {
                "add its file with `-f FILE`, or put the object into the job's file".to_owned()
            }
            Self::VolumeInUse { other, .. } => {
                format!(
                    "wait until job `{other}` has ended, or stop it with `trainyard stop {other}`"
                )
            }
            Self::VolumeElsewhere { claim } => {
                format!("empty the target of `volumes/{claim}`, or remove the link")
            }
            Self::NoNamespaces { cures, .. } => namespaces::hint(cures),
            Self::NoSuchRank { count: 0, .. } => {
                "give the job a pod with `--replicas Worker=1`".to_owned()
            }
            Self::NoSuchRank { count: 1, .. } => "name 0, the only one".to_owned(),
            Self::NoSuchRank { count, .. } => {
                format!(
                    "name one of 0 to {}; both ranks and pods count from 0",
                    count - 1
                )
            }
            _ => return None,
        })
    }

    pub(crate) fn system(tried: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let tried = tried.into();
        move |source| Self::System { tried, source }
    }

    pub(crate) fn system_errno(tried: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let tried = tried.into();
        move |errno| Self::System {
            tried,
            source: errno.into(),
        }
    }
}

fn gpus(count: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} GPU{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_counted_in_grammar() {
        let cases = [
            (
                1,
                0,
                "job `j` needs 1 GPU, this machine has 0",
                "run it with `--cpu`",
            ),
            (
                4,
                1,
                "job `j` needs 4 GPUs, this machine has 1",
                "run it with `--cpu`, or scale it down with `--replicas Worker=N` so that it needs \
                 at most 1 GPU",
            ),
            (
                8,
                2,
                "job `j` needs 8 GPUs, this machine has 2",
                "run it with `--cpu`, or scale it down with `--replicas Worker=N` so that it needs \
                 at most 2 GPUs",
            ),
        ];
        for (wanted, available, message, hint) in cases {
            let error = HostError::TooFewGpus {
                job: JobName::parse("j").unwrap(),
                wanted,
                available,
            };
            assert_eq!(error.to_string(), message);
            assert_eq!(error.hint().as_deref(), Some(hint));
        }
    }

    #[test]
    fn absent_rank_has_next_step() {
        let cases = [
            (0, "give the job a pod with `--replicas Worker=1`"),
            (1, "name 0, the only one"),
            (4, "name one of 0 to 3; both ranks and pods count from 0"),
        ];
        for (count, hint) in cases {
            let error = HostError::NoSuchRank {
                injection: "kill rank=4 at=0s".to_owned(),
                named: "rank 4".to_owned(),
                count,
            };
            assert_eq!(error.hint().as_deref(), Some(hint));
        }
    }
}
