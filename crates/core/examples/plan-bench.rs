//! Predicts every published run and prints how far off the predictions are.
//!
//! Without arguments: a line for each row, the errors by source, and the figures that
//! `cargo xtask bench plan` reads (`figure`, a tab, the name, a tab, the value). With `--fit`: the
//! shares of the peak, as `plan/efficiency.rs` holds them, and how well the other sources predict
//! each source.
#![expect(clippy::print_stdout, reason = "the table is the program's output")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures time and reads its arguments; core itself takes them"
)]

use trainyard_core::plan::rows::{
    Errors, Judged, Table, by_source, fit, judge, predict, predict_with, rank_correlation, read,
};

const PUBLISHED: &str = include_str!("../../../testdata/plan/published-runs.csv");

fn main() {
    let table = Table::read(PUBLISHED).expect("the published runs are a table");
    let judged = judge(&table);
    if std::env::args().any(|argument| argument == "--fit") {
        print_fit(&judged);
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
