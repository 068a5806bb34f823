//! `trainyard doctor` as its users meet it.

use std::{fs, io::Write as _, path::PathBuf};

use crate::{call::Call, golden};

fn log(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/doctor/logs"
    ));
    fs::read(folder.join(name)).expect("the log is there")
}

/// Label of the first verdict.
fn first(stdout: &str) -> String {
    let report: serde_json::Value = serde_json::from_str(stdout).expect("the report is JSON");
    report["verdicts"][0]["label"]
        .as_str()
        .expect("there is a verdict")
        .to_owned()
}

#[test]
fn the_report_for_people() {
    let broken = Call::new(&["doctor", "train.log"]).file("train.log", log("cpu-exception.log"));
    let healthy = broken
        .again(&["doctor", "rank0.log"])
        .file("rank0.log", log("gpu-single-rank.log"));
    let missing = broken.again(&["doctor", "absent.log", "train.log"]);
    golden::check("doctor", &[broken.run(), healthy.run(), missing.run()]);
}

#[test]
fn whichever_way_the_log_comes() {
    let plain = log("gpu-cuda-oom.log");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).expect("memory takes bytes");
    let packed = packed.finish().expect("memory takes bytes");
    // One frame with one raw block: the plainest form of the format.
    let length = u32::try_from(plain.len()).expect("the log is short");
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    zstd.extend(length.to_le_bytes());
    zstd.extend(((length << 3) | 1).to_le_bytes().iter().take(3));
    zstd.extend(&plain);

    let json = ["doctor", "--format", "json"];
    let calls = [
        Call::new(&[&json[..], &["a.gz"]].concat()).file("a.gz", packed),
        Call::new(&[&json[..], &["a.zst"]].concat()).file("a.zst", zstd),
        Call::new(&[&json[..], &["-"]].concat()).stdin(plain.clone()),
        Call::new(&[&json[..], &["."]].concat()).file("a.log", plain.clone()),
        Call::new(&[&json[..], &["--follow", "-"]].concat()).stdin(plain),
    ];
    for call in calls {
        let outcome = call.run();
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        let stdout = outcome.stdout.lines().next().expect("there is a report");
        let whole = if stdout == "{" {
            &outcome.stdout
        } else {
            stdout
        };
        assert_eq!(first(whole), "cuda_oom");
    }
}

#[test]
fn truncated_log_is_used_up_to_its_end() {
    let mut plain = log("gpu-cuda-oom.log");
    for number in 0..40_000_u32 {
        let noise = number.wrapping_mul(2_654_435_761);
        plain.extend(format!("hello {noise:08x}\n").bytes());
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&plain).expect("memory takes bytes");
    let mut packed = packed.finish().expect("memory takes bytes");
    packed.truncate(packed.len() / 2);
    let call = Call::new(&["doctor", "--format", "json", "a.gz"]).file("a.gz", packed);
    let outcome = call.run();
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(first(&outcome.stdout), "cuda_oom");
    assert!(
        outcome.stderr.contains("cannot read all of `a.gz`"),
        "{}",
        outcome.stderr
    );
}

#[test]
fn unknown_health_is_not_success() {
    let outcome = Call::new(&["doctor", "a.log"])
        .file("a.log", "loading\nthe widget is missing\n")
        .run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.stdout.starts_with("inconclusive: "),
        "{}",
        outcome.stdout
    );
    assert!(
        outcome.stdout.contains("a.log:2  the widget is missing"),
        "{}",
        outcome.stdout
    );
}

#[test]
fn rules_of_a_user_and_a_picture() {
    let rules = r#"
        [[rule]]
        id = "licence"
        label = "user_code_error"
        any = ["FLEXlm"]
        stage = "cause"
    "#;
    let call = Call::new(&[
        "doctor", "a.log", "--rules", "r.toml", "--svg", "a.svg", "--format", "json",
    ])
    .file(
        "a.log",
        "2024-01-01 00:00:00 FLEXlm is down\n2024-01-01 00:00:09 CUDA out of memory\n",
    )
    .file("r.toml", rules);
    let folder = call.folder().to_owned();
    let outcome = call.run();
    assert_eq!(first(&outcome.stdout), "user_code_error");
    let picture = fs::read_to_string(folder.join("a.svg")).expect("the picture is there");
    assert!(picture.starts_with("<svg") && picture.contains("cuda_oom"));

    let wrong = Call::new(&["doctor", "-", "--rules", "r.toml"]).file("r.toml", "[[rule]]\nid = 3");
    let outcome = wrong.run();
    assert_eq!(outcome.code, Some(2));
    assert!(
        outcome.stderr.contains("cannot use the rules"),
        "{outcome:?}"
    );
}

#[test]
fn what_cannot_be_read_gets_no_verdict() {
    let noise: Vec<u8> = (0..8_192_u32)
        .filter_map(|at| u8::try_from(at * 167 % 256).ok())
        .collect();
    let cases = [
        (
            Call::new(&["doctor", "noise"]).file("noise", noise),
            "cannot read `noise`: it is not a text file",
        ),
        (
            Call::new(&["doctor", "absent.log"]),
            "cannot read `absent.log`",
        ),
    ];
    for (call, words) in cases {
        let outcome = call.run();
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert_eq!(outcome.stdout, "", "{words}");
        assert!(outcome.stderr.contains(words), "{outcome:?}");
    }
    // A log that was cut while it was written to has a hole at its beginning.
    let mut holed = vec![0; 8_192];
    holed.extend(log("gpu-cuda-oom.log"));
    let outcome = Call::new(&["doctor", "holed.log", "--format", "json"])
        .file("holed.log", holed)
        .run();
    assert_eq!(first(&outcome.stdout), "cuda_oom");
}

#[test]
fn a_hole_of_any_length_is_passed_within_the_limits() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let hole = vec![0; 1 << 20];
    for _ in 0..200 {
        packed.write_all(&hole).expect("memory takes bytes");
    }
    let cause = log("gpu-cuda-oom.log");
    packed.write_all(&cause).expect("memory takes bytes");
    let packed = packed.finish().expect("memory takes bytes");
    let outcome = Call::new(&["doctor", "a.gz", "--format", "json"])
        .file("a.gz", packed)
        .run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(first(&outcome.stdout), "cuda_oom");
}
