//! One page that needs nothing else: the table, the charts, and what stands behind each row. Data goes into it as JSON in
//! which no `<` is left, so that no string of a record can end the script that holds it.

use super::against::noise;
use super::chart::{self, Chart, svg};
use super::columns::{self, Column, Value};
use super::rows::Row;
use super::{Options, RunData};
use crate::units;
use kmark_core::record::{Conditions, Mode, Record};
use kmark_core::run::Run;
use serde_json::{Value as Json, json};

const PAGE: &str = include_str!("page/page.html");
const SCRIPT: &str = include_str!("page/page.js");
const CSS: &str = include_str!("page/page.css");
/// All samples in the page together; each row has its share of them, but not fewer than `LEAST`.
const SAMPLES: usize = 1_000_000;
const LEAST: usize = 24;
/// A longer text is a log, not a name.
const LONGEST: usize = 4000;

pub fn render(runs: &[RunData], _: &Options) -> String {
    let rows = || runs.iter().enumerate().flat_map(|(i, run)| run.rows.iter().map(move |r| (i, run, r)));
    let columns = shown(runs);
    let charts = chart::all(runs);
    let table: Vec<Json> = rows().map(|(i, _, r)| row(&columns, i, r)).collect();
    let heads: Vec<Json> =
        columns.iter().map(|c| json!({"name": c.name(), "head": c.head(), "number": c.is_number()})).collect();
    let names: Vec<String> = charts.iter().map(|c| c.file.trim_end_matches(".svg").replace('_', " ")).collect();
    let data = json!({
        "columns": heads,
        "rows": table,
        "runs": runs.iter().map(about).collect::<Vec<_>>(),
        "charts": names,
    });
    // The page has the style already, and no address in it.
    let namespace = format!(" xmlns=\"{}\"", svg::NAMESPACE);
    let inline = |c: &Chart| c.svg.replace(&namespace, "").replace(svg::STYLE, "");
    let pictures: Vec<String> = charts.iter().map(inline).collect();
    let most = (SAMPLES / table.len().max(1)).max(LEAST);
    let details: Vec<String> = rows().map(|(_, run, r)| inert(&detail(run.run, r, most))).collect();
    let titles: Vec<String> = runs.iter().map(|run| run.run.selection.join(", ")).collect();
    let title = svg::escaped(&svg::short(&format!("kmark: {}", titles.join("; ")), 120));
    let css = format!("{CSS}{}", svg::STYLE);
    fill(
        PAGE,
        &[
            ("title", &title),
            ("css", &css),
            ("js", SCRIPT),
            ("data", &inert(&data)),
            ("charts", &inert(&json!(pictures))),
            ("details", &details.join("\n")),
        ],
    )
}

/// The template with its places filled. What is filled in is not looked at again.
fn fill(template: &str, places: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("the template closes its places");
        let (_, text) = places.iter().find(|(n, _)| *n == name).expect("the template's places are known");
        out.push_str(before);
        out.push_str(text);
        rest = after;
    }
    out + rest
}

/// JSON that can stand inside a script element, whatever its strings say.
fn inert(value: &Json) -> String {
    value.to_string().replace('<', "\\u003c")
}

