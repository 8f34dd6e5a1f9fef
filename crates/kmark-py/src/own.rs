//! Ops of users inside the process that runs their references: inputs of a case as f64, and the gate over what the
//! reference expects.

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::gate::{Block, Bound, Gate, Region, Sink, Theirs, Verify};
use kmark_core::inputs::fill;
use kmark_core::op::Op;
use kmark_core::own::{self, OwnOp, Truth};
use kmark_core::tensor::{TensorSpec, View};
use kmark_device::workload::derive;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Values of inputs come from the user's code in this process.
pub struct Here(pub Py<PyAny>);

impl Truth for Here {
    fn judge(&self, _: &Case, _: &View) -> Result<Verify, String> {
        Err("whoever judges is not asked to judge".into())
    }

    fn make(&self, case: &Case, tensor: &str) -> Result<Vec<f64>, String> {
        Python::attach(|py| made(py, &self.0, case, tensor)).map_err(|e| e.to_string())
    }
}

/// Values of an input as the user's code makes them.
pub fn made(py: Python<'_>, python: &Py<PyAny>, case: &Case, tensor: &str) -> PyResult<Vec<f64>> {
    let bytes = python.call_method1(py, "make", (to_json(case), tensor))?;
    Ok(numbers(bytes.cast_bound::<PyBytes>(py)?.as_bytes()))
}

/// The tensors of a case, by name: elements as f64 of the inputs for the case's seed (none of outputs), shape and dtype.
pub fn inputs<'py>(py: Python<'py>, op: &'static Op, case: &Case) -> PyResult<Dict<'py>> {
    let specs = op.tensors(case);
    let mut memory: Vec<Vec<u8>> = Vec::new();
    for (i, spec) in specs.iter().enumerate() {
        let mut bytes = vec![0; if spec.role.is_input() { spec.bytes() } else { 0 }];
        if spec.role.is_input() && spec.fill != Fill::Derived {
            fill(spec, case.seed, &mut bytes);
        } else if spec.role.is_input() {
            let view = View { specs: &specs, bytes: vec![None; specs.len()] };
            py.detach(|| derive(op, case, &view, i, &mut bytes));
        }
        memory.push(bytes);
    }
    let dict = PyDict::new(py);
    for (spec, bytes) in specs.iter().zip(&memory) {
        let mut values = vec![0.0; if spec.role.is_input() { spec.elems() } else { 0 }];
        spec.read(bytes, 0, &mut values);
        dict.set_item(spec.name, told(py, spec, &values))?;
    }
    Ok(dict)
}

type Dict<'py> = pyo3::Bound<'py, PyDict>;

/// Holds outputs against what Python expects: `truth.parts(grade)` are name, expected values and slack of each output,
/// `truth.told()` is how the bound was found, `truth.theirs(outputs)` what the check of the problem's own collection says,
/// if it `has_theirs`. Who is not tight may be loose.
pub fn judge(py: Python<'_>, outputs: &View, truth: &Py<PyAny>) -> PyResult<Verify> {
    let parts = |grade: &str| -> PyResult<Vec<Part>> {
        let list: Vec<(String, Py<PyBytes>, Py<PyBytes>)> = truth.call_method1(py, "parts", (grade,))?.extract(py)?;
        let part = |(name, expect, slack): (String, Py<PyBytes>, Py<PyBytes>)| Part {
            name,
            expect: numbers(expect.as_bytes(py)),
            slack: numbers(slack.as_bytes(py)),
        };
        Ok(list.into_iter().map(part).collect())
    };
    let tight = parts("tight")?;
    let mut verify = gate(outputs, &tight, None).map_err(PyValueError::new_err)?;
    let may_be_loose = outputs.specs.iter().any(|s| s.role.is_output() && s.dtype.size() == 2);
    if verify.grade.is_none() && may_be_loose {
        verify = gate(outputs, &tight, Some(&parts("loose")?)).map_err(PyValueError::new_err)?;
    }
    let (how, width, ill_conditioned, blind) = truth.call_method0(py, "told")?.extract(py)?;
    verify.bound = Some(Bound { how, width, ill_conditioned, blind });
    if truth.getattr(py, "has_theirs")?.extract(py)? {
        let (gate, ok, why, figures) = truth.call_method1(py, "theirs", (values(py, outputs)?,))?.extract(py)?;
        verify.theirs = Some(Theirs { gate, ok, why, figures });
    }
    Ok(verify)
}

/// The outputs by name: elements as f64, shape and dtype.
fn values<'py>(py: Python<'py>, outputs: &View) -> PyResult<Dict<'py>> {
    let dict = PyDict::new(py);
    for spec in outputs.specs.iter().filter(|s| s.role.is_output()) {
        dict.set_item(spec.name, told(py, spec, &outputs.all(spec.name)))?;
    }
    Ok(dict)
}

fn told<'py>(
    py: Python<'py>,
    spec: &TensorSpec,
    values: &[f64],
) -> (pyo3::Bound<'py, PyBytes>, Vec<usize>, &'static str) {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    (PyBytes::new(py, &bytes), spec.shape.clone(), spec.dtype.name())
}

