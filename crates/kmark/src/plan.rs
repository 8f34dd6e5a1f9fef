//! From what was typed to what will be run: cases times impls, everything checked before anything starts.

use crate::cli::{self, Selection};
use crate::device::Choice;
use crate::error::{Error, Result};
use crate::faults;
use crate::impls::{impls_of, is_kernel_file, user_kernel};
use crate::own;
use crate::python;
use crate::shard::{Shard, divide, expected_us};
use crate::suite::{self, Suite, Sweep};
use indexmap::{IndexMap, IndexSet};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::spelling::{matches, unknown};
use kmark_device::Impl;
use kmark_ops::Entry;
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

/// A case and the impls that will run it.
pub struct Planned {
    pub entry: &'static Entry,
    pub case: Case,
    pub impls: Vec<&'static dyn Impl>,
}

pub struct Plan {
    /// Several GPUs share the cases; there is one device at least.
    pub devices: Vec<Choice>,
    pub items: Vec<Planned>,
    /// The longest budget that a selected suite asks for.
    pub budget: Duration,
    /// Names of all impls, those of other shards included.
    pub names: BTreeSet<&'static str>,
}

impl Plan {
    /// The first of its devices; the others are of its kind.
    pub fn device(&self) -> Choice {
        self.devices[0]
    }
}

/// What a row may take where nobody asks for anything else.
const BUDGET: Duration = Duration::from_secs(2);

pub fn plan(selection: &Selection, shard: Option<Shard>) -> Result<Plan> {
    plan_on(selection, Choice::parse_all(&selection.device)?, shard)
}

