//! GPUs, what connects them, and what the driver complained of.

use std::collections::{BTreeMap, BTreeSet};

use super::{Scene, Want};
use crate::{
    diagnose::codes,
    probe::{
        Check, Gpu, Pcie, Probed, XidSeen, amounts,
        catalogue::{
            Entry, GPU_CLOCKS, GPU_COUNT, GPU_ECC, GPU_MODEL, GPU_NIC_AFFINITY, GPU_PCIE, GPU_ROWS,
            GPU_XID, NVLINK,
        },
    },
};

/// Seconds after which an error of the driver no longer makes the machine unfit.
const XID_FRESH: u64 = 86_400;
/// Reasons for which the hardware itself halves the clocks.
const HARD_THROTTLING: [&str; 3] = [
    "HW_SLOWDOWN",
    "HW_THERMAL_SLOWDOWN",
    "HW_POWER_BRAKE_SLOWDOWN",
];
/// A reason that is worth a word.
const SOFT_THROTTLING: &str = "SW_THERMAL_SLOWDOWN";

pub(super) fn examine(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    if scene.gpus == Want::No {
        let found = scene.reading.gpus.value().map_or(0, Vec::len);
        let why = "the job needs no GPU";
        let why = if scene.needs.asked_by.is_some() {
            why
        } else {
            "the machine has no GPU"
        };
        checks.push(GPU_COUNT.skip(found.to_string(), why));
        return;
    }
    checks.push(gpu_count(scene));
    if let Some(gpus) = scene.reading.gpus.value().filter(|gpus| !gpus.is_empty()) {
        gpu_model(scene, gpus, checks);
        each(&GPU_ECC, gpus, checks, |gpu| ecc(scene.gpus, gpu));
        each(&GPU_ROWS, gpus, checks, |gpu| rows(scene.gpus, gpu));
        gpu_xid(scene, checks);
        each(&GPU_CLOCKS, gpus, checks, |gpu| clocks(scene.gpus, gpu));
        if gpus.len() > 1 {
            each(&NVLINK, gpus, checks, |gpu| nvlink(scene.gpus, gpu));
        } else {
            checks.push(NVLINK.skip("not checked", "only for several GPUs"));
        }
        let usual = usual_generation(gpus);
        each(&GPU_PCIE, gpus, checks, |gpu| pcie(&gpu.pcie, usual));
        affinity(scene, gpus, checks);
    } else {
        gpu_xid(scene, checks);
    }
}

fn gpu_count(scene: &Scene<'_>) -> Check {
    let asked = scene.needs.gpus.unwrap_or(0) as usize;
    let on_bus = scene.reading.gpus_on_bus.value().map_or(0, BTreeSet::len);
    let needed = match scene.gpus {
        Want::Required => format!("{asked} for the job"),
        _ => format!("{on_bus}, as on the bus"),
    };
    let next = "run `nvidia-smi` and `dmesg | grep Xid` on the node; drain it, then reset the GPU or \
                restart the node";
    let known = match &scene.reading.gpus {
        Probed::Absent => 0,
        Probed::Unreadable(why) => {
            let found = format!("the driver does not respond: {why}");
            let cause = "the driver was replaced while it was loaded, or a GPU hangs";
            return scene.gpus.bad(&GPU_COUNT, found, needed, cause, next);
        }
        other => match GPU_COUNT.value_or_check(other, &*needed) {
            Ok(gpus) => gpus.len(),
            Err(check) => return *check,
        },
    };
    let found = if on_bus > known {
        format!("{known}, and {on_bus} on the bus")
    } else {
        known.to_string()
    };
    let least = match scene.gpus {
        Want::Required => asked,
        _ => on_bus,
    };
    if known >= least {
        return GPU_COUNT.pass(found, needed);
    }
    let mut gpus = scene.reading.gpus.value().into_iter().flatten();
    if gpus.any(|gpu| gpu.split.value() == Some(&true)) {
        return GPU_COUNT.skip(found, "MIG instances are not counted");
    }
    let cause = if on_bus > known {
        "a GPU that is on the bus is not known to the driver: it has fallen off, was not initialized, or \
         is not passed to this container"
    } else {
        "a GPU is not on the bus at all: it is defective, has no power, or the machine has fewer"
    };
    scene.gpus.bad(&GPU_COUNT, found, needed, cause, next)
}

