//! Bandwidth against size: a small chart for each kind of case that moves more than it computes and was run at several sizes.

use super::scale::Scale;
use super::scene::{Picture, Scene};
use super::style::COLOURS;
use super::{Gpu, heading, hover, legend, round, tick};
use crate::report::rows::Row;
use crate::report::summary::{grouped, shapeless};
use crate::units;
use indexmap::IndexSet;

const WIDTH: f64 = 1200.0;
const COLUMNS: usize = 3;
/// More small charts than this are no picture any more.
const MOST_CELLS: usize = 60;
const CELL: (f64, f64) = (388.0, 270.0);

pub fn draw(gpu: &Gpu) -> Option<Picture> {
    let moves = |r: &&Row| r.time.as_ref().is_some_and(|t| t.gflop_per_s <= 20.0 * t.gb_per_s) || r.time.is_none();
    let mut ops = grouped(gpu.rows.iter().copied().filter(moves), |r| shapeless(&r.case));
    ops.retain(|_, rows| {
        let timed = rows.iter().filter(|r| r.time.is_some());
        timed.map(|r| r.cost.bytes()).collect::<IndexSet<_>>().len() > 1
    });
    if ops.is_empty() {
        return None;
    }
    let left_out = match ops.len().saturating_sub(MOST_CELLS) {
        0 => String::new(),
        n => format!(", {n} more kinds of cases left out"),
    };
    ops.truncate(MOST_CELLS);
    let mut scene = Scene::default();
    let mut top = heading(
        &mut scene,
        "Bandwidth against size",
        &gpu.subtitle(&format!("GB/s of the bytes that a case must move{left_out}")),
    );
    top = legend(&mut scene, &gpu.legend(ops.values().flatten().copied()), WIDTH, top);
    for (i, (of, rows)) in ops.iter().enumerate() {
        let place = (12.0 + (i % COLUMNS) as f64 * CELL.0, top + (i / COLUMNS) as f64 * CELL.1);
        one(&mut scene, gpu, of, rows, place);
    }
    let height = top + ops.len().div_ceil(COLUMNS) as f64 * CELL.1 + 12.0;
    let about = "For each op, GB/s of every impl by the size of the case, and the roof";
    Some(scene.finish(WIDTH, height, &format!("Bandwidth on {}", gpu.name), about))
}

fn one(scene: &mut Scene, gpu: &Gpu, title: &str, rows: &[&Row], (left, top): (f64, f64)) {
    let roof = |r: &Row| r.time.as_ref().and_then(|t| Some(t.gb_per_s / t.of_roof?));
    let timed = || rows.iter().filter_map(|r| r.time.as_ref().map(|t| (*r, t)));
    let x = Scale::log(rows.iter().map(|r| r.cost.bytes() as f64), (left + 52.0, left + CELL.0 - 16.0));
    let rates = timed().map(|(_, t)| t.gb_per_s).chain(rows.iter().filter_map(|r| roof(r)));
    let y = Scale::from_zero(rates, (top + CELL.1 - 44.0, top + 34.0));
    scene.text_within((left + 52.0, top + 24.0), CELL.0 - 64.0, "b", title);
    let (bottom, right) = (y.at(0.0), x.at(f64::MAX));
    for v in y.ticks() {
        scene.line((left + 52.0, y.at(v)), (right, y.at(v)), "grid");
        scene.text(left + 46.0, y.at(v) + 4.0, "small dim end", &tick(v));
    }
    let ends = x.ends();
    // Three ticks or more, in steps of 2, 4, 16 or 256.
    let octaves = ends.1.log2() - ends.0.log2();
    let step = [8.0, 4.0, 2.0, 1.0].into_iter().find(|s| octaves / s >= 3.0).unwrap_or(1.0);
    for power in (ends.0.log2() / step).ceil() as i32..=(ends.1.log2() / step).floor() as i32 {
        let bytes = 2f64.powf(step * power as f64);
        scene.line((x.at(bytes), top + 34.0), (x.at(bytes), bottom), "grid");
        scene.text(x.at(bytes), bottom + 16.0, "small dim mid", &round(&units::bytes(bytes as u64)));
    }
    let mut roofs: Vec<(f64, f64)> = rows.iter().filter_map(|r| Some((r.cost.bytes() as f64, roof(r)?))).collect();
    roofs.sort_by(|a, b| a.0.total_cmp(&b.0));
    roofs.dedup_by(|a, b| a.0 == b.0);
    if let (Some(first), Some(last)) = (roofs.first().copied(), roofs.last().copied()) {
        roofs.insert(0, (ends.0, first.1));
        roofs.push((ends.1, last.1));
        scene.path(roofs.iter().map(|(b, v)| (x.at(*b), y.at(*v))).collect(), "roof");
    }
    for (_, mut mine) in grouped(timed().map(|(r, _)| r), |r| r.impl_name.as_str()) {
        mine.sort_by_key(|r| r.cost.bytes());
        let number = gpu.number(mine[0]);
        let at = |r: &Row| (x.at(r.cost.bytes() as f64), y.at(r.time.as_ref().map_or(0.0, |t| t.gb_per_s)));
        // Cases of about one size differ in more than size: the line goes through the best of them.
        let best = |rows: &[&Row]| rows.iter().map(|r| at(r)).min_by(|a, b| a.1.total_cmp(&b.1));
        let line: Vec<(f64, f64)> =
            mine.chunk_by(|a, b| b.cost.bytes() as f64 <= 1.3 * a.cost.bytes() as f64).filter_map(best).collect();
        scene.path(line, &format!("curve s{}", number % COLOURS));
        for r in mine {
            scene.mark(at(r), 4.0, number, || hover(r));
        }
    }
    for r in rows.iter().filter(|r| r.failure && r.time.is_none()) {
        scene.cross((x.at(r.cost.bytes() as f64), bottom - 6.0), 4.0, || hover(r));
    }
}
