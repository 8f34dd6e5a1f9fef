//! Rows over time, as a table and as JSON.

use super::Options;
use super::table::{clean, paint, table};
use crate::compare::{Outcome, commit};
use crate::history::{Line, Point};
use crate::units;
use comfy_table::{Cell, Color};
use std::collections::BTreeSet;

pub const FORMATS: [&str; 2] = ["table", "json"];

pub fn render(format: &str, lines: &[Line], of_cases: bool, options: &Options) -> String {
    match format {
        "json" => serde_json::to_string_pretty(lines).expect("lines are plain data") + "\n",
        _ => terminal(lines, of_cases, options),
    }
}

fn terminal(lines: &[Line], of_cases: bool, options: &Options) -> String {
    let (of, amount) = if of_cases { ("case", "time") } else { ("op", "cases") };
    let header = [of, "impl", "started", "commit", amount, "speed", "change", "came with"];
    let devices: BTreeSet<_> = lines.iter().map(|l| (&l.device, l.mode.word())).collect();
    let rows = lines.iter().flat_map(|line| {
        let of = if devices.len() > 1 {
            format!("{} ({}, {})", line.of, line.device, line.mode.word())
        } else {
            line.of.clone()
        };
        line.points.iter().enumerate().map(move |(i, p)| {
            let (of, name) = if i == 0 { (of.as_str(), line.impl_name.as_str()) } else { ("", "") };
            let amount = if of_cases { p.time_ns.map(units::time).unwrap_or_default() } else { p.cases.to_string() };
            let speed = p.speed.map(|s| format!("{}×", units::digits(s))).unwrap_or_default();
            let started: String = p.started.chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect();
            let commit = p.git.as_ref().map(commit).unwrap_or_default();
            let mut cells: Vec<Cell> =
                [of, name, &started, &commit, &amount, &speed].iter().map(|w| Cell::new(clean(w))).collect();
            cells.push(paint(&change(p, of_cases), options, |c| match p.changes.first().map(|c| c.outcome) {
                Some(Outcome::Faster | Outcome::Mended) => c.fg(Color::Green),
                _ => c.fg(Color::Red),
            }));
            let with: Vec<String> =
                p.came_with.iter().map(|d| format!("{}: {} -> {}", d.what, d.base, d.new)).collect();
            cells.push(Cell::new(clean(&with.join("; ")).replace('\n', " ")));
            cells
        })
    });
    let mut text = table(&header, 4..6, rows, options);
    let points = || lines.iter().flat_map(|l| &l.points);
    let runs: BTreeSet<&str> = points().map(|p| p.run.as_str()).collect();
    let changes: usize = points().map(|p| p.changes.len()).sum();
    text.push_str(&format!("\n{} runs, {changes} changes\n", runs.len()));
    text
}

fn change(p: &Point, of_cases: bool) -> String {
    let words = |outcome: Outcome| {
        let of: Vec<_> = p.changes.iter().filter(|c| c.outcome == outcome).collect();
        match of.as_slice() {
            [] => None,
            [one] if of_cases => Some(match &one.ratio {
                Some(r) => format!("{}: {} to {}", outcome.word(), units::digits(r.lo), units::digits(r.hi)),
                None => outcome.word().to_string(),
            }),
            several => Some(format!("{} of {} {}", several.len(), p.cases.max(several.len()), outcome.word())),
        }
    };
    let all = [Outcome::Broken, Outcome::Slower, Outcome::Faster, Outcome::Mended, Outcome::Ambiguous];
    all.into_iter().filter_map(words).collect::<Vec<_>>().join(", ")
}
