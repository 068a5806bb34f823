//! Processors, memory, limits, modules, shared memory, disk, names and ports.

use std::collections::BTreeSet;

use super::{Scene, Want};
use crate::probe::{
    Check, Limits, Memory, Owner, Probed, Processors, Space, amounts,
    catalogue::{
        CPU_COUNT, CPU_THROTTLING, DISK, KERNEL_MODULES, MEMLOCK, MEMORY, NAMES, NVIDIA_DRIVER,
        OPEN_FILES, PORTS, SHM,
    },
};

/// Periods of the quota after which a share of them says something.
const PERIODS: u64 = 100;
/// Percent of the periods that may run out of quota unnoticed.
const THROTTLED_PERCENT: u64 = 5;
/// Pinned memory below which RDMA programs do not start: queues and buffers of a single rank need more.
const LOCKED_LEAST: u64 = 1 << 30;
/// Open files below which data loaders with several workers run out.
const OPEN_FILES_LEAST: u64 = 4096;
/// The default size of `/dev/shm` in a container.
const SHM_DEFAULT: u64 = 64 << 20;
/// What NCCL and data loaders of a machine with several GPUs are known to need.
const SHM_LEAST: u64 = 1 << 30;
/// Free disk below which programs fail at their first temporary file.
const DISK_LEAST: u64 = 1 << 30;

pub(super) fn examine(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    let reading = scene.reading;
    match CPU_COUNT.value_or_check(&reading.processors, "a value") {
        Ok(processors) => {
            checks.push(cpu_count(scene, processors));
            checks.push(cpu_throttling(processors));
        }
        Err(check) => checks.push(*check),
    }
    let memory_check = MEMORY.value_or_check(&reading.memory, "a value");
    checks.push(memory_check.map_or_else(|check| *check, |found| memory(scene, found)));
    match MEMLOCK.value_or_check(&reading.limits, "a value") {
        Ok(limits) => {
            checks.push(memlock(scene, limits));
            checks.push(open_files(limits));
        }
        Err(check) => checks.push(*check),
    }
    kernel_modules(scene, checks);
    checks.push(nvidia_driver(scene));
    let shm_check = SHM.value_or_check(&reading.shm, "a tmpfs at `/dev/shm`");
    checks.push(shm_check.map_or_else(|check| *check, |space| shm(scene, space)));
    let disk_check = DISK.value_or_check(&reading.disk, "a value");
    checks.push(disk_check.map_or_else(|check| *check, |space| disk(scene, space)));
    names(scene, checks);
    ports(scene, checks);
}

fn cpu_count(scene: &Scene<'_>, processors: &Processors) -> Check {
    let needed = scene.needs.cpu_milli;
    let words = needed.map_or_else(
        || "any".to_owned(),
        |milli| format!("{} for the job", amounts::processors(milli)),
    );
    let online = match CPU_COUNT.value_or_check(&processors.online, &*words) {
        Ok(online) => *online,
        Err(check) => return *check,
    };
    let allowed = processors.allowed.value().copied().unwrap_or(online);
    let quota = processors.quota_milli.value().copied();
    let usable = quota.unwrap_or(u64::MAX).min(allowed.saturating_mul(1000));
    let mut found = format!("{} of {online}", amounts::processors(usable));
    if let Some(quota) = quota {
        found = format!("{found}, quota {}", amounts::processors(quota));
    }
    if needed.is_none_or(|milli| milli <= usable) {
        return CPU_COUNT.pass(found, words);
    }
    if usable < online.saturating_mul(1000) {
        return CPU_COUNT.fail(
            found,
            words,
            "the control group of this process allows fewer processors than the job asks for",
            "raise `resources.limits.cpu`, or take the CPU manager's reserved processors into account",
        );
    }
    CPU_COUNT.fail(
        found,
        words,
        "the machine is smaller than the job, or processors are switched off",
        "compare with `lscpu`, or lower `resources.requests.cpu`",
    )
}

