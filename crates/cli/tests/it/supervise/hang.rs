//! A gang that hangs is found by its leader, reported to the operator, and restarted in place.

use trainyard_core::{
    barrier::StopHow,
    spec::{OnNan, WatchMode},
};

use super::{Gang, Supervised, operator::Operator, send_signal, until, worker};

/// Three ranks that take each step together, and print it; in the second attempt they only run. Steps are reported every quarter of a
/// second, so they take a tenth: twenty of them show a rhythm, on a fast machine too.
const IN_STEP: &str = "echo attempt $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 && exec sleep 300; echo pid $$; n=0; \
                       while :; do n=$((n + 1)); echo $n > at-$RANK.new; mv at-$RANK.new at-$RANK; for rank in 0 1 2; do \
                       while test \"$(cat at-$rank 2>/dev/null || echo 0)\" -lt $n; do sleep 0.02; done; done; \
                       echo \"step $n loss 0.5\"; sleep 0.1; done";

fn start(mode: WatchMode) -> (Gang, Operator, Vec<Supervised>) {
    let mut gang = Gang::new(3);
    gang.watch.mode = mode;
    gang.watch.hang_floor_ms = 5_000;
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let pods = (0..3).map(|rank| gang.start(rank, &format!("export RANK={rank}; {IN_STEP}")));
    let pods: Vec<Supervised> = pods.collect();
    until("all train", || {
        pods.iter()
            .all(|pod| pod.out().contains("step 20 loss 0.5"))
    });
    send_signal("-STOP", pods[2].number("pid ").unwrap());
    (gang, operator, pods)
}

#[test]
fn a_stopped_rank_is_named_and_its_gang_restarts() {
    let (_gang, operator, pods) = start(WatchMode::Act);
    until("the leader reports it", || {
        !operator.seen.lock().unwrap().hangs.is_empty()
    });
    let hang = operator.seen.lock().unwrap().hangs[0].clone();
    assert_eq!((hang.attempt, hang.rank), (1, Some(2)), "{hang:?}");
    assert_eq!(hang.slot, worker(2), "{hang:?}");
    assert_eq!(hang.label, "hang_stopped", "{hang:?}");
    until("all run again", || {
        pods.iter().all(|pod| pod.number("attempt ") == Some(2))
    });
    assert!(
        pods[0].err().contains("hang_stopped: no step for"),
        "{}",
        pods[0].err()
    );
}

#[test]
fn a_gang_that_only_reports_is_left_alone() {
    let (_gang, operator, pods) = start(WatchMode::Report);
    until("the leader logs it", || {
        pods[0].err().contains("hang_stopped: no step for")
    });
    let seen = operator.seen.lock().unwrap();
    assert_eq!((seen.hangs.len(), seen.stored.attempt), (0, 1));
    assert!(seen.stored.barrier.is_none());
}

/// With `on-nan: restart`, a loss that stays NaN is reported with its rank, and the gang restarts.
#[test]
fn a_nan_loss_restarts_the_gang_where_the_job_says_so() {
    let mut gang = Gang::new(2);
    gang.watch.on_nan = OnNan::Restart;
    let operator = Operator::start(gang.folder.path(), &gang.slots(), StopHow::Hang);
    gang.operator = Some(operator.address.clone());
    let script = "echo attempt $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 && exec sleep 300; n=0; \
                  while :; do n=$((n + 1)); echo \"step $n loss $LOSS\"; sleep 0.2; done";
    let pods = ["0.5", "nan"].into_iter().zip(0..);
    let pods = pods.map(|(loss, rank)| gang.start(rank, &format!("LOSS={loss}; {script}")));
    let pods: Vec<Supervised> = pods.collect();
    until("the leader reports it", || {
        !operator.seen.lock().unwrap().hangs.is_empty()
    });
    let found = operator.seen.lock().unwrap().hangs[0].clone();
    assert_eq!(found.label, "nan_loss", "{found:?}");
    assert_eq!((found.rank, found.slot), (Some(1), worker(1)), "{found:?}");
    until("all run again", || {
        pods.iter().all(|pod| pod.number("attempt ") == Some(2))
    });
}

/// What a program prints arrives whole and in its order, also its last bytes.
#[test]
fn output_is_passed_on_whole() {
    let gang = Gang::new(1);
    let script = "i=0; while test $i -lt 20000; do i=$((i + 1)); echo line $i; done; printf end; printf err >&2";
    let mut pod = gang.start(0, script);
    assert_eq!(pod.code(), Some(0));
    let out = pod.out();
    let (lines, end) = out.rsplit_once('\n').unwrap();
    assert_eq!(end, "end");
    let numbers = lines.lines().map(|line| line.strip_prefix("line "));
    let numbers: Vec<Option<u32>> = numbers.map(|number| number?.parse().ok()).collect();
    let wanted: Vec<Option<u32>> = (1..=20_000).map(Some).collect();
    assert!(numbers == wanted, "{} lines", numbers.len());
    assert!(pod.err().ends_with("err"), "{}", pod.err());
}

/// A program in the background that keeps the streams open, for longer than the test waits, does not hold the end of its container up.
#[test]
fn a_daemon_does_not_hold_the_end_up() {
    let gang = Gang::new(1);
    let mut pod = gang.start(0, "setsid sleep 1000 & exit 0");
    assert_eq!(pod.code(), Some(0));
}
