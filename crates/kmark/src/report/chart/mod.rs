//! Charts: rows in, SVG files out; one kind of chart per file here. Failures are drawn where their bars would be.

mod bandwidth;
mod comparison;
mod distribution;
mod roofline;
mod scale;
mod speedup;
pub mod svg;

use super::rows::Row;
use super::summary::grouped;
use super::{Options, RunData};
use crate::units;
use indexmap::{IndexMap, IndexSet};
use kmark_core::cost::Roofs;
use kmark_core::record::family;
use svg::Svg;

/// A picture and the file that it goes by.
pub struct Chart {
    pub file: String,
    pub svg: String,
}

/// What was measured on one kind of device, in whichever runs.
struct Gpu<'a> {
    name: &'a str,
    mode: &'a str,
    rows: Vec<&'a Row>,
    roofs: Option<&'a Roofs>,
    /// Families of impls in the order of their colours.
    families: IndexSet<String>,
}

impl Gpu<'_> {
    fn number(&self, r: &Row) -> usize {
        self.families.get_index_of(&family(&r.impl_name)).unwrap_or(0)
    }

    /// Numbers and names of the families that these rows are of.
    fn legend<'r>(&self, rows: impl Iterator<Item = &'r Row>) -> Vec<(usize, &str)> {
        let mut numbers: Vec<usize> = rows.map(|r| self.number(r)).collect();
        numbers.sort();
        numbers.dedup();
        numbers.into_iter().map(|i| (i, self.families[i].as_str())).collect()
    }

    /// What stands below a title.
    fn subtitle(&self, what: &str) -> String {
        format!("{what} · {} · {} · measured by kmark", self.name, self.mode)
    }
}

pub fn all(runs: &[RunData]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    let mut taken = IndexSet::new();
    for gpu in gpus(runs) {
        let mode = if gpu.mode == "cold" { String::new() } else { format!("_{}", gpu.mode) };
        let word = file_word(gpu.name) + &mode;
        let mut add = |name: String, svg: Option<String>| {
            let Some(svg) = svg else { return };
            // Two names may be one word.
            let mut names = std::iter::once(String::new()).chain((2..).map(|n| format!("_{n}")));
            let file = names.find_map(|n| Some(format!("{name}_{word}{n}.svg")).filter(|f| taken.insert(f.clone())));
            charts.extend(file.map(|file| Chart { file, svg }));
        };
        add("speedup_comparison".into(), speedup::draw(&gpu));
        add("roofline".into(), roofline::draw(&gpu));
        add("bandwidth".into(), bandwidth::draw(&gpu));
        for (op, rows) in grouped(gpu.rows.iter().copied(), |r| r.op.as_str()) {
            let op_word = file_word(op);
            add(format!("{op_word}_comparison"), comparison::draw(&gpu, op, &rows));
            add(format!("{op_word}_distribution"), distribution::draw(&gpu, op, &rows));
        }
    }
    charts
}

/// The files of `--format svg`.
pub fn files(runs: &[RunData], _: &Options) -> Vec<(String, String)> {
    all(runs).into_iter().map(|c| (c.file, c.svg)).collect()
}

fn gpus<'a>(runs: &'a [RunData]) -> Vec<Gpu<'a>> {
    let mut gpus: IndexMap<(&str, &str), Gpu> = IndexMap::new();
    for run in runs {
        for r in &run.rows {
            let new =
                || Gpu { name: &r.device, mode: r.mode, rows: Vec::new(), roofs: None, families: IndexSet::new() };
            let gpu = gpus.entry((r.device.as_str(), r.mode)).or_insert_with(new);
            gpu.rows.push(r);
            gpu.roofs = gpu.roofs.or(run.run.roofs.as_ref());
            gpu.families.insert(family(&r.impl_name));
        }
    }
    gpus.into_values().collect()
}

/// A name as part of a file's.
fn file_word(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
    let word: String = name.chars().take(80).map(plain).collect();
    if word.starts_with('.') { format!("_{word}") } else { word }
}

/// What is shown while the pointer is on a row's mark.
fn hover(r: &Row) -> String {
    let mut lines = vec![format!("{} · {}", svg::short(&r.case, 200), svg::short(&r.impl_name, 80))];
    match &r.time {
        None => lines.push(format!("{}: {}", r.status, svg::short(r.message.lines().next().unwrap_or(""), 200))),
        Some(t) => {
            let spread = units::percent((t.hi_ns - t.lo_ns) / 2.0 / t.time_ns);
            lines.push(format!("{} ± {spread}, {}", units::time(t.time_ns), super::columns::rate(t)));
            lines.extend(t.of_roof.map(|share| format!("{} of roof", units::percent(share))));
            lines.extend(r.against.as_ref().map(|a| {
                format!("{}× of {} ({})", units::digits(a.comparison.speedup), a.baseline, a.comparison.verdict.word())
            }));
            if r.status != "ok" {
                lines.push(r.status.to_string());
            }
        }
    }
    lines.join("\n")
}

/// The upper edge of a chart; returns where it ends.
fn heading(svg: &mut Svg, title: &str, subtitle: &str) -> f64 {
    svg.text(24.0, 38.0, "title", title);
    svg.text(24.0, 60.0, "dim", &svg::short(subtitle, 150));
    76.0
}

/// Marks and names of families in rows from `y` on; returns where it ends.
fn legend(svg: &mut Svg, families: &[(usize, &str)], width: f64, y: f64) -> f64 {
    let (mut x, mut y) = (30.0, y + 10.0);
    for (number, name) in families {
        let name = svg::short(name, 32);
        let room = 28.0 + 8.7 * name.chars().count() as f64;
        if x + room > width - 24.0 {
            (x, y) = (30.0, y + 22.0);
        }
        svg.mark((x, y - 4.5), 5.5, *number, "", "");
        svg.text(x + 11.0, y, "", &name);
        x += room;
    }
    y + 14.0
}

/// A quantity on an axis: `100 µs`, not `100.0 µs`.
fn round(shown: &str) -> String {
    shown.replace(".00 ", " ").replace(".0 ", " ")
}

/// A number on an axis.
fn tick(v: f64) -> String {
    match v.abs() {
        0.0 => "0".into(),
        a if a >= 1e6 => format!("{:.0e}", v),
        a if a >= 1.0 && v.fract() == 0.0 => format!("{v:.0}"),
        a if a >= 0.001 => format!("{v}").chars().take(6).collect(),
        _ => format!("{v:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_to_their_folder() {
        assert_eq!(file_word("NVIDIA H200"), "NVIDIA_H200");
        assert_eq!(file_word("../../etc/passwd"), "_.._.._etc_passwd");
    }
}
