//! Cells as what a terminal is sent.

use std::fmt::Write as _;

use ratatui_core::{
    buffer::Cell,
    style::{Color, Modifier},
};

/// Puts the cursor out of sight on a screen of its own.
pub(crate) const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[0m\u{1b}[2J";
/// Gives back the screen as it was.
pub(crate) const LEAVE: &str = "\u{1b}[0m\u{1b}[?25h\u{1b}[?1049l";
/// Empties the screen.
pub(crate) const CLEAR: &str = "\u{1b}[0m\u{1b}[2J";

/// How a cell looks.
type Shade = (Color, Color, Modifier);

/// What draws cells at their places.
pub(crate) fn paint<'a>(cells: impl IntoIterator<Item = (u16, u16, &'a Cell)>) -> String {
    let mut text = String::new();
    let mut shade: Option<Shade> = None;
    let mut next: Option<(u16, u16)> = None;
    for (x, y, cell) in cells {
        if next != Some((x, y)) {
            push(
                &mut text,
                format_args!("\u{1b}[{};{}H", y.saturating_add(1), x.saturating_add(1)),
            );
        }
        let wanted = (cell.fg, cell.bg, cell.modifier);
        if shade != Some(wanted) {
            set_shade(&mut text, wanted);
            shade = Some(wanted);
        }
        let symbol = cell.symbol();
        text.push_str(if symbol.is_empty() { " " } else { symbol });
        // Terminals do not agree on how wide other characters are: the place of the next one is said.
        next = symbol.is_ascii().then_some((x.saturating_add(1), y));
    }
    if !text.is_empty() {
        text.push_str("\u{1b}[0m");
    }
    text
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments)
        .expect("a string takes whatever is written");
}

fn set_shade(text: &mut String, (fg, bg, modifier): Shade) {
    text.push_str("\u{1b}[0");
    for (flag, code) in [
        (Modifier::BOLD, ";1"),
        (Modifier::DIM, ";2"),
        (Modifier::REVERSED, ";7"),
    ] {
        if modifier.contains(flag) {
            text.push_str(code);
        }
    }
    set_colour(text, fg, 30);
    set_colour(text, bg, 40);
    text.push('m');
}

/// `first` is the code of black: 30 for text, 40 for what is behind it.
fn set_colour(text: &mut String, colour: Color, first: u8) {
    let eight = match colour {
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::Indexed(number) => {
            return push(text, format_args!(";{};5;{number}", first + 8));
        }
        Color::Rgb(red, green, blue) => {
            return push(text, format_args!(";{};2;{red};{green};{blue}", first + 8));
        }
        // The terminal's own; nothing here uses another one.
        _ => return,
    };
    push(text, format_args!(";{}", first + eight));
}

#[cfg(test)]
mod tests {
    use ratatui_core::{buffer::Buffer, layout::Rect, style::Style};

    use super::*;

    #[test]
    fn cells_are_sent_with_their_places() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 6, 2));
        let red = Style::new().fg(Color::Red).bg(Color::Indexed(7));
        buffer.set_string(1, 0, "ab", red.add_modifier(Modifier::BOLD));
        buffer.set_string(0, 1, "損x", Style::new().fg(Color::Rgb(1, 2, 3)));
        let empty = Buffer::empty(*buffer.area());
        assert_eq!(
            paint(empty.diff(&buffer)),
            "\u{1b}[1;2H\u{1b}[0;1;31;48;5;7mab\u{1b}[2;1H\u{1b}[0;38;2;1;2;3m損\u{1b}[2;3Hx\u{1b}[0m"
        );
        assert_eq!(paint(empty.diff(&empty)), "");
    }
}
