use super::*;
use crate::spec::Role;

type Key = (String, u32);

const STEP: Outcome = Outcome::Read(Found {
    step: true,
    full: false,
    cut: false,
});
const NOTHING: Outcome = Outcome::Read(Found {
    step: false,
    full: false,
    cut: false,
});
const SLOW: Outcome = Outcome::Failed(Failure::Unreachable);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn pods(count: u32, node: &str) -> Vec<PodToRead> {
    let pod = |index| PodToRead {
        uid: format!("pod-{index}"),
        slot: Slot::new(Role::Worker, index),
        node: Some(node.to_owned()),
    };
    (0..count).map(pod).collect()
}

fn key(namespace: &str, job: u32) -> Key {
    (namespace.to_owned(), job)
}

/// One read.
#[derive(Clone, Debug)]
struct Made {
    key: Key,
    slot: Slot,
    at: Duration,
}

/// Reads for as long as `until`; a read takes as long and ends as `read` says.
fn play(
    rota: &mut Rota<Key>,
    from: Duration,
    until: Duration,
    pods: impl Fn(&Key) -> Vec<PodToRead>,
    mut read: impl FnMut(&Key, &Order) -> (Duration, Outcome),
) -> Vec<Made> {
    let mut now = from;
    let mut made = Vec::new();
    let mut under_way: Vec<(Duration, Key, Order, Outcome)> = Vec::new();
    while now < until {
        let ended = under_way.extract_if(.., |read| read.0 <= now);
        for (at, key, order, outcome) in ended.collect::<Vec<_>>() {
            rota.report(&key, &order, outcome, at);
        }
        match rota.next(now) {
            Next::Job(key) => {
                if let Some(order) = rota.choose(&key, &pods(&key), now) {
                    let (takes, outcome) = read(&key, &order);
                    made.push(Made {
                        key: key.clone(),
                        slot: order.slot,
                        at: now,
                    });
                    under_way.push((now + takes, key, order, outcome));
                    assert!(under_way.len() <= AT_ONCE);
                }
            }
            next => {
                let ends = under_way.iter().map(|read| read.0).min();
                let at = match next {
                    Next::At(at) => Some(at),
                    _ => None,
                };
                now = ends.into_iter().chain(at).min().unwrap_or(until);
            }
        }
    }
    for (at, key, order, outcome) in under_way {
        rota.report(&key, &order, outcome, at);
    }
    made
}

fn enroll(rota: &mut Rota<Key>, namespace: &str, jobs: u32, attempt: u32, now: Duration) {
    for job in 0..jobs {
        let enrolled = Enrolled {
            namespace,
            uid: "u",
            attempt,
        };
        rota.enroll(&key(namespace, job), enrolled, now);
    }
}

/// The most reads that began within any second.
fn busiest(made: &[Made]) -> usize {
    let within = |first: &Made| {
        let later = made.iter().filter(|other| other.at >= first.at);
        later
            .filter(|other| other.at.saturating_sub(first.at) < seconds(1))
            .count()
    };
    made.iter().map(within).max().unwrap_or(0)
}

/// The longest time between two reads of one job, from `after` on.
fn longest_gap(made: &[Made], after: Duration, until: Duration) -> Duration {
    let mut last: BTreeMap<&Key, Duration> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    for read in made {
        let before = last.insert(&read.key, read.at).unwrap_or(after);
        if read.at > after {
            longest = longest.max(read.at.saturating_sub(before.max(after)));
        }
    }
    let ends = last.values().map(|at| until.saturating_sub(*at));
    longest.max(ends.max().unwrap_or(until))
}

#[test]
fn progress_is_as_old_as_the_number_of_jobs_allows() {
    for (jobs, oldest) in [(1, 9), (20, 9), (100, 10), (400, 30), (1_000, 60)] {
        let mut rota = Rota::default();
        enroll(&mut rota, "n", jobs, 1, Duration::ZERO);
        let until = seconds(400);
        let made = play(
            &mut rota,
            Duration::ZERO,
            until,
            |_| pods(4, "a"),
            |_, _| (Duration::from_millis(20), STEP),
        );
        assert!(busiest(&made) <= READS_A_SECOND as usize, "{jobs} jobs");
        let gap = longest_gap(&made, seconds(100), until);
        assert!(gap <= seconds(oldest), "{jobs} jobs: {gap:?}");
        assert_eq!(rota.nodes.len(), 0, "no node is remembered");
    }
}

#[test]
fn few_jobs_cost_few_reads() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 10, 1, Duration::ZERO);
    let made = play(
        &mut rota,
        Duration::ZERO,
        seconds(600),
        |_| pods(4, "a"),
        |_, _| (Duration::from_millis(20), STEP),
    );
    assert!((700..=800).contains(&made.len()), "{} reads", made.len());
}

