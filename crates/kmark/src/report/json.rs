//! JSON: the derived rows and summaries, for programs. Raw samples are in records.jsonl.

use super::rows::{noise, rows, summaries};
use super::{Options, RunData};
use serde_json::json;

pub fn render(runs: &[RunData], options: &Options) -> String {
    let runs: Vec<_> = runs
        .iter()
        .map(|data| {
            let rows = rows(data, options);
            json!({
                "run": data.name,
                "device": data.run.device,
                "mode": data.run.settings.mode,
                "roofs": data.run.roofs,
                "noise_floor": noise(data.records),
                "summaries": summaries(&rows),
                "rows": rows,
            })
        })
        .collect();
    serde_json::to_string_pretty(&runs).expect("rows are plain data") + "\n"
}
