//! Speed-up over the baseline: a row per op and impl, every shape a dot, their geometric mean a bar.

use super::scale::Scale;
use super::svg::{COLOURS, Svg, short};
use super::{Gpu, heading, hover};
use crate::report::rows::Row;
use crate::report::summary::grouped;
use crate::units;
use indexmap::IndexSet;
use kmark_core::stats::geomean;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 22.0;
const PANEL: (f64, f64) = (210.0, 870.0);

pub fn draw(gpu: &Gpu) -> Option<String> {
    let speedup = |r: &&Row| r.against.as_ref().map(|a| a.comparison.speedup);
    let all: Vec<f64> = gpu.rows.iter().filter_map(speedup).collect();
    if all.is_empty() {
        return None;
    }
    let scale = Scale::log(all.iter().copied().chain([0.5, 2.0]), PANEL);
    let mut ops = Vec::new();
    for (op, rows) in grouped(gpu.rows.iter().copied(), |r| r.op.as_str()) {
        let told = |r: &&Row| r.against.is_some() || r.failure;
        let impls = grouped(rows.into_iter().filter(told), |r| r.impl_name.as_str());
        if !impls.is_empty() {
            ops.push((op, impls));
        }
    }
    let mut svg = Svg::new();
    let top =
        heading(&mut svg, "Speed-up over the baseline", &gpu.subtitle("bar: geometric mean over shapes, dots: shapes"));
    let height = top + 44.0 + ops.iter().map(|(_, impls)| 32.0 + ROW * impls.len() as f64).sum::<f64>() + 20.0;
    svg.text(PANEL.0, top + 10.0, "dim", "← slower");
    svg.text(PANEL.1, top + 10.0, "dim end", "faster →");
    let (first, last) = (top + 34.0, height - 16.0);
    for v in scale.ticks() {
        svg.line((scale.at(v), first), (scale.at(v), last), "grid");
        svg.text(scale.at(v), first - 5.0, "small dim mid", &format!("{v}×"));
    }
    let one = scale.at(1.0);
    let mut y = first;
    for (op, impls) in ops {
        svg.text(24.0, y + 22.0, "b", &short(op, 40));
        y += 32.0;
        for (impl_name, rows) in impls {
            let middle = y + 0.5 * ROW - 2.0;
            svg.text(PANEL.0 - 10.0, middle + 4.5, "end", &short(impl_name, 24));
            let number = gpu.number(rows[0]);
            let speedups: Vec<f64> = rows.iter().filter_map(speedup).collect();
            let mut words = String::new();
            if !speedups.is_empty() {
                let mean = geomean(&speedups);
                let (a, b) = (one.min(scale.at(mean)), one.max(scale.at(mean)));
                svg.rect((a, y + 2.0), (b - a, ROW - 8.0), &format!("f{} pale", number % COLOURS), "");
                for r in rows.iter().filter(|r| r.against.is_some()) {
                    let x = scale.at(speedup(r).unwrap_or(1.0));
                    svg.mark((x, middle), 4.5, number, "", &hover(r));
                }
                let bases: IndexSet<&str> =
                    rows.iter().filter_map(|r| Some(r.against.as_ref()?.baseline.as_str())).collect();
                let base = if bases.len() == 1 { short(bases[0], 22) } else { format!("{} baselines", bases.len()) };
                words = format!("{}× of {base}", units::digits(mean));
                svg.text(PANEL.1 + 14.0, middle + 4.5, "", &words);
            }
            let failed = grouped(rows.iter().copied().filter(|r| r.failure), |r| r.status);
            if !failed.is_empty() {
                let counts: Vec<String> =
                    failed.iter().map(|(status, rows)| format!("{} {status}", rows.len())).collect();
                let x =
                    if words.is_empty() { PANEL.1 + 14.0 } else { PANEL.1 + 24.0 + 7.2 * words.chars().count() as f64 };
                svg.text(x, middle + 4.5, "bad", &counts.join(", "));
                if words.is_empty() {
                    svg.rect((one, y + 2.0), (46.0, ROW - 8.0), "hatch", &hover(rows[0]));
                }
            }
            y += ROW;
        }
    }
    svg.line((one, first), (one, last), "roof");
    let about = "Each impl against the baseline of its case; right of the line is faster";
    Some(svg.finish(WIDTH, height, &format!("Speed-up on {}", gpu.name), about))
}
