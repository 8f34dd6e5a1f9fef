//! The table for terminals.

use super::rows::{Row, Summary, Time, counts, explained, loose, mark, noise, rows, summaries};
use super::{Options, RunData};
use crate::units;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};
use kmark_core::tally::Grade;
use kmark_core::verdict::Verdict;
use std::ops::Range;

pub fn render(runs: &[RunData], options: &Options) -> String {
    runs.iter().map(|run| one(run, options)).collect::<Vec<_>>().join("\n")
}

fn one(data: &RunData, options: &Options) -> String {
    let rows = rows(data, options);
    let header = ["case", "impl", "status", "time", "±", "rate", "of roof", "× base", "verdict"];
    let mut last = "";
    let lines = rows.iter().map(|r| cells(r, std::mem::replace(&mut last, &r.case) == r.case, options));
    let mut text = table(&header, 3..8, lines, options);
    text.push_str(&means(&rows, options));
    let notes = explained(rows.iter());
    for (r, words) in &notes {
        text.push_str(&format!("\n{}: {} {}: {words}", r.status, r.case, r.impl_name));
    }
    text.push_str(if notes.is_empty() { "\n" } else { "\n\n" });
    text.push_str(&footer(data, &rows));
    text
}

/// Columns `numbers` are set to the right.
pub fn table(
    header: &[&str],
    numbers: Range<usize>,
    rows: impl Iterator<Item = Vec<Cell>>,
    options: &Options,
) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    if let Some(width) = options.width {
        table.set_width(width);
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(header.iter().map(|h| paint(h, options, |c| c.add_attribute(Attribute::Bold))));
    for i in numbers {
        table.column_mut(i).expect("a column of the header").set_cell_alignment(CellAlignment::Right);
    }
    table.add_rows(rows);
    table.lines().map(|l| l.trim_end().to_string() + "\n").collect()
}

/// What several shapes say together, where there are several.
fn means(rows: &[Row], options: &Options) -> String {
    let several: Vec<Summary> = summaries(rows).into_iter().filter(|s| s.cases > 1).collect();
    if several.is_empty() {
        return String::new();
    }
    let header = ["shapes of", "impl", "geomean × base", "shapes", "faster", "slower", "failed", "base"];
    let mut last = "";
    let lines = several.iter().map(|s| {
        let of = if std::mem::replace(&mut last, &s.of) == s.of { "" } else { &s.of };
        let mark = mark(s.same_contract, s.same_grade);
        let mean = format!("{}×{mark}", units::digits(s.geomean));
        let counts = [s.cases, s.faster, s.slower, s.failures].map(|n| n.to_string());
        let cells = [&[of.into(), s.impl_name.clone(), mean], &counts[..], std::slice::from_ref(&s.baseline)].concat();
        cells.into_iter().map(Cell::new).collect()
    });
    format!("\n{}", table(&header, 2..7, lines, options))
}

fn cells(r: &Row, repeated: bool, options: &Options) -> Vec<Cell> {
    let case = if repeated { "" } else { &r.case };
    let word = if r.grade == Some(Grade::Loose) { format!("{} ‡", r.status) } else { r.status.to_string() };
    let status = paint(&word, options, |c| match r.status {
        "ok" => c.fg(Color::Green),
        "unsupported" | "unavailable" | "unverified" => c.fg(Color::Yellow),
        _ => c.fg(Color::Red),
    });
    let mut cells = vec![Cell::new(case), Cell::new(&r.impl_name), status];
    match &r.time {
        None => cells.extend((0..4).map(|_| Cell::new(""))),
        Some(t) => {
            let held = if t.throttled > 0.5 { " †" } else { "" };
            cells.push(Cell::new(format!("{}{held}", units::time(t.time_ns))));
            cells.push(Cell::new(units::percent((t.hi_ns - t.lo_ns) / 2.0 / t.time_ns)));
            cells.push(Cell::new(rate(t)));
            cells.push(roof(t, options));
        }
    }
    match &r.against {
        None => cells.extend((0..2).map(|_| Cell::new(""))),
        Some(a) => {
            let mark = mark(a.same_contract, a.same_grade);
            cells.push(Cell::new(format!("{}×{mark}", units::digits(a.comparison.speedup))));
            let word = match a.comparison.visible {
                Some(v) => format!("{} (sees {})", a.comparison.verdict.word(), units::sees(v)),
                None => a.comparison.verdict.word().to_string(),
            };
            cells.push(paint(&word, options, |c| match a.comparison.verdict {
                Verdict::Faster => c.fg(Color::Green),
                Verdict::Slower => c.fg(Color::Red),
                Verdict::Same | Verdict::Ambiguous => c.fg(Color::DarkGrey),
            }));
        }
    }
    cells
}

/// Work with much arithmetic per byte is rated by arithmetic, the rest by traffic.
pub fn rate(t: &Time) -> String {
    if t.gflop_per_s > 20.0 * t.gb_per_s {
        units::flops(t.gflop_per_s * 1e9)
    } else {
        format!("{} GB/s", units::digits(t.gb_per_s))
    }
}

fn roof(t: &Time, options: &Options) -> Cell {
    match t.of_roof {
        None => Cell::new(""),
        Some(share) if t.impossible => {
            paint(&format!("{} impossible", units::percent(share)), options, |c| c.fg(Color::Red))
        }
        Some(share) => Cell::new(units::percent(share)),
    }
}

pub fn paint(text: &str, options: &Options, f: impl FnOnce(Cell) -> Cell) -> Cell {
    let cell = Cell::new(text);
    if options.color { f(cell) } else { cell }
}

fn footer(data: &RunData, rows: &[Row]) -> String {
    let counts: Vec<String> = counts(rows).iter().map(|(status, n)| format!("{n} {status}")).collect();
    let mut cases: Vec<&str> = rows.iter().map(|r| r.case.as_str()).collect();
    cases.dedup();
    let mut facts = vec![
        format!("{} cases: {}", cases.len(), counts.join(", ")),
        format!("{}, {}", data.run.device.name, data.run.settings.mode.word()),
    ];
    if let Some(floor) = noise(data.records) {
        facts.push(format!("A/A noise {}", units::percent(floor)));
    }
    if let Some(roofs) = &data.run.roofs {
        facts.push(format!("copy roof {} GB/s", units::digits(roofs.copy / 1e9)));
        let matrix = roofs.matrix.iter().map(|(dtype, flops)| format!("{dtype} matrix roof {}", units::flops(*flops)));
        facts.extend(matrix);
    }
    let mut reasons: Vec<&str> = Vec::new();
    for t in rows.iter().filter_map(|r| r.time.as_ref()).filter(|t| t.throttled > 0.5) {
        reasons.extend(t.throttled_by.iter().map(|r| r.as_str()));
    }
    reasons.sort();
    reasons.dedup();
    let held = match reasons.is_empty() {
        true => String::new(),
        false => format!("† most samples were taken while the clocks were held down: {}\n", reasons.join(", ")),
    };
    let loose = match loose(rows.iter()).as_slice() {
        [] => String::new(),
        lines => format!(
            "‡ loose: intermediates are rounded to 16 bits, so that errors are larger than one rounding allows: {}\n",
            lines.join("; ")
        ),
    };
    format!("{held}{loose}{}\nrecords in {}\n", facts.join(" · "), data.name)
}
