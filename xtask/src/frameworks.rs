//! `cargo xtask frameworks`: real training frameworks, pinned, outside the tree.
//!
//! Owns which frameworks the examples train with and where their virtual environments lie. It
//! installs nothing into the machine's own Python.
//!
//! Invariant: an environment is used only if it is whole; one whose making was cut short is made
//! again. Its name holds a hash of everything it was made from, so a changed pin never meets an
//! old environment.

mod adapters;
mod hangs;
mod install;
mod package;
mod profile;
mod stand_ins;
mod suite;
mod trainers;

use std::{path::PathBuf, time::Duration};

use crate::{Failure, cache::Part, report, step};

pub(crate) use suite::suite;

/// One framework, and how its examples are tried.
#[derive(Debug)]
struct Framework {
    name: &'static str,
    /// The folder with its pins and its examples.
    folder: &'static str,
    /// Frameworks whose packages it uses too.
    bases: &'static [&'static str],
    /// What must be importable.
    module: &'static str,
    /// What the machine must have besides Python.
    need: Need,
    /// Seconds in which its environment was made once, on two shared cores.
    took: u64,
    /// The last step of its examples.
    steps: u32,
    trials: &'static [Trial],
}

/// What an environment needs beyond its packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    /// Stand-ins for the CUDA libraries that it is linked against.
    StandIns,
    /// `mpirun` and its libraries.
    OpenMpi,
}

/// One job file that is run twice: undisturbed, and with a fault.
#[derive(Debug)]
struct Trial {
    file: &'static str,
    /// What is killed in the second run, and when.
    fault: &'static str,
    /// What the second run must say, which shows that it went on and did not begin again.
    resumed: &'static str,
    /// Whether the fault costs an attempt of the gang; an elastic job replaces the pod alone.
    gang: bool,
}

/// Sees to it that `mpirun` can be started, as tests of the engine do too.
pub(crate) fn open_mpi() -> Result<(), Failure> {
    install::machine_has(Need::OpenMpi)
}

/// Whether `mpirun` can be started as it is.
pub(crate) fn has_open_mpi() -> bool {
    install::starts("mpirun")
}

/// The environments, for `cargo xtask prepare`.
pub(crate) fn caches() -> Vec<Part> {
    FRAMEWORKS
        .iter()
        .map(|framework| Part {
            name: format!("framework: {}", framework.name),
            used_by: "frameworks",
            took: Duration::from_secs(framework.took),
            is_there: Box::new(|| install::is_whole(framework)),
            make: Box::new(|| framework.environment().map(|_| ())),
        })
        .collect()
}

/// The pinned maturin of the cache; nothing where it is not installed.
pub(crate) fn maturin() -> Result<Option<PathBuf>, Failure> {
    let framework = named(package::FRAMEWORK);
    if !install::is_whole(framework)? {
        return Ok(None);
    }
    Ok(Some(framework.environment()?.join("bin/maturin")))
}

/// Installs packages of Debian that hold `what`.
pub(crate) fn debian(what: &str, packages: &[&str]) -> Result<(), Failure> {
    install::debian(what, packages)
}

const RESUMED: &str = "resumed from step ";

/// Most used first.
const FRAMEWORKS: &[Framework] = &[
    Framework {
        name: "pytorch",
        folder: "examples/pytorch",
        bases: &[],
        module: "torch",
        need: Need::StandIns,
        took: 120,
        steps: 200,
        trials: &[
            Trial {
                file: "ddp.yaml",
                fault: "kill rank=1 at=step:100",
                resumed: RESUMED,
                gang: true,
            },
            Trial {
                file: "torchrun.yaml",
                fault: "kill rank=1 at=step:100",
                resumed: RESUMED,
                gang: true,
            },
            Trial {
                file: "elastic.yaml",
                fault: "kill rank=1 at=step:100",
                resumed: RESUMED,
                gang: false,
            },
        ],
    },
    Framework {
        name: "mpi",
        folder: "examples/mpi",
        bases: &[],
        module: "mpi4py.MPI",
        need: Need::OpenMpi,
        took: 7,
        steps: 200,
        trials: &[Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:100",
            resumed: RESUMED,
            gang: true,
        }],
    },
    Framework {
        name: "jax",
        folder: "examples/jax",
        bases: &[],
        module: "jax",
        need: Need::Nothing,
        took: 43,
        steps: 200,
        trials: &[Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:100",
            resumed: RESUMED,
            gang: true,
        }],
    },
    Framework {
        name: "xgboost",
        folder: "examples/xgboost",
        bases: &[],
        module: "xgboost",
        need: Need::Nothing,
        took: 33,
        steps: 40,
        trials: &[Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:20",
            resumed: RESUMED,
            gang: true,
        }],
    },
    Framework {
        name: "tensorflow",
        folder: "examples/tensorflow",
        bases: &[],
        module: "tensorflow",
        need: Need::Nothing,
        took: 225,
        steps: 200,
        trials: &[Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:100",
            resumed: RESUMED,
            gang: true,
        }],
    },
    Framework {
        name: "paddle",
        folder: "examples/paddle",
        bases: &[],
        module: "paddle",
        need: Need::Nothing,
        took: 108,
        steps: 200,
        trials: &[Trial {
            file: "job.yaml",
            fault: "kill rank=1 at=step:40",
            resumed: RESUMED,
            gang: true,
        }],
    },
    // Builds the Python package of the tree and tries it with PyTorch.
    Framework {
        name: package::FRAMEWORK,
        folder: "crates/python",
        bases: &["pytorch"],
        module: "maturin",
        need: Need::Nothing,
        took: 45,
        steps: 0,
        trials: &[],
    },
    // Adapters of that package; their examples are run with it.
    Framework {
        name: "transformers",
        folder: "examples/transformers",
        bases: &["pytorch"],
        module: "accelerate, transformers",
        need: Need::Nothing,
        took: 68,
        steps: 120,
        trials: &[],
    },
    Framework {
        name: "lightning",
        folder: "examples/lightning",
        bases: &["pytorch", "transformers"],
        module: "lightning, pytorch_lightning",
        need: Need::Nothing,
        took: 60,
        steps: 200,
        trials: &[],
    },
    // No examples of ours: programs whose progress is compared with what `run` reads of them.
    Framework {
        name: trainers::FRAMEWORK,
        folder: "tools/trainers",
        bases: &["pytorch", "xgboost", "transformers", "lightning"],
        module: "accelerate, lightgbm, lightning, transformers",
        need: Need::Nothing,
        took: 40,
        steps: 0,
        trials: &[],
    },
];

