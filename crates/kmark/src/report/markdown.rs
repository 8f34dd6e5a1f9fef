//! Markdown: a table per op, the geometric mean over its distinct shapes, and the failures.

use super::rows::{Row, counts, explained, loose, mark, noise, rows, summaries};
use super::table::rate;
use super::{Options, RunData};
use crate::units;
use kmark_core::tally::Grade;
use std::fmt::Write;

pub fn render(runs: &[RunData], options: &Options) -> String {
    let mut text = String::new();
    for run in runs {
        one(run, options, &mut text).expect("a string grows");
    }
    text
}

fn one(data: &RunData, options: &Options, text: &mut String) -> std::fmt::Result {
    let rows = rows(data, options);
    let run = data.run;
    writeln!(text, "# {}: {}\n", run.selection.join(", "), run.device.name)?;
    let counts: Vec<String> = counts(&rows).iter().map(|(status, n)| format!("{n} {status}")).collect();
    writeln!(text, "- {} ({}), kmark {}, {}", run.device.name, run.device.id, run.kmark, run.started)?;
    writeln!(text, "- mode {}, seed {}, rows: {}", run.settings.mode.word(), run.settings.seed, counts.join(", "))?;
    if let Some(r) = &run.roofs {
        let gb = |v: f64| units::digits(v / 1e9);
        let (copy, read, write, triad) = (gb(r.copy), gb(r.read), gb(r.write), gb(r.triad));
        writeln!(text, "- measured roofs in GB/s: copy {copy}, read {read}, write {write}, triad {triad}")?;
        for (dtype, flops) in &r.matrix {
            writeln!(text, "- measured {dtype} matrix roof: {}", units::flops(*flops))?;
        }
    }
    if let Some(floor) = noise(data.records) {
        writeln!(text, "- A/A noise of this run: {}", units::percent(floor))?;
    }
    let mut ops: Vec<&str> = rows.iter().map(|r| r.op.as_str()).collect();
    ops.sort();
    ops.dedup();
    let all = summaries(&rows);
    for op in ops {
        writeln!(text, "\n## {op}\n")?;
        writeln!(text, "| case | impl | status | time | ± | rate | of roof | × base | verdict | sees |")?;
        writeln!(text, "|---|---|---|---:|---:|---:|---:|---:|---|---:|")?;
        for r in rows.iter().filter(|r| r.op == op) {
            line(r, text)?;
        }
        for s in all.iter().filter(|s| s.op == op) {
            write!(text, "\n**{}** on {}: ", s.impl_name, s.of)?;
            if s.cases > 0 {
                let (mean, base) = (units::digits(s.geomean), &s.baseline);
                let mark = mark(s.same_contract, s.same_grade);
                write!(text, "geomean {mean}× of {base}{mark}, shapes: {}, ", s.cases)?;
                write!(text, "faster: {}, slower: {}, ", s.faster, s.slower)?;
            }
            writeln!(text, "failures: {}", s.failures)?;
        }
        let notes = explained(rows.iter().filter(|r| r.op == op));
        if !notes.is_empty() {
            writeln!(text)?;
        }
        let loose = loose(rows.iter().filter(|r| r.op == op));
        if !loose.is_empty() {
            let words = loose.join("; ");
            writeln!(text, "\nLoose: intermediates are rounded to 16 bits; {words} what one rounding allows.")?;
        }
        for (r, words) in notes {
            let words = words.replace('|', "\\|");
            writeln!(text, "- {} `{}` {}: {words}", r.status, r.case, r.impl_name)?;
        }
    }
    Ok(())
}

fn line(r: &Row, text: &mut String) -> std::fmt::Result {
    let grade = if r.grade == Some(Grade::Loose) { " (loose)" } else { "" };
    write!(text, "| {} | {} | {}{grade} |", r.case, r.impl_name, r.status)?;
    match &r.time {
        None => write!(text, " | | | |")?,
        Some(t) => {
            let roof = t.of_roof.map(units::percent).unwrap_or_default();
            let flag = if t.impossible { " impossible" } else { "" };
            let spread = units::percent((t.hi_ns - t.lo_ns) / 2.0 / t.time_ns);
            write!(text, " {} | {spread} | {} | {roof}{flag} |", units::time(t.time_ns), rate(t))?;
        }
    }
    match &r.against {
        None => writeln!(text, " | | |"),
        Some(a) => {
            let mark = mark(a.same_contract, a.same_grade);
            let sees = a.comparison.visible.map(units::sees).unwrap_or_default();
            let (speedup, word) = (units::digits(a.comparison.speedup), a.comparison.verdict.word());
            writeln!(text, " {speedup}×{mark} | {word} | {sees} |")
        }
    }
}
