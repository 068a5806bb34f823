//! How many lines at the end of a log are read.

use super::Found;

/// Lines of the first read…
const LINES: u32 = 64;
/// …and of any. A line is at most 16 KiB long, so that the fewest are always read whole.
const FEWEST: u32 = 8;
const MOST: u32 = 1_024;

/// Grows where a program prints many lines between two steps, and shrinks where its lines are long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    lines: u32,
    most: u32,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            lines: LINES,
            most: MOST,
        }
    }
}

impl Window {
    pub(super) fn lines(self) -> u32 {
        self.lines
    }

    /// Adapts to what a read of so many lines found.
    pub(super) fn adapt(&mut self, found: Found) {
        if found.cut {
            // The end of the log, which counts, is what was cut off.
            self.most = (self.lines / 2).max(FEWEST);
            self.lines = self.most;
        } else if found.full && !found.step {
            self.lines = (self.lines * 4).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fits_the_log() {
        let full = Found {
            full: true,
            ..Found::default()
        };
        let cut = Found {
            full: true,
            cut: true,
            ..Found::default()
        };
        let step = Found { step: true, ..full };
        let cases: [(&str, &[Found], u32); 6] = [
            ("nothing new", &[Found::default(); 9], 64),
            ("steps in every read", &[step; 9], 64),
            ("noise between steps", &[full, full], 1_024),
            ("noise forever", &[full; 9], 1_024),
            ("long lines", &[cut; 9], 8),
            ("long lines and noise", &[full, cut, full, full], 128),
        ];
        for (name, found, want) in cases {
            let mut window = Window::default();
            for found in found {
                window.adapt(*found);
            }
            assert_eq!(window.lines(), want, "{name}");
        }
    }
}
