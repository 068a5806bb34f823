use super::*;
use crate::plan::{names, software::MEGATRON_2021};

struct Golden {
    model: &'static str,
    states: f64,
    kept: f64,
    selective: f64,
    micro_batch: u32,
    pipeline: u32,
    interleave: u32,
}

/// Table 3 of Korthikanti and others with tensor 8 and sequences of 2,048; GiB for one GPU.
const GOLDEN: [Golden; 4] = [
    Golden {
        model: "gpt-22b",
        states: 45.5625,
        kept: 59.25,
        selective: 9.5625,
        micro_batch: 4,
        pipeline: 1,
        interleave: 1,
    },
    Golden {
        model: "gpt3-175b",
        states: 45.5625,
        kept: 66.84375,
        selective: 12.351_562_5,
        micro_batch: 1,
        pipeline: 8,
        interleave: 3,
    },
    Golden {
        model: "gpt-530b",
        states: 31.640_625,
        kept: 114.023_437_5,
        selective: 23.076_171_875,
        micro_batch: 1,
        pipeline: 35,
        interleave: 3,
    },
    Golden {
        model: "gpt-1t",
        states: 32.958_984_375,
        kept: 131.25,
        selective: 26.562_5,
        micro_batch: 1,
        pipeline: 64,
        interleave: 1,
    },
];

fn layout(golden: &Golden) -> Layout {
    Layout {
        tensor: 8,
        pipeline: golden.pipeline,
        interleave: golden.interleave,
        micro_batch: golden.micro_batch,
        sharding: Sharding::None,
        ..Layout::single()
    }
}

fn of_golden(golden: &Golden, layout: &Layout) -> Memory {
    let shape = names::model(golden.model).unwrap().shape();
    memory(&Need {
        shape: &shape,
        layout,
        software: &MEGATRON_2021,
        sequence: 2_048,
        global_batch: 4 * golden.pipeline * golden.micro_batch,
        tuning: Tuning::default(),
    })
}

#[test]
#[expect(clippy::float_cmp, reason = "the published values are exact")]
fn published_memory_values_are_exact() {
    for golden in &GOLDEN {
        let whole = of_golden(golden, &layout(golden));
        let states = whole.weights + whole.gradients + whole.optimizer;
        assert_eq!(states, golden.states, "{}: states", golden.model);
        assert_eq!(whole.activations, golden.kept, "{}: kept", golden.model);
        let selective = Layout {
            recompute: Recompute::Selective,
            sequence_parallel: true,
            ..layout(golden)
        };
        let activations = of_golden(golden, &selective).activations;
        assert_eq!(activations, golden.selective, "{}: selective", golden.model);
    }
}

#[test]
fn sharding_shares_what_it_says() {
    let golden = &GOLDEN[0];
    let with = |sharding| {
        let layout = Layout {
            data: 4,
            sharding,
            ..layout(golden)
        };
        of_golden(golden, &layout)
    };
    let none = with(Sharding::None);
    let cases = [
        (Sharding::Zero1, [1.0, 1.0, 4.0]),
        (Sharding::Zero2, [1.0, 4.0, 4.0]),
        (Sharding::Zero3, [4.0, 4.0, 4.0]),
    ];
    for (sharding, divided) in cases {
        let some = with(sharding);
        let ratios = [
            none.weights / some.weights,
            none.gradients / some.gradients,
            none.optimizer / some.optimizer,
        ];
        for (ratio, want) in ratios.into_iter().zip(divided) {
            assert!((ratio - want).abs() < 1e-9, "{sharding:?}: {ratio} {want}");
        }
    }
}

#[test]
fn a_full_recompute_keeps_the_inputs_alone() {
    let golden = &GOLDEN[0];
    let full = Layout {
        recompute: Recompute::Full,
        ..layout(golden)
    };
    let inputs = 2.0 * 2_048.0 * 4.0 * 6_144.0 * 48.0 / GIB;
    let found = of_golden(golden, &full);
    assert!((found.activations - inputs).abs() < 1e-9);
    assert!(
        found.working > 0.0,
        "a layer is whole while it is computed again"
    );
}