struct Part {
    name: String,
    expect: Vec<f64>,
    slack: Vec<f64>,
}

fn gate(outputs: &View, tight: &[Part], loose: Option<&[Part]>) -> Result<Verify, String> {
    let gate = Gate::new(outputs, &["all"], Vec::new());
    for spec in outputs.specs.iter().filter(|s| s.role.is_output()) {
        let of = |parts: &'_ [Part]| parts.iter().position(|p| p.name == spec.name);
        let part = of(tight).map(|i| &tight[i]).ok_or_else(|| format!("the reference gives no {}", spec.name))?;
        if part.expect.len() != spec.elems() || part.slack.len() != spec.elems() {
            return Err(format!("{} has {} elements, not {}", spec.name, spec.elems(), part.expect.len()));
        }
        let more: Vec<f64> = match loose.filter(|_| spec.dtype.size() == 2) {
            Some(parts) => {
                let loose = &parts[of(parts).ok_or("a grade without an output")?].slack;
                loose.iter().zip(&part.slack).map(|(l, t)| if t.is_finite() { (l - t).max(0.0) } else { 0.0 }).collect()
            }
            None => Vec::new(),
        };
        let (expect, slack, region) = (&part.expect[..], &part.slack[..], Region::One(0));
        gate.put(Block { tensor: spec.name, start: 0, expect, slack, loose: &more, region });
    }
    Ok(gate.finish())
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
}

fn to_json(case: &Case) -> String {
    serde_json::to_string(case).expect("cases are plain data")
}

/// Learns an op of the user's from its description.
fn learnt(description: &str) -> PyResult<&'static Op> {
    let own: OwnOp = serde_json::from_str(description).map_err(|e| PyValueError::new_err(e.to_string()))?;
    own::learn(&own).map_err(PyValueError::new_err)
}

fn case_of(text: &str) -> PyResult<(Case, &'static Op)> {
    let case: Case = serde_json::from_str(text).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let op = own::find(&case.op).ok_or_else(|| PyValueError::new_err(format!("nobody told of op {}", case.op)))?.1;
    Ok((case, op))
}

/// A case of an op, as JSON, and the seeds of its sets of values.
#[pyfunction]
pub fn own_case(
    description: &str,
    dtype: &str,
    axes: Vec<(String, u64)>,
    attrs: Vec<(String, String)>,
    seed: u64,
) -> PyResult<(String, Vec<u64>)> {
    let op = learnt(description)?;
    let known = DType::parse(dtype).ok_or_else(|| PyValueError::new_err(format!("unknown dtype '{dtype}'")))?;
    let case = op.case(known, &axes.into_iter().collect(), &attrs.into_iter().collect(), seed);
    let case = case.map_err(PyValueError::new_err)?;
    let seeds = (0..op.checks(&case)).map(|set| op.value_seed(&case, set)).collect();
    Ok((to_json(&case), seeds))
}

/// Whom to ask in this process for inputs that users' code makes: `make(case, tensor)`.
#[pyfunction]
pub fn own_maker(python: Py<PyAny>) {
    own::ask(Box::new(Here(python)));
}

/// The tensors of a case of a learnt op.
#[pyfunction]
pub fn own_inputs<'py>(py: Python<'py>, case: &str) -> PyResult<Dict<'py>> {
    let (case, op) = case_of(case)?;
    inputs(py, op, &case)
}

/// Shape and dtype of every tensor of a case of a learnt op.
#[pyfunction]
pub fn own_shapes<'py>(py: Python<'py>, case: &str) -> PyResult<Dict<'py>> {
    let ((case, op), dict) = (case_of(case)?, PyDict::new(py));
    op.tensors(&case).iter().try_for_each(|t| dict.set_item(t.name, (t.shape.clone(), t.dtype.name())))?;
    Ok(dict)
}

/// The gate's word, as JSON, on outputs given by name as bytes of their dtype.
#[pyfunction]
pub fn own_judge(
    py: Python<'_>,
    case: &str,
    outputs: std::collections::HashMap<String, Py<PyBytes>>,
    truth: Py<PyAny>,
) -> PyResult<String> {
    let (case, op) = case_of(case)?;
    let specs = op.tensors(&case);
    let bytes = |s: &TensorSpec| outputs.get(s.name).filter(|_| s.role.is_output()).map(|b| b.as_bytes(py));
    let view = View { specs: &specs, bytes: specs.iter().map(bytes).collect() };
    for (spec, bytes) in specs.iter().zip(&view.bytes).filter(|(s, _)| s.role.is_output()) {
        if bytes.is_none_or(|b| b.len() != spec.bytes()) {
            return Err(PyValueError::new_err(format!("output {} is missing or of another size", spec.name)));
        }
    }
    let verify = judge(py, &view, &truth)?;
    Ok(serde_json::to_string(&verify).expect("plain data"))
}
