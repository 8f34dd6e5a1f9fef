//! Markdown: an overview, a table per op, the geometric mean over its distinct shapes, and the failures.

use super::against::{mark, noise};
use super::columns::{Column, for_people};
use super::rows::Row;
use super::summary::{Summary, counts, explained, grouped, ill_conditioned, loose, summaries};
use super::{Options, RunData};
use crate::units;
use kmark_core::stats::{geomean, median};
use std::fmt::{Result, Write};

pub fn render(runs: &[RunData], options: &Options) -> String {
    let mut text = String::new();
    for run in runs {
        one(run, options, &mut text).expect("a string grows");
    }
    text
}

/// A bar or a line break inside a cell would end it, and a tag would be obeyed.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

fn one(data: &RunData, options: &Options, text: &mut String) -> Result {
    let rows = &data.rows;
    let run = data.run;
    let (name, id) = (cell(&run.device.name), cell(&run.device.id));
    writeln!(text, "# {}: {name}\n", cell(&run.selection.join(", ")))?;
    let counts: Vec<String> = counts(rows).iter().map(|(status, n)| format!("{n} {status}")).collect();
    writeln!(text, "- {name} ({id}), kmark {}, {}", cell(&run.kmark), cell(&run.started))?;
    writeln!(text, "- mode {}, seed {}, rows: {}", run.settings.mode.word(), run.settings.seed, counts.join(", "))?;
    if let Some(r) = &run.roofs {
        let gb = |v: f64| units::digits(v / 1e9);
        let (copy, read, write, triad) = (gb(r.copy), gb(r.read), gb(r.write), gb(r.triad));
        writeln!(text, "- measured roofs in GB/s: copy {copy}, read {read}, write {write}, triad {triad}")?;
        for (dtype, flops) in &r.matrix {
            writeln!(text, "- measured {dtype} matrix roof: {}", units::flops(*flops))?;
        }
    }
    if let Some(floor) = noise(rows) {
        writeln!(text, "- A/A noise of this run: {}", units::percent(floor))?;
    }
    let columns = options.columns.clone().unwrap_or_else(for_people);
    let all = summaries(rows);
    let by_op = grouped(rows.iter(), |r| r.op.as_str());
    if by_op.len() > 1 {
        overview(rows, text)?;
    }
    for (op, rows) in by_op {
        writeln!(text, "\n## {}\n", cell(op))?;
        table(&rows, &columns, options, text)?;
        for s in all.iter().filter(|s| s.op == op) {
            mean(s, text)?;
        }
        let rows = || rows.iter().copied();
        let (notes, loose) = (explained(rows()), loose(rows()));
        if !loose.is_empty() {
            let words = cell(&loose.join("; "));
            writeln!(text, "\n‡ loose: intermediates are rounded to 16 bits; {words} what one rounding allows.")?;
        }
        let ill = ill_conditioned(rows());
        if !ill.is_empty() {
            writeln!(text, "\n{}.", cell(&ill))?;
        }
        if rows().filter_map(|r| r.time.as_ref()).any(|t| t.throttled > 0.5) {
            writeln!(text, "\n† most samples were taken while the clocks were held down.")?;
        }
        if !notes.is_empty() {
            writeln!(text)?;
        }
        for (r, words) in notes {
            writeln!(text, "- {} `{}` {}: {}", r.status, cell(&r.case), cell(&r.impl_name), cell(&words))?;
        }
    }
    Ok(())
}

fn table(rows: &[&Row], columns: &[Column], options: &Options, text: &mut String) -> Result {
    let heads: Vec<&str> = columns.iter().map(|c| c.head()).collect();
    let rules: Vec<&str> = columns.iter().map(|c| if c.is_number() { "---:" } else { "---" }).collect();
    writeln!(text, "| {} |\n|{}|", heads.join(" | "), rules.join("|"))?;
    for r in rows {
        let cells: Vec<String> = columns.iter().map(|c| cell(&c.shown(r, options.unit))).collect();
        writeln!(text, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

/// How each impl does on each op, all shapes and dtypes together.
fn overview(rows: &[Row], text: &mut String) -> Result {
    writeln!(text, "\n## Overview\n")?;
    writeln!(
        text,
        "| op | impl | rows | timed | failed | geomean × base | median of roof |\n|---|---|---:|---:|---:|---:|---:|"
    )?;
    for ((op, impl_name), rows) in grouped(rows.iter(), |r| (&r.op, &r.impl_name)) {
        let speedups: Vec<f64> = rows.iter().filter_map(|r| Some(r.against.as_ref()?.comparison.speedup)).collect();
        let roofs: Vec<f64> = rows.iter().filter_map(|r| r.time.as_ref()?.of_roof).collect();
        let mean = if speedups.is_empty() { String::new() } else { format!("{}×", units::digits(geomean(&speedups))) };
        let roof = if roofs.is_empty() { String::new() } else { units::percent(median(&roofs)) };
        let timed = rows.iter().filter(|r| r.time.is_some()).count();
        let failed = rows.iter().filter(|r| r.failure).count();
        let (op, impl_name) = (cell(op), cell(impl_name));
        writeln!(text, "| {op} | {impl_name} | {} | {timed} | {failed} | {mean} | {roof} |", rows.len())?;
    }
    Ok(())
}

fn mean(s: &Summary, text: &mut String) -> Result {
    write!(text, "\n**{}** on {}: ", cell(&s.impl_name), cell(&s.of))?;
    if s.cases > 0 {
        let (mean, base, mark) = (units::digits(s.geomean), cell(&s.baseline), mark(s.same_contract, s.same_grade));
        write!(text, "geomean {mean}× of {base}{mark}, shapes: {}, ", s.cases)?;
        write!(text, "faster: {}, slower: {}, ", s.faster, s.slower)?;
    }
    writeln!(text, "failures: {}", s.failures)
}