fn gpu_model(scene: &Scene<'_>, gpus: &[Gpu], checks: &mut Vec<Check>) {
    let models = gpus.iter().filter_map(|gpu| gpu.model.value());
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for model in models {
        *counts.entry(model).or_default() += 1;
    }
    let models: Vec<String> = counts
        .iter()
        .map(|(model, count)| format!("{count} × {model}"))
        .collect();
    let models = if models.is_empty() {
        "unknown".to_owned()
    } else {
        models.join(", ")
    };
    let plain = |model: &str| model.to_ascii_lowercase().replace(['-', ' ', '_'], "");
    if let Some(wanted) = &scene.needs.gpu_model {
        // The label has a suffix where GPUs are shared or split: `…-SHARED`, `…-MIG-1g.5gb`.
        let is_it = |model: &str| plain(wanted).starts_with(&plain(model));
        let is_other = counts.keys().any(|model| !is_it(model));
        let needed = format!("{wanted}, for the job");
        checks.push(if is_other {
            GPU_MODEL.fail(
                models,
                needed,
                "the node's label and its GPUs disagree, or a card was replaced by another",
                "check that GPU feature discovery runs on the node, and correct its label",
            )
        } else {
            GPU_MODEL.pass(models, needed)
        });
        return;
    }
    checks.push(if counts.len() > 1 {
        GPU_MODEL.warn(
            models,
            "one model",
            "cards of different models are in one machine; the slowest sets the pace",
            "put jobs on GPUs of one model, by the label `nvidia.com/gpu.product`",
        )
    } else {
        GPU_MODEL.pass(models, "one model")
    });
}

/// What was found and needed where it passes; the check where it does not, none where it is not reported.
type Judged = Result<(String, String), Option<Box<Check>>>;

fn bad(check: Check) -> Judged {
    Err(Some(Box::new(check)))
}

/// One check for all GPUs where all are well, or else one for each that is not.
fn each(entry: &Entry, gpus: &[Gpu], checks: &mut Vec<Check>, judge: impl Fn(&Gpu) -> Judged) {
    let mut passed: Vec<(String, String)> = Vec::new();
    let before = checks.len();
    for gpu in gpus {
        match judge(gpu) {
            Ok(result) => passed.push(result),
            Err(Some(check)) => checks.push(check.about(&*gpu.bus)),
            Err(None) => {}
        }
    }
    if checks.len() > before {
        return;
    }
    checks.push(match passed.first() {
        None => entry.skip("not checked", "the driver's library does not report it"),
        Some((_, needed)) => {
            let found: BTreeSet<&str> = passed.iter().map(|(found, _)| found.as_str()).collect();
            let found: Vec<&str> = found.into_iter().collect();
            entry.pass(found.join("; "), needed)
        }
    });
}

/// What is read of a GPU, or the check that says why it is not; none where the library does not report it.
fn read_or_skip<'a, T>(
    entry: &Entry,
    probed: &'a Probed<T>,
    needed: &str,
) -> Result<&'a T, Option<Box<Check>>> {
    match probed {
        Probed::Absent | Probed::NotAsked => Err(None),
        other => entry.value_or_check(other, needed).map_err(Some),
    }
}

fn ecc(want: Want, gpu: &Gpu) -> Judged {
    let needed = "on, no uncorrected error";
    let uncorrected = *read_or_skip(&GPU_ECC, &gpu.uncorrected, needed)?;
    if uncorrected > 0 {
        return bad(want.bad(
            &GPU_ECC,
            format!("{uncorrected} uncorrected"),
            needed,
            "GPU memory cells are faulty; the driver ends programs that touch them",
            "drain the node, reset the GPU, and return the card if the error comes back",
        ));
    }
    if gpu.ecc.value() == Some(&false) {
        return bad(GPU_ECC.warn(
            "off",
            needed,
            "ECC is disabled; memory errors corrupt the weights unnoticed",
            "run `nvidia-smi -e 1` and restart the node",
        ));
    }
    Ok(("on, no uncorrected error".to_owned(), needed.to_owned()))
}

