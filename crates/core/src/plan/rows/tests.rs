use super::*;
use crate::plan::{confidence::RESIDUALS, efficiency, hardware::Precision, profile};

/// What was published, with the source of every row.
const PUBLISHED: &str = include_str!("../../../../../testdata/plan/published-runs.csv");

/// What was measured on one H200 with plain `PyTorch`, and what the calibration of that GPU measured.
const MEASURED: &str = include_str!("../../../../../testdata/plan/h200-torch.jsonl");
const CALIBRATED: &str = include_str!("../../../../../testdata/plan/h200-calibrate.json");

#[test]
fn torch_on_h200_is_predicted_with_its_profile() {
    let profile = profile::calibrate(&profile::measured(CALIBRATED).unwrap()).unwrap();
    let runs = measured_runs(MEASURED).unwrap();
    assert_eq!(runs.len(), 14);
    for mut one in runs {
        profile.apply(&mut one.run.cluster).unwrap();
        let found = predict(&one.run);
        let (time, memory) = (
            found.time.total() / one.seconds,
            found.memory.total() / one.gib,
        );
        assert!((time - 1.0).abs() < 0.10, "{}: {time}", one.name);
        assert!((memory - 1.0).abs() < 0.15, "{}: {memory}", one.name);
    }
}

#[test]
fn residuals_match_the_runs() {
    let published = judge(&table());
    let measured = measured_runs(MEASURED).unwrap();
    let errors = published
        .iter()
        .map(|row| (row.run.clone(), row.published))
        .chain(
            measured
                .into_iter()
                .filter(|one| one.name.starts_with('a'))
                .map(|one| (one.run, one.seconds)),
        )
        .map(|(run, seconds)| seconds / predict(&run).time.total() - 1.0);
    let errors: Vec<f64> = errors.collect();
    assert_eq!(errors.len(), RESIDUALS.len());
    for (at, (found, held)) in errors.iter().zip(&RESIDUALS).enumerate() {
        assert!((found - held.error).abs() < 0.001, "{at}: {found} {held:?}");
    }
}

fn table() -> Table {
    Table::read(PUBLISHED).unwrap()
}

fn errors(judged: &[Judged], which: impl Fn(&Judged) -> bool) -> Errors {
    Errors::of(judged.iter().filter(|row| which(row)).map(Judged::error))
}

#[test]
fn published_iteration_times_are_predicted() {
    let judged = judge(&table());
    let korthikanti = errors(&judged, |row| row.source.contains("Tables 3+5"));
    assert_eq!(korthikanti.rows, 8);
    assert!(korthikanti.mean <= 0.0365, "{korthikanti:?}");
    assert!(korthikanti.worst <= 0.0887, "{korthikanti:?}");
    let printed = errors(&judged, |row| {
        row.printed && row.run.shape.experts.is_none()
    });
    assert!(printed.rows > 80 && printed.median <= 0.06, "{printed:?}");
}

#[test]
fn production_runs_are_predicted() {
    let judged = judge(&table());
    for (source, rows, worst) in [("2407.21783", 2, 0.05), ("2412.19437", 1, 0.15)] {
        let found = errors(&judged, |row| row.source.contains(source));
        assert_eq!(found.rows, rows, "{source}");
        assert!(found.worst <= worst, "{source}: {found:?}");
    }
}

#[test]
fn bloom_sweep_order_and_failures_are_predicted() {
    let table = table();
    let judged = judge(&table);
    let sweep: Vec<(f64, f64)> = judged
        .iter()
        .filter(|row| row.source.contains("chronicles"))
        .map(|row| (row.predicted, row.published))
        .collect();
    assert_eq!(sweep.len(), 37);
    let correlation = rank_correlation(&sweep);
    assert!(correlation >= 0.9, "{correlation}");
    let note = table.column("note").unwrap();
    for (at, row) in table.rows.iter().enumerate() {
        if row[0].contains("chronicles") {
            let fits = predict(&read(&table, at).unwrap()).fits;
            assert_eq!(fits, !row[note].contains("OOM"), "row {}", at + 2);
        }
    }
}

