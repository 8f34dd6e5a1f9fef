//! Speed-up over the baseline: a row per op and impl, every shape a dot, their geometric mean a bar.

use super::scale::Scale;
use super::scene::{Picture, Scene};
use super::style::COLOURS;
use super::{Gpu, font, heading, hover};
use crate::report::rows::Row;
use crate::report::summary::grouped;
use crate::units;
use indexmap::IndexSet;
use kmark_core::stats::geomean;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 22.0;
const PANEL: (f64, f64) = (210.0, 870.0);
/// More rows than this are no picture any more.
const MOST_ROWS: usize = 400;

pub fn draw(gpu: &Gpu) -> Option<Picture> {
    let speedup = |r: &&Row| r.against.as_ref().map(|a| a.comparison.speedup);
    let all: Vec<f64> = gpu.rows.iter().filter_map(speedup).collect();
    if all.is_empty() {
        return None;
    }
    let scale = Scale::log(all.iter().copied().chain([0.5, 2.0]), PANEL);
    let (mut ops, mut shown, mut left_out) = (Vec::new(), 0, 0);
    for (op, rows) in grouped(gpu.rows.iter().copied(), |r| r.op.as_str()) {
        let told = |r: &&Row| r.against.is_some() || r.failure;
        let mut impls = grouped(rows.into_iter().filter(told), |r| r.impl_name.as_str());
        left_out += impls.len().saturating_sub(MOST_ROWS - shown);
        impls.truncate(MOST_ROWS - shown);
        shown += impls.len();
        if !impls.is_empty() {
            ops.push((op, impls));
        }
    }
    let left_out = if left_out > 0 { format!(", {left_out} more rows left out") } else { String::new() };
    let mut scene = Scene::default();
    let top = heading(
        &mut scene,
        "Speed-up over the baseline",
        &gpu.subtitle(&format!("bar: geometric mean over shapes, dots: shapes{left_out}")),
    );
    let height = top + 44.0 + ops.iter().map(|(_, impls)| 32.0 + ROW * impls.len() as f64).sum::<f64>() + 20.0;
    scene.text(PANEL.0, top + 10.0, "dim", "← slower");
    scene.text(PANEL.1, top + 10.0, "dim end", "faster →");
    let (first, last) = (top + 34.0, height - 16.0);
    for v in scale.ticks() {
        scene.line((scale.at(v), first), (scale.at(v), last), "grid");
        scene.text(scale.at(v), first - 5.0, "small dim mid", &format!("{v}×"));
    }
    let one = scale.at(1.0);
    let mut y = first;
    for (op, impls) in ops {
        scene.text_within((24.0, y + 22.0), PANEL.1 - 24.0, "b", op);
        y += 32.0;
        for (impl_name, rows) in impls {
            let middle = y + 0.5 * ROW - 2.0;
            scene.text_within((PANEL.0 - 10.0, middle + 4.5), PANEL.0 - 34.0, "end", impl_name);
            let number = gpu.number(rows[0]);
            let speedups: Vec<f64> = rows.iter().filter_map(speedup).collect();
            let mut words = String::new();
            if !speedups.is_empty() {
                let mean = geomean(&speedups);
                let (a, b) = (one.min(scale.at(mean)), one.max(scale.at(mean)));
                scene.rect((a, y + 2.0), (b - a, ROW - 8.0), &format!("f{} pale", number % COLOURS), "");
                for r in rows.iter().filter(|r| r.against.is_some()) {
                    let x = scale.at(speedup(r).unwrap_or(1.0));
                    scene.mark((x, middle), 4.5, number, || hover(r));
                }
                let bases: IndexSet<&str> =
                    rows.iter().filter_map(|r| Some(r.against.as_ref()?.baseline.as_str())).collect();
                let base = if bases.len() == 1 {
                    font::fitted(bases[0], font::SIZE, false, 150.0)
                } else {
                    format!("{} baselines", bases.len())
                };
                words = format!("{}× of {base}", units::digits(mean));
                scene.text(PANEL.1 + 14.0, middle + 4.5, "", &words);
            }
            let failed = grouped(rows.iter().copied().filter(|r| r.failure), |r| r.status);
            if !failed.is_empty() {
                let counts: Vec<String> =
                    failed.iter().map(|(status, rows)| format!("{} {status}", rows.len())).collect();
                let beside = if words.is_empty() { 0.0 } else { 10.0 + font::width(&words, font::SIZE, false) };
                let x = PANEL.1 + 14.0 + beside;
                scene.text_within((x, middle + 4.5), WIDTH - 12.0 - x, "bad", &counts.join(", "));
                if words.is_empty() {
                    scene.rect((one, y + 2.0), (46.0, ROW - 8.0), "hatch", &hover(rows[0]));
                }
            }
            y += ROW;
        }
    }
    scene.line((one, first), (one, last), "roof");
    let about = "Each impl against the baseline of its case; right of the line is faster";
    Some(scene.finish(WIDTH, height, &format!("Speed-up on {}", gpu.name), about))
}
