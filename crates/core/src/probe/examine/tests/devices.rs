//! GPUs, broken one at a time.

use super::*;

pub(super) static CASES: &[Case] = &[
    (
        "seven GPUs of eight",
        |r, _| {
            value(&mut r.gpus).pop();
        },
        &[("gpu-count", "", Fail)],
    ),
    (
        "GPUs that are split",
        |r, _| {
            value(&mut r.gpus).truncate(2);
            gpu(r, 0).split = Read(true);
        },
        &[],
    ),
    (
        "a GPU that is gone from the bus",
        |r, _| {
            value(&mut r.gpus).pop();
            value(&mut r.gpus_on_bus).pop_last();
        },
        &[("gpu-count", "", Fail)],
    ),
    (
        "a driver of another version than its library",
        |r, _| r.gpus = Unreadable("version mismatch".to_owned()),
        &[("gpu-count", "", Fail)],
    ),
    (
        "a driver that hangs",
        |r, _| r.gpus = Hung(3000),
        &[("gpu-count", "", Fail)],
    ),
    (
        "another model",
        |r, _| gpu(r, 3).model = Read("NVIDIA A100-SXM4-80GB".to_owned()),
        &[("gpu-model", "", Fail)],
    ),
    (
        "the model, shared",
        |_, n| n.gpu_model = Some("NVIDIA-H100-80GB-HBM3-SHARED".to_owned()),
        &[],
    ),
    (
        "two models, with nothing stated",
        |r, n| {
            gpu(r, 3).model = Read("NVIDIA L4".to_owned());
            n.gpu_model = None;
        },
        &[("gpu-model", "", Warn)],
    ),
    (
        "errors that could not be corrected",
        |r, _| gpu(r, 3).uncorrected = Read(2),
        &[("gpu-ecc", "0000:37:00.0", Fail)],
    ),
    (
        "correction switched off",
        |r, _| gpu(r, 3).ecc = Read(false),
        &[("gpu-ecc", "0000:37:00.0", Warn)],
    ),
    (
        "a row that waits for a reset",
        |r, _| value(&mut gpu(r, 3).rows).pending = true,
        &[("gpu-rows", "0000:37:00.0", Warn)],
    ),
    (
        "a row that could not be replaced",
        |r, _| value(&mut gpu(r, 3).rows).failed = true,
        &[("gpu-rows", "0000:37:00.0", Fail)],
    ),
    (
        "rows that were replaced",
        |r, _| value(&mut gpu(r, 3).rows).corrected = 4,
        &[],
    ),
    (
        "a GPU that fell off the bus an hour ago",
        |r, _| xid(r, 79, 3600),
        &[("gpu-xid", "0000:07:00", Fail)],
    ),
    (
        "a GPU that fell off the bus last week",
        |r, _| xid(r, 79, 600_000),
        &[("gpu-xid", "0000:07:00", Warn)],
    ),
    (
        "a contained error",
        |r, _| xid(r, 94, 3600),
        &[("gpu-xid", "0000:07:00", Warn)],
    ),
    (
        "an error of somebody's program",
        |r, _| xid(r, 31, 3600),
        &[],
    ),
    (
        "a kernel log that only root reads",
        |r, _| r.xids = Unreadable("permission denied".to_owned()),
        &[],
    ),
    (
        "a hot GPU",
        |r, _| {
            value(&mut gpu(r, 3).throttled_by).insert("HW_THERMAL_SLOWDOWN".to_owned());
        },
        &[("gpu-clocks", "0000:37:00.0", Fail)],
    ),
    (
        "a warm GPU",
        |r, _| {
            value(&mut gpu(r, 3).throttled_by).insert("SW_THERMAL_SLOWDOWN".to_owned());
        },
        &[("gpu-clocks", "0000:37:00.0", Warn)],
    ),
    (
        "a GPU with a power cap",
        |r, _| {
            value(&mut gpu(r, 3).throttled_by).insert("SW_POWER_CAP".to_owned());
        },
        &[],
    ),
    (
        "one link between GPUs down",
        |r, _| value(&mut gpu(r, 3).nvlinks)[5] = false,
        &[("nvlink", "0000:37:00.0", Fail)],
    ),
    (
        "all links of a GPU down",
        |r, _| value(&mut gpu(r, 3).nvlinks).fill(false),
        &[("nvlink", "0000:37:00.0", Warn)],
    ),
    (
        "a GPU with half of its lanes",
        |r, _| gpu(r, 3).pcie.width = Read(8),
        &[("gpu-pcie", "0000:37:00.0", Warn)],
    ),
    (
        "a GPU of an older generation",
        |r, _| gpu(r, 3).pcie.generation = Read(3),
        &[("gpu-pcie", "0000:37:00.0", Warn)],
    ),
    (
        "all GPUs at rest",
        |r, _| {
            for gpu in value(&mut r.gpus) {
                gpu.pcie.generation = Read(1);
            }
        },
        &[],
    ),
    (
        "a card that sits elsewhere",
        |r, _| {
            let p = &mut port(r, 3).pcie;
            p.path = vec!["pci0000:ff".to_owned(), "0000:ff:00.0".to_owned()];
        },
        &[("gpu-nic-affinity", "0000:37:00.0", Warn)],
    ),
];
