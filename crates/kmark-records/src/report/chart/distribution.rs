//! How samples and clocks are spread: a row per case and impl, samples as a hill over their time, clocks beside it.

use super::scale::Scale;
use super::scene::{Picture, Scene};
use super::style::COLOURS;
use super::{Gpu, heading, hover};
use crate::report::keep::MOST_SAMPLED;
use crate::report::rows::Row;
use crate::report::summary::grouped;
use crate::units;
use kmark_core::stats::Sorted;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 34.0;
const TIMES: (f64, f64) = (210.0, 800.0);
const CLOCKS: (f64, f64) = (890.0, 1170.0);
const BINS: usize = 80;
/// The picture reaches so far at the most; what lies further from the time is drawn at its edge.
const REACH: (f64, f64) = (-0.3, 0.6);

pub fn draw(gpu: &Gpu, op: &str, rows: &[&Row]) -> Option<Picture> {
    let sampled = |r: &&Row| !r.samples.ns.is_empty();
    let shown: Vec<&Row> = rows.iter().copied().filter(|r| sampled(r) || r.failure).take(MOST_SAMPLED).collect();
    if !shown.iter().any(sampled) {
        return None;
    }
    let mut scene = Scene::default();
    let top = heading(
        &mut scene,
        &format!("{op}: samples and clocks"),
        &gpu.subtitle("each sample against the time that is shown for its row"),
    );
    let cases = grouped(shown.iter().copied(), |r| r.case.as_str());
    let height = top + 50.0 + cases.values().map(|rows| 34.0 + ROW * rows.len() as f64).sum::<f64>() + 20.0;
    let x = Scale::linear(reach(&shown), TIMES);
    let clocks = shown.iter().flat_map(|r| r.samples.mhz.iter().copied().map(f64::from));
    let (lo, hi) = clocks.fold((f64::INFINITY, 0.0_f64), |(lo, hi), v| (lo.min(v), hi.max(v)));
    let mhz = (hi > 0.0).then(|| Scale::linear((lo - 15.0, hi + 15.0), CLOCKS));
    let (first, last) = (top + 38.0, height - 16.0);
    for v in x.ticks() {
        scene.line((x.at(v), first), (x.at(v), last), if v == 0.0 { "axis" } else { "grid" });
        let word = if v == 0.0 { "time".into() } else { format!("{:+} %", (1000.0 * v).round() / 10.0) };
        scene.text(x.at(v), first - 6.0, "small dim mid", &word);
    }
    if let Some(scale) = &mhz {
        scene.text(CLOCKS.0, top + 10.0, "b", "clock in MHz");
        for v in scale.ticks() {
            scene.line((scale.at(v), first), (scale.at(v), last), "grid");
            scene.text(scale.at(v), first - 6.0, "small dim mid", &format!("{v:.0}"));
        }
    }
    let mut y = first;
    for (case, rows) in cases {
        scene.text_within((24.0, y + 22.0), WIDTH - 48.0, "b", case);
        y += 34.0;
        for r in rows {
            let base = y + ROW - 6.0;
            scene.text_within((TIMES.0 - 10.0, base - 4.0), TIMES.0 - 34.0, "end", &r.impl_name);
            if let (true, Some(t)) = (sampled(&r), &r.time) {
                let colour = gpu.number(r) % COLOURS;
                scene.rect((TIMES.0, y), (TIMES.1 - TIMES.0, ROW - 4.0), "paper pale", &hover(r));
                hill(&mut scene, apart(r).into_iter(), &x, base, &format!("f{colour}"));
                scene.text(TIMES.1 + 8.0, base - 4.0, "small", &units::time(t.time_ns));
                if let Some(scale) = &mhz {
                    hill(&mut scene, r.samples.mhz.iter().copied().map(f64::from), scale, base, &format!("f{colour}"));
                }
                if t.throttled > 0.5 {
                    scene.text(CLOCKS.1, base - 14.0, "small bad end", "held down");
                }
            } else {
                scene.rect((TIMES.0, base - 14.0), (46.0, 14.0), "hatch", &hover(r));
                scene.text(TIMES.0 + 54.0, base - 3.0, "bad", r.status);
            }
            scene.line((TIMES.0, base), (TIMES.1, base), "grid");
            y += ROW;
        }
    }
    let about = format!("Spread of the samples of {op} on {}, and of the clocks at which they were taken", gpu.name);
    Some(scene.finish(WIDTH, height, &format!("{op}: samples on {}", gpu.name), &about))
}

/// How far a sample is from the time of its row.
fn apart(r: &Row) -> Vec<f64> {
    let Some(t) = &r.time else { return Vec::new() };
    r.samples.ns.iter().map(|v| f64::from(*v) / t.time_ns - 1.0).collect()
}

/// Where all but the rarest samples of every row lie, and some room.
fn reach(rows: &[&Row]) -> (f64, f64) {
    let (mut lo, mut hi) = (-0.03_f64, 0.03_f64);
    for samples in rows.iter().map(|r| apart(r)).filter(|samples| !samples.is_empty()) {
        let samples = Sorted::of(&samples);
        (lo, hi) = (lo.min(1.1 * samples.quantile(0.02)), hi.max(1.1 * samples.quantile(0.98)));
    }
    (lo.max(REACH.0), hi.min(REACH.1))
}

/// Values as a hill above `base`, highest where most are.
fn hill(scene: &mut Scene, values: impl Iterator<Item = f64>, scale: &Scale, base: f64, class: &str) {
    let (lo, hi) = scale.ends();
    let mut bins = [0usize; BINS];
    for v in values {
        let at = ((v - lo) / (hi - lo) * BINS as f64) as isize;
        bins[at.clamp(0, BINS as isize - 1) as usize] += 1;
    }
    let most = bins.iter().copied().max().unwrap_or(0).max(1) as f64;
    let edge = |i: usize| scale.at(lo + (hi - lo) * i as f64 / BINS as f64);
    for (start, end) in stretches(&bins) {
        let mut points = vec![(edge(start), base)];
        for (i, count) in bins.iter().enumerate().take(end).skip(start) {
            let height = (ROW - 9.0) * *count as f64 / most;
            points.extend([(edge(i), base - height), (edge(i + 1), base - height)]);
        }
        points.push((edge(end), base));
        scene.polygon(points, class);
    }
}

/// Where there is anything, as ranges.
fn stretches(bins: &[usize]) -> Vec<(usize, usize)> {
    let mut out = Vec::new();
    let mut start = None;
    for (i, count) in bins.iter().chain([&0]).enumerate() {
        match (start, *count > 0) {
            (None, true) => start = Some(i),
            (Some(from), false) => {
                out.push((from, i));
                start = None;
            }
            _ => {}
        }
    }
    out
}
