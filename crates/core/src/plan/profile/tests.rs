use super::*;
use crate::plan::rows::{Table, judge};

/// What the script measured on one H200.
const H200: &str = include_str!("../../../../../testdata/plan/h200-calibrate.json");

#[test]
fn h200_profile_fits_its_products() {
    let profile = calibrate(&measured(H200).unwrap()).unwrap();
    assert_eq!(profile.gpu, "H200");
    assert!(profile.median_error < 0.03, "{profile:?}");
    assert!((profile.rates.share - 0.71).abs() < 0.03, "{profile:?}");
    assert!(profile.rates.attention128[0] > profile.rates.attention64[0]);
    let again = read(&serde_json::to_string(&profile).unwrap()).unwrap();
    assert_eq!((&again.gpu, &again.from), (&profile.gpu, &profile.from));
    assert!((again.rates.share - profile.rates.share).abs() < 1e-9);
}

#[test]
fn invalid_profile_is_refused() {
    let profile = calibrate(&measured(H200).unwrap()).unwrap();
    let mut broken = profile.clone();
    broken.rates.memory_bandwidth = 0.0;
    let error = read(&serde_json::to_string(&broken).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`memoryBandwidth` is 0; it must be between 1000000000 and 1000000000000000"
    );
    assert!(
        read("{}")
            .unwrap_err()
            .to_string()
            .starts_with("it is not a profile: missing field")
    );
    let mut cluster = alone(hardware::gpu("H100").unwrap(), None);
    assert_eq!(
        profile.apply(&mut cluster).unwrap_err().to_string(),
        "it is of `H200`, but the plan is for `H100-80GB`"
    );
    let mut few = measured(H200).unwrap();
    few.products.clear();
    assert_eq!(
        calibrate(&few).unwrap_err().to_string(),
        "0 matrix products of H200 were found; at least 5 are needed"
    );
}

#[test]
fn slower_runs_teach_a_lower_share() {
    let table = |seconds: f64| {
        let text = format!(
            "source,layers,hidden,heads,vocab,seq_len,gpu,gpu_count,tp,pp,micro_batch,global_batch,precision,iter_time_s\n\
             own,32,4096,32,32000,2048,A100-80GB,8,1,1,1,64,bf16,{seconds}\n"
        );
        Table::read(&text).unwrap()
    };
    let fast = learn(&judge(&table(4.5))).unwrap();
    let slow = learn(&judge(&table(6.0))).unwrap();
    assert!(slow.rates.share < fast.rates.share, "{slow:?} {fast:?}");
    assert!(learn(&[]).is_err());
}

#[test]
fn step_of_a_record_is_read() {
    let report = |progress: &str| format!(r#"{{"job":"a","outcome":"succeeded"{progress}}}"#);
    for (progress, want) in [
        (
            r#","progress":{"step":9,"stepSeconds":"2.59e-1"}"#,
            Some(0.259),
        ),
        (r#","progress":{"step":9,"stepSeconds":3}"#, Some(3.0)),
        (r#","progress":{"step":9,"stepSeconds":"NaN"}"#, None),
        (r#","progress":{"step":9,"stepSeconds":"0"}"#, None),
        (r#","progress":{"step":9}"#, None),
        (r#","progress":null"#, None),
        ("", None),
    ] {
        let found = recorded_step(&report(progress)).ok();
        assert_eq!(found, want, "{progress}");
    }
    assert!(recorded_step("[]").is_err());
}
