//! The plan as text: a ranked table, two bars, and a line for each answer.

use std::{fmt::Write as _, time::Duration};

use trainyard_core::plan::{
    answer::bandwidth,
    confidence::Interval,
    layout::{Layout, Recompute, Sharding},
    recovery::Outlay,
    search::{Candidate, Request},
};

use super::{Best, RANKS_SHOWN, Report};
use crate::{args::Plan, bar, paint::Paint, table::columns, words};

/// Width where there is no terminal.
const WIDTH: usize = 80;
/// Width of a bar.
const BAR: usize = 60;
/// Signs and colours of the parts of a bar, in their order.
const LOOKS: [(char, &str); 12] = [
    ('█', "38;5;28"),
    ('▓', "38;5;30"),
    ('▒', "38;5;67"),
    ('░', "38;5;136"),
    ('#', "38;5;32"),
    ('=', "38;5;166"),
    ('+', "38;5;102"),
    (':', "38;5;139"),
    ('-', "38;5;102"),
    ('·', "38;5;160"),
    ('*', "38;5;130"),
    ('o', "38;5;60"),
];

/// The whole text.
pub(super) fn render(
    report: &Report,
    request: &Request,
    args: &Plan,
    width: Option<usize>,
    paint: Paint,
) -> String {
    let mut text = String::new();
    let mut say = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    if let Some(best) = &report.best {
        say(&format!("do this: {}", best.advice));
        say("");
    }
    say(&headline(report, request));
    if !report.assumptions.is_empty() {
        say(&format!("assumed: {}", report.assumptions.join(", ")));
    }
    say("");
    say(table(&report.layouts).trim_end());
    let (Some(best), Some(first)) = (&report.best, report.layouts.first()) else {
        return text;
    };
    let width = width.unwrap_or(WIDTH);
    say("");
    say(&format!(
        "memory per GPU: {:.1} of {:.1} GiB{}",
        first.memory.total(),
        request.cluster.gpu.memory_gib,
        if first.tight {
            ", tight: more than 92 %"
        } else {
            ""
        }
    ));
    for line in parts_bar(
        &first.memory.parts(),
        |gib| format!("{gib:.1}"),
        width,
        paint,
    ) {
        say(&line);
    }
    say("");
    say(&format!(
        "step time: {:.3} s ({:.3} s of overlapped communication)",
        first.time.total(),
        first.time.hidden
    ));
    for line in parts_bar(
        &first.time.parts(),
        |seconds| format!("{seconds:.3}"),
        width,
        paint,
    ) {
        say(&line);
    }
    say("");
    for (heading, line) in answers(best, first, request) {
        say(&format!("{heading:<12} {line}"));
    }
    if args.what_if {
        say("");
        say("what if");
        let rows: Vec<Vec<String>> = report
            .what_if
            .iter()
            .map(|what_if| {
                vec![
                    format!("  {}", what_if.change),
                    format!("{:+.1} %", 100.0 * what_if.gain),
                    layout(&what_if.layout),
                ]
            })
            .collect();
        say(columns(&rows).trim_end());
    }
    if args.scaling {
        say("");
        say("scaling with the same batch");
        say(scaling(report).trim_end());
        say(
            "  not counted: stragglers, failures, data loading, and other jobs on the same network",
        );
    }
    if let Some(mesh) = &best.mesh {
        say("");
        say(&format!("ranks: {mesh}"));
        say(ranks(best, request.cluster.gpus).trim_end());
    }
    text
}

fn headline(report: &Report, request: &Request) -> String {
    let cluster = &request.cluster;
    format!(
        "{} ({:.1} B parameters) on {} {}, {} per GPU, batch {} × {} tokens, {}: {} of {} layouts tried fit",
        report.model.name,
        report.model.parameters / 1e9,
        words::grouped(cluster.gpus.into()),
        cluster.gpu.name,
        bandwidth(cluster.network),
        words::grouped(request.global_batch.into()),
        words::grouped(request.sequence.into()),
        request.software.name,
        words::grouped(u64::try_from(report.fitting).unwrap_or(u64::MAX)),
        words::grouped(u64::try_from(report.tried).unwrap_or(u64::MAX)),
    )
}