/// The same for devices that need not be there.
pub fn plan_on(selection: &Selection, devices: Vec<Choice>, shard: Option<Shard>) -> Result<Plan> {
    let device = devices[0];
    let (cases, budget) = cases(&selection.what, &selection.choice, selection.seed)?;
    let users = users(&selection.impls, device)?;
    let is_new = |user: &&dyn Impl, all: &[&'static dyn Impl]| !all.iter().any(|i| i.name() == user.name());
    let with_python = check_patterns(&selection.impls, &cases, device)?;
    let items: Vec<Planned> = cases
        .into_iter()
        .map(|case| {
            let entry = kmark_ops::find(&case.op).expect("cases are made of known ops");
            let mut all = impls_of(entry, device.kind());
            if with_python {
                all.extend(python::impls_of(&case.op, device.kind()));
            }
            all.extend(own::impls_of(&case.op, device.kind()));
            all.retain(|i| wanted(&selection.impls, i.name()));
            let others: Vec<&'static dyn Impl> = users.iter().copied().filter(|u| is_new(u, &all)).collect();
            Planned { entry, case, impls: all.into_iter().chain(others).collect() }
        })
        .filter(|p: &Planned| !p.impls.is_empty())
        .collect();
    let names = items.iter().flat_map(|p| p.impls.iter().copied().map(|i| i.name())).collect();
    let mut plan = Plan { devices, items, budget: budget.unwrap_or(BUDGET), names };
    if let Some(shard) = shard {
        let mut chosen = shards(&plan, shard.of).into_iter();
        plan.items.retain(|_| chosen.next() == Some(shard.number - 1));
        if plan.items.is_empty() {
            return Err(Error::usage(format!(
                "no case is left for --shard {shard}: there are fewer cases than shards"
            )));
        }
    }
    Ok(plan)
}

/// The shard that each case of a plan falls into, from 0, all its impls with it.
pub fn shards(plan: &Plan, of: usize) -> Vec<usize> {
    let cost = |p: &Planned| expected_us(p, plan.device(), plan.budget);
    let cases: Vec<(&str, u64)> = plan.items.iter().map(|p| (p.case.id.as_str(), cost(p))).collect();
    divide(&cases, of)
}

/// Cases of these suites, changed and chosen, distinct, in order; and the longest budget that a suite asks for.
pub fn cases(what: &[String], choice: &cli::Choice, seed: u64) -> Result<(Vec<Case>, Option<Duration>)> {
    let changes = Changes::parse(choice)?;
    let (mut cases, mut budget, mut seen) = (Vec::new(), None, HashSet::new());
    for word in what {
        let suite = lookup(word, &choice.dtype)?;
        budget = budget.max(suite.budget);
        for sweep in &suite.sweeps {
            let Some(sweep) = changes.apply(sweep) else { continue };
            let of = if sweep.op == *word { String::new() } else { format!("{word}: ") };
            for case in sweep.cases(seed).map_err(|e| Error::usage(format!("{of}{e}")))? {
                if seen.insert(case.id.clone()) {
                    cases.push(case);
                }
            }
        }
    }
    changes.check_names(&cases)?;
    if cases.is_empty() {
        return Err(Error::usage(format!("no case of {} is left after --dtype", what.join(", "))));
    }
    Ok((chosen(cases, choice)?, budget))
}

/// The cases that `--filter` and `--exclude` leave. A pattern that is like no case is a slip.
fn chosen(mut cases: Vec<Case>, choice: &cli::Choice) -> Result<Vec<Case>> {
    let like = |pattern: &String, case: &Case| matches(pattern, &case.id) || matches(pattern, &case.op);
    for (flag, patterns) in [("filter", &choice.filter), ("exclude", &choice.exclude)] {
        if let Some(p) = patterns.iter().find(|p| !cases.iter().any(|c| like(p, c))) {
            return Err(Error::usage(format!("no case is like --{flag} {p}; `kmark list cases` shows them")));
        }
    }
    cases.retain(|c| choice.filter.is_empty() || choice.filter.iter().any(|p| like(p, c)));
    cases.retain(|c| !choice.exclude.iter().any(|p| like(p, c)));
    if cases.is_empty() {
        return Err(Error::usage("no case is left after --filter and --exclude"));
    }
    Ok(cases)
}

/// A suite by name, an op as a suite of its default shapes (and of the wanted dtypes), or a file.
fn lookup(word: &str, dtypes: &[String]) -> Result<Suite> {
    if own::is_file(word) {
        return own_suite(word, dtypes);
    }
    if suite::is_file(word) {
        return Suite::from_file(word);
    }
    let entry = kmark_ops::find(word);
    if let Some(suite) = Suite::built_in(word) {
        // One word may name both: it is the op if the suite has nothing in the wanted dtypes.
        let (suite, wanted) = (suite?, |d: &String| dtypes.is_empty() || dtypes.contains(d));
        if entry.is_none() || suite.sweeps.iter().any(|s| s.dtypes.iter().any(wanted)) {
            return Ok(suite);
        }
    }
    if let Some(entry) = entry {
        let mut sweep = Sweep::default_of(entry.op);
        if !dtypes.is_empty() {
            sweep.dtypes = dtypes.to_vec();
        }
        return Ok(Suite { sweeps: vec![sweep], ..Suite::default() });
    }
    let suites = suite::BUILT_IN.iter().map(|(n, _)| *n);
    Err(Error::usage(unknown("suite or op", word, suites.chain(kmark_ops::all().map(|e| e.op.name)))))
}

/// The ops of a user's file at the cases that it states, or at those dtypes.
fn own_suite(word: &str, dtypes: &[String]) -> Result<Suite> {
    let mut sweeps = Vec::new();
    for own in own::load(word)? {
        let op = kmark_ops::find(&own.name).expect("just learnt").op;
        let stated = || own.dtypes.iter().map(|d| d.name().to_string()).collect();
        let dtypes = if dtypes.is_empty() { stated() } else { dtypes.to_vec() };
        sweeps.push(Sweep { dtypes, ..Sweep::default_of(op) });
    }
    Ok(Suite { sweeps, ..Suite::default() })
}

/// What `--dtype`, `--set` and `--configs` change in every sweep.
struct Changes {
    dtypes: Vec<String>,
    configs: Vec<String>,
    values: IndexMap<String, Vec<String>>,
}

impl Changes {
    fn parse(s: &cli::Choice) -> Result<Changes> {
        for d in &s.dtype {
            suite::parse_dtype(d).map_err(Error::usage)?;
        }
        let mut values = IndexMap::new();
        for set in &s.set {
            let Some((name, list)) = set.split_once('=') else {
                return Err(Error::usage(format!("--set {set}: write it like m=4096,8192")));
            };
            let list = list.split(',').map(|v| v.trim().to_string()).collect();
            if values.insert(name.trim().to_string(), list).is_some() {
                let name = name.trim();
                return Err(Error::usage(format!(
                    "--set {name} is given twice; write --set {name}=A,B for several values"
                )));
            }
        }
        if !s.configs.is_empty() && values.keys().any(|k| is_axis(k)) {
            return Err(Error::usage("give axes by --configs or by --set, not both"));
        }
        Ok(Changes { dtypes: s.dtype.clone(), configs: s.configs.clone(), values })
    }

    /// The sweep as changed; `None` if it has none of the wanted dtypes. A name that only other ops of a suite have
    /// is passed over.
    fn apply(&self, sweep: &Sweep) -> Option<Sweep> {
        let mut g = sweep.clone();
        if !self.dtypes.is_empty() {
            g.dtypes.retain(|d| self.dtypes.contains(d));
            if g.dtypes.is_empty() {
                return None;
            }
        }
        if !self.configs.is_empty() {
            g.configs = self.configs.clone();
            g.values.retain(|k, _| !is_axis(k));
        }
        let op = kmark_ops::find(&g.op).map(|e| e.op);
        for (name, values) in &self.values {
            if op.is_some_and(|op| !has_name(op, name)) {
                continue;
            }
            match op.and_then(|op| op.axes.iter().position(|a| a.name == name)) {
                Some(axis) if !g.configs.is_empty() => g.configs = with_axis(&g.configs, axis, values),
                _ => {
                    g.values.insert(name.clone(), values.clone());
                }
            }
        }
        Some(g)
    }

    fn check_names(&self, cases: &[Case]) -> Result<()> {
        let ops: Vec<&Op> = kmark_ops::all().map(|e| e.op).filter(|op| cases.iter().any(|c| c.op == op.name)).collect();
        match self.values.keys().find(|name| !ops.iter().any(|op| has_name(op, name))) {
            Some(name) => {
                let mut known: Vec<&str> = Vec::new();
                for word in ops.iter().flat_map(|op| names(op)) {
                    if !known.contains(&word) {
                        known.push(word);
                    }
                }
                Err(Error::usage(unknown("axis or attribute", name, known)))
            }
            None => Ok(()),
        }
    }
}

fn names(op: &Op) -> impl Iterator<Item = &'static str> + use<> {
    op.axes.iter().map(|a| a.name).chain(op.attrs.iter().map(|a| a.name))
}

