//! GPUs as NVIDIA's program `nvidia-smi` reports them.
//!
//! Run only where the library cannot be loaded, as by a program that is linked statically.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use trainyard_core::probe::{Gpu, Probed, RemappedRows, tools::Ending};

use super::pci;
use crate::{
    deadline::begin,
    files::{Malformed, Root, number, refused},
    program::Running,
};

const PROGRAM: &str = "nvidia-smi";
/// How long it may take; within the limit of all probes, so that one that hangs can still be ended.
const WITHIN: Duration = Duration::from_millis(2500);
/// What every driver knows.
const PLAIN: [&str; 5] = [
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "memory.used",
    "name",
];
/// What older ones do not.
const DETAILS: [&str; 11] = [
    "pci.bus_id",
    "mig.mode.current",
    "ecc.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "remapped_rows.correctable",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "clocks.sm",
    "clocks.max.sm",
    "clocks_throttle_reasons.active",
];

/// The GPUs, and the version of the driver.
pub(super) fn ask(root: &Root) -> Probed<(Vec<Gpu>, String)> {
    let plain = begin(WITHIN, || query(&PLAIN));
    let details = begin(WITHIN, || query(&DETAILS));
    let links = begin(WITHIN, || run(&["nvlink", "--status"]));
    plain.finish().and_then(|plain| {
        let details = details.finish().value().cloned().unwrap_or_default();
        let links = links.finish().value().cloned().unwrap_or_default();
        let (mut gpus, driver) = read(&plain, &details, &links)?;
        for gpu in &mut gpus {
            gpu.pcie = pci::place(root, &format!("sys/bus/pci/devices/{}", gpu.bus));
        }
        Ok::<_, Malformed>((gpus, driver))
    })
}

fn query(fields: &[&str]) -> Probed<String> {
    let fields = format!("--query-gpu={}", fields.join(","));
    run(&[&fields, "--format=csv,noheader,nounits"])
}

/// What the program prints.
fn run(words: &[&str]) -> Probed<String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let ran = match Running::start(Path::new(PROGRAM), &words) {
        Ok(running) => running.finish(WITHIN, || false),
        Err(error) => return refused(&error),
    };
    match ran.ending {
        Ending::Exited(Some(0)) => Probed::Read(ran.output),
        Ending::Hung(after) => Probed::Hung(after),
        ending => {
            // It says why on stdout.
            let said = ran.output.lines().next().unwrap_or("no output");
            Probed::Unreadable(format!("`{PROGRAM}` {ending}: {said}"))
        }
    }
}

/// From the three outputs to GPUs and the version of the driver.
fn read(plain: &str, details: &str, links: &str) -> Result<(Vec<Gpu>, String), Malformed> {
    let rows = |text: &str| -> BTreeMap<String, Vec<String>> {
        let rows = text.lines().filter_map(|line| {
            let cells: Vec<String> = line
                .split(", ")
                .map(|cell| cell.trim().to_owned())
                .collect();
            Some((pci::address(cells.first()?), cells))
        });
        rows.collect()
    };
    let details = rows(details);
    let mut links = self::links(links).into_iter();
    let mut gpus = Vec::new();
    let mut driver = None;
    for line in plain.lines().filter(|line| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.splitn(PLAIN.len(), ", ").map(str::trim).collect();
        let [bus, version, total, used, name] = cells[..] else {
            return Err(Malformed::Cells {
                program: PROGRAM,
                cells: cells.len(),
            });
        };
        driver = Some(version.to_owned());
        let bus = pci::address(bus);
        let mebibytes =
            |text: &str| parse_cell(text, |text| Ok(number(text)?.saturating_mul(1 << 20)));
        let gpu = Gpu {
            model: Probed::Read(name.to_owned()),
            memory: mebibytes(total),
            memory_used: mebibytes(used),
            nvlinks: links.next().unwrap_or(Probed::Absent),
            ..details
                .get(&bus)
                .map_or_else(Gpu::default, |cells| detailed(cells))
        };
        gpus.push(Gpu { bus, ..gpu });
    }
    let driver = driver.ok_or(Malformed::NoGpu(PROGRAM))?;
    Ok((gpus, driver))
}

