//! Logs made from the shapes of real ones: NCCL's start, steps, checkpoints, and a failure at the end.

use std::fmt::Write as _;

/// One rank's log of about `bytes` bytes; rank 3 runs out of memory, the others wait for it.
pub(super) fn rank_log(rank: u32, ranks: u32, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 4096);
    let mut put = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string takes whatever is written");
        text.len()
    };
    let (node, device) = (rank / 8, rank % 8);
    let front = format!("node-{node}:4711{device}:4799{device} [{device}] NCCL INFO");
    put(format_args!(
        "{front} Bootstrap: Using eth0:10.0.{node}.1<0>"
    ));
    put(format_args!("{front} NCCL version 2.28.9+cuda13.0"));
    put(format_args!(
        "{front} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.{node}.1<0>"
    ));
    put(format_args!("{front} Using network IB"));
    put(format_args!(
        "{front} ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks {ranks} cudaDev {device} \
         nvmlDev {device} busId {device}000 commId 0x54fe282d32a87d85 - Init START"
    ));
    let (before, after) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
    for channel in 0..32 {
        put(format_args!(
            "{front} Channel {channel:02}/0 : {before}[0] -> {rank}[{device}] [receive] via NET/IB/0/GDRDMA"
        ));
        put(format_args!(
            "{front} Channel {channel:02}/0 : {rank}[{device}] -> {after}[1] via P2P/CUMEM/read"
        ));
    }
    put(format_args!(
        "{front} ncclCommInitRankConfig comm 0x5{rank} rank {rank} nranks {ranks} cudaDev {device} \
         nvmlDev {device} busId {device}000 commId 0x54fe282d32a87d85 - Init COMPLETE"
    ));
    let mut step = 0;
    loop {
        step += 1;
        let length = put(format_args!(
            " iteration {step:>8}/ 5000000 | consumed samples: {:>12} | elapsed time per iteration (ms): \
             1618.3 | learning rate: 1.375E-04 | global batch size:     4 | lm loss: 7.811917E+00 | loss \
             scale: 16384.0 | grad norm: 3.312 | number of skipped iterations:   0 |",
            step * 4
        ));
        put(format_args!(
            "time (ms) | forward-compute: 144.73 | forward-recv: 236.49 | backward-compute: 398.13 | \
             backward-send: 0.75 | optimizer: 90.96 | batch-generator: 2.58"
        ));
        if step % 500 == 0 {
            put(format_args!(
                "successfully saved checkpoint from iteration {step} to /checkpoints"
            ));
        }
        if length + 2048 > bytes {
            break;
        }
    }
    if rank == 3 {
        put(format_args!("Traceback (most recent call last):"));
        put(format_args!("  File \"/app/train.py\", line 71, in main"));
        put(format_args!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB. GPU 3 has a total \
             capacity of 79.15 GiB of which 3.29 GiB is free."
        ));
    } else {
        put(format_args!(
            "[rank{rank}]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught \
             collective operation timeout: WorkNCCL(SeqNum={step}, OpType=ALLREDUCE, NumelIn=131072000, \
             NumelOut=131072000, Timeout(ms)=600000) ran for 600081 milliseconds before timing out."
        ));
    }
    text
}

/// A line as ranks write one in every step.
pub(super) fn step_line(rank: u32, step: u64) -> String {
    format!(
        "[2026-11-15 08:00:00,{:03}] [INFO] [logging.py:96:log_dist] [Rank {rank}] step={step}, skipped=0, \
         lr=[1e-05], mom=[(0.9, 0.95)], loss: 2.4415\n",
        step % 1000
    )
}