fn has_name(op: &Op, name: &str) -> bool {
    names(op).any(|n| n == name)
}

fn is_axis(name: &str) -> bool {
    kmark_ops::all().any(|e| e.op.axes.iter().any(|a| a.name == name))
}

/// Every config with each of these sizes for one axis. The other sizes stay together as they were listed.
fn with_axis(configs: &[String], axis: usize, sizes: &[String]) -> Vec<String> {
    let replaced = configs.iter().flat_map(|config| {
        sizes.iter().map(move |size| {
            let mut parts: Vec<&str> = config.split('x').collect();
            if let Some(part) = parts.get_mut(axis) {
                *part = size;
            }
            parts.join("x")
        })
    });
    replaced.collect::<IndexSet<_>>().into_iter().collect()
}

/// Whether an impl's name is a file: `./mine.cu:entry` or `./mine.py:function`.
fn is_file(name: &str) -> bool {
    is_kernel_file(name) || python::is_file(name)
}

/// The user's kernels and functions among the patterns. They live as long as the program.
pub fn users(patterns: &[String], device: Choice) -> Result<Vec<&'static dyn Impl>> {
    let files = patterns.iter().filter(|p| is_file(p) && !own::has(p));
    files
        .map(|name| {
            if python::is_file(name) {
                return Ok(&*Box::leak(Box::new(python::user_function(name)?)) as &dyn Impl);
            }
            let kernel = user_kernel(name)?;
            if device.kind() != "cuda" {
                return Err(Error::usage(format!("--impl {name}: a CUDA kernel needs --device cuda")));
            }
            Ok(&*Box::leak(Box::new(kernel)) as &dyn Impl)
        })
        .collect()
}

pub fn wanted(patterns: &[String], name: &str) -> bool {
    if patterns.is_empty() {
        return !name.starts_with(faults::FAMILY);
    }
    patterns.iter().any(|p| matches(p, name))
}

/// Every pattern must mean something. Whether some of them mean Python libraries, which are asked for by name only.
pub fn check_patterns(patterns: &[String], cases: &[Case], device: Choice) -> Result<bool> {
    let mut known: Vec<&str> = Vec::new();
    for entry in kmark_ops::all().filter(|e| cases.iter().any(|c| c.op == e.op.name)) {
        for imp in impls_of(entry, device.kind()).into_iter().chain(own::impls_of(entry.op.name, device.kind())) {
            if !known.contains(&imp.name()) {
                known.push(imp.name());
            }
        }
    }
    let others: Vec<&String> =
        patterns.iter().filter(|p| !is_file(p) && !known.iter().any(|k| matches(p, k))).collect();
    if others.is_empty() {
        return Ok(false);
    }
    let listed = python::catalogue();
    let adapters = listed.unwrap_or_default().iter().filter(|a| cases.iter().any(|c| c.op == a.op));
    for adapter in adapters.filter(|a| a.devices.iter().any(|d| d == device.kind())) {
        if !known.contains(&adapter.name.as_str()) {
            known.push(&adapter.name);
        }
    }
    let Some(p) = others.iter().find(|p| !known.iter().any(|k| matches(p, k))) else { return Ok(true) };
    if let Some(other) = listed.unwrap_or_default().iter().find(|a| matches(p, &a.name) && !known.contains(&&*a.name)) {
        let (name, here) = (&other.name, device.kind());
        let why = match other.devices.iter().any(|d| d == here) {
            true => "no op of this selection".to_string(),
            false => format!("{} only, not {here}", other.devices.join(" and ")),
        };
        return Err(Error::usage(format!("--impl {p}: {name} is for {why}")));
    }
    let mut message = unknown(&format!("impl on {}", device.kind()), p, known);
    if let Err(why) = listed {
        message = format!("{message}; Python libraries could not be listed: {why}");
    }
    Err(Error::usage(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_were_listed_together_stay_together() {
        let choice = cli::Choice { set: vec!["m=8".into()], configs: Vec::new(), ..Default::default() };
        let changes = Changes::parse(&choice).unwrap();
        let mut sweep = Sweep::default_of(kmark_ops::find("gemm").unwrap().op);
        sweep.configs = ["1x2x3", "4x5x6", "7x5x6"].map(String::from).to_vec();
        assert_eq!(changes.apply(&sweep).unwrap().configs, ["8x2x3", "8x5x6"]);
    }

    #[test]
    fn patterns() {
        assert!(matches("cpu/*", "cpu/simd") && matches("*", "x") && matches("c*d", "cpu/simd"));
        assert!(!matches("cpu", "cpu/simd") && !matches("cuda/*", "cpu/simd"));
    }
}
