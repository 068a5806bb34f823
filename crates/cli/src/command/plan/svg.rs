//! The pictures of a plan: memory, time, scaling, and where the ranks are.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use trainyard_core::plan::{
    groups::{self, Axis},
    search::Request,
};

use super::Report;
use crate::{drawing::Drawing, failure::Failure, output};

/// Ranks drawn at most; more would be too small to see.
const MOST_RANKS: u32 = 1_024;

/// Writes every picture into `folder`, which is made where it is missing.
pub(super) fn write(folder: &Path, report: &Report, request: &Request) -> Result<(), Failure> {
    let Some(best) = report.layouts.first() else {
        return Ok(());
    };
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder `{}`", folder.display()))?;
    let title = |what: &str| {
        format!(
            "{what}: {} on {} {}",
            report.model.name, request.cluster.gpus, request.cluster.gpu.name
        )
    };
    let memory = stack(
        &title("memory per GPU"),
        &best.memory.parts(),
        "GiB",
        Some((request.cluster.gpu.memory_gib, "has")),
    );
    let time = stack(&title("step time"), &best.time.parts(), "s", None);
    let files = [
        ("memory.svg", memory),
        ("time.svg", time),
        ("scaling.svg", scaling(&title("scaling"), report)),
        ("ranks.svg", ranks(&title("ranks"), report)),
    ];
    for (name, svg) in files {
        let path = folder.join(name);
        output::write(&path, svg.as_bytes())
            .with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Parts as one bar, with a line for the limit and a legend.
fn stack(
    title: &str,
    parts: &[(&'static str, f64)],
    unit: &str,
    limit: Option<(f64, &str)>,
) -> String {
    let total: f64 = parts.iter().map(|(_, value)| value).sum();
    let most = limit
        .map_or(total, |(limit, _)| limit.max(total))
        .max(1e-12);
    let shown: Vec<(usize, &str, f64)> = parts
        .iter()
        .enumerate()
        .filter(|(_, (_, value))| *value > 0.002 * total)
        .map(|(at, (name, value))| (at, *name, *value))
        .collect();
    let rows = shown.len().div_ceil(3);
    let legend_from = 118.0;
    let mut drawing = Drawing::new(760.0, legend_from + 24.0 * as_float(rows) + 16.0, title);
    let width = 700.0;
    let mut x = 30.0;
    for (at, name, value) in &shown {
        let wide = width * value / most;
        drawing.bar(
            (x, 54.0),
            (wide, 36.0),
            *at,
            &format!("{name}: {value:.3} {unit}"),
        );
        x += wide;
    }
    drawing.text((30.0, 108.0), &format!("{total:.3} {unit}"), 13.0);
    if let Some((limit, word)) = limit {
        let at = 30.0 + width * limit / most;
        drawing.rule((at, 48.0), (at, 96.0));
        drawing.text_end((at, 108.0), &format!("{word} {limit:.1} {unit}"), 13.0);
    }
    for (row, (at, name, value)) in shown.iter().enumerate() {
        let x = 30.0 + 240.0 * as_float(row % 3);
        let y = legend_from + 24.0 * as_float(row / 3) + 12.0;
        drawing.bar((x, y - 11.0), (12.0, 12.0), *at, name);
        let percent = 100.0 * value / total;
        drawing.text(
            (x + 18.0, y),
            &format!("{name} {value:.3} {unit} ({percent:.0} %)"),
            12.0,
        );
    }
    drawing.finish()
}

fn as_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Tokens per second over GPUs, both in doublings, with the line that would be linear.
fn scaling(title: &str, report: &Report) -> String {
    let mut drawing = Drawing::new(760.0, 420.0, title);
    let points: Vec<(f64, f64)> = report
        .scaling
        .iter()
        .map(|point| (f64::from(point.gpus).log2(), point.tokens_per_second.log2()))
        .collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return drawing.finish();
    };
    let span = (last.0 - first.0).max(1.0);
    let rise = (last.0 - first.0 + 0.5).max(1.0);
    let place = |(x, y): (f64, f64)| {
        (
            80.0 + 640.0 * (x - first.0) / span,
            325.0 - 250.0 * (y - first.1) / rise,
        )
    };
    drawing.rule((80.0, 360.0), (720.0, 360.0));
    drawing.rule((80.0, 60.0), (80.0, 360.0));
    let linear: Vec<(f64, f64)> = points
        .iter()
        .map(|(x, _)| place((*x, first.1 + x - first.0)))
        .collect();
    drawing.line(&linear, 8, true);
    let curve: Vec<(f64, f64)> = points.iter().map(|point| place(*point)).collect();
    drawing.line(&curve, 0, false);
    for (point, at) in report.scaling.iter().zip(&curve) {
        drawing.dot(*at, 0);
        drawing.text_middle((at.0, 380.0), &point.gpus.to_string(), 12.0);
        let tokens = point.tokens_per_second / 1e6;
        let label = format!("{tokens:.2} M/s, {:.0} %", 100.0 * point.efficiency);
        // The curve rises to the right: under it there is room, but for the last points, which have it
        // above and before them.
        if at.0 > 560.0 {
            drawing.text_end((at.0 - 8.0, at.1 - 10.0), &label, 12.0);
        } else {
            drawing.text((at.0 + 10.0, at.1 + 16.0), &label, 12.0);
        }
    }
    drawing.text_middle(
        (400.0, 404.0),
        "GPUs; tokens per second, share of linear (dashed)",
        12.0,
    );
    drawing.finish()
}

/// Every rank as a square, nodes side by side; a colour for each stage, a frame for each tensor group.
fn ranks(title: &str, report: &Report) -> String {
    let Some(best) = report.layouts.first() else {
        return String::new();
    };
    let layout = &best.layout;
    let all = u32::try_from(layout.ranks()).unwrap_or(u32::MAX);
    let shown = all.min(MOST_RANKS);
    let per_row = 32_u32;
    let side = 21.0;
    let rows = shown.div_ceil(per_row);
    let mut drawing = Drawing::new(
        60.0 + side * f64::from(per_row),
        110.0 + side * f64::from(rows),
        title,
    );
    let stage_size = (all / layout.pipeline).max(1);
    let place = |rank: u32| {
        (
            30.0 + side * f64::from(rank % per_row),
            54.0 + side * f64::from(rank / per_row),
        )
    };
    for rank in 0..shown {
        let (x, y) = place(rank);
        let stage = rank / stage_size;
        let colour = usize::try_from(stage % 8).unwrap_or(0);
        drawing.bar(
            (x, y),
            (side - 2.0, side - 2.0),
            colour,
            &format!("rank {rank}, stage {stage}"),
        );
        drawing.text_light((x + side / 2.0 - 1.0, y + 13.0), &rank.to_string(), 7.5);
    }
    for group in groups::groups(layout, Axis::Tp) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        if group.len() > 1 && *last < shown && first / per_row == last / per_row {
            let (x, y) = place(*first);
            let wide = side * as_float(group.len()) - 2.0;
            drawing.frame((x - 1.0, y - 1.0), (wide + 2.0, side));
        }
    }
    let mut words = format!(
        "tp {} (framed) × cp {} × dp {} × pp {} (by colour)",
        layout.tensor, layout.context, layout.data, layout.pipeline
    );
    if all > shown {
        write!(words, "; the first {shown} of {all} ranks")
            .expect("a string takes whatever is written");
    }
    drawing.text((30.0, 80.0 + side * f64::from(rows)), &words, 12.0);
    drawing.finish()
}