fn table(layouts: &[Candidate]) -> String {
    let mut rows = vec![
        [
            "",
            "TP",
            "PP",
            "CP",
            "EP",
            "DP",
            "MICRO",
            "CHUNKS",
            "RECOMPUTE",
            "SHARED",
            "GIB",
            "STEP",
            "TOKENS/S",
            "MFU",
            "",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for (at, candidate) in layouts.iter().enumerate() {
        let layout = &candidate.layout;
        rows.push(vec![
            (at + 1).to_string(),
            layout.tensor.to_string(),
            layout.pipeline.to_string(),
            layout.context.to_string(),
            layout.expert.to_string(),
            layout.data.to_string(),
            layout.micro_batch.to_string(),
            layout.interleave.to_string(),
            recompute(layout.recompute).to_owned(),
            sharding(layout.sharding).to_owned(),
            format!("{:.1}", candidate.memory.total()),
            format!("{:.3} s", candidate.time.total()),
            rounded(candidate.tokens_per_second),
            format!("{:.1} %", 100.0 * candidate.mfu),
            if candidate.tight { "tight" } else { "" }.to_owned(),
        ]);
    }
    columns(&rows)
}

/// A large number, rounded, with its thousands apart.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tokens and dollars of any run fit"
)]
fn rounded(number: f64) -> String {
    words::grouped(number.max(0.0).round() as u64)
}

pub(super) fn recompute(recompute: Recompute) -> &'static str {
    match recompute {
        Recompute::None => "none",
        Recompute::Selective => "selective",
        Recompute::Half => "half",
        Recompute::Full => "full",
    }
}

pub(super) fn sharding(sharding: Sharding) -> &'static str {
    match sharding {
        Sharding::None => "nothing",
        Sharding::Zero1 => "optimizer",
        Sharding::Zero2 => "gradients",
        Sharding::Zero3 => "weights",
    }
}

/// The degrees in a few letters.
pub(super) fn layout(layout: &Layout) -> String {
    let mut text = format!(
        "tp {} pp {} cp {} dp {}",
        layout.tensor, layout.pipeline, layout.context, layout.data
    );
    if layout.expert > 1 {
        write!(text, " ep {}", layout.expert).expect("a string takes whatever is written");
    }
    text
}

fn answers(best: &Best, first: &Candidate, request: &Request) -> Vec<(&'static str, String)> {
    let recovery = &best.recovery;
    let cost = &best.cost;
    let time = |seconds: f64| words::duration(Duration::from_secs_f64(seconds.clamp(0.0, 1e12)));
    let mut lines = vec![
        ("bottleneck", best.bound.sentence.clone()),
        ("expect", expectation(first, &best.interval)),
        (
            "efficiency",
            format!(
                "MFU {:.1} % with attention counted whole, {:.1} % causal; HFU {:.1} % (of the {} peak)",
                100.0 * first.mfu,
                100.0 * first.mfu_causal,
                100.0 * first.hfu,
                first_precision(request)
            ),
        ),
        (
            "train",
            format!(
                "{} tokens in {} of training, {} with failures: {} GPU-hours, {} dollars",
                count(cost.tokens),
                time(cost.train_seconds),
                time(cost.elapsed_seconds),
                rounded(cost.gpu_hours),
                rounded(cost.dollars)
            ),
        ),
        (
            "failures",
            format!(
                "one every {}; {:.0} expected, budget `infrastructure={}`, {}",
                time(recovery.mean_time_between_failures),
                recovery.interruptions,
                recovery.budget,
                words::counted(recovery.spares.into(), "spare node")
            ),
        ),
        (
            "checkpoint",
            format!(
                "save every {}: {} each, {} a day, {:.1} % of the storage's bandwidth; training waits {} (Young {}, Daly {})",
                time(recovery.save_every_seconds),
                size(recovery.checkpoint_bytes),
                size(recovery.daily_bytes),
                100.0 * recovery.storage_share,
                time(recovery.blocking_seconds),
                time(recovery.young_seconds),
                time(recovery.daly_seconds)
            ),
        ),
        ("training", bar::trained(Some(recovery.ettr))),
        (
            "annotation",
            format!("trainyard.dev/parallelism: {}", best.parallelism),
        ),
    ];
    if request.tuning.lora.is_some() {
        let trained = format!(
            "{:.1} M adapter parameters, {:.2} % of the model",
            best.trained_parameters / 1e6,
            100.0 * best.trained_parameters / request.shape.parameters()
        );
        lines.insert(2, ("trained", trained));
    }
    if best.host_bytes > 0.0 {
        let nodes = f64::from(request.cluster.gpus.div_ceil(request.cluster.gpu.per_node));
        let host = format!(
            "{} of host memory on each node",
            size(best.host_bytes / nodes)
        );
        lines.insert(2, ("offload", host));
    }
    lines
}