fn cpu_throttling(processors: &Processors) -> Check {
    let needed = format!("at most {THROTTLED_PERCENT} % of periods");
    let (Some(periods), Some(throttled)) =
        (processors.periods.value(), processors.throttled.value())
    else {
        let unread = [&processors.periods, &processors.throttled];
        let unread = unread.into_iter().find_map(|probed| match probed {
            Probed::Unreadable(_) => CPU_THROTTLING.value_or_check(probed, &*needed).err(),
            _ => None,
        });
        return unread.map_or_else(
            || CPU_THROTTLING.skip("no quota", "only where there is one"),
            |check| *check,
        );
    };
    if *periods == 0 {
        return CPU_THROTTLING.skip("no quota", "only where there is one");
    }
    let percent = throttled.saturating_mul(100) / periods;
    let found = format!("{percent} % of {periods} periods");
    if *periods < PERIODS || percent <= THROTTLED_PERCENT {
        return CPU_THROTTLING.pass(found, needed);
    }
    CPU_THROTTLING
        .warn(
            found,
            needed,
            "the quota is too small for the threads that run; ranks stall by turns",
            "raise or remove `resources.limits.cpu`",
        )
        .owned_by(Owner::MlTeam)
}

fn memory(scene: &Scene<'_>, memory: &Memory) -> Check {
    let needed = scene.needs.memory_bytes;
    let words = needed.map_or_else(
        || "any".to_owned(),
        |bytes| format!("{} for the job", amounts::bytes(bytes)),
    );
    let total = match MEMORY.value_or_check(&memory.total, &*words) {
        Ok(total) => *total,
        Err(check) => return *check,
    };
    let available = memory.available.value().copied().unwrap_or(total);
    let limit = memory.limit.value().copied();
    let mut found = format!(
        "{} available of {}",
        amounts::bytes(available),
        amounts::bytes(total)
    );
    if let Some(limit) = limit {
        found = format!("{found}, limit {}", amounts::bytes(limit));
    }
    let Some(bytes) = needed else {
        return MEMORY.pass(found, words);
    };
    if limit.is_some_and(|limit| limit < bytes) && total >= bytes {
        return MEMORY.fail(
            found,
            words,
            "the control group of this process allows less than the job asks for",
            "raise `resources.limits.memory`",
        );
    }
    if total < bytes {
        return MEMORY.fail(
            found,
            words,
            "the machine has less memory than the job asks for; a module may be missing",
            "compare with `dmidecode -t memory`, or lower `resources.requests.memory`",
        );
    }
    if available < bytes {
        return MEMORY.warn(
            found,
            words,
            "other processes hold memory",
            "find the process with `ps aux --sort -rss`",
        );
    }
    MEMORY.pass(found, words)
}

fn memlock(scene: &Scene<'_>, limits: &Limits) -> Check {
    let needed = "unlimited, for RDMA";
    let limit = match MEMLOCK.value_or_check(&limits.locked_memory, needed) {
        Ok(limit) => *limit,
        Err(check) => return *check,
    };
    let found = limit.map_or_else(|| "unlimited".to_owned(), amounts::bytes);
    let may_lock = limits.may_lock.value() == Some(&true) || scene.needs.locks_memory == Some(true);
    if limit.is_none() || may_lock {
        let found = if limit.is_some() {
            format!("{found}, lifted by `CAP_IPC_LOCK`")
        } else {
            found
        };
        return MEMLOCK.pass(found, needed);
    }
    if scene.rdma == Want::No {
        return MEMLOCK.skip(found, "only for RDMA");
    }
    let cause = "the container runtime or the login sets a small limit; registering memory fails with \
                 `Cannot allocate memory`";
    let next = "set `LimitMEMLOCK=infinity` for the container runtime, or give the container the \
                capability `IPC_LOCK`";
    if limit.is_some_and(|limit| limit < LOCKED_LEAST) {
        return scene.rdma.bad(&MEMLOCK, found, needed, cause, next);
    }
    MEMLOCK.warn(found, needed, cause, next)
}

