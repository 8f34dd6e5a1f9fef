//! What rows say together: means over shapes, counts, and the words below a table.

use super::rows::{Against, Row};
use indexmap::IndexMap;
use kmark_core::record::Status;
use kmark_core::stats::geomean;
use kmark_core::tally::Grade;
use kmark_core::verdict::Verdict;
use serde::Serialize;
use std::hash::Hash;

/// Speed-ups of one impl over all cases of an op that differ in nothing but their shape.
#[derive(Serialize)]
pub struct Summary {
    pub op: String,
    /// The cases' id without their shape.
    pub of: String,
    #[serde(rename = "impl")]
    pub impl_name: String,
    pub baseline: String,
    pub geomean: f64,
    pub cases: usize,
    pub faster: usize,
    pub slower: usize,
    /// Whether each was held against one that does the same work, and rounds alike.
    pub same_contract: bool,
    pub same_grade: bool,
    pub failures: usize,
}

/// Rows by `key`, in the order of first appearance.
pub fn grouped<'a, K: Hash + Eq>(
    rows: impl Iterator<Item = &'a Row>,
    key: impl Fn(&'a Row) -> K,
) -> IndexMap<K, Vec<&'a Row>> {
    let mut groups: IndexMap<K, Vec<&Row>> = IndexMap::new();
    for r in rows {
        groups.entry(key(r)).or_default().push(r);
    }
    groups
}

/// A case's id without its shape.
pub fn shapeless(case: &str) -> String {
    let parts = case.split('/').enumerate().filter(|(i, _)| *i != 2);
    parts.map(|(_, part)| part).collect::<Vec<_>>().join("/")
}

/// The geometric mean of the speed-ups over shapes, and how many cases failed.
pub fn summaries(rows: &[Row]) -> Vec<Summary> {
    let mut out = Vec::new();
    for ((of, impl_name), mine) in grouped(rows.iter(), |r| (shapeless(&r.case), &r.impl_name)) {
        let failures = mine.iter().filter(|r| r.failure).count();
        let compared: Vec<&Against> = mine.iter().filter_map(|r| r.against.as_ref()).collect();
        if compared.is_empty() && failures == 0 {
            continue;
        }
        let count = |v: Verdict| compared.iter().filter(|a| a.comparison.verdict == v).count();
        let speedups: Vec<f64> = compared.iter().map(|a| a.comparison.speedup).collect();
        let mut baselines: Vec<&str> = compared.iter().map(|a| a.baseline.as_str()).collect();
        baselines.sort();
        baselines.dedup();
        out.push(Summary {
            op: mine[0].op.clone(),
            of,
            impl_name: impl_name.clone(),
            baseline: baselines.join(", "),
            geomean: if speedups.is_empty() { f64::NAN } else { geomean(&speedups) },
            cases: compared.len(),
            faster: count(Verdict::Faster),
            slower: count(Verdict::Slower),
            same_contract: compared.iter().all(|a| a.same_contract),
            same_grade: compared.iter().all(|a| a.same_grade),
            failures,
        });
    }
    out
}

/// One line for each impl and op whose results are loose: how far off they are at the worst.
pub fn loose<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<String> {
    let loose = rows.filter(|r| r.grade == Some(Grade::Loose));
    let line = |((op, impl_name), rows): ((&String, &String), Vec<&Row>)| {
        let worst = rows.iter().filter_map(|r| r.worst_error).fold(0.0, f64::max);
        format!("{op} {impl_name} is off by up to {}×", crate::units::digits(worst))
    };
    grouped(loose, |r| (&r.op, &r.impl_name)).into_iter().map(line).collect()
}

/// Ops of users whose bound says little, and why; empty if there are none.
pub fn ill_conditioned<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let ops: Vec<&String> =
        grouped(rows.filter(|r| r.ill_conditioned), |r| &r.op).into_iter().map(|(op, _)| op).collect();
    let names: Vec<&str> = ops.iter().map(|op| op.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "ill-conditioned: {}: the reference loses so much precision that wrong results may pass",
            names.join(", ")
        ),
    }
}

/// How many rows have each status, in the order of first appearance.
pub fn counts(rows: &[Row]) -> Vec<(&'static str, usize)> {
    grouped(rows.iter(), |r| r.status).into_iter().map(|(status, rows)| (status, rows.len())).collect()
}

/// The rows that are worth a line below the table, each with its words: of an impl's rows that say the same of one op
/// but for numbers only the first.
pub fn explained<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<(&'a Row, String)> {
    let numberless = |message: &str| message.replace(|c: char| c.is_ascii_digit() || "+-.".contains(c), "");
    let unexplained = rows.filter(|r| r.status != Status::Ok.word() && r.status != Status::Unverified.word());
    let alike = grouped(unexplained, |r| (r.status, &r.op, &r.impl_name, numberless(&r.message)));
    let words = |rows: Vec<&'a Row>| {
        let (first, more) = (rows[0], rows.len() - 1);
        let says = first.message.lines().next().unwrap_or("");
        (first, if more == 0 { says.into() } else { format!("{says} (and {more} more like it)") })
    };
    alike.into_iter().map(|(_, rows)| words(rows)).collect()
}
