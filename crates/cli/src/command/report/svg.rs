//! A report as a drawing: the phases as bars, the accounts as one bar, the losses in words. Readable on light and on dark pages.

use std::fmt::Write as _;

use trainyard_core::view::{
    State,
    report::{Charge, Report},
};

use super::{Document, text};
use crate::{bar::Look, clean, words};

const WIDTH: usize = 860;
const LEFT: usize = 24;
const NAMES: usize = 170;
const BARS: usize = 440;
const ROW: usize = 24;
/// Columns of a sentence.
const COLUMNS: usize = 112;

/// Colours of accounts on light and dark pages, in the order of [`CHARGES`].
const CHARGE_COLOURS: [(&str, &str); 6] = [
    ("0072b2", "56b4e9"),
    ("b35900", "e69f00"),
    ("b42318", "ff8a80"),
    ("8a4f7d", "cc79a7"),
    ("656d76", "8b949e"),
    ("8c959f", "b1bac4"),
];
const CHARGES: [Charge; 6] = [
    Charge::User,
    Charge::Platform,
    Charge::Infrastructure,
    Charge::Preemption,
    Charge::NoFailure,
    Charge::Unknown,
];

/// The whole drawing.
pub(super) fn draw(document: &Document) -> String {
    let report = &document.report;
    let mut page = Page::default();
    page.line("bold", &text::title(document));
    page.wrapped("", &format!("ETTR {}", text::ettr(report)));
    if let Some(hours) = text::gpu_hours(report) {
        page.wrapped("", &format!("GPU hours {hours}"));
    }
    phases(&mut page, report);
    accounts(&mut page, report);
    if !report.losses.is_empty() {
        page.gap();
        page.line("bold", "biggest losses");
    }
    for (loss, number) in report.losses.iter().zip(1..) {
        for (at, sentence) in text::loss_lines(loss, report).iter().enumerate() {
            if at == 0 {
                page.wrapped("", &format!("{number}. {sentence}"));
            } else {
                page.wrapped("muted", sentence);
            }
        }
    }
    page.finish(&format!("trainyard report: {}", text::title(document)))
}

fn phases(page: &mut Page, report: &Report) {
    if report.phases.is_empty() {
        return;
    }
    page.gap();
    page.line("bold", "where the time went");
    let most = report.phases.iter().map(|it| it.millis).max().unwrap_or(0);
    for it in &report.phases {
        let name = Look::of(it.phase).word;
        let class = State::from(it.phase).name();
        let value = format!(
            "{}, {}",
            text::duration(it.millis),
            text::share(it.millis, report.wall)
        );
        page.bar(class, name, &value, scaled(it.millis, most));
    }
}

fn accounts(page: &mut Page, report: &Report) {
    let most = report
        .accounts
        .iter()
        .map(|it| it.millis)
        .max()
        .unwrap_or(0);
    if most == 0 {
        return;
    }
    page.gap();
    page.line("bold", "lost time by account");
    for it in &report.accounts {
        let number = CHARGES.iter().position(|charge| *charge == it.account);
        let class = format!("a{}", number.unwrap_or(CHARGES.len() - 1));
        let mut value = text::duration(it.millis);
        if it.failures > 0 {
            value = format!("{value}, {}", words::counted(it.failures, "failed attempt"));
        }
        page.bar(&class, it.account.words(), &value, scaled(it.millis, most));
    }
}

fn scaled(part: u64, most: u64) -> usize {
    let width = u128::from(part) * BARS as u128 / u128::from(most.max(1));
    usize::try_from(width)
        .unwrap_or(BARS)
        .max(usize::from(part > 0))
}

/// Lines from top to bottom.
#[derive(Default)]
struct Page {
    body: String,
    height: usize,
}

impl Page {
    fn gap(&mut self) {
        self.height += ROW / 2;
    }

    fn line(&mut self, class: &str, line: &str) {
        self.height += ROW;
        let (at, line) = (self.height, escaped(line));
        writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{LEFT}\" y=\"{at}\">{line}</text>"
        )
        .expect("a string takes whatever is written");
    }

    fn wrapped(&mut self, class: &str, sentence: &str) {
        for line in words::wrapped(sentence, Some(COLUMNS)) {
            self.line(class, &line);
        }
    }

    /// A bar that names itself, for readers that show none.
    fn bar(&mut self, class: &str, name: &str, value: &str, width: usize) {
        self.line("", name);
        let (x, y, base) = (LEFT + NAMES, self.height - 13, self.height);
        let behind = x + width + 8;
        let (name, value) = (escaped(name), escaped(value));
        writeln!(
            self.body,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"16\" rx=\"2\"><title>{name}: {value}</title></rect>\n\
             <text class=\"muted\" x=\"{behind}\" y=\"{base}\">{value}</text>"
        )
        .expect("a string takes whatever is written");
    }

    fn finish(self, title: &str) -> String {
        let height = self.height + ROW;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
             <title>{title}</title>\n{}\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{}</svg>\n",
            style(),
            self.body
        )
    }
}

fn style() -> String {
    let (mut light, mut dark) = (String::new(), String::new());
    let mut add = |class: &str, on_light: &str, on_dark: &str| {
        write!(light, ".{class}{{fill:#{on_light}}}").expect("a string takes whatever is written");
        write!(dark, ".{class}{{fill:#{on_dark}}}").expect("a string takes whatever is written");
    };
    for state in State::ALL {
        let colours = state.colours();
        add(state.name(), colours.light, colours.dark);
    }
    for (number, (on_light, on_dark)) in CHARGE_COLOURS.iter().enumerate() {
        add(&format!("a{number}"), on_light, on_dark);
    }
    add("page", "ffffff", "0d1117");
    format!(
        "<style>text{{font:12px ui-monospace,SFMono-Regular,Menlo,monospace;fill:#1f2328}}\
         .bold{{font-weight:600}}.muted{{fill:#57606a}}{light}\
         @media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.muted{{fill:#9da7b3}}{dark}}}</style>\n"
    )
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in clean::text(text).chars() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::report::testing::document;

    /// The elements of a drawing, each closed, with no text that is not escaped.
    fn elements(svg: &str) -> Vec<&str> {
        let (mut open, mut all) = (Vec::new(), Vec::new());
        for part in svg.split('<').skip(1) {
            let (tag, text) = part.split_once('>').unwrap();
            assert!(
                !text.contains('>') || open.last() == Some(&"style"),
                "{part}"
            );
            let name = tag.split([' ', '/']).next().unwrap();
            if let Some(closed) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(closed), "{part}");
            } else {
                assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                all.push(name);
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        assert_eq!(open, [""; 0], "all are closed");
        all
    }

    #[test]
    fn drawing_is_whole() {
        let document = document();
        let svg = draw(&document);
        let rects = elements(&svg)
            .iter()
            .filter(|name| **name == "rect")
            .count();
        let report = &document.report;
        assert_eq!(rects, 1 + report.phases.len() + report.accounts.len());
        assert!(svg.contains("prefers-color-scheme:dark"));
        let texts = svg.split("<text").skip(1);
        for text in texts {
            let (_, text) = text.split_once('>').unwrap();
            let text = text.split('<').next().unwrap();
            assert!(text.chars().count() <= COLUMNS + 2, "{text}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let mut document = document();
        for loss in &mut document.report.losses {
            loss.most.job = "<script>&\"\u{1b}[31m".to_owned();
        }
        let svg = draw(&document);
        elements(&svg);
        assert!(!svg.contains("<script>") && !svg.contains('\u{1b}'));
    }
}
