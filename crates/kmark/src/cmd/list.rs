//! `kmark list`: what there is.

use super::{kernels, print, print_text, terminal_width, to_json};
use crate::cli::{self, ListArgs, ListWhat};
use crate::device::{Choice, gpus};
use crate::env;
use crate::error::{Error, Result};
use crate::own;
use crate::plan::cases;
use crate::python;
use crate::report::short;
use crate::suite::{BUILT_IN, Suite};
use crate::units;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width};
use kmark_core::case::DEFAULT_SEED;
use kmark_core::spelling::unknown;
use kmark_device::cpu::Cpu;
use kmark_device::{Device, Impl};
use kmark_ops::Entry;
use serde_json::{Value, json};

/// Columns that narrow terminals do without, in the order in which they go.
const DROPPED: [&str; 13] = [
    "hash",
    "MFLOP",
    "compulsory traffic",
    "bytes",
    "id",
    "tensors",
    "axes",
    ATTRIBUTES,
    "contract",
    "memory",
    "cases",
    "about",
    "ops",
];
const ATTRIBUTES: &str = "attributes (first is the default)";
/// Columns of sentences and lists, which may go on in the next line, between words.
const WRAPPED: [&str; 4] = [ATTRIBUTES, "contract", "about", "ops"];

/// Blanks beside each column.
const PADDING: usize = 2;

/// Rows of words, and the same as JSON.
pub struct Listing {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    json: Vec<Value>,
}

pub fn run(args: ListArgs) -> Result<u8> {
    let listing = match args.what {
        ListWhat::Ops { template: Some(op), .. } => {
            find(&op)?.into_iter().try_for_each(|e| print(&kernels::template(e)?))?;
            return Ok(0);
        }
        ListWhat::Ops { ops, signature: true, .. } => {
            chosen(&ops)?.into_iter().try_for_each(|e| print(&kernels::signature(e)?))?;
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
        if json { print(&to_json(&self.json)) } else { print_text(&self.text(terminal_width())) }
    }

    fn text(&self, width: Option<u16>) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        let Some(width) = width else {
            table.set_content_arrangement(ContentArrangement::Disabled).set_header(&self.header);
            table.add_rows(&self.rows);
            return lines(&table);
        };
        let kept = self.kept(width as usize);
        let others: usize = kept.iter().skip(1).map(|i| self.least(*i) + PADDING).sum();
        let first = (width as usize).saturating_sub(others + PADDING).max(8);
        let cell = |row: &[String], i: usize| if i == 0 { short(&row[0], first) } else { row[i].clone() };
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(kept.iter().map(|i| self.header[*i]));
        table.add_rows(self.rows.iter().map(|row| kept.iter().map(|i| cell(row, *i)).collect::<Vec<_>>()));
        for (place, i) in kept.iter().enumerate() {
            let constraint = match self.wraps(*i) {
                true => ColumnConstraint::LowerBoundary(Width::Fixed((self.least(*i) + PADDING) as u16)),
                false => ColumnConstraint::ContentWidth,
            };
            table.column_mut(place).expect("a column of the header").set_constraint(constraint);
        }
        lines(&table)
    }

    /// The columns for which a terminal has room.
    fn kept(&self, width: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.header.len()).collect();
        for head in DROPPED {
            if kept.iter().map(|i| self.least(*i) + PADDING).sum::<usize>() > width {
                kept.retain(|i| *i == 0 || self.header[*i] != head);
            }
        }
        kept
    }

    fn wraps(&self, i: usize) -> bool {
        WRAPPED.contains(&self.header[i])
    }

    /// The least width of a column in which no word is broken.
    fn least(&self, i: usize) -> usize {
        let length = |text: &str| match self.wraps(i) {
            true => text.split([' ', '-']).map(|word| word.chars().count() + 1).max().unwrap_or(0).max(16),
            false => text.chars().count(),
        };
        self.rows.iter().map(|row| length(&row[i])).chain([length(self.header[i])]).max().unwrap_or(0)
    }
}

fn lines(table: &Table) -> String {
    table.lines().map(|l| l.trim_end().to_string() + "\n").collect()
}

/// An op by name, or all of a user's file.
fn find(op: &str) -> Result<Vec<&'static Entry>> {
    if own::is_file(op) {
        return Ok(own::load(op)?.into_iter().filter_map(|own| kmark_ops::find(&own.name)).collect());
    }
    let names = kmark_ops::OPS.iter().map(|e| e.op.name);
    kmark_ops::find(op).map(|e| vec![e]).ok_or_else(|| Error::usage(unknown("op", op, names)))
}

fn finds(ops: &[String]) -> Result<Vec<&'static Entry>> {
    ops.iter().map(|op| find(op)).collect::<Result<Vec<_>>>().map(|found| found.concat())
}

fn list_ops(entries: Vec<&'static Entry>) -> Listing {
    let mut list = Listing::new(&["op", "axes", ATTRIBUTES, "contract"]);
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
        let own = ["cpu", "cuda"].into_iter().flat_map(|device| own::impls_of(e.op.name, device));
        let mut seen = Vec::new();
        for i in e.impls().chain(adapters.map(|a| a as &dyn Impl)).chain(own) {
            if seen.contains(&i.name()) {
                continue;
            }
            seen.push(i.name());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_break_no_words() {
        for (list, must) in
            [(list_ops(chosen(&[]).unwrap()), "rmsnorm"), (suites().unwrap(), "dsv3"), (dtypes(), "bf16")]
        {
            let words: Vec<&str> = list.rows.iter().flatten().flat_map(|c| c.split_whitespace()).collect();
            for width in [20, 40, 60, 80, 120, 250] {
                let text = list.text(Some(width));
                assert!(text.lines().all(|l| l.chars().count() <= width.into()), "{width}:\n{text}");
                assert!(text.contains(must), "{width}:\n{text}");
                for word in text.split_whitespace().filter(|w| !w.contains('…')) {
                    let whole = |w: &&str| *w == word || w.split_inclusive('-').any(|part| part == word);
                    assert!(
                        words.iter().any(whole) || list.header.iter().any(|h| h.contains(word)),
                        "{width} {word}:\n{text}"
                    );
                }
            }
        }
        let cases = list_cases(&["dsv3".into()], &cli::Choice::default()).unwrap();
        assert!(cases.text(Some(40)).lines().all(|l| l.chars().count() <= 40));
        assert!(cases.text(None).contains("MFLOP") && !cases.text(Some(80)).contains("MFLOP"));
    }
}
