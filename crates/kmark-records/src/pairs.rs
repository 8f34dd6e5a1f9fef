//! Which records of two sides are held against each other: those of one case, impl and mode, of the same GPU where both
//! sides have the same GPUs, else of the same model; where each side has one model alone, as an H100 and an A100, those.

use crate::store::Loaded;
use indexmap::{IndexMap, IndexSet};
use kmark_core::record::{Mode, Record};
use kmark_core::spelling::matches;

/// Case, impl and mode.
pub type Key = (String, String, Mode);

/// Records of one row, by side; several on a side are replicates.
#[derive(Default)]
pub struct Pair<'a> {
    pub base: Vec<&'a Record>,
    pub new: Vec<&'a Record>,
    /// The GPU or model, where the case and impl have several.
    pub on: Option<String>,
    /// Whether the two sides were measured on different GPUs or machines.
    pub elsewhere: bool,
}

/// A record with its GPU, or its machine where that is a CPU.
type Measured<'a> = (&'a str, &'a Record);

/// The rows of both sides that `filter` leaves.
pub fn pairs<'a>(base: &'a [Loaded], new: &'a [Loaded], filter: &[String]) -> Vec<(Key, Pair<'a>)> {
    let like = |p: &String, r: &Record| matches(p, &r.case) || matches(p, &r.impl_name) || *p == r.op;
    let mut rows: IndexMap<Key, [Vec<Measured>; 2]> = IndexMap::new();
    for (side, runs) in [base, new].into_iter().enumerate() {
        for run in runs {
            for r in &run.records {
                let host = run.run.host.as_deref().filter(|_| r.device.kind == "cpu");
                if filter.is_empty() || filter.iter().any(|p| like(p, r)) {
                    rows.entry(r.key()).or_default()[side].push((host.unwrap_or(&r.device.id), r));
                }
            }
        }
    }
    rows.into_iter().flat_map(|(key, sides)| divided(&sides).into_iter().map(move |p| (key.clone(), p))).collect()
}

/// The records of a case and impl by GPU, or by model.
fn divided<'a>(sides: &[Vec<Measured<'a>>; 2]) -> Vec<Pair<'a>> {
    fn model<'a>((_, r): &Measured<'a>) -> &'a str {
        &r.device.name
    }
    let owners = sides.each_ref().map(|side| side.iter().map(|m| m.0).collect::<IndexSet<_>>());
    let models = sides.each_ref().map(|side| side.iter().map(model).collect::<IndexSet<_>>());
    let same_owners = owners[0] == owners[1];
    let one_each = models.iter().all(|names| names.len() < 2);
    let mut groups: IndexMap<&str, Pair> = IndexMap::new();
    for (side, measured) in sides.iter().enumerate() {
        for m in measured {
            let on = match () {
                _ if same_owners => m.0,
                _ if one_each => "",
                _ => model(m),
            };
            let pair = groups.entry(on).or_default();
            if side == 0 { &mut pair.base } else { &mut pair.new }.push(m.1);
        }
    }
    let several = groups.len() > 1;
    let told = |(on, pair): (&str, Pair<'a>)| {
        let elsewhere = !same_owners && !pair.base.is_empty() && !pair.new.is_empty();
        Pair { on: several.then(|| on.to_string()), elsewhere, ..pair }
    };
    groups.into_iter().map(told).collect()
}
