use trainyard_host::stacks::MissingRank;

use super::*;

fn frame(function: &str, at: u32) -> StackFrame {
    StackFrame {
        function: function.to_owned(),
        file: "train.py".to_owned(),
        line: Some(at),
    }
}

fn rank(rank: u32, channel: &str, calls: &[(&str, u32)]) -> RankStacks {
    let frames = calls.iter().map(|(function, at)| frame(function, *at));
    RankStacks {
        rank,
        pod: format!("j-worker-{rank}"),
        pid: 100 + rank,
        program: "python3".to_owned(),
        state: "sleeping".to_owned(),
        cpu_seconds: 1.5,
        python: Some("3.11".to_owned()),
        threads: vec![ThreadState {
            tid: Some(100 + rank),
            name: Some("python3".to_owned()),
            main: true,
            state: Some("sleeping".to_owned()),
            wait_channel: Some(channel.to_owned()),
            system_call: Some(202),
            frames: frames.collect(),
            ..ThreadState::default()
        }],
        ..RankStacks::default()
    }
}

#[test]
fn the_one_apart_is_printed_first_and_the_others_once() {
    let waits = |number| {
        let mut seen = rank(number, "futex_do_wait", &[("all_reduce", 19), ("main", 40)]);
        if let Some(main) = seen.threads.first_mut() {
            main.waits_for = Some("other ranks (torch.distributed)".to_owned());
        }
        seen.threads.push(ThreadState {
            frames: vec![frame("get", 7)],
            ..ThreadState::default()
        });
        seen
    };
    let mut apart = rank(2, "hrtimer_nanosleep", &[("hang", 29), ("main", 38)]);
    apart.threads_left_out = 1;
    let stacks = RunStacks {
        attempt: 2,
        rank_count: 8,
        ranks: vec![waits(0), waits(1), apart, waits(5)],
        missing: [3, 4, 6, 7]
            .map(|rank| MissingRank {
                rank,
                reason: "pod `j-worker-9` is not running".to_owned(),
            })
            .to_vec(),
    };
    let text = format!("{}\n{}", title("j", &stacks), page(&stacks, false));
    let expected = "\
j: attempt 2, 4 of 8 ranks read

rank 2 (1 of 4)
  rank 2   pod j-worker-2   process 102 (python3)   sleeping in hrtimer_nanosleep   1.50 CPU seconds
    hang (train.py:29)
    main (train.py:38)

ranks 0-1,5 (3 of 4): wait for other ranks (torch.distributed)
  rank 0   pod j-worker-0   process 100 (python3)   sleeping in futex_do_wait   1.50 CPU seconds
  rank 1   pod j-worker-1   process 101 (python3)   sleeping in futex_do_wait   1.50 CPU seconds
  rank 5   pod j-worker-5   process 105 (python3)   sleeping in futex_do_wait   1.50 CPU seconds
    all_reduce (train.py:19)
    main (train.py:40)

ranks 0-1,5: 3 other threads
    get (train.py:7)

ranks 3-4,6-7: pod `j-worker-9` is not running

1 thread left out: at most 128 of a rank and 32 MiB of all ranks are kept
";
    assert_eq!(text, expected);
}

#[test]
fn threads_of_the_kernel_are_listed_where_asked_for() {
    let mut seen = rank(0, "do_wait", &[]);
    seen.program = "sh".to_owned();
    seen.reason = Some("not a Python process".to_owned());
    let stacks = RunStacks {
        attempt: 1,
        rank_count: 1,
        ranks: vec![seen],
        missing: Vec::new(),
    };
    let expected = "
rank 0 (1 of 1)
  rank 0   pod j-worker-0   process 100 (sh)   sleeping in do_wait   1.50 CPU seconds
    no Python stack: not a Python process

rank 0: 1 thread of process 100
  100   python3   sleeping   do_wait   system call 202
";
    assert_eq!(page(&stacks, true), expected);
}

#[test]
fn many_ranks_are_counted() {
    let ranks: Vec<RankStacks> = (0..20)
        .map(|number| rank(number, "do_wait", &[("f", 1)]))
        .collect();
    let stacks = RunStacks {
        attempt: 1,
        rank_count: 20,
        ranks,
        missing: Vec::new(),
    };
    let text = page(&stacks, false);
    assert!(text.contains("ranks 0-19 (20 of 20)"), "{text}");
    assert!(
        text.contains("  and 12 more ranks; `--format json`"),
        "{text}"
    );
    assert_eq!(
        text.matches("pod j-worker-").count(),
        RANKS_LISTED,
        "{text}"
    );
}
