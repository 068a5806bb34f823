//! Processors, memory, limits, names and ports, broken one at a time.

use super::*;

pub(super) static CASES: &[Case] = &[
    (
        "a small set of processors",
        |r, _| value(&mut r.processors).allowed = Read(32),
        &[("cpu-count", "", Fail)],
    ),
    (
        "a small quota",
        |r, _| value(&mut r.processors).quota_milli = Read(4000),
        &[("cpu-count", "", Fail)],
    ),
    (
        "a machine that is too small",
        |r, _| {
            let p = value(&mut r.processors);
            p.online = Read(32);
            p.allowed = Read(32);
            p.quota_milli = Absent;
        },
        &[("cpu-count", "", Fail)],
    ),
    (
        "quota that runs out",
        |r, _| value(&mut r.processors).throttled = Read(2000),
        &[("cpu-throttling", "", Warn)],
    ),
    (
        "quota that ran out at the start only",
        |r, _| {
            let p = value(&mut r.processors);
            p.periods = Read(10);
            p.throttled = Read(9);
        },
        &[],
    ),
    (
        "a quota file of letters",
        |r, _| value(&mut r.processors).periods = Unreadable("is not text".to_owned()),
        &[("cpu-throttling", "", Warn)],
    ),
    (
        "a small limit of memory",
        |r, _| value(&mut r.memory).limit = Read(1 << 30),
        &[("memory", "", Fail)],
    ),
    (
        "a machine that lost memory",
        |r, _| {
            let m = value(&mut r.memory);
            m.total = Read(256 << 30);
            m.limit = Absent;
            m.available = Absent;
        },
        &[("memory", "", Fail)],
    ),
    (
        "memory that others hold",
        |r, _| value(&mut r.memory).available = Read(1 << 30),
        &[("memory", "", Warn)],
    ),
    (
        "little memory to pin",
        |r, _| value(&mut r.limits).locked_memory = Read(Some(64 << 10)),
        &[("memlock", "", Fail)],
    ),
    (
        "much memory to pin",
        |r, _| value(&mut r.limits).locked_memory = Read(Some(64 << 30)),
        &[("memlock", "", Warn)],
    ),
    (
        "a limit that a capability lifts",
        |r, _| {
            let l = value(&mut r.limits);
            l.locked_memory = Read(Some(0));
            l.may_lock = Read(true);
        },
        &[],
    ),
    (
        "a limit that the job lifts",
        |r, n| {
            value(&mut r.limits).locked_memory = Read(Some(0));
            n.locks_memory = Some(true);
        },
        &[],
    ),
    (
        "a limit that nobody minds",
        |r, n| {
            value(&mut r.limits).locked_memory = Read(Some(0));
            *n = Needs {
                transport: None,
                rdma_devices: None,
                ..n.clone()
            };
        },
        &[("link-speed", "net1", Fail)],
    ),
    (
        "few open files",
        |r, _| value(&mut r.limits).open_files = Read(Some(1024)),
        &[("open-files", "", Warn)],
    ),
    (
        "no verbs",
        |r, _| {
            value(&mut r.modules).remove("ib_uverbs");
        },
        &[("kernel-modules", "", Fail)],
    ),
    (
        "no peer memory",
        |r, _| {
            value(&mut r.modules).remove("nvidia_peermem");
        },
        &[("kernel-modules", "", Warn)],
    ),
    (
        "no gdrdrv",
        |r, _| {
            value(&mut r.modules).remove("gdrdrv");
        },
        &[],
    ),
    (
        "no driver",
        |r, _| value(&mut r.versions).driver = Absent,
        &[("nvidia-driver", "", Fail)],
    ),
    (
        "the default shared memory",
        |r, _| {
            let s = value(&mut r.shm);
            s.total = Read(64 << 20);
            s.free = Read(64 << 20);
        },
        &[("shm", "", Fail)],
    ),
    (
        "the default shared memory, with nothing stated",
        |r, n| {
            let s = value(&mut r.shm);
            s.total = Read(64 << 20);
            s.free = Read(64 << 20);
            n.shm_bytes = None;
        },
        &[("shm", "", Fail)],
    ),
    (
        "half a gigabyte of it, with nothing stated",
        |r, n| {
            let s = value(&mut r.shm);
            s.total = Read(1 << 29);
            s.free = Read(1 << 29);
            n.shm_bytes = None;
        },
        &[("shm", "", Warn)],
    ),
    (
        "shared memory on a disk",
        |r, _| value(&mut r.shm).kind = "ext4".to_owned(),
        &[("shm", "", Warn)],
    ),
    (
        "shared memory full of leftovers",
        |r, _| value(&mut r.shm).free = Read(1 << 20),
        &[("shm", "", Warn)],
    ),
    (
        "a full disk",
        |r, _| value(&mut r.disk).free = Read(1 << 30),
        &[("disk", "", Fail)],
    ),
    (
        "a full disk, with nothing stated",
        |r, n| {
            value(&mut r.disk).free = Read(1 << 20);
            n.disk_bytes = None;
        },
        &[("disk", "", Warn)],
    ),
    (
        "a disk that hangs",
        |r, _| r.disk = Hung(3000),
        &[("disk", "", Fail)],
    ),
    (
        "a name that does not resolve",
        |r, _| {
            r.names.insert("rendezvous.example.com".to_owned(), Absent);
        },
        &[("names", "", Fail)],
    ),
    (
        "a name server that does not answer",
        |r, _| {
            r.names
                .insert("rendezvous.example.com".to_owned(), Hung(3000));
        },
        &[("names", "", Fail)],
    ),
    (
        "a machine that does not know itself",
        |r, _| {
            r.names
                .insert("gpu-0".to_owned(), Unreadable("not known".to_owned()));
        },
        &[("names", "", Warn)],
    ),
    (
        "a port that is taken",
        |r, _| {
            value(&mut r.listening).insert(23456);
        },
        &[("ports", "", Fail)],
    ),
];
