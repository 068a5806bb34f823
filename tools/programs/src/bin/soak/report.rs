//! What a run prints at its end.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{memory, world::World};

/// The counts of the run, as tables.
pub(crate) fn table(world: &World, leaders: Option<u64>) -> String {
    let counts = world.counts();
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        writeln!(text, "{name:<52} {value:>10}").expect("a string takes whatever is written");
    };
    let mut shapes: BTreeMap<&str, u32> = BTreeMap::new();
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    for ((shape, end), count) in &counts.jobs {
        *shapes.entry(shape).or_default() += count;
        *ends.entry(end).or_default() += count;
    }
    row(
        "jobs, all checked",
        counts.jobs.values().sum::<u32>().to_string(),
    );
    for (name, count) in shapes.iter().chain(&ends) {
        row(&format!("  {name}"), count.to_string());
    }
    row("faults", counts.faults.values().sum::<u32>().to_string());
    for (name, count) in &counts.faults {
        row(&format!("  {name}"), count.to_string());
    }
    row(
        "failures on other accounts than the user's",
        counts.disruptions.to_string(),
    );
    row(
        "attempts of placed gangs that released their nodes",
        counts.unpaid.to_string(),
    );
    let leaders = leaders.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
    row("times that the lease changed hands", leaders);
    row(
        "programs of the cluster that ended by themselves",
        counts.restarts.to_string(),
    );
    let opened: u64 = world
        .operators
        .iter()
        .map(|operator| operator.proxy.opened())
        .sum();
    row("connections that operators opened", opened.to_string());
    row(
        "last fault to the end of the last job",
        format!("{:.1} s", counts.settled.as_secs_f64()),
    );
    if let Some(trend) = memory::trend(&counts.memory) {
        row(
            "resident memory of the operator that was never killed",
            format!("{:.1} MB", trend.level.resident / 1e6),
        );
        row(
            "  of it anonymous, the rest is its file",
            format!("{:.2} MB", trend.level.anonymous / 1e6),
        );
        let minutes = memory::judged(&counts.memory).len();
        row(
            &format!("  growth of that in the last {minutes} minutes"),
            format!("{:+.2} %", trend.growth_percent),
        );
        let each: Vec<String> = counts
            .memory
            .iter()
            .map(|it| format!("{:.2}", it.anonymous / 1e6))
            .collect();
        writeln!(text, "  anonymous by minute, in MB: {}", each.join(" "))
            .expect("a string takes whatever is written");
    }
    text
}

/// Whether memory is flat, where the run is long enough to say.
pub(crate) fn judge_memory(world: &World, minutes: u64) -> Result<(), String> {
    let trend = memory::trend(&world.counts().memory);
    if minutes < memory::JUDGED_FROM_MINUTES {
        println!(
            "memory is not judged in fewer than {} minutes",
            memory::JUDGED_FROM_MINUTES
        );
        return Ok(());
    }
    let trend = trend.ok_or("memory was not sampled")?;
    if trend.growth_percent <= memory::BOUND_PERCENT {
        return Ok(());
    }
    Err(format!(
        "the anonymous memory of the operator that was never killed grew by {:.2} % of its {:.1} MB over the judged minutes of the run, at most {} % is allowed",
        trend.growth_percent,
        trend.level.resident / 1e6,
        memory::BOUND_PERCENT
    ))
}
