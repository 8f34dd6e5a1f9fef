//! Families of impls beside each other, by op: of each family the fastest of every case, over all runs. A case that several
//! runs have counts once for each.

use super::rows::Row;
use super::summary::grouped;
use super::table::{clean, table};
use super::{Options, RunData};
use crate::units;
use comfy_table::Cell;
use indexmap::IndexMap;
use kmark_core::record::family;
use kmark_core::stats::geomean;
use kmark_core::verdict::Verdict;

/// What a family is in one case: how much faster than the case's baseline, which is 1.
struct Place<'a> {
    row: &'a Row,
    speedup: f64,
}

#[derive(Default)]
struct Standing<'a> {
    places: Vec<Place<'a>>,
    /// Cases in which none of its impls came to a time, and one of them failed.
    failed: usize,
}

pub fn render(runs: &[RunData], options: &Options) -> String {
    let mut ops: IndexMap<&str, IndexMap<String, Standing>> = IndexMap::new();
    for run in runs {
        for rows in grouped(run.rows.iter(), |r| (&r.case, r.mode, &r.device_id)).into_values() {
            add(&rows, ops.entry(&rows[0].op).or_default());
        }
    }
    let header = ["op", "family", "× base", "lowest", "highest", "cases", "faster", "slower", "failed", "lowest of"];
    let mut lines: Vec<Vec<Cell>> = Vec::new();
    for (op, families) in ops.into_iter().filter(|(_, families)| families.len() > 1) {
        let mut families: Vec<(String, Standing)> = families.into_iter().collect();
        families.sort_by(|a, b| mean(&b.1).total_cmp(&mean(&a.1)));
        for (i, (name, standing)) in families.iter().enumerate() {
            let cells = [vec![if i == 0 { op.into() } else { String::new() }, name.clone()], told(standing)].concat();
            lines.push(cells.iter().map(|text| Cell::new(clean(text))).collect());
        }
    }
    if lines.is_empty() {
        return "no op was timed with impls of two families\n".into();
    }
    let text = table(&header, 2..9, lines.into_iter(), options);
    let unlike = if text.contains(UNLIKE) {
        "† Some of these ratios compare other contracts or grades than the baseline's.\n"
    } else {
        ""
    };
    format!("{text}\n{BASE}{unlike}")
}

const UNLIKE: &str = "† ";
const BASE: &str = "× base: the speed of a family's fastest impl against the case's baseline, as a
geometric mean over cases. The baseline is that of the run or of --baseline, else
the fastest impl that is not ours.
";

/// The rows of one case on one device.
fn add<'a>(rows: &[&'a Row], families: &mut IndexMap<String, Standing<'a>>) {
    let Some(base) = rows.iter().find_map(|r| r.against.as_ref()).map(|a| &a.baseline) else { return };
    for (name, rows) in grouped(rows.iter().copied(), |r| family(&r.impl_name)) {
        let speed = |row: &'a Row| match &row.against {
            Some(against) => Some(Place { row, speedup: against.comparison.speedup }),
            None => (row.basis.is_some() && row.impl_name == *base).then_some(Place { row, speedup: 1.0 }),
        };
        let fastest = rows.iter().filter_map(|r| speed(r)).max_by(|a, b| a.speedup.total_cmp(&b.speedup));
        match fastest {
            Some(place) => families.entry(name).or_default().places.push(place),
            None if rows.iter().any(|r| r.failure) => families.entry(name).or_default().failed += 1,
            None => {}
        }
    }
}

fn mean(standing: &Standing) -> f64 {
    let all: Vec<f64> = standing.places.iter().map(|p| p.speedup).collect();
    if all.is_empty() { 0.0 } else { geomean(&all) }
}

fn told(standing: &Standing) -> Vec<String> {
    let places = &standing.places;
    let count = |v: Verdict| {
        let verdicts = places.iter().filter_map(|p| p.row.against.as_ref()).map(|a| a.comparison.verdict);
        verdicts.filter(|of| *of == v).count().to_string()
    };
    let times = |v: f64| format!("{}×", units::digits(v));
    let by_speed = |a: &&Place, b: &&Place| a.speedup.total_cmp(&b.speedup);
    let Some((low, high)) = places.iter().min_by(by_speed).zip(places.iter().max_by(by_speed)) else {
        let none = || String::new();
        return vec![none(), none(), none(), "0".into(), none(), none(), standing.failed.to_string(), none()];
    };
    let all = |of: fn(&super::rows::Against) -> bool| places.iter().filter_map(|p| p.row.against.as_ref()).all(of);
    let mark = if all(|a| a.same_contract && a.same_grade) { "" } else { UNLIKE };
    let which = low.row.case.split_once('/').map_or("", |(_, rest)| rest);
    vec![
        mark.to_string() + &times(mean(standing)),
        times(low.speedup),
        times(high.speedup),
        places.len().to_string(),
        count(Verdict::Faster),
        count(Verdict::Slower),
        standing.failed.to_string(),
        format!("{} in {which}", low.row.impl_name),
    ]
}
