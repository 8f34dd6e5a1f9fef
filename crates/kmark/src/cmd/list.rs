//! `kmark list`: what there is.

use super::{kernels, print, print_text, terminal_width, to_json};
use crate::cli::{self, ListArgs, ListWhat};
use crate::device::{Choice, gpus};
use crate::env;
use crate::error::{Error, Result};
use crate::plan::cases;
use crate::python;
use crate::suite::{BUILT_IN, Suite};
use crate::units;
use comfy_table::{ContentArrangement, Table};
use kmark_core::case::DEFAULT_SEED;
use kmark_core::spelling::unknown;
use kmark_device::cpu::Cpu;
use kmark_device::{Device, Impl};
use kmark_ops::Entry;
use serde_json::{Value, json};

/// Rows of words, and the same as JSON.
pub struct Listing {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    json: Vec<Value>,
}

pub fn run(args: ListArgs) -> Result<u8> {
    let listing = match args.what {
        ListWhat::Ops { template: Some(op), .. } => {
            print(&kernels::template(find(&op)?))?;
            return Ok(0);
        }
        ListWhat::Ops { ops, signature: true, .. } => {
            chosen(&ops)?.into_iter().try_for_each(|e| print(&kernels::signature(e)))?;
            return Ok(0);
        }
        ListWhat::Ops { ops, .. } => list_ops(chosen(&ops)?),
        ListWhat::Impls { ops } => impls(&chosen(&ops)?),
        ListWhat::Dtypes => dtypes(),
        ListWhat::Suites => suites()?,
        ListWhat::Devices => devices(),
        ListWhat::Cases { what, choice } => list_cases(&what, &choice)?,
    };
    listing.print(args.json)?;
    Ok(0)
}

impl Listing {
    pub fn new(header: &[&'static str]) -> Listing {
        Listing { header: header.to_vec(), rows: Vec::new(), json: Vec::new() }
    }

    pub fn push(&mut self, row: &[&str], json: Value) {
        self.rows.push(row.iter().map(|w| w.to_string()).collect());
        self.json.push(json);
    }

    pub fn print(&self, json: bool) -> Result<()> {
        if json { print(&to_json(&self.json)) } else { print_text(&self.text()) }
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        match terminal_width() {
            Some(width) => table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        table.lines().map(|l| l.trim_end().to_string() + "\n").collect()
    }
}

fn find(op: &str) -> Result<&'static Entry> {
    let names = kmark_ops::OPS.iter().map(|e| e.op.name);
    kmark_ops::find(op).ok_or_else(|| Error::usage(unknown("op", op, names)))
}

fn finds(ops: &[String]) -> Result<Vec<&'static Entry>> {
    ops.iter().map(|op| find(op)).collect()
}

fn list_ops(entries: Vec<&'static Entry>) -> Listing {
    let mut list = Listing::new(&["op", "axes", "attributes (first is the default)", "contract"]);
    for e in entries {
        let axes: Vec<&str> = e.op.axes.iter().map(|a| a.name).collect();
        let attrs: Vec<String> =
            e.op.attrs
                .iter()
                .map(|a| match a.kind {
                    kmark_core::op::AttrKind::OneOf(words) => {
                        let rest: Vec<&str> = words.iter().filter(|w| **w != a.default).copied().collect();
                        format!("{}={}|{}", a.name, a.default, rest.join("|"))
                    }
                    _ => format!("{}={}", a.name, a.default),
                })
                .collect();
        let dtypes: Vec<&str> = e.op.dtypes.iter().map(|d| d.name()).collect();
        let about: Vec<_> =
            e.op.attrs.iter().map(|a| json!({"name": a.name, "default": a.default, "about": a.about})).collect();
        let json = json!({
            "op": e.op.name, "about": e.op.about, "axes": axes, "attrs": about, "dtypes": dtypes,
        });
        list.push(&[e.op.name, &axes.join(" "), &attrs.join(" "), e.op.about], json);
    }
    list
}

