//! Ops of users: a description in plain data becomes an [`Op`]. Python writes it down, every process learns it, and the
//! functions of the op look it up by the case's op. What is true is known elsewhere: [`Truth`] asks there.

mod values;

use crate::case::Case;
use crate::cost::Cost;
use crate::dtype::DType;
use crate::expr::{Scope, evaluate, is_name};
use crate::fill::Fill;
use crate::gate::Verify;
use crate::op::{Attr, AttrKind, Axis, MEMORY, Op, YES_NO};
use crate::tensor::{Role, TensorSpec, View};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{OnceLock, RwLock};

/// What a user says of an op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnOp {
    pub name: String,
    pub about: String,
    /// The file or folder that defines it, as it was typed; whoever judges loads it.
    pub file: String,
    /// Of everything that decides what is true: the file and what it imports.
    pub hash: String,
    pub axes: Vec<String>,
    pub attrs: Vec<OwnAttr>,
    pub dtypes: Vec<DType>,
    /// Dtypes that are run only where they are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub also: Vec<DType>,
    pub configs: Vec<String>,
    pub tensors: Vec<OwnTensor>,
    /// Arithmetic of a case, by axes; none: what was counted ([`count`]), if anybody can.
    pub flops: Option<String>,
    /// Whether the reference can be counted.
    pub countable: bool,
    /// What computes it in the same file.
    pub impls: Vec<OwnImpl>,
    /// Wrong on purpose: made of the reference, and the user's own.
    pub mutants: Vec<OwnImpl>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnAttr {
    pub name: String,
    pub default: String,
    pub kind: OwnKind,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnKind {
    Number,
    Integer,
    Flag,
    Words(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnTensor {
    pub name: String,
    pub role: Role,
    /// Whole-number expressions of axes and attributes.
    pub dims: Vec<String>,
    /// None: the case's.
    pub dtype: Option<DType>,
    pub fill: OwnFill,
}

/// How values of an input are drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnFill {
    Constant(f64),
    Normal {
        mean: f64,
        std: f64,
    },
    /// Normal, with rows of every kind among them; one lies this far from zero.
    Rows {
        shift: f64,
    },
    Logits,
    Uniform {
        low: f64,
        high: f64,
    },
    /// Whole numbers below an expression, the first and the last among them.
    Index {
        below: String,
    },
    /// From 0 to an expression, never falling: where each of the segments begins. Some are empty.
    Indptr {
        to: String,
    },
    /// By code of the user's.
    Made,
}

/// A function of the user's file, as an impl.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnImpl {
    pub name: String,
    pub about: String,
    pub devices: Vec<String>,
}

/// Who knows what is right: a process that runs the user's reference.
pub trait Truth: Send + Sync {
    /// The gate's word on these outputs, for the inputs of the case's seed.
    fn judge(&self, case: &Case, outputs: &View) -> Result<Verify, String>;
    /// All values of an input that code of the user's makes.
    fn make(&self, case: &Case, tensor: &str) -> Result<Vec<f64>, String>;
}

static TRUTH: OnceLock<Box<dyn Truth>> = OnceLock::new();

/// Says whom to ask, once per process.
pub fn ask(truth: Box<dyn Truth>) {
    let _ = TRUTH.set(truth);
}

fn truth() -> Result<&'static dyn Truth, String> {
    TRUTH.get().map(|t| &**t).ok_or_else(|| "nobody in this process knows what is right".to_string())
}

struct Known {
    own: &'static OwnOp,
    op: &'static Op,
}

static KNOWN: RwLock<Vec<Known>> = RwLock::new(Vec::new());

/// Learns an op, for as long as the process lives. The error is one line for the user.
pub fn learn(own: &OwnOp) -> Result<&'static Op, String> {
    own.check()?;
    let mut known = KNOWN.write().expect("nobody panics while learning");
    if let Some(old) = known.iter().find(|k| k.own.name == own.name) {
        let twice = || format!("op {} is defined twice: in {} and in {}", own.name, old.own.file, own.file);
        return if old.own == own { Ok(old.op) } else { Err(twice()) };
    }
    let own: &'static OwnOp = Box::leak(Box::new(own.clone()));
    let op: &'static Op = Box::leak(Box::new(own.op()));
    known.push(Known { own, op });
    Ok(op)
}

/// All that were learnt, in order.
pub fn known() -> Vec<&'static OwnOp> {
    KNOWN.read().expect("nobody panics while learning").iter().map(|k| k.own).collect()
}

/// The op of that name, if it was learnt.
pub fn find(name: &str) -> Option<(&'static OwnOp, &'static Op)> {
    KNOWN.read().expect("nobody panics while learning").iter().find(|k| k.own.name == name).map(|k| (k.own, k.op))
}

static COUNTED: RwLock<BTreeMap<String, u64>> = RwLock::new(BTreeMap::new());

/// Remembers the arithmetic of a case whose op does not state it.
pub fn count(case: &Case, flops: u64) {
    COUNTED.write().expect("nobody panics while counting").insert(case.id.clone(), flops);
}

fn of(case: &Case) -> &'static OwnOp {
    find(&case.op).unwrap_or_else(|| panic!("nobody told of op {}", case.op)).0
}

/// Words that kernels and expressions use for something else.
const TAKEN: &[&str] = &["workspace", "seed", "case"];

