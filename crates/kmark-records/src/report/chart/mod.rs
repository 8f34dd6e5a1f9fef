//! Charts: rows in, pictures out, as SVG or PNG; one kind of chart per file here. Failures are drawn where their bars would be.

mod bandwidth;
mod comparison;
mod distribution;
mod fleet;
pub mod font;
mod png;
mod raster;
mod roofline;
mod scale;
mod scene;
mod speedup;
pub mod style;
pub mod svg;

use super::rows::{Keep, Row};
use super::summary::grouped;
use super::{File, Options, RunData, short};
use crate::units;
use indexmap::{IndexMap, IndexSet};
use kmark_core::cost::Roofs;
use kmark_core::record::family;
use rayon::prelude::*;
use scene::{Picture, Scene};

/// Charts of samples show some rows of each op.
pub const KEEP: Keep = Keep { samples: 2000, later: 0, rows: usize::MAX, behind: None };

/// A picture and the name of its file, without what says of which format it is.
pub struct Chart {
    pub file: String,
    pub picture: Picture,
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
        let mut add = |name: String, picture: Option<Picture>| {
            let Some(picture) = picture else { return };
            // Two names may be one word.
            let mut names = std::iter::once(String::new()).chain((2..).map(|n| format!("_{n}")));
            let file = names.find_map(|n| Some(format!("{name}_{word}{n}")).filter(|f| taken.insert(f.clone())));
            charts.extend(file.map(|file| Chart { file, picture }));
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
    for spread in super::fleet::spreads(runs, &[]) {
        let mode = if spread.mode == "cold" { String::new() } else { format!("_{}", spread.mode) };
        let mut file = format!("fleet_{}{mode}", file_word(&spread.device));
        while !taken.insert(file.clone()) {
            file.push('_');
        }
        charts.push(Chart { file, picture: fleet::draw(&spread) });
    }
    charts
}

/// The files of `--format svg`.
pub fn svg_files(runs: &[RunData], _: &Options) -> Vec<File> {
    all(runs).into_iter().map(|c| (c.file + ".svg", svg::file(&c.picture).into_bytes())).collect()
}

/// The files of `--format png`.
pub fn png_files(runs: &[RunData], options: &Options) -> Vec<File> {
    all(runs).into_par_iter().map(|c| (c.file + ".png", png::file(&c.picture, options.dark))).collect()
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
    let mut lines = vec![format!("{} · {}", short(&r.case, 200), short(&r.impl_name, 80))];
    match &r.time {
        None => lines.push(format!("{}: {}", r.status, short(r.message.lines().next().unwrap_or(""), 200))),
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
fn heading(scene: &mut Scene, title: &str, subtitle: &str) -> f64 {
    scene.text_within((24.0, 38.0), 1150.0, "title", title);
    scene.text_within((24.0, 60.0), 1150.0, "dim", subtitle);
    76.0
}

/// More have no mark of their own.
const MOST_FAMILIES: usize = 4 * style::COLOURS;

/// Marks and names of families in rows from `y` on; returns where it ends.
fn legend(scene: &mut Scene, families: &[(usize, &str)], width: f64, y: f64) -> f64 {
    let (mut x, mut y) = (30.0, y + 10.0);
    for (number, name) in families.iter().take(MOST_FAMILIES) {
        let name = font::fitted(name, font::SIZE, false, 240.0);
        let room = 34.0 + font::width(&name, font::SIZE, false);
        if x + room > width - 24.0 {
            (x, y) = (30.0, y + 22.0);
        }
        scene.mark((x, y - 4.5), 5.5, *number, String::new);
        scene.text(x + 11.0, y, "", &name);
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