fn rows(want: Want, gpu: &Gpu) -> Judged {
    let needed = "none pending, none failed";
    let rows = read_or_skip(&GPU_ROWS, &gpu.rows, needed)?;
    let found = format!("{} replaced", rows.corrected + rows.uncorrected);
    if rows.failed {
        return bad(want.bad(
            &GPU_ROWS,
            format!("{found}, one failed"),
            needed,
            "no spare row is left for a faulty one",
            "drain the node and return the card",
        ));
    }
    if rows.pending {
        return bad(GPU_ROWS.warn(
            format!("{found}, some pending"),
            needed,
            "a bad row was found and is replaced only by a reset",
            "drain the node and run `nvidia-smi --gpu-reset`",
        ));
    }
    Ok((found, needed.to_owned()))
}

fn clocks(want: Want, gpu: &Gpu) -> Judged {
    let needed = "no slowdown by heat or power";
    let reasons = read_or_skip(&GPU_CLOCKS, &gpu.throttled_by, needed)?;
    let clock = match (gpu.clock.value(), gpu.clock_most.value()) {
        (Some(clock), Some(most)) => format!("{clock} of {most} MHz"),
        _ => "clocks unknown".to_owned(),
    };
    let hard: Vec<&str> = HARD_THROTTLING
        .into_iter()
        .filter(|reason| reasons.contains(*reason))
        .collect();
    if !hard.is_empty() {
        return bad(want.bad(
            &GPU_CLOCKS,
            format!("{clock}, {}", hard.join(", ")),
            needed,
            "the hardware halves the clocks or worse: heat, or too little power",
            "check fans, inlet temperature and power supplies of the node",
        ));
    }
    if reasons.contains(SOFT_THROTTLING) {
        return bad(GPU_CLOCKS.warn(
            format!("{clock}, {SOFT_THROTTLING}"),
            needed,
            "the GPU or its memory is at its highest temperature",
            "check fans and inlet temperature of the node",
        ));
    }
    // The clocks of an idle GPU mean nothing and would make every two reports differ.
    let most = gpu.clock_most.value();
    let found = most.map_or_else(
        || "no slowdown".to_owned(),
        |most| format!("no slowdown, up to {most} MHz"),
    );
    Ok((found, needed.to_owned()))
}

fn nvlink(want: Want, gpu: &Gpu) -> Judged {
    let links = read_or_skip(&NVLINK, &gpu.nvlinks, "all up")?;
    if links.is_empty() {
        return Err(None);
    }
    let up = links.iter().filter(|up| **up).count();
    let found = format!("{up} of {} up", links.len());
    if up == links.len() {
        return Ok((found, "all up".to_owned()));
    }
    let down = links.iter().enumerate().filter(|(_, up)| !**up);
    let down: Vec<String> = down.map(|(index, _)| index.to_string()).collect();
    let cause = "a link or an NVSwitch is down, or Fabric Manager does not run";
    let next = "run `nvidia-smi nvlink -s` and `systemctl status nvidia-fabricmanager` on the node";
    let found = format!("{found}, down: {}", down.join(", "));
    bad(if up == 0 {
        // Cards that could have bridges and have none look the same.
        NVLINK.warn(found, "all up", cause, next)
    } else {
        want.bad(&NVLINK, found, "all up", cause, next)
    })
}

/// The generation that most links have: a link at rest may have a lower one, and then all have.
fn usual_generation(gpus: &[Gpu]) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for generation in gpus.iter().filter_map(|gpu| gpu.pcie.generation.value()) {
        *counts.entry(*generation).or_default() += 1;
    }
    let usual = counts.into_iter().max_by_key(|(_, count)| *count);
    usual
        .filter(|(_, count)| count * 2 > gpus.len())
        .map(|(generation, _)| generation)
}

fn pcie(pcie: &Pcie, usual: Option<u64>) -> Judged {
    let width = *read_or_skip(&GPU_PCIE, &pcie.width, "the widest link")?;
    let widest = pcie.width_most.value().copied().unwrap_or(width);
    let generation = pcie.generation.value().copied();
    let needed = format!("x{widest}, the generation of the others");
    let found = match generation {
        Some(generation) => format!("generation {generation} x{width}"),
        None => format!("x{width}"),
    };
    let slow = generation
        .zip(usual)
        .is_some_and(|(own, usual)| own < usual);
    if width >= widest && !slow {
        return Ok((found, needed));
    }
    bad(GPU_PCIE.warn(
        found,
        needed,
        "a card that is not seated well, a damaged riser, or a slot with fewer lanes",
        "compare with `lspci -vv` (`LnkSta`) on the node, and have the card seated again",
    ))
}

