//! JSON: the derived rows and summaries, for programs. Raw samples are in records.jsonl.

use super::against::noise;
use super::rows::Row;
use super::summary::{Summary, summaries};
use super::{Options, RunData};
use kmark_core::cost::Roofs;
use kmark_core::record::{DeviceId, Mode};
use serde::Serialize;

#[derive(Serialize)]
struct One<'a> {
    run: &'a str,
    device: &'a DeviceId,
    mode: Mode,
    roofs: &'a Option<Roofs>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_roofs: Option<&'a str>,
    noise_floor: Option<f64>,
    summaries: Vec<Summary>,
    rows: &'a [Row],
}

pub fn render(runs: &[RunData], _: &Options) -> String {
    let runs: Vec<One> = runs.iter().map(one).collect();
    serde_json::to_string_pretty(&runs).expect("rows are plain data") + "\n"
}

fn one<'a>(data: &'a RunData) -> One<'a> {
    One {
        run: data.name,
        device: &data.run.device,
        mode: data.run.settings.mode,
        roofs: &data.run.roofs,
        no_roofs: data.run.no_roofs.as_deref(),
        noise_floor: noise(&data.rows),
        summaries: summaries(&data.rows),
        rows: &data.rows,
    }
}
