//! The GPUs of this machine.
//!
//! They are asked of NVML, the driver's own library, which is loaded when a job wants a GPU: it
//! knows what this process may use, also in a container, and the names of the devices. Where it
//! cannot be loaded, the devices that the driver lists are counted.

use std::{fs, path::Path};

use nvml_wrapper::{Nvml, error::NvmlError};

/// Where the driver lists its devices, one folder each.
const DRIVER_LIST: &str = "/proc/driver/nvidia/gpus";

/// What is there. CUDA numbers the devices from 0 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) count: usize,
    /// The names that the driver gives them, in no order of use; `None` where it was not asked.
    pub(super) names: Option<Vec<String>>,
}

impl Devices {
    pub(super) fn detect() -> Self {
        let by_list = || Self::by_list(Path::new(DRIVER_LIST));
        // A static program cannot load it, and need not carry what would call it.
        if cfg!(target_feature = "crt-static") {
            return by_list();
        }
        Self::by_library().unwrap_or_else(|_| by_list())
    }

    fn by_library() -> Result<Self, NvmlError> {
        let library = Nvml::init()?;
        let names = (0..library.device_count()?).map(|at| library.device_by_index(at)?.uuid());
        let names = names.collect::<Result<Vec<String>, NvmlError>>()?;
        Ok(Self {
            count: names.len(),
            names: Some(names),
        })
    }

    fn by_list(list: &Path) -> Self {
        Self {
            count: fs::read_dir(list).map_or(0, Iterator::count),
            names: None,
        }
    }

    /// Those that the user may see, as the user calls them. `visible` is the user's own
    /// `CUDA_VISIBLE_DEVICES`, where it is set: numbers, or names of the driver, which may be short
    /// and may be those of parts of a device.
    pub(super) fn restricted_to(&self, visible: Option<&str>) -> Vec<String> {
        let Some(visible) = visible else {
            return (0..self.count).map(|number| number.to_string()).collect();
        };
        let named = visible.split(',').map(str::trim);
        // Whatever comes after a device that is not there is not seen either, as CUDA has it.
        let own = named.take_while(|name| self.has(name));
        own.map(str::to_owned).collect()
    }

    fn has(&self, name: &str) -> bool {
        if let Ok(number) = name.parse::<i64>() {
            return usize::try_from(number).is_ok_and(|number| number < self.count);
        }
        if name.is_empty() || self.count == 0 {
            return false;
        }
        match &self.names {
            // What a device is split into has names of its own, which are not asked for.
            Some(names) => {
                name.starts_with("MIG-") || names.iter().any(|full| full.starts_with(name))
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_the_user_does_not_see_are_not_given() {
        let names = ["GPU-8f3a-1", "GPU-8f3a-2", "GPU-77", "GPU-78"].map(str::to_owned);
        let asked = Devices {
            count: 4,
            names: Some(names.to_vec()),
        };
        let listed = Devices {
            count: 4,
            names: None,
        };
        let none = Devices::default();
        let cases: [(&Devices, Option<&str>, &[&str]); 13] = [
            (&asked, None, &["0", "1", "2", "3"]),
            (&asked, Some("2,3"), &["2", "3"]),
            (&asked, Some(" 3 , 1"), &["3", "1"]),
            (&asked, Some(""), &[]),
            (&asked, Some("-1"), &[]),
            (&asked, Some("1,9,2"), &["1"]),
            (&asked, Some("GPU-77,MIG-12"), &["GPU-77", "MIG-12"]),
            (&asked, Some("GPU-8f3a-2,GPU-9,GPU-77"), &["GPU-8f3a-2"]),
            (&listed, None, &["0", "1", "2", "3"]),
            (&listed, Some("GPU-8f3a,4"), &["GPU-8f3a"]),
            (&none, None, &[]),
            (&none, Some("0"), &[]),
            (&none, Some("GPU-8f3a"), &[]),
        ];
        for (devices, visible, want) in cases {
            let found = devices.restricted_to(visible);
            assert_eq!(found, want, "{visible:?} of {devices:?}");
        }
    }

    #[test]
    fn without_the_library_the_drivers_list_counts() {
        let list = tempfile::tempdir().unwrap();
        for bus in ["0000:17:00.0", "0000:65:00.0"] {
            fs::create_dir(list.path().join(bus)).unwrap();
        }
        assert_eq!(Devices::by_list(list.path()).count, 2);
        assert_eq!(Devices::by_list(Path::new("/no/such/list")).count, 0);
    }
}
