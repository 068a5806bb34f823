//! Cadence and deadlines.

use super::*;

fn measured(stall: f64, write: f64) -> Measured {
    Measured {
        stall,
        write,
        step: 1.0,
        between_failures: 10_000.0,
    }
}

#[test]
fn cadence_balances_stalls_and_failures() {
    let two = cadence(&measured(2.0, 10.0)).unwrap();
    // sqrt(2 * 2 * 10,000) = 200; Daly: 200 * (1 + 0.01 / 3 + 0.0001 / 9) - 2.
    assert!((two.young - 200.0).abs() < 1e-9);
    assert!((two.daly - 198.668_888_9).abs() < 1e-6, "{}", two.daly);
    assert_eq!((two.steps, two.bound_by), (199, BoundBy::Failures));
    // Nothing stands still: as often as saves can be written.
    let free = cadence(&measured(0.0, 9.5)).unwrap();
    assert_eq!((free.steps, free.bound_by), (10, BoundBy::Write));
    let quick = cadence(&measured(0.0, 0.1)).unwrap();
    assert_eq!((quick.steps, quick.bound_by), (1, BoundBy::Step));
    // A save that takes longer than failures are apart.
    let hopeless = cadence(&measured(30_000.0, 1.0)).unwrap();
    assert!((hopeless.daly - 10_000.0).abs() < 1e-9);
}

#[test]
fn impossible_figures_have_no_cadence() {
    for bad in [
        measured(-1.0, 1.0),
        measured(f64::NAN, 1.0),
        measured(1.0, f64::INFINITY),
        Measured {
            step: 0.0,
            ..measured(1.0, 1.0)
        },
        Measured {
            between_failures: 0.0,
            ..measured(1.0, 1.0)
        },
    ] {
        assert_eq!(cadence(&bad), None, "{bad:?}");
    }
}

#[test]
fn deadline_picks_the_tier() {
    let cost = |tier, seconds| TierCost { tier, seconds };
    let costs = [
        cost(Tier::Shared, 90.0),
        cost(Tier::Local, 4.0),
        cost(Tier::Peer, 10.0),
    ];
    for (deadline, tiers) in [
        (30.0, vec![Tier::Local, Tier::Peer]),
        (14.0, vec![Tier::Peer]),
        (10.0, vec![Tier::Local]),
        (120.0, vec![Tier::Local, Tier::Shared]),
        (115.0, vec![Tier::Shared]),
        (4.5, vec![]),
        (-1.0, vec![]),
    ] {
        assert_eq!(tiers_before(deadline, &costs), tiers, "{deadline}");
    }
    assert!(tiers_before(30.0, &[cost(Tier::Local, f64::NAN)]).is_empty());
}
