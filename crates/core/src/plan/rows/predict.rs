//! What the model predicts for a row, as columns that are appended to it.

use super::{
    super::{
        memory::{Memory, Need, memory},
        time::{Step, StepTime, step_time},
        tuning::Tuning,
    },
    csv::Table,
    read::{Run, read},
};

/// The columns that are appended.
pub const COLUMNS: [&str; 6] = [
    "pred_iter_time_s",
    "pred_tflops_per_gpu",
    "pred_mfu_pct",
    "pred_memory_gib",
    "pred_fits",
    "pred_note",
];

/// What the model predicts for one run.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    /// Seconds of a step by part.
    pub time: StepTime,
    /// Memory of a GPU by part.
    pub memory: Memory,
    /// TFLOP/s of one GPU, counted as the source counts.
    pub tflops: f64,
    /// The same against the peak of the run's precision, in percent.
    pub mfu: f64,
    /// Whether the memory is enough.
    pub fits: bool,
}

/// Predicts a run.
pub fn predict(run: &Run) -> Prediction {
    predict_with(run, None)
}

/// Predicts a run with another share of the peak than the fitted one.
pub fn predict_with(run: &Run, efficiency: Option<f64>) -> Prediction {
    let time = step_time(&Step {
        shape: &run.shape,
        layout: &run.layout,
        cluster: &run.cluster,
        software: &run.software,
        sequence: run.sequence,
        global_batch: run.global_batch,
        precision: run.precision,
        efficiency,
        tuning: Tuning::default(),
    });
    let memory = memory(&Need {
        shape: &run.shape,
        layout: &run.layout,
        software: &run.software,
        sequence: run.sequence,
        global_batch: run.global_batch,
        tuning: Tuning::default(),
    });
    let operations = run
        .convention
        .operations(&run.shape, run.sequence, run.global_batch);
    let rate = operations / time.total() / f64::from(run.cluster.gpus);
    let peak = run.cluster.gpu.peak(run.precision);
    Prediction {
        time,
        memory,
        tflops: rate / 1e12,
        mfu: 100.0 * rate / peak,
        fits: memory.total() <= run.cluster.gpu.memory_gib,
    }
}

/// Appends the columns to every row; blank with a note where a row lacks what is needed.
pub fn append(table: &mut Table) {
    let answers: Vec<[String; 6]> = (0..table.rows.len()).map(|at| answer(table, at)).collect();
    table
        .header
        .extend(COLUMNS.iter().map(|column| (*column).to_owned()));
    for (row, answer) in table.rows.iter_mut().zip(answers) {
        row.extend(answer);
    }
}

fn answer(table: &Table, at: usize) -> [String; 6] {
    let run = match read(table, at) {
        Ok(run) => run,
        Err(reason) => {
            let mut blank: [String; 6] = Default::default();
            blank[5] = reason;
            return blank;
        }
    };
    let prediction = predict(&run);
    let mut notes = vec![
        format!("flops={}", run.convention.name()),
        format!("software={}", run.software.name),
    ];
    notes.extend(run.assumed.iter().cloned());
    [
        significant(prediction.time.total()),
        significant(prediction.tflops),
        format!("{:.2}", prediction.mfu),
        format!("{:.2}", prediction.memory.total()),
        prediction.fits.to_string(),
        notes.join("; "),
    ]
}

/// Four significant digits.
fn significant(value: f64) -> String {
    if value >= 1000.0 {
        format!("{value:.0}")
    } else if value >= 100.0 {
        format!("{value:.1}")
    } else if value >= 10.0 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}
