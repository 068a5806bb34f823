//! Tables of text.

/// Rows with their cells under each other, three spaces apart.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    // Measured once: there may be as many rows as runs were ever made.
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, widest) in row.iter().zip(&widths) {
            let pad = widest + 3 - cell.chars().count();
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', pad));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
