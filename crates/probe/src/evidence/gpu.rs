//! What GPUs use now, by NVIDIA's library or by `nvidia-smi`.

use std::{path::Path, time::Duration};

use nvml_wrapper::{Nvml, error::NvmlError};
use trainyard_core::probe::tools::Ending;

use super::gpu_power::PowerSample;
use crate::program::run;

/// What the library is called in containers, too.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The program, for static binaries, which cannot load a library.
const PROGRAM: &str = "nvidia-smi";
/// How long the program may take.
const WITHIN: Duration = Duration::from_secs(5);
/// What the driver opens for every process that uses a GPU.
const CONTROL: &str = "/dev/nvidiactl";

/// One GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GpuUse {
    /// Its number, as CUDA without restrictions counts.
    pub(super) index: u32,
    /// The driver's name of it.
    pub(super) uuid: String,
    /// Bytes of its memory that processes use.
    pub(super) memory_used: u64,
}

impl GpuUse {
    /// Whether `name` is its number, or the beginning of its name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        is_named(self.index, &self.uuid, name)
    }
}

/// Whether `name` is the number `index`, or the beginning of `uuid`.
pub(super) fn is_named(index: u32, uuid: &str, name: &str) -> bool {
    match name.parse::<u32>() {
        Ok(number) => number == index,
        Err(_) => !name.is_empty() && uuid.starts_with(name),
    }
}

/// Whether this machine, or this container, has a GPU of NVIDIA.
pub(super) fn has_device() -> bool {
    Path::new(CONTROL).exists()
}

/// Where GPUs are read.
#[derive(Debug)]
pub(super) enum Source {
    /// Loaded once.
    Library(Box<Nvml>),
    /// Run each time.
    Program,
}

impl Source {
    /// Loads the library, where that is possible.
    pub(super) fn open() -> Self {
        // A static program cannot load it, and need not carry what would call it.
        if cfg!(target_feature = "crt-static") {
            return Self::Program;
        }
        match Nvml::builder().lib_path(LIBRARY.as_ref()).init() {
            Ok(library) => Self::Library(Box::new(library)),
            Err(_) => Self::Program,
        }
    }

    /// All GPUs.
    pub(super) fn read(&self) -> Result<Vec<GpuUse>, String> {
        match self {
            Self::Library(library) => by_library(library).map_err(|error| format!("NVML: {error}")),
            Self::Program => by_program(),
        }
    }

    /// The power of all GPUs, by the library.
    pub(super) fn power(&self) -> Result<Vec<PowerSample>, String> {
        match self {
            Self::Library(library) => power(library).map_err(|error| format!("NVML: {error}")),
            Self::Program => Err("NVML is not loaded".to_owned()),
        }
    }
}

fn power(library: &Nvml) -> Result<Vec<PowerSample>, NvmlError> {
    let all = (0..library.device_count()?).map(|index| {
        let device = library.device_by_index(index)?;
        Ok(PowerSample {
            index,
            uuid: device.uuid()?,
            milliwatts: device.power_usage()?,
            limit_milliwatts: device.enforced_power_limit()?,
        })
    });
    all.collect()
}

fn by_library(library: &Nvml) -> Result<Vec<GpuUse>, NvmlError> {
    let all = (0..library.device_count()?).map(|index| {
        let device = library.device_by_index(index)?;
        Ok(GpuUse {
            index,
            uuid: device.uuid()?,
            memory_used: device.memory_info()?.used,
        })
    });
    all.collect()
}

fn by_program() -> Result<Vec<GpuUse>, String> {
    let words = [
        "--query-gpu=index,uuid,memory.used",
        "--format=csv,noheader,nounits",
    ];
    let ran = run(Path::new(PROGRAM), &words.map(str::to_owned), WITHIN);
    match ran.ending {
        // A supervisor reaps every process below it, so how this one ended may be unknown.
        Ending::Exited(Some(0) | None) => read_rows(&ran.output),
        ending => Err(format!("`{PROGRAM}` {ending}")),
    }
}

fn read_rows(text: &str) -> Result<Vec<GpuUse>, String> {
    let rows = text.lines().filter(|line| !line.trim().is_empty());
    let rows: Vec<GpuUse> = rows
        .map(|line| {
            let mut cells = line.split(',').map(str::trim);
            let mut next = || cells.next().unwrap_or_default();
            let (index, uuid, used) = (next(), next(), next());
            let mebibytes: u64 = used.parse().ok()?;
            Some(GpuUse {
                index: index.parse().ok()?,
                uuid: uuid.to_owned(),
                memory_used: mebibytes.saturating_mul(1 << 20),
            })
        })
        .collect::<Option<_>>()
        .ok_or_else(|| format!("`{PROGRAM}` printed something else than numbers"))?;
    if rows.is_empty() {
        return Err(format!("`{PROGRAM}` lists no GPU"));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let rows = read_rows("0, GPU-1a, 3\n1, GPU-2b, 81559\n").unwrap();
        assert_eq!((rows[0].memory_used, rows[1].index), (3 << 20, 1));
        assert!(rows[1].is_named("1") && rows[1].is_named("GPU-2b") && rows[1].is_named("GPU-2"));
        assert!(!rows[1].is_named("0") && !rows[1].is_named("") && !rows[1].is_named("GPU-1a"));
        for bad in ["", "No devices were found\n", "0, GPU-1, [N/A]\n"] {
            assert!(read_rows(bad).is_err(), "{bad}");
        }
    }
}
