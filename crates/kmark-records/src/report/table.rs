//! The table for terminals.

use super::against::{mark, noise};
use super::columns::{Column, for_people};
use super::rows::Row;
use super::summary::{Summary, counts, explained, ill_conditioned, loose, summaries};
use super::{Options, RunData, narrow};
use crate::units;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table};
use kmark_core::verdict::Verdict;

pub fn render(runs: &[RunData], options: &Options) -> String {
    runs.iter().map(|run| one(run, options)).collect::<Vec<_>>().join("\n")
}

fn one(data: &RunData, options: &Options) -> String {
    let rows = &data.rows;
    let columns = options.columns.clone().unwrap_or_else(for_people);
    let header: Vec<&str> = columns.iter().map(|c| c.head()).collect();
    let numbers = (0..columns.len()).filter(|i| columns[*i].is_number());
    let mut last = "";
    let lines = rows.iter().map(|r| {
        let repeated = std::mem::replace(&mut last, &r.case) == r.case;
        columns
            .iter()
            .map(|c| if repeated && c.name() == "case" { Cell::new("") } else { cell(c, r, options) })
            .collect()
    });
    let mut text = table(&header, numbers, lines, options);
    text.push_str(&means(rows, options));
    let notes = explained(rows.iter());
    for (r, words) in &notes {
        text.push_str(&clean(&format!("\n{}: {} {}: {words}", r.status, r.case, r.impl_name)));
    }
    text.push_str(if notes.is_empty() { "\n" } else { "\n\n" });
    text.push_str(&clean(&footer(data)));
    text
}

/// Without what a terminal would obey instead of showing it.
pub fn clean(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}

/// Columns `numbers` are set to the right.
pub fn table(
    header: &[&str],
    numbers: impl Iterator<Item = usize>,
    rows: impl Iterator<Item = Vec<Cell>>,
    options: &Options,
) -> String {
    let Some(width) = options.width else { return as_wide_as_it_takes(header, numbers, rows) };
    let mut rows: Vec<Vec<Cell>> = rows.collect();
    let kept = match options.columns {
        Some(_) => (0..header.len()).collect(),
        None => narrow::fit(header, &mut rows, width as usize),
    };
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(kept.iter().map(|i| paint(header[*i], options, |c| c.add_attribute(Attribute::Bold))));
    for i in numbers.filter_map(|number| kept.iter().position(|i| *i == number)) {
        table.column_mut(i).expect("a column of the header").set_cell_alignment(CellAlignment::Right);
    }
    table.add_rows(rows.into_iter().map(|row| kept.iter().map(|i| row[*i].clone()).collect::<Vec<_>>()));
    table.lines().map(|l| l.trim_end().to_string() + "\n").collect()
}

/// The same into a file or a pipe: nothing is broken and nothing coloured, so that a run of any length takes little memory.
fn as_wide_as_it_takes(
    header: &[&str],
    numbers: impl Iterator<Item = usize>,
    rows: impl Iterator<Item = Vec<Cell>>,
) -> String {
    let numbers: Vec<usize> = numbers.collect();
    let mut lines: Vec<Vec<String>> = vec![header.iter().map(|h| h.to_string()).collect()];
    lines.extend(rows.map(|cells| cells.iter().map(|c| c.content()).collect()));
    let width = |i: usize| lines.iter().map(|line| line[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let padded = |i: usize, text: &str| match numbers.contains(&i) {
        true => format!(" {text:>0$} ", widths[i]),
        false => format!(" {text:<0$} ", widths[i]),
    };
    let mut out = String::new();
    for line in &lines {
        let cells: String = line.iter().enumerate().map(|(i, text)| padded(i, text)).collect();
        out.push_str(cells.trim_end());
        out.push('\n');
    }
    out
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
        cells.iter().map(|c| Cell::new(clean(c))).collect()
    });
    format!("\n{}", table(&header, 2..7, lines, options))
}

fn cell(column: &Column, r: &Row, options: &Options) -> Cell {
    let text = clean(&column.shown(r, options.unit)).replace('\n', " ");
    paint(&text, options, |c| match column.name() {
        "status" => match r.status {
            "ok" => c.fg(Color::Green),
            "unsupported" | "unavailable" | "unverified" => c.fg(Color::Yellow),
            _ => c.fg(Color::Red),
        },
        "of_roof" if r.time.as_ref().is_some_and(|t| t.impossible) => c.fg(Color::Red),
        "verdict" => match r.against.as_ref().map(|a| a.comparison.verdict) {
            Some(Verdict::Faster) => c.fg(Color::Green),
            Some(Verdict::Slower) => c.fg(Color::Red),
            _ => c.fg(Color::DarkGrey),
        },
        _ => c,
    })
}

pub fn paint(text: &str, options: &Options, f: impl FnOnce(Cell) -> Cell) -> Cell {
    let cell = Cell::new(text);
    if options.color { f(cell) } else { cell }
}

fn footer(data: &RunData) -> String {
    let rows = &data.rows;
    let counts: Vec<String> = counts(rows).iter().map(|(status, n)| format!("{n} {status}")).collect();
    let mut cases: Vec<&str> = rows.iter().map(|r| r.case.as_str()).collect();
    cases.sort();
    cases.dedup();
    let mut facts = vec![
        format!("{} cases: {}", cases.len(), counts.join(", ")),
        format!("{}, {}", data.run.device.name, data.run.settings.mode.word()),
    ];
    if let Some(floor) = noise(rows) {
        facts.push(format!("A/A noise {}", units::percent(floor)));
    }
    if let Some(roofs) = &data.run.roofs {
        facts.push(format!("copy roof {} GB/s", units::digits(roofs.copy / 1e9)));
        let matrix = roofs.matrix.iter().map(|(dtype, flops)| format!("{dtype} matrix roof {}", units::flops(*flops)));
        facts.extend(matrix);
    }
    facts.extend(data.run.roofs_from.as_ref().map(|start| format!("roofs of the run of {start}")));
    if let Some(why) = &data.run.no_roofs {
        facts.push(format!("no roofs: {}", why.lines().next().unwrap_or("")));
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
    let ill = ill_conditioned(rows.iter());
    let ill = if ill.is_empty() { ill } else { format!("{ill}\n") };
    format!("{held}{loose}{ill}{}\nrecords in {}\n", facts.join(" · "), data.name)
}