/// The ops of these names, or all.
fn chosen(ops: &[String]) -> Result<Vec<&'static Entry>> {
    if ops.is_empty() { Ok(kmark_ops::OPS.to_vec()) } else { finds(ops) }
}

fn dtypes() -> Listing {
    let mut list = Listing::new(&["dtype", "bytes", "ops"]);
    let mut seen = Vec::new();
    for dtype in kmark_ops::OPS.iter().flat_map(|e| e.op.dtypes) {
        if seen.contains(dtype) {
            continue;
        }
        seen.push(*dtype);
        let ops: Vec<&str> = kmark_ops::OPS.iter().filter(|e| e.op.dtypes.contains(dtype)).map(|e| e.op.name).collect();
        let (name, bytes) = (dtype.name(), dtype.size().to_string());
        let shown = if ops.len() == kmark_ops::OPS.len() { "all".to_string() } else { ops.join(", ") };
        list.push(&[name, &bytes, &shown], json!({"dtype": name, "bytes": dtype.size(), "ops": ops}));
    }
    list
}

fn impls(entries: &[&'static Entry]) -> Listing {
    let mut list = Listing::new(&["op", "impl", "hash", "about"]);
    for e in entries {
        let adapters = python::catalogue().unwrap_or_default().iter().filter(|a| a.op == e.op.name);
        for i in e.impls().chain(adapters.map(|a| a as &dyn Impl)) {
            let hash = i.hash();
            let json = json!({"op": e.op.name, "impl": i.name(), "hash": hash, "about": i.about()});
            list.push(&[e.op.name, i.name(), &hash, &i.about()], json);
        }
    }
    list
}

fn suites() -> Result<Listing> {
    let mut list = Listing::new(&["suite", "cases", "about"]);
    for (name, _) in BUILT_IN {
        let suite = Suite::built_in(name).expect("it is built in")?;
        let count = cases(&[name.to_string()], &cli::Choice::default(), DEFAULT_SEED)?.0.len();
        let json = json!({"suite": name, "cases": count, "about": suite.about});
        list.push(&[name, &count.to_string(), &suite.about], json);
    }
    Ok(list)
}

fn devices() -> Listing {
    let mut list = Listing::new(&["device", "name", "id", "memory"]);
    let id = Cpu::new(&env::cpu_name()).id();
    let memory = env::total_memory().map(units::bytes).unwrap_or_default();
    let json = json!({"device": "cpu", "name": id.name, "id": id.id, "memory": memory});
    list.push(&["cpu", &id.name, &id.id, &memory], json);
    for n in 0..gpus().unwrap_or(0) {
        let Ok(id) = Choice::Cuda(n).id() else { continue };
        let memory = env::gpu_facts(n).swap_remove("gpu_memory").unwrap_or_default();
        let word = Choice::Cuda(n).word();
        let json = json!({"device": word, "name": id.name, "id": id.id, "memory": memory});
        list.push(&[&word, &id.name, &id.id, &memory], json);
    }
    list
}

fn list_cases(what: &[String], choice: &cli::Choice) -> Result<Listing> {
    let mut list = Listing::new(&["case", "contract", "tensors", "compulsory traffic", "MFLOP"]);
    for case in cases(what, choice, DEFAULT_SEED)?.0 {
        let op = kmark_ops::find(&case.op).expect("cases are made of known ops").op;
        let cost = op.cost(&case);
        let (tensors, traffic) = (op.tensor_bytes(&case), cost.bytes());
        let json = json!({
            "case": case.id, "op": case.op, "dtype": case.dtype, "axes": case.axes, "attrs": case.attrs,
            "contract": op.contract(&case), "tensor_bytes": tensors, "cost": cost,
        });
        let mflop = units::digits(cost.flops as f64 / 1e6);
        list.push(&[&case.id, &op.contract(&case), &units::bytes(tensors), &units::bytes(traffic), &mflop], json);
    }
    Ok(list)
}
