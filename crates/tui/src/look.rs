//! Which colours a terminal is given.

use ratatui_core::style::{Color, Modifier, Style};
use trainyard_core::view::State;

/// How many colours a terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// None: signs and words alone.
    None,
    /// The eight of every terminal.
    Eight,
    /// 256.
    Indexed,
    /// 24 bits.
    True,
}

/// How a terminal is drawn on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its colours.
    pub depth: Depth,
    /// Whether its background is light.
    pub is_light: bool,
}

/// The eight colours, as most terminals show them.
const EIGHT: [(Color, [u8; 3]); 7] = [
    (Color::Red, [205, 49, 49]),
    (Color::Green, [13, 188, 121]),
    (Color::Yellow, [229, 180, 16]),
    (Color::Blue, [60, 120, 220]),
    (Color::Magenta, [188, 63, 188]),
    (Color::Cyan, [17, 168, 205]),
    (Color::Gray, [150, 150, 150]),
];

impl Look {
    /// A terminal without colour.
    pub const PLAIN: Self = Self {
        depth: Depth::None,
        is_light: false,
    };

    /// What the variables of a terminal say: `COLORTERM`, `TERM` and `COLORFGBG`.
    pub fn of(colorterm: &str, term: &str, colorfgbg: &str) -> Self {
        let depth = match (colorterm, term) {
            ("truecolor" | "24bit", _) => Depth::True,
            (_, term) if term.contains("256") || term.contains("direct") => Depth::Indexed,
            _ => Depth::Eight,
        };
        let background = colorfgbg.rsplit(';').next().unwrap_or_default();
        Self {
            depth,
            is_light: matches!(background, "7" | "15"),
        }
    }

    /// Whether there are colours.
    pub(crate) fn has_colour(self) -> bool {
        self.depth != Depth::None
    }

    /// The colour of a state, where there are colours.
    pub(crate) fn colour(self, state: State) -> Option<Color> {
        let colours = state.colours();
        let code = if self.is_light {
            colours.light
        } else {
            colours.dark
        };
        let number = u32::from_str_radix(code, 16).ok()?;
        let [_, red, green, blue] = number.to_be_bytes();
        match self.depth {
            Depth::None => None,
            Depth::Eight => Some(nearest([red, green, blue])),
            Depth::Indexed => Some(Color::Indexed(indexed([red, green, blue]))),
            Depth::True => Some(Color::Rgb(red, green, blue)),
        }
    }

    /// Text in the colour of a state.
    pub(crate) fn of_state(self, state: State) -> Style {
        match self.colour(state) {
            Some(colour) => Style::new().fg(colour),
            None => Style::new(),
        }
    }

    /// What is less important.
    pub(crate) fn dim(self) -> Style {
        if self.has_colour() {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        }
    }
}

/// What stands out, in every terminal.
pub(crate) fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// What is selected.
pub(crate) fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

fn distance(one: [u8; 3], other: [u8; 3]) -> u32 {
    let parts = one.iter().zip(other);
    parts
        .map(|(one, other)| u32::from(one.abs_diff(other)).pow(2))
        .sum()
}

fn nearest(rgb: [u8; 3]) -> Color {
    let found = EIGHT.iter().min_by_key(|(_, known)| distance(rgb, *known));
    found.map_or(Color::Reset, |(colour, _)| *colour)
}

/// The nearest of the 216 colours and 24 greys.
fn indexed(rgb: [u8; 3]) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let level = |part: u8| {
        let steps = STEPS.iter().enumerate();
        let found = steps.min_by_key(|(_, step)| step.abs_diff(part));
        found.map_or((0, 0), |(at, step)| (at, *step))
    };
    let [red, green, blue] = rgb.map(level);
    let cube = u8::try_from(16 + 36 * red.0 + 6 * green.0 + blue.0).unwrap_or(16);
    let grey = rgb.iter().map(|part| u16::from(*part)).sum::<u16>() / 3;
    let at = (grey.saturating_sub(3) / 10).min(23);
    let shade = u8::try_from(8 + 10 * at).unwrap_or(u8::MAX);
    let of_cube = distance(rgb, [red.1, green.1, blue.1]);
    if distance(rgb, [shade; 3]) < of_cube {
        u8::try_from(232 + at).unwrap_or(u8::MAX)
    } else {
        cube
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_have_the_colours_that_they_say() {
        let cases = [
            ("truecolor", "xterm-256color", "", Depth::True, false),
            ("", "xterm-256color", "15;0", Depth::Indexed, false),
            ("", "screen", "0;15", Depth::Eight, true),
            ("", "", "0;default;7", Depth::Eight, true),
        ];
        for (colorterm, term, background, depth, is_light) in cases {
            let want = Look { depth, is_light };
            assert_eq!(Look::of(colorterm, term, background), want, "{term}");
        }
    }

    #[test]
    fn colours_are_the_nearest() {
        let cases = [
            ([0, 0, 0], 16),
            ([255, 255, 255], 231),
            ([0x3f, 0xb6, 0x8b], 72),
            ([0x80, 0x80, 0x80], 244),
        ];
        for (rgb, want) in cases {
            assert_eq!(indexed(rgb), want, "{rgb:?}");
        }
        assert_eq!(nearest([0xff, 0x6b, 0x6b]), Color::Red);
        assert_eq!(nearest([0x3f, 0xb6, 0x8b]), Color::Green);
        assert_eq!(Look::PLAIN.colour(State::Failed), None);
    }
}
