//! MFU: the share of the GPUs' peak that went into the model, where that can be computed.

use serde::Serialize;
use trainyard_core::plan::{
    flops::{Convention, utilization},
    hardware::{self, Precision},
    names,
    shape::Shape,
};

use super::gather::Newest;
use crate::{args::Utilization, failure::Failure};

/// The MFU of a job while it trains, or why it is not known.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Mfu {
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<f64>,
    /// What is counted: the model's operations, attention without regard to the mask.
    pub(super) convention: &'static str,
    /// What it was computed from, or what is missing.
    pub(super) why: String,
}

/// What the arguments say.
#[derive(Debug)]
pub(super) struct Model {
    name: &'static str,
    shape: Shape,
    sequence: u32,
    batch: u32,
    gpu: &'static str,
    peak: f64,
    precision: String,
}

/// The model that the arguments name, where they name one.
pub(super) fn model(args: &Utilization) -> Result<Option<Model>, Failure> {
    let (Some(model), Some(gpu), Some(batch)) = (&args.model, &args.gpu, args.batch) else {
        return Ok(None);
    };
    let unknown = |error: hardware::Unknown, list: &str| {
        Failure::from(anyhow::Error::from(error))
            .hint(format!("`trainyard plan --list {list}` prints all"))
    };
    let named = names::model(model).map_err(|error| unknown(error, "models"))?;
    let gpu = hardware::gpu(gpu).map_err(|error| unknown(error, "gpus"))?;
    let precision = Precision::named(&args.precision).ok_or_else(|| {
        let given = &args.precision;
        Failure::new(format!(
            "unknown precision `{given}`; expected one of `bf16`, `fp8`, `nvfp4`"
        ))
    })?;
    if !gpu.has(precision) {
        let (gpu, given) = (gpu.name, &args.precision);
        return Err(Failure::new(format!("{gpu} has no `{given}`")));
    }
    Ok(Some(Model {
        name: named.name,
        shape: named.shape(),
        sequence: args.sequence.unwrap_or(named.sequence),
        batch,
        gpu: gpu.name,
        peak: gpu.peak(precision),
        precision: args.precision.clone(),
    }))
}

/// The MFU of the newest run of the one job that is asked about.
pub(super) fn of(model: Option<&Model>, jobs: usize, newest: Option<&Newest>) -> Mfu {
    let convention = Convention::Model;
    let answer = compute(convention, model, jobs, newest);
    let (value, why) = match answer {
        Ok((value, why)) => (Some(value), why),
        Err(missing) => (None, missing),
    };
    Mfu {
        value,
        convention: convention.name(),
        why,
    }
}

fn compute(
    convention: Convention,
    model: Option<&Model>,
    jobs: usize,
    newest: Option<&Newest>,
) -> Result<(f64, String), String> {
    if jobs != 1 {
        return Err("it is computed for one job: name it".to_owned());
    }
    let Some(model) = model else {
        return Err("name the model with `--model`, `--gpu` and `--batch`".to_owned());
    };
    let newest = newest.ok_or("no run of the job can be read")?;
    let step = newest
        .step_seconds
        .ok_or("the newest run has not reported how long a step takes")?;
    let gpus = match newest.accelerators {
        Some(0) => return Err("the job asks for no GPU".to_owned()),
        Some(gpus) => gpus,
        None => return Err("how many GPUs the job asks for is not known".to_owned()),
    };
    let operations = convention.operations(&model.shape, model.sequence, model.batch);
    let value = utilization(operations, f64::from(gpus) * model.peak, step)
        .filter(|value| *value <= 1.0)
        .ok_or_else(|| {
            format!(
                "{} sequences of {} tokens in {step} s are more than {gpus} {} can compute: check what you named",
                model.batch, model.sequence, model.gpu
            )
        })?;
    let why = format!(
        "{} on {gpus} {}, {}, {} sequences of {} tokens in {step} s",
        model.name, model.gpu, model.precision, model.batch, model.sequence
    );
    Ok((value, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(model: &str, gpu: &str, precision: &str) -> Utilization {
        Utilization {
            model: Some(model.to_owned()),
            gpu: Some(gpu.to_owned()),
            batch: Some(128),
            sequence: Some(8_192),
            precision: precision.to_owned(),
        }
    }

    fn newest(step_seconds: Option<f64>, accelerators: Option<u32>) -> Newest {
        Newest {
            step_seconds,
            accelerators,
        }
    }

    #[test]
    fn mfu_follows_from_the_step_time() {
        let model = model(&args("llama3-8b", "H100", "bf16")).unwrap().unwrap();
        let one = of(Some(&model), 1, Some(&newest(Some(8.0), Some(64))))
            .value
            .unwrap();
        let two = of(Some(&model), 1, Some(&newest(Some(16.0), Some(32))))
            .value
            .unwrap();
        assert!((one - two).abs() < 1e-12, "the same GPU time");
        // About 6 operations for each of 8 billion parameters and token, and attention.
        let least = 6.0 * 7.5e9 * 128.0 * 8_192.0 / (64.0 * 989e12 * 8.0);
        assert!((least..1.5 * least).contains(&one), "{one} of {least}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let model = model(&args("llama3-8b", "H100", "bf16")).unwrap();
        let model = model.as_ref();
        let whole = newest(Some(8.0), Some(64));
        let cases = [
            (
                model,
                0,
                Some(&whole),
                "it is computed for one job: name it",
            ),
            (
                None,
                1,
                Some(&whole),
                "name the model with `--model`, `--gpu` and `--batch`",
            ),
            (model, 1, None, "no run of the job can be read"),
            (
                model,
                1,
                Some(&newest(None, Some(64))),
                "the newest run has not reported how long a step takes",
            ),
            (
                model,
                1,
                Some(&newest(Some(8.0), Some(0))),
                "the job asks for no GPU",
            ),
            (
                model,
                1,
                Some(&newest(Some(8.0), None)),
                "how many GPUs the job asks for is not known",
            ),
            (
                model,
                1,
                Some(&newest(Some(0.01), Some(8))),
                "128 sequences of 8192 tokens in 0.01 s are more than 8 H100-80GB can compute: check what you named",
            ),
        ];
        for (model, jobs, newest, want) in cases {
            let mfu = of(model, jobs, newest);
            assert_eq!((mfu.value, &*mfu.why), (None, want));
        }
        for (name, gpu, precision) in [
            ("no-model", "H100", "bf16"),
            ("llama3-8b", "no-gpu", "bf16"),
            ("llama3-8b", "H100", "int3"),
            ("llama3-8b", "A100-80GB", "fp8"),
        ] {
            assert!(
                super::model(&args(name, gpu, precision)).is_err(),
                "{name} {gpu} {precision}"
            );
        }
    }
}
