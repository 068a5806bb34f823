//! From a line with terminal colours to SVG text.

use std::fmt::Write as _;

const PLAIN: &str = "#d7dae0";

/// The line as `tspan`s, cut at `columns` characters.
pub(super) fn spans(line: &str, columns: usize) -> String {
    let mut svg = String::new();
    let mut style = Style::default();
    let mut room = columns;
    let mut pieces = line.split("\u{1b}[");
    put(
        &mut svg,
        &style,
        pieces.next().unwrap_or_default(),
        &mut room,
    );
    for piece in pieces {
        let Some((codes, text)) = piece.split_once('m') else {
            continue;
        };
        style.change(codes);
        put(&mut svg, &style, text, &mut room);
    }
    svg
}

/// Text that may stand in an element.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn put(svg: &mut String, style: &Style, text: &str, room: &mut usize) {
    let shown: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(*room)
        .collect();
    *room -= shown.chars().count();
    if !shown.is_empty() {
        let weight = if style.bold {
            " font-weight=\"bold\""
        } else {
            ""
        };
        write!(
            svg,
            "<tspan fill=\"{}\"{weight}>{}</tspan>",
            style.color,
            escape(&shown)
        )
        .expect("a string takes everything");
    }
}

/// How text is shown now.
struct Style {
    color: String,
    bold: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            color: PLAIN.to_owned(),
            bold: false,
        }
    }
}

impl Style {
    /// Follows codes such as `1;32` or `38;5;166`; others change nothing.
    fn change(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse::<u8>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => "#8b919d".clone_into(&mut self.color),
                30..=37 => basic(code - 30).clone_into(&mut self.color),
                90..=97 => basic(code - 90).clone_into(&mut self.color),
                38 if codes.next() == Some(5) => {
                    if let Some(number) = codes.next() {
                        self.color = indexed(number);
                    }
                }
                _ => {}
            }
        }
    }
}

fn basic(number: u8) -> &'static str {
    match number {
        0 => "#6b7280",
        1 => "#e06c75",
        2 => "#7ac07a",
        3 => "#d7ba7d",
        4 => "#6aa6ff",
        5 => "#c586c0",
        6 => "#56b6c2",
        _ => PLAIN,
    }
}

/// A colour of the 256: the sixteen, a cube of six steps, a ramp of greys.
fn indexed(number: u8) -> String {
    let step = |value: u8| if value == 0 { 0 } else { 55 + value * 40 };
    match number {
        0..=15 => basic(number % 8).to_owned(),
        16..=231 => {
            let cube = number - 16;
            let (red, green, blue) = (step(cube / 36), step(cube / 6 % 6), step(cube % 6));
            format!("#{red:02x}{green:02x}{blue:02x}")
        }
        232.. => {
            let grey = 8 + (number - 232) * 10;
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_spans() {
        let cases = [
            (
                "plain <&>",
                "<tspan fill=\"#d7dae0\">plain &lt;&amp;&gt;</tspan>",
            ),
            (
                "\u{1b}[1;32mok\u{1b}[0m.",
                "<tspan fill=\"#7ac07a\" font-weight=\"bold\">ok</tspan><tspan fill=\"#d7dae0\">.</tspan>",
            ),
            ("\u{1b}[38;5;166mx", "<tspan fill=\"#d75f00\">x</tspan>"),
            (
                "12345678901234",
                "<tspan fill=\"#d7dae0\">1234567890</tspan>",
            ),
        ];
        for (line, want) in cases {
            assert_eq!(spans(line, 10), want, "{line:?}");
        }
    }
}