fn detailed(cells: &[String]) -> Gpu {
    let [
        _,
        split,
        ecc,
        uncorrected,
        corrected_rows,
        other_rows,
        pending,
        failed,
        clock,
        most,
        reasons,
    ] = cells
    else {
        return Gpu::default();
    };
    let is_yes = |text: &str| match text {
        "Yes" | "Enabled" => Ok(true),
        "No" | "Disabled" => Ok(false),
        other => Err(Malformed::YesOrNo(other.to_owned())),
    };
    let rows = parse_cell(corrected_rows, |corrected| {
        Ok(RemappedRows {
            corrected: number(corrected)?,
            uncorrected: number(other_rows)?,
            pending: is_yes(pending)?,
            failed: is_yes(failed)?,
        })
    });
    let throttled_by = parse_cell(reasons, |mask| {
        let mask = u64::from_str_radix(mask.trim_start_matches("0x"), 16);
        let mask = mask.map_err(|_| Malformed::Reasons)?;
        let reasons = ThrottleReasons::from_bits_truncate(mask);
        let names = reasons.iter_names().map(|(name, _)| name.to_owned());
        Ok(names.collect::<BTreeSet<String>>())
    });
    Gpu {
        split: parse_cell(split, is_yes),
        ecc: parse_cell(ecc, is_yes),
        uncorrected: parse_cell(uncorrected, number),
        rows,
        clock: parse_cell(clock, number),
        clock_most: parse_cell(most, number),
        throttled_by,
        ..Gpu::default()
    }
}

/// A cell; what a GPU does not have is written as `N/A` or `Not Supported`, with or without brackets.
fn parse_cell<T>(text: &str, read: impl FnOnce(&str) -> Result<T, Malformed>) -> Probed<T> {
    let bare = text.trim_matches(['[', ']']);
    if matches!(bare, "N/A" | "Not Supported" | "Unknown Error") {
        return Probed::Absent;
    }
    Probed::Read(bare.to_owned()).and_then(|text| read(&text))
}

/// The links of each GPU, in the order of the list: `Link 0: 26.562 GB/s`, or `<inactive>`.
fn links(text: &str) -> Vec<Probed<Vec<bool>>> {
    let mut all: Vec<Probed<Vec<bool>>> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("GPU ") {
            all.push(Probed::Absent);
        } else if let (Some(rest), Some(last)) = (line.strip_prefix("Link "), all.last_mut()) {
            let is_up = !rest.contains("inactive");
            match last {
                Probed::Read(links) => links.push(is_up),
                _ => *last = Probed::Read(vec![is_up]),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN_TEXT: &str = "00000000:17:00.0, 550.54.15, 81559, 4, NVIDIA H100 80GB HBM3\n\
                              00000000:65:00.0, 550.54.15, 81559, 0, NVIDIA H100 80GB HBM3\n";
    const DETAILS_TEXT: &str = "00000000:17:00.0, Disabled, Enabled, 0, 2, 1, No, No, 345, 1980, 0x0000000000000001\n\
                                00000000:65:00.0, Enabled, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], 345, 1980, 0x0000000000000048\n";
    const LINKS_TEXT: &str = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n\
                              GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n";

    #[test]
    fn what_the_program_prints_is_read() {
        let (gpus, driver) = read(PLAIN_TEXT, DETAILS_TEXT, LINKS_TEXT).unwrap();
        assert_eq!(driver, "550.54.15");
        let [first, second] = &gpus[..] else {
            panic!("{gpus:?}");
        };
        assert_eq!(first.bus, "0000:17:00.0");
        assert_eq!(first.memory, Probed::Read(81559 << 20));
        assert_eq!(first.ecc, Probed::Read(true));
        assert_eq!(
            (&first.split, &second.split),
            (&Probed::Read(false), &Probed::Read(true))
        );
        let rows = RemappedRows {
            corrected: 2,
            uncorrected: 1,
            pending: false,
            failed: false,
        };
        assert_eq!(first.rows, Probed::Read(rows));
        assert_eq!(first.nvlinks, Probed::Read(vec![true, false]));
        let reasons =
            |names: &[&str]| Probed::Read(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(first.throttled_by, reasons(&["GPU_IDLE"]));
        assert_eq!(
            second.throttled_by,
            reasons(&["HW_SLOWDOWN", "HW_THERMAL_SLOWDOWN"])
        );
        assert_eq!(
            (&second.ecc, &second.rows),
            (&Probed::Absent, &Probed::Absent)
        );
        assert_eq!(second.nvlinks, Probed::Absent);
    }

    #[test]
    fn old_and_broken_nvidia_smi_are_read() {
        let (gpus, _) = read(PLAIN_TEXT, "", "").unwrap();
        assert_eq!((gpus.len(), &gpus[0].ecc), (2, &Probed::NotAsked));
        assert!(read("", "", "").is_err());
        assert!(read("No devices were found\n", "", "").is_err());
    }
}
