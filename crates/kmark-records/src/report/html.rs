//! One page that needs nothing else: the table, the charts, and what stands behind each row. Data goes into it as JSON in
//! which no `<` is left, so that no string of a record can end the script that holds it. Rows are written one by one: a page
//! of many takes little more memory than it is long.

use super::against::noise;
use super::behind::{LONGEST, behind};
use super::chart::{self, font, style, svg};
use super::columns::{self, Column, Value};
use super::rows::{Keep, Row, Samples};
use super::{Options, RunData, short};
use crate::units;
use indexmap::IndexSet;
use rayon::prelude::*;
use serde_json::{Value as Json, json};
use std::fmt::Write;

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");
const CSS: &str = include_str!("page/page.css");
/// A browser opens no page of a million rows; it has so many, and says what it leaves out.
const ROWS: usize = 50_000;

pub const KEEP: Keep = Keep { samples: 256, later: 24, rows: ROWS, behind: Some(behind) };

pub fn render(runs: &[RunData], _: &Options) -> String {
    page(runs, ROWS)
}

/// With so many rows.
fn page(runs: &[RunData], most: usize) -> String {
    let charts = chart::all(runs);
    let selections: IndexSet<String> = runs.iter().map(|run| run.run.selection.join(", ")).collect();
    let title = format!("kmark: {}", Vec::from_iter(selections).join("; "));
    let mut page = String::new();
    fill(PAGE, &mut page, |place, page| match place {
        "title" => page.push_str(&svg::escaped(&short(&title, 120))),
        "css" => [CSS, &font::SHEET, &style::SHEET].iter().for_each(|sheet| page.push_str(sheet)),
        "js" => page.push_str(SCRIPT),
        "data" => {
            let names: Vec<String> = charts.iter().map(|c| c.file.replace('_', " ")).collect();
            data(page, runs, most, &names);
        }
        "charts" => list(page, charts.iter().map(|c| json!(svg::inline(&c.picture)))),
        "details" => each(page, runs, most, "", |_, r| detail(r)),
        _ => unreachable!("the template's places are known"),
    });
    page
}

/// What `write` makes of each row that the page has and the number of its run; some at a time, on all cores.
fn each(out: &mut String, runs: &[RunData], most: usize, between: &str, write: impl Fn(usize, &Row) -> String + Sync) {
    let rows = runs.iter().enumerate().flat_map(|(i, run)| run.rows.iter().map(move |r| (i, r)));
    let rows: Vec<(usize, &Row)> = rows.take(most).collect();
    for (i, some) in rows.chunks(1024).enumerate() {
        let written: Vec<String> = some.par_iter().map(|(run, r)| write(*run, r)).collect();
        out.push_str(if i == 0 { "" } else { between });
        out.push_str(&written.join(between));
    }
}

/// The template with its places filled. What is filled in is not looked at again.
fn fill(template: &str, out: &mut String, mut put: impl FnMut(&str, &mut String)) {
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("the template closes its places");
        out.push_str(before);
        put(name, out);
        rest = after;
    }
    out.push_str(rest);
}

/// JSON that can stand inside a script element, whatever its strings say.
fn inert(value: &Json) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn list(out: &mut String, values: impl Iterator<Item = Json>) {
    out.push('[');
    for (i, value) in values.enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        out.push_str(&inert(&value));
    }
    out.push(']');
}

fn data(out: &mut String, runs: &[RunData], most: usize, charts: &[String]) {
    let columns = columns_of(runs);
    let heads: Vec<Json> =
        columns.iter().map(|c| json!({"name": c.name(), "head": c.head(), "number": c.is_number()})).collect();
    let all: usize = runs.iter().map(|run| run.rows.len()).sum();
    out.push_str("{\"columns\":");
    list(out, heads.into_iter());
    out.push_str(",\"runs\":");
    list(out, runs.iter().map(about));
    out.push_str(",\"charts\":");
    list(out, charts.iter().map(|name| json!(name)));
    write!(out, ",\"left_out\":{},\"rows\":[", all.saturating_sub(most)).expect("a string grows");
    each(out, runs, most, ",", |run, r| inert(&row(&columns, run, r)));
    out.push_str("]}");
}

/// What the table shows: runs and devices only where there are several.
fn columns_of(runs: &[RunData]) -> Vec<Column> {
    let mut columns = columns::for_people();
    let several = |of: fn(&Row) -> &str| {
        let mut all = runs.iter().flat_map(|run| &run.rows).map(of);
        all.next().is_some_and(|first| all.any(|other| other != first))
    };
    for (name, there) in [("device", several(|r| &r.device)), ("mode", several(|r| r.mode)), ("run", runs.len() > 1)] {
        columns.extend(columns::all(runs).into_iter().filter(|c| there && c.name() == name));
    }
    columns
}