fn open_files(limits: &Limits) -> Check {
    let needed = format!("at least {OPEN_FILES_LEAST}");
    match OPEN_FILES.value_or_check(&limits.open_files, &*needed) {
        Ok(None) => OPEN_FILES.pass("unlimited", needed),
        Ok(Some(limit)) if *limit >= OPEN_FILES_LEAST => OPEN_FILES.pass(limit.to_string(), needed),
        Ok(Some(limit)) => OPEN_FILES.warn(
            limit.to_string(),
            needed,
            "data loaders and many peers open more; they fail with `Too many open files`",
            "raise `LimitNOFILE` of the container runtime, or `ulimit -n`",
        ),
        Err(check) => *check,
    }
}

fn kernel_modules(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    if scene.rdma == Want::No {
        checks.push(KERNEL_MODULES.skip("not checked", "only for RDMA"));
        return;
    }
    let modules = match KERNEL_MODULES.value_or_check(&scene.reading.modules, "`ib_uverbs`") {
        Ok(modules) => modules,
        Err(check) => return checks.push(*check),
    };
    let loaded = |name: &str| modules.contains(name);
    let mut found: Vec<&str> = ["ib_uverbs", "nvidia_peermem", "gdrdrv"].to_vec();
    found.retain(|name| loaded(name));
    let found = if found.is_empty() {
        "none".to_owned()
    } else {
        found.join(", ")
    };
    let mut missing = Vec::new();
    if !loaded("ib_uverbs") {
        missing.push(scene.rdma.bad(
            &KERNEL_MODULES,
            found.clone(),
            "`ib_uverbs`",
            "the RDMA drivers are not installed or not loaded",
            "run `modprobe ib_uverbs` on the node, and check that its driver package is installed",
        ));
    }
    if scene.gpus != Want::No && !loaded("nvidia_peermem") {
        missing.push(KERNEL_MODULES.warn(
            found.clone(),
            "`nvidia_peermem`, or a kernel and driver with DMA-BUF",
            "without it network cards may not reach GPU memory directly, and data is copied through \
             host memory",
            "run `modprobe nvidia_peermem` on the node, or check that NCCL logs `GPU Direct RDMA \
             Enabled`",
        ));
    }
    if missing.is_empty() {
        let needed = if scene.gpus == Want::No {
            "`ib_uverbs`"
        } else {
            "`ib_uverbs`, `nvidia_peermem`"
        };
        missing.push(KERNEL_MODULES.pass(found, needed));
    }
    checks.append(&mut missing);
}

fn nvidia_driver(scene: &Scene<'_>) -> Check {
    if scene.gpus == Want::No {
        return NVIDIA_DRIVER.skip("not checked", "only for GPUs");
    }
    let versions = match NVIDIA_DRIVER.value_or_check(&scene.reading.versions, "a driver") {
        Ok(versions) => versions,
        Err(check) => return *check,
    };
    let parts = [
        ("driver", &versions.driver),
        ("CUDA", &versions.cuda),
        ("NCCL", &versions.nccl),
    ];
    let found = parts
        .into_iter()
        .filter_map(|(name, version)| Some(format!("{name} {}", version.value()?)));
    let found: Vec<String> = found.collect();
    if versions.driver.value().is_some() {
        return NVIDIA_DRIVER.pass(found.join(", "), "a driver");
    }
    scene.gpus.bad(
        &NVIDIA_DRIVER,
        "no driver",
        "a driver",
        "the driver is not installed or not loaded, or the container runtime does not mount it",
        "run `nvidia-smi` on the node; in a pod check that the runtime class is NVIDIA's",
    )
}

fn shm(scene: &Scene<'_>, space: &Space) -> Check {
    let needs = scene.needs;
    let many = needs.gpus.is_some_and(|count| count > 1);
    let least = needs
        .shm_bytes
        .unwrap_or(if many { SHM_LEAST } else { SHM_DEFAULT });
    let by = if needs.shm_bytes.is_some() {
        " for the job"
    } else {
        ""
    };
    let needed = format!("at least {}{by}", amounts::bytes(least));
    let total = match SHM.value_or_check(&space.total, &*needed) {
        Ok(total) => *total,
        Err(check) => return *check,
    };
    let free = space.free.value().copied().unwrap_or(total);
    let found = format!(
        "{} of {}, {}",
        amounts::bytes(free),
        amounts::bytes(total),
        space.kind
    );
    let next = "mount an `emptyDir` with `medium: Memory` and a `sizeLimit` at `/dev/shm`";
    if space.kind != "tmpfs" {
        let cause = "it lies on a disk, which is slow and wears out";
        return SHM.warn(found, needed, cause, next);
    }
    if total < least {
        let cause = "the container has the runtime's default; NCCL and data loaders end with `Bus \
                     error` or `No space left on device`";
        let is_known = needs.shm_bytes.is_some() || (many && total <= SHM_DEFAULT);
        return SHM.fail_if(is_known, found, needed, cause, next);
    }
    if free < least / 2 {
        return SHM.warn(
            found,
            needed,
            "processes that ended left files behind",
            "remove what no process has open: `ls -la /dev/shm`",
        );
    }
    SHM.pass(found, needed)
}