/// What the table shows: runs and devices only where there are several.
fn shown(runs: &[RunData]) -> Vec<Column> {
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

/// A row of the table: what is shown, and what it is sorted by.
fn row(columns: &[Column], run: usize, r: &Row) -> Json {
    let key = |c: &Column| match c.value(r) {
        Value::Nothing => Json::Null,
        Value::Text(word) if c.name() == "rate" => r.time.as_ref().map_or(json!(word), |t| json!(t.gb_per_s)),
        Value::Text(word) => json!(svg::short(&word, LONGEST)),
        Value::Count(n) => json!(n),
        Value::Number(v, _) | Value::Ns(v) => json!(v),
    };
    let cell = |c: &Column| match c.name() {
        // Of a run its folder's name; where that lies is in the details.
        "run" => r.run.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_string(),
        _ => c.shown(r, None),
    };
    let cells: Vec<String> = columns.iter().map(|c| svg::short(&cell(c), LONGEST)).collect();
    let keys: Vec<Json> = columns.iter().map(key).collect();
    json!({"c": cells, "k": keys, "op": r.op, "s": r.status, "m": svg::short(&r.message, LONGEST), "run": run})
}

fn about(data: &RunData) -> Json {
    let run = data.run;
    let environment: Vec<[&String; 2]> = run.environment.iter().map(|(k, v)| [k, v]).collect();
    json!({
        "name": data.name,
        "started": run.started,
        "kmark": run.kmark,
        "device": format!("{} ({})", run.device.name, run.device.id),
        "noise": noise(&data.rows).map(units::percent),
        "environment": environment,
    })
}

/// What is shown of a row when it is opened.
fn detail(run: &Run, r: &Row, most: usize) -> Json {
    let Some(record) = r.record.as_deref() else { return Json::Null };
    let step = record.samples_ns.len().div_ceil(most).max(1);
    let picked = |values: &[f64], digits: f64| -> Vec<f64> {
        values.iter().step_by(step).map(|v| (v * digits).round() / digits).collect()
    };
    let time = r.time.as_ref();
    json!({
        "samples_ns": picked(&record.samples_ns, 10.0),
        "clock_mhz": picked(&record.clock_mhz, 1.0),
        "taken": time.map_or(0, |t| t.samples),
        "time_ns": time.map(|t| t.time_ns),
        "time": time.map(|t| units::time(t.time_ns)),
        "command": svg::short(&again(run, record), LONGEST),
        "facts": facts(r, record),
    })
}

fn facts(r: &Row, record: &Record) -> Vec<[String; 2]> {
    let mut out: Vec<[String; 2]> = Vec::new();
    let mut add = |name: &str, value: String| out.push([name.into(), svg::short(&value, LONGEST)]);
    add("contract", r.contract.clone());
    add("impl hash", record.impl_hash.clone());
    add("mode, seed", format!("{}, {}", r.mode, record.seed));
    if let Some(t) = &r.time {
        add("interval", format!("{} to {}", units::time(t.lo_ns), units::time(t.hi_ns)));
        add("median, MAD", format!("{}, {}", units::time(t.median_ns), units::time(t.mad_ns)));
        add("5 %, 95 %", format!("{}, {}", units::time(t.p05_ns), units::time(t.p95_ns)));
        add("samples, visits", format!("{}, {}", t.samples, record.visits.len()));
        add("clock", t.clock_mhz.map(|v| format!("{v:.0} MHz")).unwrap_or_default());
        if t.throttled > 0.0 {
            add(
                "clocks held down",
                format!("{} of samples: {}", units::percent(t.throttled), t.throttled_by.join(", ")),
            );
        }
    }
    let conditions = || record.visits.iter().filter_map(|v| v.conditions.as_ref());
    let highest = |of: fn(&Conditions) -> f64| conditions().map(of).reduce(f64::max);
    add(
        "power, temperature",
        match (highest(|c| c.power_w), highest(|c| c.temperature_c)) {
            (Some(power), Some(heat)) => format!("up to {power:.0} W, {heat:.0} °C"),
            _ => String::new(),
        },
    );
    let cost = &r.cost;
    add("must move", format!("{} read, {} written", units::bytes(cost.bytes_read), units::bytes(cost.bytes_written)));
    add("must compute", format!("{} FLOP", cost.flops));
    if let Some(v) = &record.verify {
        add("checked", format!("{} elements in {} launches", v.elements, v.checks));
        add(
            "worst error",
            r.worst_error.map(|w| format!("{} of what one rounding allows", units::digits(w))).unwrap_or_default(),
        );
        add("problems", v.problems.join("; "));
    }
    let times = &record.times;
    for (name, ns) in [
        ("build", times.build_ns),
        ("tune", times.tune_ns),
        ("plan", times.plan_ns),
        ("first call", times.first_call_ns),
    ] {
        add(name, ns.map(units::time).unwrap_or_default());
    }
    for k in &record.kernels {
        let spilled = k.spilled_bytes.filter(|b| *b > 0).map(|b| format!(", {b} B spilled")).unwrap_or_default();
        add(
            "kernel",
            format!(
                "{}: {} registers, {} B shared{spilled}",
                k.name,
                k.registers,
                k.shared_bytes + k.dynamic_shared_bytes
            ),
        );
    }
    add("notes", record.notes.join("; "));
    out.retain(|[_, value]| !value.is_empty());
    out
}

/// The command that measures this row again, and its baseline if the run had one.
fn again(run: &Run, r: &Record) -> String {
    let mut words = vec!["kmark".to_string(), "run".into(), r.op.clone(), "--device".into(), r.device.kind.clone()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_string(), value]);
    add("--dtype", r.dtype.name().into());
    add("--configs", r.axes.values().map(|v| v.to_string()).collect::<Vec<_>>().join("x"));
    for (name, value) in &r.attrs {
        add("--set", format!("{name}={value}"));
    }
    add("--impl", r.impl_name.clone());
    if let Some(base) = run.settings.baseline.as_ref().filter(|b| **b != r.impl_name) {
        add("--impl", base.clone());
        add("--baseline", base.clone());
    }
    add("--seed", r.seed.to_string());
    add("--rounds", run.settings.rounds.to_string());
    add("--budget", format!("{}us", run.settings.budget_ns / 1000));
    match r.mode {
        Mode::Cold => {}
        Mode::Hot => add("--cache", "hot".into()),
        Mode::Graph => words.push("--graph".into()),
        Mode::E2e => words.push("--e2e".into()),
    }
    words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_string_ends_the_script_that_holds_it() {
        let text = inert(&json!({"m": "</script><script>alert(1)</script><!--"}));
        assert!(!text.contains('<'));
        assert_eq!(serde_json::from_str::<Json>(&text).unwrap()["m"], "</script><script>alert(1)</script><!--");
        assert_eq!(fill("a{{x}}b{{y}}", &[("x", "{{y}}"), ("y", "1")]), "a{{y}}b1");
    }

    #[test]
    fn commands_are_quoted() {
        assert_eq!(quoted("./mine.cu:fast"), "./mine.cu:fast");
        assert_eq!(quoted("a'; rm -rf ~"), "'a'\\''; rm -rf ~'");
    }
}
