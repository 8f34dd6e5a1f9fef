//! The roofline: what the memory and the arithmetic of the device allow, and every case a dot below it.

use super::scale::Scale;
use super::scene::{Picture, Scene};
use super::{Gpu, heading, hover, legend, round, tick};
use crate::report::rows::Row;
use crate::units;

const WIDTH: f64 = 1200.0;
const X: (f64, f64) = (90.0, 1170.0);
const HEIGHT: f64 = 560.0;
/// From one line of words to the next.
const WORDS: f64 = 16.0;

pub fn draw(gpu: &Gpu) -> Option<Picture> {
    let intensity = |r: &Row| r.cost.flops as f64 / r.cost.bytes().max(1) as f64;
    let computing = || gpu.rows.iter().copied().filter(|r| r.cost.flops > 0);
    let timed = || computing().filter_map(|r| r.time.as_ref().map(|t| (r, 1e9 * t.gflop_per_s)));
    let roofs = gpu.roofs.filter(|_| timed().next().is_some())?;
    let memory = [roofs.copy, roofs.read, roofs.write, roofs.triad];
    let (least, most) = (memory.into_iter().fold(f64::INFINITY, f64::min), memory.into_iter().fold(0.0, f64::max));
    let best = roofs.matrix.values().copied().fold(0.0, f64::max);

    // Both roofs are in the picture, whatever the cases are.
    let x = Scale::log(computing().map(intensity).chain((best > 0.0).then(|| 3.0 * best / least)), X);
    let (left, right) = x.ends();
    let peak = if best > 0.0 { best } else { most * right };
    let low = timed().map(|(_, rate)| rate).fold(least * left, f64::min);
    let mut scene = Scene::default();
    let mut top = heading(&mut scene, "Roofline", &gpu.subtitle("measured roofs; every case of every impl is a dot"));
    top = legend(&mut scene, &gpu.legend(timed().map(|(r, _)| r)), WIDTH, top);
    let y = Scale::log([low, 1.3 * peak].into_iter(), (top + HEIGHT, top + 14.0));

    for v in x.ticks() {
        scene.line((x.at(v), top + 14.0), (x.at(v), top + HEIGHT), "grid");
        scene.text(x.at(v), top + HEIGHT + 18.0, "small dim mid", &tick(v));
    }
    for v in y.ticks() {
        scene.line((X.0, y.at(v)), (X.1, y.at(v)), "grid");
        scene.text(X.0 - 8.0, y.at(v) + 4.0, "small dim end", &round(&units::flops(v)));
    }
    scene.text((X.0 + X.1) / 2.0, top + HEIGHT + 42.0, "mid", "FLOP per byte that the case must move");
    // The four patterns of traffic are a band; its lower edge is what copies reach.
    let ridge = |bandwidth: f64| if best > 0.0 { (best / bandwidth).min(right) } else { right };
    let edge = |bandwidth: f64| [(left, bandwidth * left), (ridge(bandwidth), bandwidth * ridge(bandwidth))];
    let pixels = |points: [(f64, f64); 2]| points.map(|(i, rate)| (x.at(i), y.at(rate)));
    scene.path(pixels(edge(least)).to_vec(), "roof");
    scene.path(pixels(edge(most)).to_vec(), "roof2");
    let words = format!("memory: {} to {} GB/s", units::digits(least / 1e9), units::digits(most / 1e9));
    let at = left * (ridge(least) / left).powf(0.3);
    scene.text(x.at(at) - 12.0, y.at(most * at) - 16.0, "b end", &words);
    let mut matrix: Vec<_> = roofs.matrix.iter().collect();
    matrix.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut above = f64::NEG_INFINITY;
    for (dtype, flops) in matrix {
        let at = y.at(*flops);
        scene.line((x.at(flops / most), at), (X.1, at), "roof");
        // Above its line, or below it where another's words are.
        above = if at - 6.0 < above + WORDS { (at + WORDS).max(above + WORDS) } else { at - 6.0 };
        scene.text(X.1 - 4.0, above, "b end", &format!("{dtype} matrix: {}", units::flops(*flops)));
    }
    for (r, rate) in timed() {
        scene.mark((x.at(intensity(r)), y.at(rate)), 5.0, gpu.number(r), || hover(r));
    }
    let failed: Vec<&Row> = computing().filter(|r| r.failure && r.time.is_none()).collect();
    for r in &failed {
        scene.cross((x.at(intensity(r)), top + HEIGHT - 9.0), 4.5, || hover(r));
    }
    let mut notes = Vec::new();
    if best == 0.0 {
        notes.push("no matrix roof was measured in this run".to_string());
    }
    if !failed.is_empty() {
        notes.push(format!("× {} failed", failed.len()));
    }
    let idle = gpu.rows.iter().filter(|r| r.cost.flops == 0).count();
    if idle > 0 {
        notes.push(format!("{idle} rows do no arithmetic and are not here"));
    }
    scene.text(X.0, top + HEIGHT + 42.0, "small dim", &notes.join(" · "));
    let about = format!("{} dots below the roofs of {}", timed().count(), gpu.name);
    Some(scene.finish(WIDTH, top + HEIGHT + 60.0, &format!("Roofline of {}", gpu.name), &about))
}
