//! Tables on narrow terminals: columns are dropped, the least important first, and at last the widest words of the first
//! column lose their middle. Nothing is broken into two lines.

use super::short;
use comfy_table::Cell;

/// By their heads, in the order in which they go.
const DROPPED: [&str; 18] = [
    "lowest of",
    "±",
    "between",
    "rate",
    "came with",
    "base",
    "new",
    "shapes",
    "failed",
    "of roof",
    "faster",
    "slower",
    "cases",
    "commit",
    "started",
    "verdict",
    "highest",
    "× base",
];
/// Blanks beside each column.
const PADDING: usize = 2;
/// A first column narrower than this says nothing.
const LEAST: usize = 8;

/// Which columns are shown; the first one may be shortened.
pub fn fit(header: &[&str], rows: &mut [Vec<Cell>], width: usize) -> Vec<usize> {
    let length = |text: &str| text.chars().count();
    let wide =
        |i: usize| rows.iter().map(|row| length(&row[i].content())).chain([length(header[i])]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(wide).collect();
    let total = |kept: &[usize]| kept.iter().map(|i| widths[*i] + PADDING).sum::<usize>();
    let mut kept: Vec<usize> = (0..header.len()).collect();
    for head in DROPPED {
        if total(&kept) > width {
            kept.retain(|i| header[*i] != head);
        }
    }
    // What goes last may have made room for what went before.
    for head in DROPPED.iter().rev() {
        let with: Vec<usize> = (0..header.len()).filter(|i| kept.contains(i) || header[*i] == *head).collect();
        if total(&with) <= width {
            kept = with;
        }
    }
    let excess = total(&kept).saturating_sub(width);
    if excess > 0 {
        let most = widths[0].saturating_sub(excess).max(LEAST);
        for row in rows {
            row[0] = Cell::new(short(&row[0].content(), most));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use crate::report::Options;
    use crate::report::table::table;
    use comfy_table::Cell;

    #[test]
    fn columns_go_before_words_break() {
        let header = ["case", "impl", "status", "time", "±", "rate", "of roof", "× base", "verdict"];
        let row = [
            "rmsnorm/bf16/m4096-n8192",
            "cpu/naive",
            "ok",
            "12.3 µs",
            "0.52 %",
            "4331 GB/s",
            "98.7 %",
            "0.406×",
            "slower (sees 2.56 %)",
        ];
        let at = |width: u16| {
            let options = Options { width: Some(width), ..Options::default() };
            table(&header, 3..8, std::iter::once(row.map(Cell::new).to_vec()), &options)
        };
        for width in [40, 60, 80, 200] {
            let text = at(width);
            assert_eq!(text.lines().count(), 2, "{text}");
            assert!(text.lines().all(|l| l.chars().count() <= width.into()), "{width}: {text}");
            assert!(text.contains("cpu/naive") && text.contains("12.3 µs"), "{text}");
        }
        assert!(at(200).contains("0.52 %") && !at(60).contains("0.52 %"));
        assert!(at(80).contains("rmsnorm/bf16/m4096-n8192") && at(80).contains("0.406×"), "{}", at(80));
        assert!(at(40).contains('…'), "{}", at(40));
    }
}
