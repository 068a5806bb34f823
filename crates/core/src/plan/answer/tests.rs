use super::*;
use crate::plan::{
    hardware::{Precision, gpu},
    layout::Sharding,
    names,
    search::{COMFORTABLE, Fixed},
    software::{DUALPIPE, MEGATRON_CORE},
};

pub(crate) fn request(model: &str, kind: &str, gpus: u32, batch: u32) -> Request {
    let named = names::model(model).unwrap();
    let gpu = gpu(kind).unwrap();
    Request {
        shape: named.shape(),
        cluster: Cluster {
            network: gpu.network,
            gpu,
            gpus,
            nodes_per_leaf: 0,
            oversubscription: 1.0,
            rates: None,
        },
        software: MEGATRON_CORE,
        sequence: named.sequence,
        global_batch: batch,
        precision: Precision::Bf16,
        fixed: Fixed::default(),
        tuning: Tuning::default(),
    }
}

#[test]
fn ranked_layouts_are_valid_and_sorted() {
    for (model, kind, gpus, batch) in [
        ("llama3-8b", "H100", 64, 128),
        ("llama3-70b", "A100-80GB", 256, 512),
        ("mixtral-8x7b", "H100", 128, 256),
        ("deepseek-v3", "GB200", 256, 4_096),
    ] {
        let request = request(model, kind, gpus, batch);
        let found = search(&request);
        assert!(!found.ranked.is_empty(), "{model}");
        for candidate in &found.ranked {
            assert!(candidate.memory.total() <= request.cluster.gpu.memory_gib);
            candidate.layout.check(&request.shape, gpus).unwrap();
            assert!(candidate.mfu > 0.0 && candidate.mfu < 1.0, "{candidate:?}");
            assert!(candidate.hfu >= candidate.mfu_causal - 1e-9);
        }
        let order = found
            .ranked
            .iter()
            .map(|candidate| (candidate.tight, candidate.time.total()));
        // Those within a percent of the fastest are in the order of their effort.
        let least = found
            .ranked
            .iter()
            .find(|one| one.tight == found.ranked[0].tight);
        let least = least.map_or(0.0, |one| one.time.total());
        let order = order.skip_while(|(_, time)| *time < least * 1.02);
        assert!(order.is_sorted(), "{model}");
        let limit = COMFORTABLE * request.cluster.gpu.memory_gib;
        for candidate in &found.ranked {
            assert_eq!(candidate.tight, candidate.memory.total() > limit);
        }
    }
}

#[test]
fn one_stage_has_no_bubble() {
    let mut request = request("llama3-8b", "H100", 64, 128);
    request.software = DUALPIPE;
    request.fixed.pipeline = Some(1);
    let found = search(&request);
    assert!(!found.ranked.is_empty());
    for candidate in &found.ranked {
        assert!(candidate.time.bubble.abs() < 1e-9, "{candidate:?}");
    }
}

#[test]
fn slow_network_moves_traffic_into_the_node() {
    let request = request("llama3-70b", "H100", 512, 1_024);
    let best = search(&request).ranked[0];
    let found = what_ifs(&request, &best);
    let slow = found
        .iter()
        .find(|what_if| what_if.change.contains("slower"))
        .unwrap();
    assert!(slow.gain < 0.0, "{slow:?}");
    assert!(found.windows(2).all(|pair| pair[0].gain >= pair[1].gain));
}

#[test]
fn misfit_reports_shortfall_and_change() {
    let request = request("llama3-405b", "A100-40GB", 64, 64);
    let found = search(&request);
    assert!(found.ranked.is_empty());
    let misfit = misfit(&request, &found);
    let sentence = misfit.sentence(&request.cluster);
    assert!(sentence.starts_with("nothing fits: tensor"), "{sentence}");
    assert!(sentence.contains("too little"), "{sentence}");
    assert_eq!(
        misfit.change.as_deref(),
        Some(
            "use 256 GPUs; or keep these and pass `--offload` (812 GB of host memory on each node), or train adapters with `--lora rank=16`"
        )
    );
}

#[test]
fn misfit_of_one_card_names_a_way_to_train_on_it() {
    for (model, kind, gpus, want) in [
        (
            "mistral-7b",
            "RTX-3090",
            1,
            "train adapters with `--lora rank=16`",
        ),
        (
            "llama3-8b",
            "RTX-4090",
            1,
            "train adapters with `--lora rank=16`",
        ),
        (
            "qwen2.5-14b",
            "RTX-4090",
            1,
            "train adapters with `--qlora rank=16`",
        ),
        ("llama3-70b", "H100", 8, "pass `--offload`"),
    ] {
        let mut request = request(model, kind, gpus, gpus);
        request.sequence = 2_048;
        let found = search(&request);
        let change = misfit(&request, &found).change.unwrap();
        assert!(change.contains(want), "{model}: {change}");
    }
}

#[test]
fn equally_fast_layouts_are_the_simple_ones() {
    let best = search(&request("llama3-405b", "H100", 16_384, 2_048)).ranked[0];
    assert_eq!(
        (best.layout.tensor, best.layout.context),
        (8, 2),
        "{best:?}"
    );
    let alone = search(&request("bert-base", "T4", 1, 1_024));
    assert!(
        alone
            .ranked
            .iter()
            .all(|one| one.layout.sharding == Sharding::Zero1)
    );
}

#[test]
fn no_more_traffic_is_hidden_than_there_is_work() {
    let mut slow = request("llama3-70b", "H100", 32, 128);
    slow.cluster.network = 3.125e9;
    for one in search(&slow).ranked {
        // On two links at once.
        assert!(one.time.hidden <= 2.0 * one.time.total(), "{one:?}");
    }
}

#[test]
fn hfu_counts_what_kernels_compute() {
    let mut long = request("llama3-405b", "H100", 16_384, 128);
    long.sequence = 131_072;
    long.fixed.context = Some(16);
    let best = search(&long).ranked[0];
    // No product runs faster than the share that is fitted to the GPU.
    let bound = bound(&best, &long);
    assert!(best.hfu < 0.62, "{bound:?} {best:?}");
}

#[test]
fn more_gpus_scale_about_linearly() {
    let points = scaling(&request("llama3-8b", "H100", 256, 1_024));
    assert!(points.len() > 4);
    for pair in points.windows(2) {
        assert!(pair[1].tokens_per_second > pair[0].tokens_per_second);
        // A little more: what is shared among more ranks leaves memory for faster layouts.
        assert!(pair[1].efficiency < 1.05, "{pair:?}");
    }
}

#[test]
fn bottleneck_is_named_with_its_share() {
    let request = request("llama3-405b", "H100", 16_384, 2_048);
    let found = search(&request);
    let best = &found.ranked[0];
    let bound = bound(best, &request);
    assert!(bound.sentence.contains("% of the step"), "{bound:?}");
}