#[test]
fn a_namespace_with_many_jobs_delays_no_other() {
    let mut rota = Rota::default();
    enroll(&mut rota, "crowd", 2_000, 1, Duration::ZERO);
    enroll(&mut rota, "small", 3, 1, Duration::ZERO);
    let until = seconds(300);
    let made = play(
        &mut rota,
        Duration::ZERO,
        until,
        |_| pods(1, "a"),
        |_, _| (Duration::from_millis(20), STEP),
    );
    let of_small = made.iter().filter(|read| read.key.0 == "small");
    let of_small: Vec<Made> = of_small.cloned().collect();
    let gap = longest_gap(&of_small, seconds(10), until);
    assert!(gap <= seconds(10), "{gap:?}");
    let crowd = made.len() - of_small.len();
    assert!(crowd > 5_000, "the crowd gets the rest: {crowd}");
}

#[test]
fn the_reporting_pod_is_learned_and_kept() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 1, 1, Duration::ZERO);
    let last = Slot::new(Role::Worker, 5);
    let reports = |_: &Key, order: &Order| {
        let outcome = if order.slot == last { STEP } else { NOTHING };
        (Duration::from_millis(20), outcome)
    };
    let all = |_: &Key| pods(6, "a");
    let made = play(&mut rota, Duration::ZERO, seconds(100), all, reports);
    let slots: Vec<u32> = made.iter().map(|read| read.slot.index).collect();
    assert_eq!(&slots[..3], [0, 5, 5]);
    assert!(slots[1..].iter().all(|index| *index == 5), "{slots:?}");

    // A restart: it is the first to be tried, and replaced if another reports.
    enroll(&mut rota, "n", 1, 2, seconds(100));
    let other = Slot::new(Role::Worker, 2);
    let reports = |_: &Key, order: &Order| {
        let outcome = if order.slot == other { STEP } else { NOTHING };
        (Duration::from_millis(20), outcome)
    };
    let made = play(&mut rota, seconds(100), seconds(200), all, reports);
    assert_eq!(made[0].slot, last);
    let learned = made.iter().position(|read| read.slot == other).unwrap();
    assert!(learned < 12, "{made:?}");
    assert!(made[learned..].iter().all(|read| read.slot == other));
}

#[test]
fn a_pod_that_falls_silent_is_not_read_for_ever() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 1, 1, Duration::ZERO);
    let all = |_: &Key| pods(3, "a");
    let takes = Duration::from_millis(20);
    play(&mut rota, Duration::ZERO, seconds(60), all, |_, _| {
        (takes, STEP)
    });
    let made = play(&mut rota, seconds(60), seconds(2_000), all, |_, _| {
        (takes, NOTHING)
    });
    let (early, late): (Vec<_>, Vec<_>) = made
        .iter()
        .partition(|read| read.at < (seconds(60) + FIND_REPORTER_AFTER).saturating_sub(EVERY));
    assert!(early.iter().all(|read| read.slot.index == 0));
    for index in 0..3 {
        assert!(late.iter().any(|read| read.slot.index == index), "{index}");
    }
    assert!(made.len() < 140, "less often: {}", made.len());
}

#[test]
fn a_dead_node_delays_no_other_job() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 60, 1, Duration::ZERO);
    let node = |key: &Key| if key.1 < 40 { "dead" } else { "well" };
    let until = seconds(300);
    let made = play(
        &mut rota,
        Duration::ZERO,
        until,
        |key| pods(2, node(key)),
        |key, _| {
            if node(key) == "dead" {
                (PATIENCE, SLOW)
            } else {
                (Duration::from_millis(20), STEP)
            }
        },
    );
    let well = made.iter().filter(|read| node(&read.key) == "well");
    let well: Vec<Made> = well.cloned().collect();
    let gap = longest_gap(&well, seconds(10), until);
    assert!(gap <= seconds(9), "{gap:?}");
    let dead = made.len() - well.len();
    assert!((4..=12).contains(&dead), "{dead} reads of a dead node");
    assert_eq!(rota.nodes.len(), 1);
}

#[test]
fn a_busy_api_server_has_its_pause() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 50, 1, Duration::ZERO);
    let busy = Outcome::Failed(Failure::Busy(None));
    let takes = Duration::from_millis(5);
    let all = |_: &Key| pods(1, "a");
    let made = play(&mut rota, Duration::ZERO, seconds(120), all, |_, _| {
        (takes, busy)
    });
    assert!(made.len() < 12, "{} reads", made.len());
    let made = play(&mut rota, seconds(120), seconds(180), all, |_, _| {
        (takes, STEP)
    });
    assert!(made.len() > 150, "{} reads", made.len());

    let asked = Outcome::Failed(Failure::Busy(Some(seconds(7))));
    let made = play(&mut rota, seconds(300), seconds(314), all, |_, _| {
        (takes, asked)
    });
    assert_eq!(made.len(), 2, "{made:?}");
}

