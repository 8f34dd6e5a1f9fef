//! `kmark run --dry-run`: what would be run, and how long it may take.

use super::{print, print_text, to_json};
use crate::error::Result;
use crate::plan::{Plan, Planned};
use crate::shard::Shard;
use crate::units;
use kmark_core::run::Settings;
use serde::Serialize;

#[derive(Serialize)]
struct Shown<'a> {
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    cases: Vec<Line<'a>>,
    /// Pairs of a case and an impl that claims it.
    rows: usize,
    /// The budget of all rows together.
    sampling_ns: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    case: &'a str,
    impls: Vec<&'a str>,
    /// They do not claim the case.
    unsupported: Vec<&'a str>,
}

pub fn show(plan: &Plan, settings: &Settings, shard: Option<Shard>, json: bool) -> Result<u8> {
    let cases: Vec<Line> = plan.items.iter().map(line).collect();
    let rows = cases.iter().map(|c| c.impls.len()).sum();
    let (device, shard) =
        (plan.devices.iter().map(|d| d.word()).collect::<Vec<_>>().join(", "), shard.map(|s| s.to_string()));
    let shown = Shown { device, shard, cases, rows, sampling_ns: rows as u64 * settings.budget_ns };
    if json { print(&to_json(&shown)) } else { print_text(&shown.text(settings)) }?;
    Ok(0)
}

fn line(planned: &Planned) -> Line<'_> {
    let (impls, unsupported): (Vec<_>, Vec<_>) =
        planned.impls.iter().partition(|i| i.supports(planned.entry.op, &planned.case).is_ok());
    let names = |impls: Vec<&&'static dyn kmark_device::Impl>| impls.into_iter().map(|i| i.name()).collect();
    Line { case: &planned.case.id, impls: names(impls), unsupported: names(unsupported) }
}

impl Shown<'_> {
    fn text(&self, settings: &Settings) -> String {
        let mut text = String::new();
        for c in &self.cases {
            let not = match c.unsupported.as_slice() {
                [] => String::new(),
                names => format!(" (unsupported: {})", names.join(", ")),
            };
            text.push_str(&format!("{}  {}{not}\n", c.case, c.impls.join(", ")));
        }
        let (all, each) = (units::long(self.sampling_ns), units::time(settings.budget_ns as f64));
        let shard = self.shard.as_ref().map(|s| format!(", shard {s}")).unwrap_or_default();
        let counts = format!("{} cases, {} rows on {}{shard}", self.cases.len(), self.rows, self.device);
        let time = format!(
            "about {all} of sampling, {each} a row, more where launches take long; starting, compiling and checking come on top"
        );
        text + &format!("\n{counts}: {time}\n")
    }
}
