//! CSV and JSON lines: one line per record, numbers plain, axes and attributes as columns; for spreadsheets and scripts.

use super::columns::{Value, for_programs};
use super::rows::Row;
use super::{Options, RunData, Unit};
use serde_json::json;

pub fn render(runs: &[RunData], options: &Options) -> String {
    let columns = options.columns.clone().unwrap_or_else(|| for_programs(runs));
    let mut out = csv::Writer::from_writer(Vec::new());
    let mut put = |fields: Vec<String>| out.write_record(fields).expect("a vector grows");
    put(columns.iter().map(|c| c.name_in(options.unit)).collect());
    for r in runs.iter().flat_map(|run| &run.rows) {
        put(columns.iter().map(|c| field(c.value(r), options.unit)).collect());
    }
    String::from_utf8(out.into_inner().expect("a vector takes everything")).expect("fields are text")
}

pub fn render_lines(runs: &[RunData], options: &Options) -> String {
    let columns = options.columns.clone().unwrap_or_else(|| for_programs(runs));
    let line = |r: &Row| -> String {
        let fields = columns.iter().map(|c| (c.name_in(options.unit), json(c.value(r), options.unit)));
        let fields: serde_json::Map<_, _> = fields.filter(|(_, v)| !v.is_null()).collect();
        serde_json::Value::Object(fields).to_string() + "\n"
    };
    runs.iter().flat_map(|run| &run.rows).map(line).collect()
}

fn field(value: Value, unit: Option<Unit>) -> String {
    match value {
        Value::Nothing => String::new(),
        Value::Text(word) => harmless(&word),
        Value::Count(n) => n.to_string(),
        Value::Number(v, decimals) => format!("{v:.decimals$}"),
        Value::Ns(ns) => match unit {
            None => format!("{ns:.1}"),
            Some(u) => format!("{:.*}", u.decimals, ns / u.ns),
        },
    }
}

fn json(value: Value, unit: Option<Unit>) -> serde_json::Value {
    match value {
        Value::Nothing => serde_json::Value::Null,
        Value::Text(word) => json!(word),
        Value::Count(n) => json!(n),
        Value::Number(v, _) => json!(v),
        Value::Ns(ns) => json!(unit.map_or(ns, |u| ns / u.ns)),
    }
}

/// A spreadsheet takes text that begins like a formula for one.
fn harmless(word: &str) -> String {
    let formula = word.starts_with(['=', '+', '-', '@', '\t', '\r']) && word.parse::<f64>().is_err();
    if formula { format!("'{word}") } else { word.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_a_formula() {
        for word in ["=1+1", "@SUM(A1)", "+x", "-cmd|' /C calc'!A0"] {
            assert_eq!(harmless(word), format!("'{word}"));
        }
        assert_eq!(["-100", "./mine.cu", "1e-6"].map(harmless), ["-100", "./mine.cu", "1e-6"]);
    }
}