/// A row of the table: what is shown, and of numbers what they are sorted by.
fn row(columns: &[Column], run: usize, r: &Row) -> Json {
    let key = |c: &Column| match c.value(r) {
        _ if c.name() == "rate" => json!(r.time.as_ref().map(|t| t.gb_per_s)),
        Value::Nothing | Value::Text(_) => Json::Null,
        Value::Count(n) => json!(n),
        Value::Number(v, _) | Value::Ns(v) => json!(v),
    };
    let cell = |c: &Column| match c.name() {
        // Of a run its folder's name; where that lies is in the details.
        "run" => r.run.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_string(),
        _ => c.shown(r, None),
    };
    let cells: Vec<String> = columns.iter().map(|c| short(&cell(c), LONGEST)).collect();
    let keys: Vec<Json> = columns.iter().filter(|c| c.is_number()).map(key).collect();
    let mut row = json!({"c": cells, "k": keys, "op": short(&r.op, LONGEST), "s": r.status, "run": run});
    if !r.message.is_empty() {
        row["m"] = json!(short(&r.message, LONGEST));
    }
    row
}

fn about(data: &RunData) -> Json {
    let run = data.run;
    let commit = |git: &kmark_core::run::Git| {
        let changed = if git.dirty { ", with changes" } else { "" };
        format!("{}{changed}", git.commit)
    };
    let no_roofs = run.no_roofs.as_ref().map(|why| short(why, LONGEST));
    let facts = [
        ("run", Some(data.name.to_string())),
        ("started", Some(run.started.clone())),
        ("kmark", Some(run.kmark.clone())),
        ("device", Some(format!("{} ({})", run.device.name, run.device.id))),
        ("host", run.host.clone()),
        ("commit", run.git.as_ref().map(commit)),
        ("tags", (!run.tags.is_empty()).then(|| run.tags.join(", "))),
        ("no roofs", no_roofs),
        ("roofs of the run of", run.roofs_from.clone()),
    ];
    let facts = facts.iter().filter_map(|(name, value)| Some([*name, value.as_deref()?]));
    let environment = run.environment.iter().map(|(name, value)| [name.as_str(), value]);
    json!({
        "device": run.device.name,
        "noise": noise(&data.rows).map(units::percent),
        "facts": facts.chain(environment).map(|[name, value]| [name.into(), short(value, LONGEST)]).collect::<Vec<[String; 2]>>(),
    })
}

/// What is shown of a row when it is opened: a line of JSON.
fn detail(r: &Row) -> String {
    let time = r.time.as_ref();
    let head = json!({
        "taken": time.map_or(0, |t| t.samples),
        "time_ns": time.map(|t| t.time_ns),
        "time": time.map(|t| units::time(t.time_ns)),
    });
    let Samples { ns, mhz } = &r.samples;
    let mut out = inert(&head).trim_end_matches('}').to_string();
    out.push_str(",\"samples_ns\":");
    numbers(&mut out, ns);
    out.push_str(",\"clock_mhz\":");
    numbers(&mut out, mhz);
    out.push_str(",\"behind\":");
    out.push_str(if r.behind.is_empty() { "null" } else { &r.behind }.replace('<', "\\u003c").as_str());
    out + "}\n"
}

/// Six digits of each.
fn numbers(out: &mut String, values: &[f32]) {
    out.push('[');
    for (i, v) in values.iter().map(|v| f64::from(*v)).enumerate() {
        let unit = 10f64.powf(5.0 - v.abs().max(1e-9).log10().floor());
        let shown = if unit >= 1.0 { (v * unit).round() / unit } else { (v * unit).round() * (1.0 / unit).round() };
        write!(out, "{}{shown}", if i == 0 { "" } else { "," }).expect("a string grows");
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_string_ends_the_script_that_holds_it() {
        let text = inert(&json!({"m": "</script><script>alert(1)</script><!--"}));
        assert!(!text.contains('<'));
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap()["m"], "</script><script>alert(1)</script><!--");
        let mut out = String::new();
        fill("a{{x}}b{{y}}", &mut out, |place, out| out.push_str(if place == "x" { "{{y}}" } else { "1" }));
        assert_eq!(out, "a{{y}}b1");
    }

    #[test]
    fn a_page_says_what_it_leaves_out() {
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../kmark/tests/data/run");
        let loaded = crate::store::load(run.as_ref()).unwrap();
        let data = RunData::new("a", &loaded.run, &loaded.records, None);
        let all = data.rows.len();
        let page = page(&[data], 5);
        assert!(page.contains(&format!("\"left_out\":{},", all - 5)), "{}", all);
        assert_eq!(page.matches("\"behind\":").count(), 5);
    }

    #[test]
    fn numbers_have_six_digits() {
        let mut out = String::new();
        numbers(&mut out, &[4169286.6, 23.2, 0.0, 1755.0]);
        assert_eq!(out, "[4169290,23.2,0,1755]");
    }
}
