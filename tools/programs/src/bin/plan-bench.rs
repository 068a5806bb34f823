//! Predicts every published run and prints how far off the predictions are.
//!
//! Without arguments: a line for each row, the errors by source, and the figures that
//! `cargo xtask bench plan` reads (`figure`, a tab, the name, a tab, the value). With `--fit`: the
//! shares of the peak, as `plan/efficiency.rs` holds them, and how well the other sources predict
//! each source. With `--residuals`: the table of `plan/confidence/residuals.rs`. With `--torch`: the runs measured on one
//! H200 with plain `PyTorch` beside what is predicted, without and with the profile of that GPU.
#![expect(clippy::print_stdout, reason = "the table is the program's output")]

use trainyard_core::plan::{
    confidence::{RESIDUALS, Residual, interval, of_run},
    profile,
    rows::{
        Errors, Judged, MeasuredRun, Run, Table, by_source, fit, judge, measured_runs, predict,
        predict_with, rank_correlation, read,
    },
};

const PUBLISHED: &str = include_str!("../../../../testdata/plan/published-runs.csv");
const MEASURED: &str = include_str!("../../../../testdata/plan/h200-torch.jsonl");
const CALIBRATED: &str = include_str!("../../../../testdata/plan/h200-calibrate.json");

fn main() {
    let table = Table::read(PUBLISHED).expect("the published runs are a table");
    let judged = judge(&table);
    if std::env::args().any(|argument| argument == "--fit") {
        print_fit(&judged);
        return;
    }
    let measured = measured_runs(MEASURED).expect("the measured runs can be read");
    if std::env::args().any(|argument| argument == "--residuals") {
        print_residuals(&judged, &measured);
        return;
    }
    if std::env::args().any(|argument| argument == "--torch") {
        print_torch(&measured);
        return;
    }
    for row in &judged {
        println!(
            "{:4}  {:36}  {:8.3} s  {:8.3} s  {:+6.1} %",
            row.row + 2,
            short(&row.source, 36),
            row.published,
            row.predicted,
            100.0 * row.error()
        );
    }
    println!("\nrows  median   mean  worst    bias  source");
    for (source, errors) in by_source(&judged) {
        println!("{}  {source}", line(&errors));
    }
    let all = Errors::of(judged.iter().map(Judged::error));
    println!("{}  all", line(&all));
    println!();
    figures(&table, &judged);
}

fn figures(table: &Table, judged: &[Judged]) {
    let errors = |which: &dyn Fn(&Judged) -> bool| {
        Errors::of(judged.iter().filter(|row| which(row)).map(Judged::error))
    };
    let korthikanti = errors(&|row| row.source.contains("Tables 3+5"));
    let printed = errors(&|row| row.printed && row.run.shape.experts.is_none());
    let dense = errors(&|row| row.source.contains("dgxc") && row.run.shape.experts.is_none());
    let sweep: Vec<(f64, f64)> = judged
        .iter()
        .filter(|row| row.source.contains("chronicles"))
        .map(|row| (row.predicted, row.published))
        .collect();
    let note = table.column("note").expect("the table has notes");
    let foreseen = table.rows.iter().enumerate().filter(|(at, row)| {
        row[note].contains("OOM") && read(table, *at).is_ok_and(|run| !predict(&run).fits)
    });
    let figure = |name: &str, value: f64| println!("figure\t{name}\t{value:.4}");
    figure("korthikanti-mean", korthikanti.mean);
    figure("korthikanti-worst", korthikanti.worst);
    figure("printed-median", printed.median);
    figure("dgxc-mean", dense.mean);
    figure("bloom-order", rank_correlation(&sweep));
    println!("figure\tbloom-oom\t{}", foreseen.count());
}