/// The step's time with the range that runs like it lie in.
fn expectation(first: &Candidate, interval: &Interval) -> String {
    let step = first.time.total();
    let (least, most) = (step * interval.least, step * interval.most);
    let range = format!("a step of {least:.3} to {most:.3} s");
    if interval.far {
        format!("{range}; no published run is like this one, so treat it as a guess")
    } else {
        format!(
            "{range}, from the errors of the {} nearest published runs",
            interval.runs
        )
    }
}

/// The one sentence to follow.
pub(super) fn advice(
    request: &Request,
    first: &Candidate,
    outlay: &Outlay,
    interval: &Interval,
) -> String {
    let chosen = &first.layout;
    let step = first.time.total();
    let mut parts = vec![format!(
        "{}, micro-batch {}",
        layout(chosen),
        chosen.micro_batch
    )];
    if chosen.interleave > 1 {
        parts.push(format!("{} chunks per stage", chosen.interleave));
    }
    parts.push(match chosen.recompute {
        Recompute::None => "no recomputation".to_owned(),
        other => format!("{} recomputation", recompute(other)),
    });
    if chosen.data > 1 {
        parts.push(match chosen.sharding {
            Sharding::None => "gradients all-reduced (DDP)".to_owned(),
            other => format!("{} sharded over data ranks", sharding(other)),
        });
    }
    if let Some(lora) = request.tuning.lora {
        let bits = if lora.four_bits { "4-bit" } else { "16-bit" };
        parts.push(format!("LoRA rank {} over {bits} weights", lora.rank));
    }
    if request.tuning.offload {
        parts.push("optimizer in host memory".to_owned());
    }
    let every = outlay.save_every_seconds.clamp(0.0, 1e12);
    let every = words::duration(Duration::from_secs_f64(every));
    parts.push(format!("save every {every}"));
    format!(
        "{}; expect {:.3} s a step ({:.3} to {:.3}){}",
        parts.join(", "),
        step,
        step * interval.least,
        step * interval.most,
        if first.tight {
            "; memory is tight, so test it first"
        } else {
            ""
        }
    )
}

/// A number of tokens in the unit that has a short number.
fn count(tokens: f64) -> String {
    if tokens >= 1e12 {
        format!("{:.2} T", tokens / 1e12)
    } else if tokens >= 1e9 {
        format!("{:.1} B", tokens / 1e9)
    } else {
        format!("{:.1} M", tokens / 1e6)
    }
}

/// Bytes in the unit that has a short number.
fn size(bytes: f64) -> String {
    if bytes >= 1e12 {
        format!("{:.1} TB", bytes / 1e12)
    } else {
        format!("{:.1} GB", bytes / 1e9)
    }
}

