//! What stands behind a row of the page: facts of its record, and the command that measures it again.

use super::rows::Row;
use super::short;
use crate::units;
use kmark_core::record::{Conditions, Mode, Record};
use kmark_core::run::Run;
use serde_json::json;

/// A longer text is a log, not a name.
pub const LONGEST: usize = 4000;

/// As JSON.
pub fn behind(run: &Run, r: &Row, record: &Record) -> String {
    json!({"command": short(&again(run, record), LONGEST), "facts": facts(r, record)}).to_string()
}

fn facts(r: &Row, record: &Record) -> Vec<[String; 2]> {
    let mut out: Vec<[String; 2]> = Vec::new();
    let mut add = |name: &str, value: String| out.push([name.into(), short(&value, LONGEST)]);
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

/// The command that measures this row again, and its baseline if the run had one. There is none for a function that was
/// timed from Python.
fn again(run: &Run, r: &Record) -> String {
    let Some(dtype) = r.dtype else { return String::new() };
    let mut words = vec!["kmark".to_string(), "run".into(), r.op.clone(), "--device".into(), r.device.kind.clone()];
    let mut add = |flag: &str, value: String| words.extend([flag.to_string(), value]);
    add("--dtype", dtype.name().into());
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
    fn commands_are_quoted() {
        assert_eq!(quoted("./mine.cu:fast"), "./mine.cu:fast");
        assert_eq!(quoted("a'; rm -rf ~"), "'a'\\''; rm -rf ~'");
    }
}
