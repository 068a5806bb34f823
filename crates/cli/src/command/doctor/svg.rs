//! The timeline as a picture: a row for each rank, a mark where something was first seen.

use std::fmt::Write as _;

use trainyard_core::diagnose::Report;

const WIDTH: i64 = 960;
const LEFT: i64 = 110;
const ROW: i64 = 18;
const TOP: i64 = 48;
/// Rows that fit a picture that can still be read.
const MAX_ROWS: usize = 256;

/// The picture.
pub(super) fn render(report: &Report) -> String {
    let facts = &report.facts;
    let mut rows: Vec<Option<u32>> = facts.timeline.iter().map(|moment| moment.rank).collect();
    rows.extend(facts.ranks.iter().map(|facts| facts.rank));
    rows.sort_unstable();
    rows.dedup();
    rows.truncate(MAX_ROWS);
    let times = facts.timeline.iter().map(|moment| moment.millis);
    let first = times.clone().min().unwrap_or(0);
    let last = times.max().unwrap_or(0).max(first + 1);
    let column = |millis: i64| {
        let share = i128::from(millis - first) * i128::from(WIDTH - LEFT - 20);
        LEFT + i64::try_from(share / i128::from(last - first)).unwrap_or(0)
    };
    let height = TOP + ROW * i64::try_from(rows.len()).unwrap_or(0) + 20;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let title = report.verdicts.first().map_or_else(String::new, |verdict| {
        format!("{}: {}", verdict.label, verdict.sentence)
    });
    let title: String = title.chars().take(120).collect();
    put(&mut svg, 10, 20, "#000000", &title);
    for (index, rank) in rows.iter().enumerate() {
        let y = TOP + ROW * i64::try_from(index).unwrap_or(0);
        let name = rank.map_or_else(|| "no rank".to_owned(), |rank| format!("rank {rank}"));
        put(&mut svg, 10, y + 4, "#444444", &name);
        line(&mut svg, y);
        for moment in facts.timeline.iter().filter(|moment| moment.rank == *rank) {
            let x = column(moment.millis);
            let seconds = (moment.millis - first) / 1000;
            let title = format!(
                "{} +{seconds}s {}:{}",
                moment.label, moment.file, moment.line
            );
            writeln!(
                svg,
                "<circle cx=\"{x}\" cy=\"{y}\" r=\"5\" fill=\"#c62828\"><title>{}</title></circle>",
                escaped(&title)
            )
            .expect("a string takes whatever is written");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn line(svg: &mut String, y: i64) {
    let right = WIDTH - 20;
    writeln!(
        svg,
        "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{right}\" y2=\"{y}\" stroke=\"#cccccc\"/>"
    )
    .expect("a string takes whatever is written");
}

fn put(svg: &mut String, x: i64, y: i64, fill: &str, text: &str) {
    writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" fill=\"{fill}\">{}</text>",
        escaped(text)
    )
    .expect("a string takes whatever is written");
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}
