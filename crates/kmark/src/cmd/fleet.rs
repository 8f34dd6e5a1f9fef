//! `kmark fleet`: GPUs that ran the same cases, held against each other.

use super::{print, print_text, to_json};
use crate::cli::{FleetArgs, FleetRuns, FleetWhat};
use crate::error::{CASE_FAILED, Error, Result, SLOWER, UNDECIDED, WRONG_ANSWER};
use crate::fleet::COLLECTED;
use crate::report::fleet::{Member, Spread, signed, spreads};
use crate::report::rows::{self, Row};
use crate::report::table::{clean, table};
use crate::report::{Options, RunData, chosen};
use crate::store::{Loaded, MERGED, folders_below, load_as};
use crate::units;
use comfy_table::Cell;
use kmark_core::record::Record;
use kmark_core::run::Run;
use std::path::PathBuf;

pub fn run(args: FleetArgs) -> Result<u8> {
    match args.what {
        FleetWhat::Report { runs, since, json } => {
            let earlier = since.map_or(Ok(Vec::new()), |dir| load(&[dir], &runs.filter))?;
            let found = judged(&runs, earlier)?.0;
            if json { print(&to_json(&found)) } else { print_text(&text(&found)) }?;
            Ok(0)
        }
        FleetWhat::Check { runs, threshold, strict } => check(&runs, threshold, strict),
    }
}

fn check(runs: &FleetRuns, threshold: f64, strict: bool) -> Result<u8> {
    let (found, failed) = judged(runs, Vec::new())?;
    let (mut lines, mut members, mut slow, mut unseen) = (Vec::new(), 0, 0, 0);
    for s in &found {
        members += s.members.len();
        for m in &s.members {
            let out_of_line = m.slow(&s.ops, threshold);
            slow += usize::from(!out_of_line.is_empty());
            unseen += usize::from(out_of_line.is_empty() && m.all.visible.is_none_or(|v| v > threshold));
            for (op, d) in out_of_line {
                lines.push(format!("{} ({}): {op} {}, {}", m.name(), s.device, signed(d.slower_by), d.words()));
            }
        }
    }
    let by = units::percent(threshold);
    lines.push(match slow {
        0 => format!("of {members}, none is slower than the others by {by} or more for certain"),
        _ => format!("{slow} of {members} out of line, by {by} or more"),
    });
    if unseen > 0 {
        lines.push(format!("on {unseen} of them so much could have been missed: their times scatter too much"));
    }
    if failed.is_some() {
        lines.push("rows failed; `kmark fleet report` counts them, `kmark report` says why".into());
    }
    print_text(&(lines.join("\n") + "\n"))?;
    Ok(match failed {
        Some(code) => code,
        None if slow > 0 => SLOWER,
        None if strict && unseen > 0 => UNDECIDED,
        None => 0,
    })
}

/// What the runs show, and the exit code of rows that failed.
fn judged(args: &FleetRuns, mut earlier: Vec<Loaded<Row>>) -> Result<(Vec<Spread>, Option<u8>)> {
    let mut runs = load(&args.dirs, &args.filter)?;
    let (runs, earlier) = (data(&mut runs), data(&mut earlier));
    let found = spreads(&runs, &earlier);
    if found.is_empty() {
        return Err(Error::usage("there are no two machines or GPUs of one kind here that have rows in common"));
    }
    let mut failures = runs.iter().flat_map(|r| &r.rows).filter(|r| r.failure).peekable();
    let failed = failures.peek().is_some();
    let wrong = failures.any(|r| r.status == "wrong");
    Ok((found, failed.then_some(if wrong { WRONG_ANSWER } else { CASE_FAILED })))
}

fn data(runs: &mut [Loaded<Row>]) -> Vec<RunData<'_>> {
    let mut data = Vec::new();
    for l in runs {
        let rows = std::mem::take(&mut l.records);
        data.push(RunData { name: &l.name, run: &l.run, rows });
    }
    data
}

/// The runs in these folders; of a submitted one, what was collected.
fn load(dirs: &[PathBuf], filter: &[String]) -> Result<Vec<Loaded<Row>>> {
    let mut runs = Vec::new();
    for dir in dirs {
        let collected = dir.join(COLLECTED);
        for folder in folders_below(if collected.join(MERGED).exists() { &collected } else { dir })? {
            let name = folder.display().to_string();
            let row = |run: &Run, r: Record| Row::new(&name, run, &r, &rows::NOTHING);
            let mut loaded = load_as(&folder, row, |_| {})?;
            loaded.records.retain(|r| chosen(r, filter));
            runs.push(loaded);
        }
    }
    Ok(runs)
}

const HEADER: [&str; 7] = ["machine", "against the median", "verdict", "slowest at", "", "since", "failed"];

fn text(found: &[Spread]) -> String {
    let mut text = String::new();
    for s in found {
        let times: Vec<f64> = s.members.iter().map(|m| 1.0 + m.all.slower_by).collect();
        let (least, most) = times.iter().fold((f64::MAX, f64::MIN), |(a, b), t| (a.min(*t), b.max(*t)));
        let (count, apart) = (s.count(), units::percent(most / least - 1.0));
        text.push_str(&format!("{}, {}: {count}, {} rows in common, {apart} apart\n\n", s.device, s.mode, s.rows));
        let lines: Vec<[String; 7]> = s.members.iter().map(|m| line(m, &s.ops)).collect();
        // A column that says nothing is left out.
        let shown: Vec<usize> = (0..7).filter(|i| lines.iter().any(|l| !l[*i].is_empty())).collect();
        let header: Vec<&str> = shown.iter().map(|i| HEADER[*i]).collect();
        let cells = lines.iter().map(|l| shown.iter().map(|i| Cell::new(clean(&l[*i]))).collect());
        let numbers = (0..shown.len()).filter(|at| [1, 4].contains(&shown[*at]));
        text.push_str(&table(&header, numbers, cells, &Options::default()));
        text.push('\n');
    }
    text
}

fn line(m: &Member, ops: &[String]) -> [String; 7] {
    let worst = m.worst(ops);
    [
        m.name(),
        signed(m.all.slower_by),
        m.all.words(),
        worst.map(|(op, _)| op.to_string()).unwrap_or_default(),
        worst.map(|(_, d)| signed(d.slower_by)).unwrap_or_default(),
        m.since.map(|d| format!("{}, {}", signed(d.slower_by), d.words())).unwrap_or_default(),
        if m.failed > 0 { m.failed.to_string() } else { String::new() },
    ]
}
