//! Latency and throughput of one op: a row per case and impl, the roof beside each throughput.

use super::scale::Scale;
use super::scene::{Picture, Scene};
use super::style::COLOURS;
use super::{Gpu, heading, hover, round, tick};
use crate::report::rows::{Row, Time};
use crate::report::summary::grouped;
use crate::units;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 22.0;
const LATENCY: (f64, f64) = (210.0, 560.0);
const RATE: (f64, f64) = (660.0, 1080.0);
/// Room for the name of an impl.
const NAME: f64 = 176.0;
/// More rows than this are no picture any more.
const MOST_ROWS: usize = 400;

pub fn draw(gpu: &Gpu, op: &str, rows: &[&Row]) -> Option<Picture> {
    let shown = &rows[..rows.len().min(MOST_ROWS)];
    let times = || shown.iter().filter_map(|r| r.time.as_ref());
    let computes = times().filter(|t| t.gflop_per_s > 20.0 * t.gb_per_s).count() * 2 > times().count();
    let rate = move |t: &Time| if computes { t.gflop_per_s / 1e3 } else { t.gb_per_s };
    let roof = move |t: &Time| t.of_roof.map(|share| rate(t) / share);
    let unit = if computes { "TFLOP/s" } else { "GB/s" };

    let latency = Scale::log(times().flat_map(|t| [t.lo_ns, t.hi_ns]), LATENCY);
    let rates = Scale::from_zero(times().flat_map(|t| [Some(rate(t)), roof(t)]).flatten(), RATE);
    let mut scene = Scene::default();
    let left_out =
        if rows.len() > shown.len() { format!(", first {MOST_ROWS} of {} rows", rows.len()) } else { String::new() };
    let top = heading(
        &mut scene,
        &format!("{op}: latency and throughput"),
        &gpu.subtitle(&format!("time with its 95 % interval{left_out}")),
    );
    let cases = grouped(shown.iter().copied(), |r| r.case.as_str());
    let height = top + 56.0 + cases.values().map(|rows| case_height(rows)).sum::<f64>() + 24.0;

    scene.text(LATENCY.0, top + 14.0, "b", "latency, shorter is better");
    scene.text(RATE.0, top + 14.0, "b", &format!("throughput in {unit}"));
    if times().any(|t| t.of_roof.is_some()) {
        scene.line((RATE.0 + 175.0, top + 9.0), (RATE.0 + 197.0, top + 9.0), "roof");
        scene.text(RATE.0 + 203.0, top + 14.0, "dim", "the roof of the case");
        scene.text(RATE.1 + 98.0, top + 38.0, "small dim end", "of roof");
    }
    let (first, last) = (top + 44.0, height - 20.0);
    for v in latency.ticks() {
        scene.line((latency.at(v), first), (latency.at(v), last), "grid");
        scene.text(latency.at(v), first - 6.0, "small dim mid", &round(&units::time(v)));
    }
    for v in rates.ticks() {
        scene.line((rates.at(v), first), (rates.at(v), last), "grid");
        scene.text(rates.at(v), first - 6.0, "small dim mid", &tick(v));
    }
    let mut y = first;
    for (case, rows) in cases {
        scene.text_within((24.0, y + 22.0), WIDTH - 48.0, "b", case);
        y += 34.0;
        let top = y;
        for r in rows.iter().filter(|r| r.is_told()) {
            one(&mut scene, gpu, r, y, &latency, &rates, rate);
            y += ROW;
        }
        if let Some(roof) = rows.iter().filter_map(|r| r.time.as_ref()).find_map(roof) {
            scene.line((rates.at(roof), top - 1.0), (rates.at(roof), y - 3.0), "roof");
        }
        for (status, rows) in grouped(rows.into_iter().filter(|r| !r.is_told()), |r| r.status) {
            let names: Vec<&str> = rows.iter().map(|r| r.impl_name.as_str()).collect();
            scene.text(LATENCY.0 - 10.0, y + 14.0, "small dim end", status);
            scene.text_within((LATENCY.0, y + 14.0), WIDTH - 24.0 - LATENCY.0, "small dim", &names.join(", "));
            y += ROW;
        }
    }
    let about = format!("{} rows of {op} on {}: time and throughput of every impl", rows.len(), gpu.name);
    Some(scene.finish(WIDTH, height, &format!("{op} on {}", gpu.name), &about))
}

fn case_height(rows: &[&Row]) -> f64 {
    let (told, others): (Vec<&Row>, Vec<&Row>) = rows.iter().copied().partition(|r| r.is_told());
    34.0 + ROW * (told.len() + grouped(others.into_iter(), |r| r.status).len()) as f64
}

fn one(scene: &mut Scene, gpu: &Gpu, r: &Row, y: f64, latency: &Scale, rates: &Scale, rate: impl Fn(&Time) -> f64) {
    let (number, middle) = (gpu.number(r), y + 0.5 * ROW - 1.5);
    let class = if r.time.is_some() { "end" } else { "end dim" };
    scene.text_within((LATENCY.0 - 10.0, middle + 4.5), NAME, class, &r.impl_name);
    let Some(t) = &r.time else {
        for x in [LATENCY.0, RATE.0] {
            scene.rect((x, y + 3.0), (46.0, ROW - 9.0), "hatch", &hover(r));
            scene.text(x + 54.0, middle + 4.5, "bad", r.status);
        }
        return;
    };
    let colour = number % COLOURS;
    let x = latency.at(t.time_ns);
    scene.line((LATENCY.0, middle), (x, middle), &format!("curve pale s{colour}"));
    scene.line((latency.at(t.lo_ns), middle), (latency.at(t.hi_ns), middle), "whisker");
    scene.mark((x, middle), 5.5, number, || hover(r));
    scene.text(x + 11.0, middle + 4.5, "small", &units::time(t.time_ns));
    let class = if t.impossible { "hatch".to_string() } else { format!("f{colour}") };
    let x = rates.at(rate(t));
    scene.rect((RATE.0, y + 1.0), (x - RATE.0, ROW - 5.0), &class, &hover(r));
    scene.text(RATE.1 + 48.0, middle + 4.5, "small end", &units::digits(rate(t)));
    let share = t.of_roof.map(units::percent).unwrap_or_default();
    match t.impossible {
        true => scene.text(RATE.0 + 8.0, middle + 4.5, "bad", "impossible"),
        false => scene.text(RATE.1 + 98.0, middle + 4.5, "small dim end", &share),
    }
}