fn gpu_xid(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    let seen = match &scene.reading.xids {
        // A container sees no kernel log as a rule, and no job is worse for it.
        Probed::Absent => {
            let why = "the kernel log cannot be read from here";
            return checks.push(GPU_XID.skip("not checked", why));
        }
        Probed::Unreadable(why) if why.contains("denied") || why.contains("not permitted") => {
            return checks.push(GPU_XID.skip("not checked", "only root may read the kernel log"));
        }
        other => match GPU_XID.value_or_check(other, "none") {
            Ok(seen) => seen,
            Err(check) => return checks.push(*check),
        },
    };
    let mut last: BTreeMap<(&str, u32), (&XidSeen, usize)> = BTreeMap::new();
    for xid in seen {
        let entry = last.entry((&xid.bus, xid.number)).or_insert((xid, 0));
        *entry = (xid, entry.1 + 1);
    }
    let before = checks.len();
    for ((bus, number), (xid, count)) in last {
        let meaning = codes::xid(number);
        if meaning.program {
            continue;
        }
        let ago = xid.age_seconds.map_or_else(String::new, |age| {
            format!(", last {} ago", amounts::age(age))
        });
        let found = format!("Xid {number}, {count} times{ago}");
        let next = "drain the node, run `nvidia-smi -q` and the vendor's field diagnostics, then reset the \
                    GPU or restart the node";
        let is_fresh = xid.age_seconds.is_none_or(|age| age < XID_FRESH);
        let is_borne = matches!(number, 63 | 92 | 94);
        let check = if is_fresh && !is_borne {
            scene
                .gpus
                .bad(&GPU_XID, found, "none within a day", meaning.words, next)
        } else {
            GPU_XID.warn(found, "none within a day", meaning.words, next)
        };
        checks.push(check.about(bus));
    }
    if checks.len() == before {
        checks.push(GPU_XID.pass("none of the hardware", "none within a day"));
    }
}

/// How far two devices are from each other on the PCI bus, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Distance {
    Switch,
    RootComplex,
    MemoryNode,
    System,
}

impl Distance {
    fn between(left: &Pcie, right: &Pcie) -> Self {
        let shared = left
            .path
            .iter()
            .zip(&right.path)
            .take_while(|(left, right)| left == right);
        match shared.count() {
            // The first step is the root complex, a bridge below it belongs to one slot or switch.
            2.. => Self::Switch,
            1 => Self::RootComplex,
            0 if left.numa.value().is_some() && left.numa == right.numa => Self::MemoryNode,
            0 => Self::System,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Switch => "the same switch",
            Self::RootComplex => "the same root complex",
            Self::MemoryNode => "the same memory node",
            Self::System => "another memory node",
        }
    }
}

fn affinity(scene: &Scene<'_>, gpus: &[Gpu], checks: &mut Vec<Check>) {
    let ports = scene.reading.rdma.value().into_iter().flatten();
    let cards: Vec<(&String, &Pcie)> = ports
        .filter(|(_, port)| !port.pcie.path.is_empty())
        .map(|(name, port)| (name, &port.pcie))
        .collect();
    if scene.rdma == Want::No || cards.is_empty() {
        return checks.push(GPU_NIC_AFFINITY.skip("not checked", "only for RDMA"));
    }
    let needed = "the same switch or root complex";
    each(&GPU_NIC_AFFINITY, gpus, checks, |gpu| {
        if gpu.pcie.path.is_empty() {
            return Err(None);
        }
        let distances = cards
            .iter()
            .map(|(name, card)| (Distance::between(&gpu.pcie, card), *name));
        let Some((distance, name)) = distances.min() else {
            return Err(None);
        };
        if distance <= Distance::RootComplex {
            return Ok((distance.words().to_owned(), needed.to_owned()));
        }
        bad(GPU_NIC_AFFINITY.warn(
            format!("`{name}` is nearest, on {}", distance.words()),
            needed,
            "the card next to this GPU is missing, or sits in another slot; its traffic crosses the \
             processors",
            "run `nvidia-smi topo -m` on the node, and compare with a machine of the same kind",
        ))
    });
}
