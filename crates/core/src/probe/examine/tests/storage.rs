//! A volume, broken in one way at a time.

use super::*;

pub(super) static CASES: &[Case] = &[
    (
        "no volume",
        |r, _| {
            r.volumes.insert("/ckpt".to_owned(), Absent);
        },
        &[("volume-writable", "/ckpt", Fail)],
    ),
    (
        "a data set that belongs to another user",
        |r, n| {
            let denied = Unreadable("permission denied".to_owned());
            r.volumes.insert("/ckpt".to_owned(), denied);
            n.volumes = None;
        },
        &[("volume-writable", "/ckpt", Warn)],
    ),
    (
        "a volume that is nearly full, with nothing stated",
        |r, n| {
            volume(r).space.free = Read(1 << 20);
            n.volumes = None;
        },
        &[("volume-free", "/ckpt", Warn)],
    ),
    (
        "a volume for reading only",
        |r, _| {
            r.volumes.insert(
                "/ckpt".to_owned(),
                Unreadable("read-only file system".to_owned()),
            );
        },
        &[("volume-writable", "/ckpt", Fail)],
    ),
    (
        "a volume that hangs",
        |r, _| {
            r.volumes.insert("/ckpt".to_owned(), Hung(10_000));
        },
        &[("volume-writable", "/ckpt", Fail)],
    ),
    (
        "slow writing",
        |r, _| volume(r).write_micros = Read(5_000_000),
        &[("volume-write-speed", "/ckpt", Fail)],
    ),
    (
        "slow reading, with nothing stated",
        |r, n| {
            volume(r).read_micros = Read(5_000_000);
            n.volumes = None;
        },
        &[("volume-read-speed", "/ckpt", Warn)],
    ),
    (
        "what was read is not what was written",
        |r, _| {
            volume(r).read_micros = Unreadable("what was read is not what was written".to_owned());
        },
        &[("volume-read-speed", "/ckpt", Fail)],
    ),
    (
        "a store that copies where others rename",
        |r, _| volume(r).rename = Read(false),
        &[("volume-rename", "/ckpt", Fail)],
    ),
    (
        "a full volume",
        |r, _| volume(r).space.free = Read(1 << 30),
        &[("volume-free", "/ckpt", Fail)],
    ),
];