fn first_precision(request: &Request) -> &'static str {
    use trainyard_core::plan::hardware::Precision;
    match request.precision {
        Precision::Bf16 => "16-bit",
        Precision::Fp8 => "8-bit",
        Precision::Fp4 => "4-bit",
    }
}

fn scaling(report: &Report) -> String {
    let mut rows = vec![
        ["  GPUS", "TOKENS/S", "MFU", "OF LINEAR", "LAYOUT", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    for point in &report.scaling {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of twenty blocks"
        )]
        let blocks = (20.0 * point.efficiency.clamp(0.0, 1.0)).round() as usize;
        rows.push(vec![
            format!("  {}", words::grouped(point.gpus.into())),
            rounded(point.tokens_per_second),
            format!("{:.1} %", 100.0 * point.mfu),
            format!("{:.0} %", 100.0 * point.efficiency),
            layout(&point.layout),
            "█".repeat(blocks),
        ]);
    }
    columns(&rows)
}

fn ranks(best: &Best, gpus: u32) -> String {
    let mut text = String::new();
    for axis in &best.groups {
        let size = axis.groups.first().map_or(1, Vec::len);
        if size <= 1 {
            continue;
        }
        if gpus > RANKS_SHOWN {
            let first = axis
                .groups
                .first()
                .map(|group| list(group))
                .unwrap_or_default();
            let count = words::grouped(u64::try_from(axis.groups.len()).unwrap_or(u64::MAX));
            writeln!(
                text,
                "  {} {count} groups, the first {first}",
                axis.axis.name()
            )
            .expect("a string takes whatever is written");
            continue;
        }
        let groups: Vec<String> = axis.groups.iter().map(|group| list(group)).collect();
        writeln!(text, "  {} {}", axis.axis.name(), groups.join(" "))
            .expect("a string takes whatever is written");
    }
    if gpus > RANKS_SHOWN {
        text.push_str("  `--format json` prints all groups\n");
    }
    text
}

fn list(group: &[u32]) -> String {
    let ranks: Vec<String> = group.iter().take(16).map(u32::to_string).collect();
    let more = if group.len() > 16 { ",…" } else { "" };
    format!("[{}{more}]", ranks.join(","))
}

/// The parts as one line of blocks, and a legend under it.
fn parts_bar(
    parts: &[(&'static str, f64)],
    unit: impl Fn(f64) -> String,
    width: usize,
    paint: Paint,
) -> Vec<String> {
    let total: f64 = parts.iter().map(|(_, value)| value).sum();
    let room = width.clamp(10, BAR);
    let shown: Vec<(&str, f64, (char, &str))> = parts
        .iter()
        .zip(LOOKS)
        .filter(|((_, value), _)| *value > 0.002 * total)
        .map(|((name, value), look)| (*name, *value, look))
        .collect();
    let mut line = String::new();
    let mut drawn = 0;
    let mut so_far = 0.0;
    for (_, value, (sign, colour)) in &shown {
        so_far += value;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a line"
        )]
        let end = ((so_far / total) * room as f64).round() as usize;
        let cells = end.max(drawn + 1) - drawn;
        drawn += cells;
        let blocks: String = std::iter::repeat_n(*sign, cells).collect();
        line.push_str(&paint.apply(colour, &blocks));
    }
    let mut lines = vec![line];
    let (mut legend, mut used) = (String::new(), 0);
    for (name, value, (sign, colour)) in shown {
        let words = format!(" {name} {} ({:.0} %)", unit(value), 100.0 * value / total);
        let length = 1 + words.chars().count();
        if used > 0 && used + 2 + length > width {
            lines.push(std::mem::take(&mut legend));
            used = 0;
        }
        if used > 0 {
            legend.push_str("  ");
            used += 2;
        }
        legend.push_str(&paint.apply(colour, sign.encode_utf8(&mut [0; 4])));
        legend.push_str(&words);
        used += length;
    }
    lines.push(legend);
    lines
}
