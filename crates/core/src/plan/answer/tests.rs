use super::*;
use crate::plan::{
    hardware::{Precision, gpu},
    names,
    search::{COMFORTABLE, Fixed},
    software::MEGATRON_CORE,
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
        tuning: crate::plan::tuning::Tuning::default(),
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
            assert!(candidate.hfu >= candidate.mfu);
        }
        let order = found
            .ranked
            .iter()
            .map(|candidate| (candidate.tight, candidate.time.total()));
        assert!(order.is_sorted(), "{model}");
        let limit = COMFORTABLE * request.cluster.gpu.memory_gib;
        for candidate in &found.ranked {
            assert_eq!(candidate.tight, candidate.memory.total() > limit);
        }
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
    assert_eq!(misfit.change.as_deref(), Some("use 256 GPUs"));
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
    let bound = bound(best, request.cluster.gpu.name);
    assert!(bound.sentence.contains("% of the step"), "{bound:?}");
}
