//! The heat map of a fleet: a line for each GPU, a column for each op, and in each field by how much it takes longer than
//! the median of all. Blue is faster, red slower; a frame is drawn where that is certain.

use super::scene::{Picture, Scene};
use super::{font, heading};
use crate::report::fleet::{Deviation, Spread, signed};
use kmark_core::verdict::Verdict;

const LINE: f64 = 22.0;
const FIELD: f64 = 64.0;
const LEFT: f64 = 230.0;
/// Names of ops stand on two heights in turns.
const HEAD: f64 = 40.0;
/// More of either are no picture any more.
const MOST_MEMBERS: usize = 400;
const MOST_OPS: usize = 40;

pub fn draw(spread: &Spread) -> Picture {
    let ops = &spread.ops[..spread.ops.len().min(MOST_OPS)];
    let members = &spread.members[..spread.members.len().min(MOST_MEMBERS)];
    let left_out = match (spread.members.len() - members.len(), spread.ops.len() - ops.len()) {
        (0, 0) => String::new(),
        (m, o) => format!(", {m} more and {o} ops left out"),
    };
    let width = (LEFT + FIELD * (1 + ops.len()) as f64 + 40.0).max(760.0);
    let mut scene = Scene::default();
    let what = format!("{} rows on {}{left_out}", spread.rows, spread.count());
    let subtitle = format!("time against the median of all, in % · {what} · {} · {}", spread.device, spread.mode);
    let top = heading(&mut scene, "The same cases everywhere", &subtitle) + HEAD;
    for (i, name) in ["all"].into_iter().chain(ops.iter().map(String::as_str)).enumerate() {
        let (x, y) = (LEFT + FIELD * (i as f64 + 0.5), top - if i % 2 == 0 { 24.0 } else { 8.0 });
        scene.text(x, y, "small mid", &font::fitted(name, 11.0, false, 1.9 * FIELD));
    }
    for (line, m) in members.iter().enumerate() {
        let y = top + LINE * line as f64;
        scene.text_within((LEFT - 10.0, y + 15.0), LEFT - 34.0, "end", &m.name());
        for (i, (op, d)) in
            std::iter::once(("all ops", &Some(m.all))).chain(ops.iter().map(String::as_str).zip(&m.ops)).enumerate()
        {
            let x = LEFT + FIELD * i as f64;
            match d {
                Some(d) => field(&mut scene, (x, y), d, &format!("{} · {op}", m.name())),
                None => scene.text(x + 0.5 * FIELD, y + 15.0, "small dim mid", "·"),
            }
        }
    }
    let height = top + LINE * members.len() as f64 + 24.0;
    let title = format!("{}: {}", spread.count(), spread.device);
    scene.finish(width, height, &title, "Each GPU against the median of all, op by op; framed fields are certain")
}

fn field(scene: &mut Scene, (x, y): (f64, f64), d: &Deviation, name: &str) {
    let colour = if d.slower_by > 0.0 { "f3" } else { "f0" };
    // What nobody would call a difference has no colour.
    let class = match d.slower_by.abs() {
        s if s < 0.005 => "paper".to_string(),
        s if s < 0.03 => format!("{colour} pale"),
        _ => colour.to_string(),
    };
    let hover = format!("{name}\n{}: {}", signed(d.slower_by), d.words());
    let (at, size) = ((x + 1.0, y + 1.0), (FIELD - 2.0, LINE - 2.0));
    scene.rect(at, size, &class, &hover);
    if matches!(d.verdict, Verdict::Slower | Verdict::Faster) {
        scene.rect(at, size, "roof", "");
    }
    scene.text(x + 0.5 * FIELD, y + 15.0, "small mid", signed(d.slower_by).trim_end_matches(" %"));
}