fn print_residuals(judged: &[Judged], measured: &[MeasuredRun]) {
    let line = |run: &Run, published: f64| {
        let found = of_run(
            run.cluster.gpu.name,
            run.precision,
            run.software.name,
            &run.shape,
            run.cluster.gpus,
        );
        println!(
            "    row({:?}, {:?}, {:?}, {}, {:.2}, {}, {:.3}),",
            found.gpu,
            found.precision,
            found.software,
            found.experts,
            found.billions,
            found.gpus,
            published / predict(run).time.total() - 1.0
        );
    };
    for row in judged {
        line(&row.run, row.published);
    }
    for run in measured.iter().filter(|run| run.name.starts_with('a')) {
        line(&run.run, run.seconds);
    }
    let inside = |at: usize, one: &Residual| {
        let others = RESIDUALS
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at);
        let found = interval(one, others.map(|(_, other)| other));
        (found.least..=found.most).contains(&(1.0 + one.error))
    };
    let within = RESIDUALS
        .iter()
        .enumerate()
        .filter(|(at, one)| inside(*at, one));
    println!(
        "// {} of {} lie in the interval of the others",
        within.count(),
        RESIDUALS.len()
    );
}

fn print_torch(measured: &[MeasuredRun]) {
    let found = profile::measured(CALIBRATED).expect("the measured rates can be read");
    let profile = profile::calibrate(&found).expect("the profile can be fitted");
    println!("profile: {profile:?}\n");
    println!(
        "run  model         software    seq    batch  recompute  step s   plan            profile         GiB    plan"
    );
    let (mut plain, mut with, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for one in measured {
        let mut run = one.run.clone();
        let before = predict(&run);
        profile.apply(&mut run.cluster).expect("it is the same GPU");
        let after = predict(&run);
        let off = |found: f64, real: f64| 100.0 * (found / real - 1.0);
        plain.push(before.time.total() / one.seconds - 1.0);
        with.push(after.time.total() / one.seconds - 1.0);
        memory.push(after.memory.total() / one.gib - 1.0);
        println!(
            "{:4} {:13} {:10} {:5} {:4}×{:<3} {:9}  {:7.4}  {:7.4} {:+5.1} %  {:7.4} {:+5.1} %  {:5.1}  {:5.1} {:+5.1} %",
            one.name,
            one.model,
            run.software.name,
            run.sequence,
            run.layout.micro_batch,
            run.global_batch / run.layout.micro_batch,
            format!("{:?}", run.layout.recompute).to_lowercase(),
            one.seconds,
            before.time.total(),
            off(before.time.total(), one.seconds),
            after.time.total(),
            off(after.time.total(), one.seconds),
            one.gib,
            after.memory.total(),
            off(after.memory.total(), one.gib)
        );
    }
    println!("\nrows  median   mean  worst    bias");
    for (what, errors) in [
        ("step, table alone", plain),
        ("step, with the profile", with),
        ("memory", memory),
    ] {
        println!("{}  {what}", line(&Errors::of(errors)));
    }
}

fn print_fit(judged: &[Judged]) {
    for found in fit(judged, None) {
        println!(
            "    (\"{}\", {:?}, {:.3}), // {} rows",
            found.gpu, found.precision, found.share, found.rows
        );
    }
    println!(
        "\nheld out, by publisher: what the others predict\nrows  median   mean  worst    bias"
    );
    let mut publishers: Vec<&str> = judged
        .iter()
        .filter_map(|row| row.source.split_whitespace().next())
        .collect();
    publishers.dedup();
    for publisher in publishers {
        let others = fit(judged, Some(publisher));
        let errors = judged
            .iter()
            .filter(|row| row.source.starts_with(publisher))
            .filter_map(|row| {
                let share = others.iter().find(|fitted| {
                    fitted.gpu == row.run.cluster.gpu.name && fitted.precision == row.run.precision
                })?;
                let predicted = predict_with(&row.run, Some(share.share)).time.total();
                Some(predicted / row.published - 1.0)
            });
        let errors = Errors::of(errors);
        if errors.rows > 0 {
            println!("{}  {publisher}", line(&errors));
        }
    }
}

fn line(errors: &Errors) -> String {
    format!(
        "{:4}  {:5.1}%  {:4.1}%  {:4.1}%  {:+5.1}%",
        errors.rows,
        100.0 * errors.median,
        100.0 * errors.mean,
        100.0 * errors.worst,
        100.0 * errors.bias
    )
}

fn short(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}