impl OwnOp {
    /// What can be known without a case. Sizes are checked when a case is made.
    fn check(&self) -> Result<(), String> {
        let wrong = |what: String| Err(format!("op {}: {what}", self.name));
        let word = |w: &str| w.starts_with(|c: char| c.is_ascii_lowercase());
        if !word(&self.name)
            || !self.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c))
        {
            return wrong("a name is lower-case letters, digits, '-', '_' and '.'".into());
        }
        let names =
            self.axes.iter().chain(self.attrs.iter().map(|a| &a.name)).chain(self.tensors.iter().map(|t| &t.name));
        let names: Vec<&String> = names.collect();
        for (i, name) in names.iter().enumerate() {
            if !is_name(name) || TAKEN.contains(&name.as_str()) || *name == MEMORY.name {
                return wrong(format!("'{name}' cannot be the name of an axis, attribute or tensor"));
            }
            if names[..i].contains(name) {
                return wrong(format!("{name} is named twice"));
            }
        }
        if self.dtypes.is_empty() {
            return wrong("no dtypes".into());
        }
        if !self.tensors.iter().any(|t| t.role.is_output()) {
            return wrong("no output".into());
        }
        let at_one = Sizes { own: self, size: &|_| Some(1) };
        for t in &self.tensors {
            for dim in &t.dims {
                evaluate(dim, &at_one).or_else(|e| wrong(format!("{}: {e}", t.name)).map(|()| 0))?;
            }
        }
        Ok(())
    }

    fn op(&'static self) -> Op {
        let axis = |name: &'static String| Axis { name, about: "a size of the op", tries: &[] };
        let mut attrs: Vec<Attr> = self.attrs.iter().map(OwnAttr::attr).collect();
        attrs.push(MEMORY);
        Op {
            name: &self.name,
            about: &self.about,
            axes: self.axes.iter().map(axis).collect::<Vec<_>>().leak(),
            attrs: attrs.leak(),
            dtypes: [&self.dtypes[..], &self.also[..]].concat().leak(),
            default_configs: self.configs.iter().map(|c| c.as_str()).collect::<Vec<_>>().leak(),
            check: |case| of(case).sizes(case).map(drop),
            tensors: |case| of(case).tensors(case),
            cost: |case, tensors| Cost::of(tensors, of(case).flops(case)),
            derive: values::derive,
            judge: Some(|case, outputs| truth()?.judge(case, outputs)),
            any_number: true,
            version: &self.hash,
            ..Op::NEW
        }
    }

    fn value(&self, expression: &str, case: &Case) -> Result<i64, String> {
        let attr = |name: &str| case.attrs.get(name).and_then(|v| v.parse().ok());
        let size = |name: &str| case.axes.get(name).map(|v| *v as i64).or_else(|| attr(name));
        evaluate(expression, &Sizes { own: self, size: &size })
    }

    /// Shapes of all tensors.
    fn sizes(&self, case: &Case) -> Result<Vec<Vec<usize>>, String> {
        let size = |t: &OwnTensor, dim: &String| match self.value(dim, case)? {
            n if n > 0 => Ok(n as usize),
            n => Err(format!("{} is {n} long in '{dim}'; sizes start at 1", t.name)),
        };
        let shape = |t: &OwnTensor| t.dims.iter().map(|d| size(t, d)).collect::<Result<Vec<_>, String>>();
        if let Some(flops) = &self.flops {
            self.value(flops, case)?;
        }
        self.tensors.iter().map(shape).collect()
    }

    fn flops(&self, case: &Case) -> u64 {
        let stated = self.flops.as_ref().and_then(|f| self.value(f, case).ok());
        let counted = || COUNTED.read().expect("nobody panics while counting").get(&case.id).copied();
        stated.map(|f| f.max(0) as u64).or_else(counted).unwrap_or(0)
    }

    fn tensors(&'static self, case: &Case) -> Vec<TensorSpec> {
        let shapes = self.sizes(case).expect("checked when the case was made");
        self.tensors.iter().zip(shapes).map(|(t, shape)| t.spec(case, &shape)).collect()
    }
}

/// What expressions of an op may name.
struct Sizes<'a> {
    own: &'a OwnOp,
    size: &'a dyn Fn(&str) -> Option<i64>,
}

impl Scope for Sizes<'_> {
    fn name(&self, name: &str) -> Option<i64> {
        let whole = |a: &OwnAttr| a.kind == OwnKind::Integer && a.name == name;
        let is_known = self.own.axes.iter().any(|a| a == name) || self.own.attrs.iter().any(whole);
        (self.size)(name).filter(|_| is_known)
    }
    fn function(&self, _: &str) -> Option<(&[String], &str)> {
        None
    }
}

impl OwnAttr {
    fn attr(&'static self) -> Attr {
        let words = |words: &'static [String]| words.iter().map(|w| w.as_str()).collect::<Vec<_>>().leak();
        let kind = match &self.kind {
            OwnKind::Number => AttrKind::Positive,
            OwnKind::Integer => AttrKind::Integer,
            OwnKind::Flag => YES_NO,
            OwnKind::Words(all) => AttrKind::OneOf(words(all)),
        };
        Attr { name: &self.name, kind, default: &self.default, about: "an argument of the op" }
    }
}

impl OwnTensor {
    fn spec(&'static self, case: &Case, shape: &[usize]) -> TensorSpec {
        let dtype = self.dtype.unwrap_or(case.dtype);
        let fill = match self.fill {
            OwnFill::Constant(c) => Fill::Constant(c),
            OwnFill::Normal { mean, std } => Fill::Normal { mean, std },
            OwnFill::Rows { shift } => Fill::Rows { mean: 0.0, std: 1.0, shift },
            OwnFill::Logits => Fill::logits(dtype),
            _ => Fill::Derived,
        };
        let spec = match self.role {
            Role::In => TensorSpec::input(&self.name, dtype, shape, fill),
            Role::InOut => TensorSpec::inout(&self.name, dtype, shape, fill),
            Role::Out => TensorSpec::output(&self.name, dtype, shape),
        };
        spec.laid_out(case.attr(MEMORY.name))
    }
}
