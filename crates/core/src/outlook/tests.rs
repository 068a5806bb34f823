use super::*;
use crate::{
    ledger::Phase,
    plan::recovery::{LLAMA3, Saving},
};

const HOUR: f64 = 3_600.0;
const DAY: f64 = 24.0 * HOUR;

/// The configuration that `AIReSim` publishes with its result (arXiv:2603.07041, `config.yaml`).
fn airesim() -> World {
    World {
        length: Length::Trained(256.0 * DAY),
        failures: Failures {
            hardware: 0.01,
            software: 0.0,
            bad_share: 0.15,
            bad_times: 5.0,
            while_restarting: false,
        },
        notice: Notice {
            seconds: 0.0,
            silent_share: 0.0,
            silent_seconds: 0.0,
        },
        path_seconds: PathSeconds::same(20.0 * 60.0),
        start_seconds: 0.0,
        checkpoints: Checkpoints {
            saving: Saving::Blocking,
            every: 1.0,
            blocking: 0.0,
            safe_after: 0.0,
            memory_survives: 0,
            storage_every: 1.0,
        },
        spares: Spares {
            standbys: 16,
            pool: 48,
            lent: 200,
            choose_seconds: 3.0 * 60.0,
            lent_seconds: 20.0 * 60.0,
        },
        repair: Repair {
            automatic: 2.0 * HOUR,
            automatic_fails: 0.4,
            escalated: 0.8,
            manual: 2.0 * DAY,
            manual_fails: 0.2,
        },
        ..World::usual(4_096, 1.0, 0.0)
    }
}

#[test]
fn airesim_published_run_is_reproduced() {
    let outlook = simulate(&airesim(), 42, 30);
    let hours = outlook.seconds.mean / HOUR;
    assert!((hours / 9_865.97 - 1.0).abs() < 0.01, "{hours}");
    assert!(
        (outlook.ettr.mean - 0.623).abs() < 0.005,
        "{:?}",
        outlook.ettr
    );
    let failures = outlook.interruptions.mean;
    assert!((failures / 11_145.6 - 1.0).abs() < 0.01, "{failures}");
}

/// Meta's closed form with the figures of `RSC-1` on 16,384 GPUs gives 0.931.
#[test]
fn meta_closed_form_is_reproduced() {
    let mut world = World::usual(2_048, 30.0, 6.50e-3);
    world.failures.hardware = 6.50e-3;
    world.failures.software = 0.0;
    world.notice = Notice {
        seconds: 0.0,
        silent_share: 0.0,
        silent_seconds: 0.0,
    };
    world.path_seconds = PathSeconds::same(300.0);
    world.start_seconds = 0.0;
    world.spares.standbys = 2_048;
    world.checkpoints = Checkpoints {
        saving: Saving::Blocking,
        every: 300.0,
        blocking: 0.0,
        safe_after: 0.0,
        memory_survives: 0,
        storage_every: 300.0,
    };
    let outlook = simulate(&world, 1, 100);
    assert!(
        (outlook.ettr.mean - 0.931).abs() < 0.005,
        "{:?}",
        outlook.ettr
    );
}

fn llama3() -> World {
    let rate: f64 = LLAMA3.iter().map(|component| component.rate).sum();
    World::usual(2_048, 54.0, rate * 8.0 * 24.0 / 1_000.0)
}

#[test]
fn llama_3_ettr_is_above_90_percent() {
    let outlook = simulate(&llama3(), 7, 100);
    assert!(outlook.ettr.mean > 0.90, "{outlook:?}");
    let failures = outlook.interruptions.mean;
    assert!((failures / 419.0 - 1.0).abs() < 0.05, "{failures}");
}

#[test]
fn seed_determines_the_result() {
    let bytes = |seed| serde_json::to_string(&simulate(&llama3(), seed, 20)).unwrap();
    assert_eq!(bytes(3), bytes(3));
    assert_ne!(bytes(3), bytes(4));
}

#[test]
fn phases_add_up_without_gaps() {
    for path in Path::ALL {
        let mut world = llama3();
        world.path = path;
        world.bursts = Bursts {
            per_day: 0.2,
            machines: 16,
        };
        world.preemptions.per_day = 0.5;
        let run = run(&world, 11, 0, true);
        assert!((run.total() - 54.0 * DAY).abs() < 1e-3, "{path:?}");
        let mut at = 0.0;
        for span in &run.spans {
            assert!((span.from - at).abs() < 1e-6 && span.to > span.from);
            at = span.to;
        }
        assert!((at - run.total()).abs() < 1e-3);
        assert!(run.of(Phase::Training) > 0.5 * run.total(), "{path:?}");
    }
}

#[test]
fn faster_paths_train_more() {
    let ettr = |path| {
        let mut world = llama3();
        world.path = path;
        simulate(&world, 5, 30).ettr.mean
    };
    let [requeue, replace, standby, in_place] = Path::ALL.map(ettr);
    assert!(requeue < replace && replace < standby && standby < in_place);
}

#[test]
fn largest_loss_has_largest_remedy() {
    let effects = sensitivity(&llama3(), 5, 30);
    assert!(
        effects
            .windows(2)
            .all(|pair| pair[0].points >= pair[1].points)
    );
    let of = |change: &str| {
        effects
            .iter()
            .find(|effect| effect.change == change)
            .unwrap()
            .points
    };
    assert!(of("halving hardware failures") > of("halving software failures"));
    assert!(of("one more standby").abs() < 0.5);
}

#[test]
fn invalid_worlds_fail_and_hopeless_runs_end() {
    let mut world = llama3();
    world.machines = 0;
    let error = world.check().unwrap_err().to_string();
    assert_eq!(error, "machines is 0; it must be between 1 and 1000000");
    let mut hopeless = llama3();
    hopeless.failures.hardware = 100.0;
    hopeless.length = Length::Trained(DAY);
    hopeless.check().unwrap();
    assert!(run(&hopeless, 1, 0, false).given_up);
}