#[test]
fn read_failure_is_reported_once() {
    let cases = [
        (Failure::Denied, vec![Some(Unknown::Denied), None, None]),
        (
            Failure::Gone,
            vec![None, None, None, None, Some(Unknown::Gone), None],
        ),
        (
            Failure::Unreachable,
            vec![None, None, None, None, Some(Unknown::Unreachable), None],
        ),
        (Failure::Busy(None), vec![None; 6]),
    ];
    for (failure, want) in cases {
        let mut rota = Rota::default();
        enroll(&mut rota, "n", 1, 1, Duration::ZERO);
        let key = key("n", 0);
        let mut now = Duration::ZERO;
        let mut reports = Vec::new();
        while reports.len() < want.len() {
            match rota.next(now) {
                Next::Job(_) => {
                    if let Some(order) = rota.choose(&key, &pods(2, "a"), now) {
                        reports.push(rota.report(&key, &order, Outcome::Failed(failure), now));
                    }
                }
                Next::At(at) => now = at,
                Next::Idle => panic!("nothing to wait for"),
            }
        }
        assert_eq!(reports, want, "{failure:?}");
    }
}

#[test]
fn what_is_read_of_an_earlier_attempt_is_not_counted() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 1, 1, Duration::ZERO);
    let key = key("n", 0);
    let order = rota.choose(&key, &pods(2, "a"), Duration::ZERO).unwrap();
    assert_eq!(rota.next(seconds(1)), Next::Idle, "it is being read");
    enroll(&mut rota, "n", 1, 2, seconds(1));
    assert!(!rota.is_enrolled(&key, "u", 1));
    assert_eq!(rota.report(&key, &order, STEP, seconds(2)), None);
    let again = rota.choose(&key, &pods(2, "a"), seconds(2)).unwrap();
    assert_eq!(again.attempt, 2);
    assert_eq!(rota.report(&key, &again, NOTHING, seconds(3)), None);
    assert_eq!(rota.jobs[&key].reporter, None);

    rota.drop_job(&key);
    assert!(rota.is_empty() && rota.waiting.is_empty() && rota.under_way == 0);
}

#[test]
fn the_end_of_an_attempt_is_read_within_the_rate() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 100, 1, Duration::ZERO);
    let reporter = key("n", 0);
    let order = rota.choose(&reporter, &pods(3, "a"), Duration::ZERO);
    rota.report(&reporter, &order.unwrap(), STEP, Duration::ZERO);
    // The pod that reports, once.
    let (order, at) = rota
        .choose_last(&reporter, &pods(3, "a"), Duration::ZERO)
        .unwrap();
    assert_eq!((order.slot.index, at), (0, GAP));
    rota.report(&reporter, &order, STEP, at);
    assert_eq!(rota.choose_last(&reporter, &pods(3, "a"), at), None);
    // Where none has reported: the first and the last rank.
    let silent = key("n", 1);
    let mut read = Vec::new();
    while let Some((order, at)) = rota.choose_last(&silent, &pods(3, "a"), seconds(1)) {
        read.push(order.slot.index);
        rota.report(&silent, &order, NOTHING, at);
    }
    assert_eq!(read, [0, 2]);
    // Nobody waits for long.
    let now = seconds(2);
    let last =
        |rota: &mut Rota<Key>, job: u32| rota.choose_last(&key("n", job), &pods(1, "b"), now);
    let taken = (2..100).map_while(|job| {
        let (order, at) = last(&mut rota, job)?;
        rota.report(&key("n", job), &order, STEP, at);
        Some(at)
    });
    let taken: Vec<Duration> = taken.collect();
    assert!((19..=20).contains(&taken.len()), "{}", taken.len());
    assert!(taken.iter().all(|at| *at <= now + LAST_READ_WITHIN));
    // Of a pod that others would have to be asked for, nothing is read.
    assert_eq!(rota.choose_last(&key("n", 99), &[], seconds(9)), None);
}

#[test]
fn a_job_without_pods_is_looked_at_later() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 1, 1, Duration::ZERO);
    let key = key("n", 0);
    assert_eq!(rota.choose(&key, &[], Duration::ZERO), None);
    assert_eq!(rota.next(Duration::ZERO), Next::At(EVERY_AT_FIRST));
}

#[test]
fn a_job_that_sends_its_steps_is_not_read() {
    let mut rota = Rota::default();
    enroll(&mut rota, "n", 1, 1, Duration::ZERO);
    let key = key("n", 0);
    let of = |attempt| Enrolled {
        namespace: "n",
        uid: "u",
        attempt,
    };
    let slot = Slot::new(Role::Worker, 1);
    rota.sent(&key, of(1), slot, Duration::ZERO);
    for second in (5..60).step_by(5) {
        let now = seconds(second);
        assert_eq!(rota.next(now), Next::At(seconds(second - 5) + UNSENT));
        rota.sent(&key, of(1), slot, now);
    }
    // What another attempt sent changes nothing.
    rota.sent(&key, of(2), slot, seconds(70));
    let silent = seconds(55) + UNSENT;
    assert_eq!(rota.next(silent), Next::Job(key.clone()));
    let order = rota.choose(&key, &pods(3, "a"), silent).unwrap();
    assert_eq!(order.slot, slot, "the pod that sent is read first");
    // While it is read, it is due only when that is done.
    rota.sent(&key, of(1), slot, silent);
    assert_eq!(rota.next(silent + UNSENT), Next::Idle);
    rota.report(&key, &order, NOTHING, silent);
    assert_eq!(rota.next(silent), Next::At(silent + EVERY));
}