fn disk(scene: &Scene<'_>, space: &Space) -> Check {
    let needed = scene.needs.disk_bytes;
    let least = needed.unwrap_or(DISK_LEAST);
    let by = if needed.is_some() { " for the job" } else { "" };
    let words = format!("at least {}{by}", amounts::bytes(least));
    let free = match DISK.value_or_check(&space.free, &*words) {
        Ok(free) => *free,
        Err(check) => return *check,
    };
    let found = format!("{} free, {}", amounts::bytes(free), space.kind);
    if free >= least {
        return DISK.pass(found, words);
    }
    let cause = "images, logs and caches of other jobs fill the disk";
    let next = "run `crictl rmi --prune` on the node, or find large files with `du -x`";
    DISK.fail_if(needed.is_some(), found, words, cause, next)
}

fn names(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    let needed: BTreeSet<&String> = scene.needs.names.iter().flatten().collect();
    let before = checks.len();
    let mut resolved = Vec::new();
    for (name, addresses) in &scene.reading.names {
        let is_needed = needed.contains(name);
        let why = match addresses {
            Probed::Read(addresses) => {
                let first = addresses.first().map_or("", String::as_str);
                resolved.push(format!("{name} is {first}"));
                continue;
            }
            Probed::NotAsked => continue,
            Probed::Absent => "no such name".to_owned(),
            Probed::Unreadable(why) => why.clone(),
            Probed::Hung(after) => format!("no answer within {after} ms"),
        };
        let found = format!("`{name}`: {why}");
        checks.push(if is_needed {
            NAMES.fail(
                found,
                "an address, for the job",
                "the name is wrong, its Service is missing, or the DNS server is unreachable",
                format!("run `getent hosts {name}`, and check that CoreDNS runs and that `dnsPolicy` is right"),
            )
        } else {
            NAMES.warn(
                found,
                "an address",
                "the machine's own name is neither in `/etc/hosts` nor in DNS; Gloo looks it \
                 up where no interface is set",
                "add it to `/etc/hosts`, or set `GLOO_SOCKET_IFNAME`",
            )
        });
    }
    if checks.len() == before {
        checks.push(if resolved.is_empty() {
            NAMES.skip("not checked", "can be read only on the machine itself")
        } else {
            NAMES.pass(resolved.join(", "), "an address each")
        });
    }
}

fn ports(scene: &Scene<'_>, checks: &mut Vec<Check>) {
    let Some(needed) = &scene.needs.ports else {
        let why = "pods have their own ports unless they use the host network";
        return checks.push(PORTS.skip("none needed", why));
    };
    let listening = match PORTS.value_or_check(&scene.reading.listening, "free ports") {
        Ok(listening) => listening,
        Err(check) => return checks.push(*check),
    };
    let taken = needed.iter().filter(|port| listening.contains(port));
    let taken: Vec<String> = taken.map(ToString::to_string).collect();
    let list: Vec<String> = needed.iter().map(ToString::to_string).collect();
    let needed = format!("{} free", list.join(", "));
    checks.push(if taken.is_empty() {
        PORTS.pass("free", needed)
    } else {
        PORTS.fail(
            format!("{} taken", taken.join(", ")),
            needed,
            "another program of the node listens there, such as a rank that was left behind",
            format!("find the process with `ss -ltnp sport = :{}`", taken[0]),
        )
    });
}
