//! GPUs as NVIDIA's library (NVML) reports them, which is loaded at run time.
//!
//! Where it cannot be loaded, `nvidia-smi` is run; where that is missing too, files are
//! read.

use std::collections::BTreeSet;

use nvml_wrapper::{
    Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor,
    enum_wrappers::device::{Clock, EccCounter, MemoryError},
    enums::device::SampleValue,
    error::NvmlError,
    structs::device::FieldId,
};
use trainyard_core::probe::{Gpu, Pcie, Probed, RemappedRows, Versions};

use super::{pci, smi};
use crate::files::Root;

/// What containers have; the name without a number comes with the tools for developers.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The fields of NVML for rows: replaced after corrected errors, after others, pending, failed.
const ROWS: [u32; 4] = [142, 143, 144, 145];
/// NVML's number for a GPU that is split.
const MIG_ENABLED: u32 = 1;
/// More links than any GPU has.
const LINKS: u32 = 36;

/// What the library reports.
#[derive(Debug)]
pub(super) struct DriverReport {
    gpus: Vec<Gpu>,
    driver: Probed<String>,
    cuda: Probed<String>,
}

/// Asks the library, where this machine is meant.
pub(super) fn ask(root: &Root) -> Probed<DriverReport> {
    if !root.is_machine() {
        return Probed::NotAsked;
    }
    // A static program cannot load it, and need not carry what would call it.
    if cfg!(target_feature = "crt-static") {
        return by_program(root);
    }
    let library = Nvml::builder().lib_path(LIBRARY.as_ref()).init();
    match library {
        Ok(library) => {
            query_library(root, &library).map_or_else(|error| refused(&error), Probed::Read)
        }
        Err(NvmlError::LibloadingError(_)) => by_program(root),
        Err(error) => refused(&error),
    }
}

fn by_program(root: &Root) -> Probed<DriverReport> {
    smi::ask(root).map(|(gpus, driver)| DriverReport {
        gpus,
        driver: Probed::Read(driver),
        cuda: Probed::NotAsked,
    })
}

fn query_library(root: &Root, library: &Nvml) -> Result<DriverReport, NvmlError> {
    let count = library.device_count()?;
    let asked = (0..count).map(|index| gpu(root, &library.device_by_index(index)?));
    let (gpus, lost): (Vec<_>, Vec<_>) = asked.partition(Result::is_ok);
    // One GPU that is lost must not hide the others: it is missing from their number.
    if let (true, Some(Err(error))) = (gpus.is_empty(), lost.into_iter().next()) {
        return Err(error);
    }
    let gpus = gpus.into_iter().flatten().collect();
    Ok(DriverReport {
        gpus,
        driver: probed(library.sys_driver_version()),
        cuda: probed(library.sys_cuda_driver_version().map(|version| {
            let (major, minor) = (
                cuda_driver_version_major(version),
                cuda_driver_version_minor(version),
            );
            format!("{major}.{minor}")
        })),
    })
}

fn gpu(root: &Root, device: &Device<'_>) -> Result<Gpu, NvmlError> {
    let bus = pci::address(&device.pci_info()?.bus_id);
    let (memory, memory_used) = match device.memory_info() {
        Ok(memory) => (Probed::Read(memory.total), Probed::Read(memory.used)),
        Err(error) => (refused(&error), refused(&error)),
    };
    let number = |value: Result<u32, NvmlError>| probed(value.map(u64::from));
    let uncorrected = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    let reasons = device.current_throttle_reasons().map(|reasons| {
        let names = reasons.iter_names().map(|(name, _)| name.to_owned());
        names.collect::<BTreeSet<String>>()
    });
    let files = pci::place(root, &format!("sys/bus/pci/devices/{bus}"));
    let or = |own: Probed<u64>, asked: Result<u32, NvmlError>| match own {
        // A virtual bus knows no link.
        Probed::Read(value) if value > 0 => Probed::Read(value),
        _ => number(asked),
    };
    Ok(Gpu {
        model: probed(device.name()),
        split: probed(device.mig_mode().map(|mode| mode.current == MIG_ENABLED)),
        memory,
        memory_used,
        ecc: probed(device.is_ecc_enabled().map(|ecc| ecc.currently_enabled)),
        uncorrected: probed(uncorrected),
        rows: rows(device),
        clock: number(device.clock_info(Clock::SM)),
        clock_most: number(device.max_clock_info(Clock::SM)),
        throttled_by: probed(reasons),
        nvlinks: links(device),
        pcie: Pcie {
            generation: or(files.generation, device.current_pcie_link_gen()),
            generation_most: or(files.generation_most, device.max_pcie_link_gen()),
            width: or(files.width, device.current_pcie_link_width()),
            width_most: or(files.width_most, device.max_pcie_link_width()),
            ..files
        },
        bus,
    })
}