/// The Python SDK of the Training Operator, and what runs the tests that its makers have for it.
const SDK: Framework = Framework {
    name: "kubeflow-training",
    folder: "tools/upstream",
    bases: &[],
    module: "kubeflow.training",
    need: Need::Nothing,
    took: 30,
    steps: 0,
    trials: &[],
};

/// The launcher of NVIDIA Resiliency Extension, which recovery is measured beside.
const NVRX: Framework = Framework {
    name: "nvrx",
    folder: "tools/hangs",
    bases: &["pytorch"],
    module: "nvidia_resiliency_ext.fault_tolerance",
    need: Need::Nothing,
    took: 10,
    steps: 0,
    trials: &[],
};

/// What saves are measured beside.
const CHECKPOINT_PEERS: Framework = Framework {
    name: "checkpoint-peers",
    folder: "tools/checkpoints",
    bases: &["pytorch"],
    module: "safetensors",
    need: Need::Nothing,
    took: 5,
    steps: 0,
    trials: &[],
};

/// The environment of those peers, and the folder with the package of this tree, built as users have it.
pub(crate) fn checkpoint_peers() -> Result<(PathBuf, PathBuf), Failure> {
    Ok((CHECKPOINT_PEERS.environment()?, package::released()?))
}

/// The environment of that launcher, made if it is not there.
pub(crate) fn nvrx() -> Result<PathBuf, Failure> {
    NVRX.environment()
}

/// The environment of that SDK, made if it is not there.
pub(crate) fn sdk() -> Result<PathBuf, Failure> {
    SDK.environment()
}

/// Whether the environment of that SDK is there.
pub(crate) fn has_sdk() -> Result<bool, Failure> {
    install::is_whole(&SDK)
}

/// Every framework, or the one that is named.
fn chosen(only: Option<&str>) -> Result<Vec<&'static Framework>, Failure> {
    let chosen: Vec<&Framework> = FRAMEWORKS
        .iter()
        .filter(|framework| only.is_none_or(|name| name == framework.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = FRAMEWORKS.iter().map(|framework| framework.name).collect();
        return Err(Failure::CouldNotRun(format!(
            "unknown framework `{}`; expected one of {}",
            only.unwrap_or_default(),
            names.join(", ")
        )));
    }
    Ok(chosen)
}

/// Makes the environment of every framework, or of the one that is named.
pub(crate) fn run(only: Option<&str>) -> Result<(), Failure> {
    let mut absent = Vec::new();
    for framework in chosen(only)? {
        match framework.environment() {
            Ok(folder) => println!("{}\t{}", framework.name, folder.display()),
            Err(Failure::CouldNotRun(message) | Failure::Failed(message)) => {
                report::error(&message);
                absent.push(framework.name);
            }
            Err(Failure::Reported) => absent.push(framework.name),
        }
    }
    if absent.is_empty() {
        Ok(())
    } else {
        Err(Failure::CouldNotRun(format!(
            "no environment for {}",
            absent.join(", ")
        )))
    }
}

/// The environment of `PyTorch`, which is also what `torchrun` is measured with.
pub(crate) fn pytorch() -> Result<PathBuf, Failure> {
    named("pytorch").environment()
}

/// The framework of this name, which is one of ours.
fn named(name: &str) -> &'static Framework {
    FRAMEWORKS
        .iter()
        .find(|framework| framework.name == name)
        .expect("frameworks are named as they are listed")
}

impl Framework {
    /// Its virtual environment, made if it is not there.
    fn environment(&self) -> Result<PathBuf, Failure> {
        install::environment(self).map_err(|failure| match failure {
            Failure::CouldNotRun(message) | Failure::Failed(message) => {
                Failure::CouldNotRun(format!("no environment for `{}`: {message}", self.name))
            }
            Failure::Reported => Failure::Reported,
        })
    }

    /// Its folder of pins and examples.
    fn folder(&self) -> PathBuf {
        step::root().join(self.folder)
    }

    /// The image of its examples, without the tag.
    fn image(&self) -> String {
        format!("registry.example.com/{}", self.name)
    }
}
