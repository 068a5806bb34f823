//! Which GPUs each container gets.
//!
//! Invariant: no device is given to two containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use trainyard_core::spec::{Job, Slot};

use super::devices::Devices;
use crate::{HostError, quantity, request::Accelerators};

const RESOURCE: &str = "nvidia.com/gpu";

/// The devices of the containers of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// The job asks for none: containers see what the user sees.
    Untouched,
    /// Containers see none.
    Hidden,
    /// Each container sees its own; one that is not listed sees none.
    Given(BTreeMap<(Slot, String), Vec<String>>),
}

impl Gpus {
    /// Gives the devices out. `visible` is what the user's own `CUDA_VISIBLE_DEVICES` says, where
    /// it is set: on a shared machine the others belong to someone else.
    pub(super) fn assign(
        job: &Job,
        accelerators: &Accelerators,
        visible: Option<&str>,
    ) -> Result<Self, HostError> {
        let mut wishes = Vec::new();
        for slot in job.slots() {
            let template = job.roles.get(&slot.role).map(|role| &role.template);
            let spec = template.and_then(|template| template.spec.as_ref());
            for container in spec.iter().flat_map(|spec| &spec.containers) {
                let count = wanted(container);
                if count > 0 {
                    wishes.push(((slot, container.name.clone()), count));
                }
            }
        }
        let devices = match accelerators {
            Accelerators::Ignore => return Ok(Self::Hidden),
            _ if wishes.is_empty() => return Ok(Self::Untouched),
            Accelerators::Devices(devices) => devices.clone(),
            Accelerators::Detect => Devices::detect().restricted_to(visible),
        };
        let total: u64 = wishes.iter().map(|(_, count)| count).sum();
        if total > devices.len() as u64 {
            return Err(HostError::TooFewGpus {
                job: job.name.clone(),
                wanted: total,
                available: devices.len(),
            });
        }
        let mut free = devices.into_iter();
        let given = wishes.into_iter().map(|(whose, count)| {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            (whose, free.by_ref().take(count).collect())
        });
        Ok(Self::Given(given.collect()))
    }

    /// The devices of all containers of the pod in `slot`.
    pub(crate) fn of_pod(&self, slot: Slot) -> Vec<&str> {
        let Self::Given(given) = self else {
            return Vec::new();
        };
        let own = given.iter().filter(|((of, _), _)| *of == slot);
        own.flat_map(|(_, devices)| devices.iter().map(String::as_str))
            .collect()
    }

    /// The value of `CUDA_VISIBLE_DEVICES`, where it is ours to set.
    pub(crate) fn visible(&self, slot: Slot, container: &str) -> Option<String> {
        match self {
            Self::Untouched => None,
            Self::Hidden => Some(String::new()),
            Self::Given(given) => {
                let own = given.get(&(slot, container.to_owned()));
                Some(own.map(|devices| devices.join(",")).unwrap_or_default())
            }
        }
    }
}

fn wanted(container: &Container) -> u64 {
    let resources = container.resources.as_ref();
    let limits = resources.and_then(|resources| resources.limits.as_ref());
    let limit = limits.and_then(|limits| limits.get(RESOURCE));
    limit.and_then(quantity::units).unwrap_or(0)
}