#[test]
fn peak_shares_match_the_fit() {
    let fitted = fit(&judge(&table()), None);
    assert_eq!(fitted.len(), efficiency::FITTED.len());
    for found in fitted {
        let share = efficiency::of(found.gpu, found.precision);
        assert!((share - found.share).abs() < 1e-9, "{found:?}: {share}");
    }
}

#[test]
fn incomplete_row_is_blank_with_reason() {
    let header = "source,layers,hidden,heads,vocab,seq_len,gpu,gpu_count,tp,pp,micro_batch,global_batch,precision,note";
    let cases = [
        ("x,32,4096,32,32000,2048,A100-80GB,8,1,1,1,8,bf16,", ""),
        (
            "x,32,4096,32,32000,2048,A100-80GB,8,,1,1,8,bf16,",
            "`tp` is blank",
        ),
        (
            "x,32,4096,32,32000,2048,A100-80GB,8,0,1,1,8,bf16,",
            "`tp` is `0`; it must be an integer of at least 1",
        ),
        (
            "x,32,4096,32,32000,2048,A100-80GB,8,3,1,1,8,bf16,",
            "tensor 3 × pipeline 1 × context 1 does not divide 8 GPUs",
        ),
        (
            "x,32,4096,32,32000,2048,TPU v2,8,1,1,1,8,bf16,",
            "unknown GPU `TPU v2`",
        ),
        (
            "x,32,4096,32,32000,2048,A100-80GB,8,1,1,1,8,fp3,",
            "unknown precision `fp3`",
        ),
        (
            "x,32,4096,32,32000,2048,A100-80GB,9,1,5,1,8,bf16,",
            "tensor 1 × pipeline 5 × context 1 does not divide 9 GPUs",
        ),
    ];
    for (row, want) in cases {
        let mut table = Table::read(&format!("{header}\n{row}\n")).unwrap();
        append(&mut table);
        let cells = &table.rows[0];
        let (time, note) = (&cells[14], &cells[19]);
        assert_eq!(time.is_empty(), !want.is_empty(), "{row}: {note}");
        assert!(note.contains(want), "{row}: {note}");
    }
}

#[test]
fn invalid_table_is_refused() {
    let cases = [
        ("", "the table is empty; it needs a header"),
        ("a,b\n1\n", "line 2 has 1 cells, but the header has 2"),
        (
            "a,b\r\n1,2\r\n3\r\n",
            "line 3 has 1 cells, but the header has 2",
        ),
        (
            "a,b\n\n\n1,2\n\n3\n",
            "line 6 has 1 cells, but the header has 2",
        ),
        (
            "a,b\n1,2\n3,\"4\n",
            "the quote opened in line 3 is not closed",
        ),
        (
            "a,b\n1,2\n\"x,3\n",
            "the quote opened in line 3 is not closed",
        ),
    ];
    for (text, want) in cases {
        assert_eq!(Table::read(text).unwrap_err().to_string(), want);
    }
}

#[test]
fn cells_survive_reading_and_writing() {
    let text = "a,b\n\"x, \"\"y\"\"\",\"two\nlines\"\n,\n";
    let table = Table::read(text).unwrap();
    assert_eq!(table.rows[0], ["x, \"y\"", "two\nlines"]);
    assert_eq!(Table::read(&table.write()).unwrap(), table);
    assert_eq!(Table::read(PUBLISHED).unwrap().rows.len(), 243);
}

#[test]
fn precisions_have_many_names() {
    let cases = [
        ("fp16", Some(Precision::Bf16)),
        ("fp8-cs", Some(Precision::Fp8)),
        ("mxfp8", Some(Precision::Fp8)),
        ("nvfp4", Some(Precision::Fp4)),
        ("int3", None),
    ];
    for (name, want) in cases {
        assert_eq!(Precision::named(name), want, "{name}");
    }
}