fn rows(device: &Device<'_>) -> Probed<RemappedRows> {
    let samples = match device.field_values_for(&ROWS.map(FieldId)) {
        Ok(samples) => samples,
        Err(error) => return refused(&error),
    };
    let mut values = [0_u64; 4];
    for (value, sample) in values.iter_mut().zip(samples) {
        *value = match sample.and_then(|sample| sample.value) {
            Ok(SampleValue::U32(number)) => number.into(),
            Ok(SampleValue::U64(number)) => number,
            Ok(other) => return Probed::Unreadable(format!("{other:?} is not a row count")),
            Err(error) => return refused(&error),
        };
    }
    let [corrected, uncorrected, pending, failed] = values;
    Probed::Read(RemappedRows {
        corrected,
        uncorrected,
        pending: pending > 0,
        failed: failed > 0,
    })
}

/// The links of a GPU; it has no more than those before the first that the library does not know.
fn links(device: &Device<'_>) -> Probed<Vec<bool>> {
    let mut links = Vec::new();
    for index in 0..LINKS {
        match device.link_wrapper_for(index).is_active() {
            Ok(is_up) => links.push(is_up),
            Err(NvmlError::NotSupported | NvmlError::InvalidArg) => break,
            Err(error) => return refused(&error),
        }
    }
    if links.is_empty() {
        return Probed::Absent;
    }
    Probed::Read(links)
}

fn probed<T>(value: Result<T, NvmlError>) -> Probed<T> {
    value.map_or_else(|error| refused(&error), Probed::Read)
}

fn refused<T>(error: &NvmlError) -> Probed<T> {
    match error {
        NvmlError::LibloadingError(_)
        | NvmlError::DriverNotLoaded
        | NvmlError::LibraryNotFound
        | NvmlError::NotSupported
        | NvmlError::NotFound
        // A question that this driver does not know.
        | NvmlError::InvalidArg
        | NvmlError::FailedToLoadSymbol(_) => Probed::Absent,
        other => Probed::Unreadable(other.to_string()),
    }
}

/// What the library reports, with values from files where it reports none.
pub(super) fn join(
    report: Probed<DriverReport>,
    gpus: Probed<Vec<Gpu>>,
    versions: Probed<Versions>,
) -> (Probed<Vec<Gpu>>, Probed<Versions>) {
    let report = match report {
        Probed::Read(report) => report,
        Probed::Absent | Probed::NotAsked => return (gpus, versions),
        // Where the library fails or hangs, so does every program that uses a GPU.
        Probed::Unreadable(why) => return (Probed::Unreadable(why), versions),
        Probed::Hung(after) => return (Probed::Hung(after), versions),
    };
    let versions = versions.map(|files| {
        let driver = match report.driver {
            Probed::Read(version) => Probed::Read(version),
            _ => files.driver,
        };
        Versions {
            driver,
            cuda: report.cuda,
            ..files
        }
    });
    (Probed::Read(report.gpus), versions)
}
