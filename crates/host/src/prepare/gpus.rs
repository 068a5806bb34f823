//! Which GPUs each container gets.
//!
//! Invariant: no device is given to two containers.

use std::{collections::BTreeMap, fs};

use k8s_openapi::api::core::v1::Container;
use trainyard_core::spec::{Job, Slot};

use crate::{HostError, quantity, request::Accelerators};

const RESOURCE: &str = "nvidia.com/gpu";
/// Where the driver lists its devices, one folder each.
const DRIVER_LIST: &str = "/proc/driver/nvidia/gpus";

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
            Accelerators::Detect => restrict(detect(), visible),
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

/// Those of `devices` that the user may see, as the user calls them: by number, or by a name of
/// the driver, of which one device may have several.
fn restrict(devices: Vec<String>, visible: Option<&str>) -> Vec<String> {
    let Some(visible) = visible else {
        return devices;
    };
    let named = visible.split(',').map(str::trim);
    // Whatever comes after a device that is not there is not seen either, as CUDA has it.
    let is_there = |name: &&str| match name.parse::<i64>() {
        Ok(_) => devices.iter().any(|device| device == name),
        Err(_) => !name.is_empty(),
    };
    let own = named.take_while(is_there).filter(|_| !devices.is_empty());
    own.map(str::to_owned).collect()
}

/// The devices that the driver lists, numbered as CUDA numbers them by default.
fn detect() -> Vec<String> {
    let count = fs::read_dir(DRIVER_LIST).map_or(0, Iterator::count);
    (0..count).map(|number| number.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_the_user_does_not_see_are_not_given() {
        let all = || (0..4).map(|number| number.to_string()).collect::<Vec<_>>();
        let cases: [(Option<&str>, &[&str]); 7] = [
            (None, &["0", "1", "2", "3"]),
            (Some("2,3"), &["2", "3"]),
            (Some(" 3 , 1"), &["3", "1"]),
            (Some(""), &[]),
            (Some("-1"), &[]),
            (Some("1,9,2"), &["1"]),
            (Some("GPU-8f3a,MIG-12"), &["GPU-8f3a", "MIG-12"]),
        ];
        for (visible, want) in cases {
            assert_eq!(restrict(all(), visible), want, "{visible:?}");
        }
        assert!(restrict(Vec::new(), Some("GPU-8f3a")).is_empty());
    }
}
