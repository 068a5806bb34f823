use super::{super::examine::testing, *};

use Outcome::{Fail, Pass, Warn};

type Change = fn(&mut Reading);

/// `count` machines of which those at `odd` are changed; the checks that do not pass.
fn troubles(count: usize, odd: &[usize], change: Change) -> Vec<(String, String, Outcome)> {
    let readings = (0..count).map(|index| {
        let mut reading = testing::reading();
        if odd.contains(&index) {
            change(&mut reading);
        }
        (format!("node-{index}"), reading)
    });
    let compared = compare(&readings.collect(), &testing::needs());
    let all = compared
        .into_iter()
        .flat_map(|(node, checks)| checks.into_iter().map(move |check| (node.clone(), check)));
    let bad = all.filter(|(_, check)| check.outcome != Pass);
    bad.map(|(node, check)| (node, check.name, check.outcome))
        .collect()
}

fn version(reading: &mut Reading) -> &mut super::super::Versions {
    testing::value(&mut reading.versions)
}

#[test]
fn the_odd_one_is_named_and_nobody_else() {
    let cases: [(&str, Change, &str, Outcome); 9] = [
        (
            "kernel",
            |r| version(r).kernel = Probed::Read("5.15".to_owned()),
            "same-kernel",
            Warn,
        ),
        (
            "driver",
            |r| version(r).driver = Probed::Read("535.1".to_owned()),
            "same-driver",
            Warn,
        ),
        (
            "CUDA",
            |r| version(r).cuda = Probed::Read("12.2".to_owned()),
            "same-cuda",
            Warn,
        ),
        (
            "NCCL",
            |r| version(r).nccl = Probed::Read("2.18.1".to_owned()),
            "same-nccl",
            Warn,
        ),
        (
            "clock",
            |r| r.clock_ahead_micros = Some(-2_000_000),
            "clock-skew",
            Warn,
        ),
        (
            "clock far off",
            |r| r.clock_ahead_micros = Some(90_000_000),
            "clock-skew",
            Fail,
        ),
        (
            "model",
            |r| testing::value(&mut r.gpus)[0].model = Probed::Read("NVIDIA L4".to_owned()),
            "same-gpus",
            Fail,
        ),
        (
            "number of GPUs",
            |r| drop(testing::value(&mut r.gpus).pop()),
            "same-gpus",
            Fail,
        ),
        (
            "largest packet",
            |r| {
                let interfaces = testing::value(&mut r.interfaces);
                interfaces.get_mut("net1").unwrap().mtu = Probed::Read(1500);
            },
            "same-mtu",
            Fail,
        ),
    ];
    assert_eq!(troubles(5, &[], |_| {}), []);
    for (name, change, check, outcome) in cases {
        let want = [("node-3".to_owned(), check.to_owned(), outcome)];
        assert_eq!(troubles(5, &[3], change), want, "{name}");
    }
}

#[test]
fn without_a_majority_nobody_is_blamed() {
    let other: Change = |r| testing::value(&mut r.gpus)[0].model = Probed::Read("L4".to_owned());
    let all = |count: usize| -> Vec<_> {
        let names = (0..count).map(|index| format!("node-{index}"));
        names
            .map(|node| (node, "same-gpus".to_owned(), Warn))
            .collect()
    };
    assert_eq!(troubles(2, &[1], other), all(2));
    assert_eq!(troubles(4, &[1, 2], other), all(4));
    let odd = [("node-1".to_owned(), "same-gpus".to_owned(), Fail)];
    assert_eq!(troubles(3, &[1], other), odd);
}

#[test]
fn what_is_not_known_is_not_compared() {
    let unknown: Change = |r| {
        r.gpus = Probed::Absent;
        r.versions = Probed::Hung(3000);
        r.clock_ahead_micros = None;
    };
    assert_eq!(troubles(3, &[1], unknown), []);
    assert_eq!(troubles(1, &[], unknown), []);
}
