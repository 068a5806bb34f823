//! Pictures as SVG text.
//!
//! Owns shapes, colours and escaping; what is drawn is the caller's. Colours are distinguishable without
//! seeing red and green, and every bar names itself in a title, for readers that show none.

use std::fmt::Write as _;

/// Colours of parts, in their order.
const COLOURS: [&str; 12] = [
    "#0b6e4f", "#2a9d8f", "#457b9d", "#e9c46a", "#1d3557", "#e76f51", "#8d99ae", "#9d4edd",
    "#adb5bd", "#d00000", "#bc6c25", "#6c757d",
];

/// A picture that grows.
pub(crate) struct Drawing {
    svg: String,
}

impl Drawing {
    /// An empty picture of that size, with its title.
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Self {
        let title = escape(title);
        let mut svg = String::new();
        write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"system-ui, sans-serif\">\n\
             <title>{title}</title>\n\
             <rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n\
             <text x=\"30\" y=\"32\" font-size=\"16\" font-weight=\"600\" fill=\"#111\">{title}</text>\n"
        )
        .expect("a string takes whatever is written");
        Self { svg }
    }

    fn put(&mut self, element: &str) {
        self.svg.push_str(element);
        self.svg.push('\n');
    }

    /// A filled box in the colour of part `at`, with a name.
    pub(crate) fn bar(&mut self, at: (f64, f64), size: (f64, f64), part: usize, name: &str) {
        let colour = COLOURS[part % COLOURS.len()];
        self.put(&format!(
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"{colour}\"><title>{}</title></rect>",
            at.0, at.1, size.0.max(0.0), size.1.max(0.0), escape(name)
        ));
    }

    /// An empty box.
    pub(crate) fn frame(&mut self, at: (f64, f64), size: (f64, f64)) {
        self.put(&format!(
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"none\" stroke=\"#111\" stroke-width=\"1.2\"/>",
            at.0, at.1, size.0, size.1
        ));
    }

    /// A thin straight line.
    pub(crate) fn rule(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.put(&format!(
            "<line x1=\"{:.2}\" y1=\"{:.2}\" x2=\"{:.2}\" y2=\"{:.2}\" stroke=\"#444\" stroke-width=\"1\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A line through points, in the colour of part `at`.
    pub(crate) fn line(&mut self, points: &[(f64, f64)], part: usize, dashed: bool) {
        let colour = COLOURS[part % COLOURS.len()];
        let places: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.2},{y:.2}"))
            .collect();
        let dash = if dashed {
            " stroke-dasharray=\"5 4\""
        } else {
            ""
        };
        self.put(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>",
            places.join(" ")
        ));
    }

    /// A dot in the colour of part `at`.
    pub(crate) fn dot(&mut self, at: (f64, f64), part: usize) {
        let colour = COLOURS[part % COLOURS.len()];
        self.put(&format!(
            "<circle cx=\"{:.2}\" cy=\"{:.2}\" r=\"4\" fill=\"{colour}\"/>",
            at.0, at.1
        ));
    }

    /// Text that begins at a place.
    pub(crate) fn text(&mut self, at: (f64, f64), text: &str, size: f64) {
        self.write(at, text, size, "start", "#222");
    }

    /// Text that ends at a place.
    pub(crate) fn text_end(&mut self, at: (f64, f64), text: &str, size: f64) {
        self.write(at, text, size, "end", "#222");
    }

    /// Text around a place.
    pub(crate) fn text_middle(&mut self, at: (f64, f64), text: &str, size: f64) {
        self.write(at, text, size, "middle", "#222");
    }

    /// Light text around a place, for boxes.
    pub(crate) fn text_light(&mut self, at: (f64, f64), text: &str, size: f64) {
        self.write(at, text, size, "middle", "#fff");
    }

    fn write(&mut self, at: (f64, f64), text: &str, size: f64, anchor: &str, fill: &str) {
        self.put(&format!(
            "<text x=\"{:.2}\" y=\"{:.2}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{}</text>",
            at.0, at.1, escape(text)
        ));
    }

    /// The whole picture.
    pub(crate) fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_the_picture_is_closed() {
        let mut drawing = Drawing::new(10.0, 10.0, "a < b & \"c\"");
        drawing.text((0.0, 0.0), "<script>", 10.0);
        let svg = drawing.finish();
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;"));
        assert!(!svg.contains("<script>"));
        assert!(svg.ends_with("</svg>\n"));
    }
}
