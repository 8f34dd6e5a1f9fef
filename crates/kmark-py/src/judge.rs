//! The gate for one output that somebody else holds: elements, what they should be and how far off they may be, in arrays
//! of Python's. The rule is the gate's own.

use crate::tools::Tools;
use kmark_core::dtype::DType;
use kmark_core::gate::Findings;
use kmark_core::tally::{Grade, Tally};
use kmark_core::tensor::TensorSpec;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Elements of one dtype, one after the other.
struct Elements {
    bytes: Vec<u8>,
    dtype: DType,
}

impl Elements {
    /// An array of NumPy's or torch's in the host's memory, or plain bytes.
    fn of(tools: &Tools, value: &Bound<'_, PyAny>, dtype: DType, what: &str) -> PyResult<Elements> {
        let wrong = |text: String| PyTypeError::new_err(format!("{what}: {text}"));
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Elements { bytes: bytes.as_bytes().to_vec(), dtype });
        }
        let array = tools.array(value).map_err(wrong)?;
        if array.on_gpu {
            return Err(wrong("lies on a GPU; copy it to the host first".into()));
        }
        // A type that NumPy has not travels as whole numbers of its size.
        if array.size() != dtype.size() || (array.dtype != dtype.name() && array.kind.code > 1) {
            return Err(wrong(format!("holds {}, not {}", array.dtype, dtype.name())));
        }
        let mut bytes = vec![0; array.elems() * array.size()];
        array.copy_to(&mut bytes);
        Ok(Elements { bytes, dtype })
    }

    fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    fn read(&self, start: usize, out: &mut [f64]) {
        let size = self.dtype.size();
        self.dtype.decode(&self.bytes[start * size..(start + out.len()) * size], out);
    }
}

/// One number for all elements, or one for each.
enum Slack {
    All(f64),
    Each(Elements),
}

impl Slack {
    fn of(tools: &Tools, value: &Bound<'_, PyAny>, what: &str) -> PyResult<Slack> {
        match value.extract::<f64>() {
            Ok(number) if !value.hasattr("__array_struct__")? => Ok(Slack::All(number)),
            _ => Elements::of(tools, value, DType::F64, what).map(Slack::Each),
        }
    }

    fn fits(&self, elems: usize) -> bool {
        matches!(self, Slack::All(_)) || matches!(self, Slack::Each(e) if e.len() == elems)
    }

    fn read(&self, start: usize, out: &mut [f64]) {
        match self {
            Slack::All(number) => out.fill(*number),
            Slack::Each(elements) => elements.read(start, out),
        }
    }
}

struct Question {
    got: Elements,
    expect: Elements,
    slack: Slack,
    loose: Option<Slack>,
    /// Whose spacing half of counts. Whole numbers are exact.
    rounds: DType,
}

/// Elements that are judged at a time.
const BLOCK: usize = 4096;

impl Question {
    /// Elements `from .. to`. `Err` is the place of a slack that is none.
    fn tally(&self, from: usize, to: usize) -> Result<Tally, usize> {
        let mut tally = Tally::default();
        let (mut got, mut expect) = (vec![0.0; BLOCK], vec![0.0; BLOCK]);
        let (mut slack, mut loose) = (vec![0.0; BLOCK], vec![0.0; BLOCK]);
        for start in (from..to).step_by(BLOCK) {
            let n = BLOCK.min(to - start);
            self.got.read(start, &mut got[..n]);
            self.expect.read(start, &mut expect[..n]);
            self.slack.read(start, &mut slack[..n]);
            match &self.loose {
                Some(wide) => wide.read(start, &mut loose[..n]),
                None => loose[..n].copy_from_slice(&slack[..n]),
            }
            for i in 0..n {
                if slack[i].is_nan() || slack[i] < 0.0 || loose[i].is_nan() {
                    return Err(start + i);
                }
                if expect[i].is_nan() && got[i].is_nan() {
                    tally.add(start + i, 0.0, 0.0, 0.0, 0.0, self.rounds); // what is expected to be none is none
                    continue;
                }
                let more = if loose[i] > slack[i] { loose[i] - slack[i] } else { 0.0 };
                tally.add(start + i, got[i], expect[i], slack[i], more, self.rounds);
            }
        }
        Ok(tally)
    }

    /// All elements, on all cores.
    fn answer(&self) -> Result<Tally, usize> {
        let elems = self.got.len();
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share = elems.div_ceil(cores).max(1).next_multiple_of(16 * BLOCK);
        let parts: Vec<_> = std::thread::scope(|scope| {
            let range = |start: usize| (start, elems.min(start + share));
            let starts = (0..elems).step_by(share).map(range);
            let threads: Vec<_> = starts.map(|(from, to)| scope.spawn(move || self.tally(from, to))).collect();
            threads.into_iter().map(|t| t.join().expect("judging does not panic")).collect()
        });
        parts.into_iter().try_fold(Tally::default(), |mut all, part| {
            all.merge(&part?);
            Ok(all)
        })
    }
}

/// Holds one output against what is expected, by the gate's rule. `dtype` is that of the elements of `got`, `rounds_to`
/// that of the output where `got` is wider. `slack` and `loose` are absolute: how far a right element may be off before
/// its last rounding, in either grade.
#[pyfunction]
#[pyo3(signature = (got, dtype, expect, slack, *, loose=None, shape=None, name="y", rounds_to=None, rms_share=None))]
#[allow(clippy::too_many_arguments)]
pub fn judge<'py>(
    py: Python<'py>,
    got: &Bound<'py, PyAny>,
    dtype: &str,
    expect: &Bound<'py, PyAny>,
    slack: &Bound<'py, PyAny>,
    loose: Option<&Bound<'py, PyAny>>,
    shape: Option<Vec<usize>>,
    name: &str,
    rounds_to: Option<&str>,
    rms_share: Option<f64>,
) -> PyResult<Bound<'py, PyDict>> {
    let tools = Tools::take(py)?;
    tools.take_libraries(py, false);
    let dtype = dtype_of(dtype)?;
    let output = rounds_to.map_or(Ok(dtype), dtype_of)?;
    let question = Question {
        got: Elements::of(&tools, got, dtype, "got")?,
        expect: Elements::of(&tools, expect, DType::F64, "expect")?,
        slack: Slack::of(&tools, slack, "slack")?,
        loose: loose.map(|l| Slack::of(&tools, l, "loose")).transpose()?,
        rounds: if output.is_float() { output } else { DType::F64 },
    };
    let elems = question.got.len();
    let shape = shape.unwrap_or_else(|| vec![elems]);
    if shape.iter().product::<usize>() != elems || question.expect.len() != elems {
        let message = format!("{elems} elements, {} expected, in shape {shape:?}", question.expect.len());
        return Err(PyValueError::new_err(message));
    }
    if !question.slack.fits(elems) || !question.loose.as_ref().is_none_or(|l| l.fits(elems)) {
        return Err(PyValueError::new_err(format!("slack must be one number, or one for each of {elems} elements")));
    }
    let mut spec = TensorSpec::output(kept(name), output, &shape);
    spec.rms_share = rms_share.unwrap_or(spec.rms_share);
    let tally = py
        .detach(|| question.answer())
        .map_err(|at| PyValueError::new_err(format!("slack{} is no distance: it must be 0 or more", spec.place(at))))?;
    described(py, tally, spec)
}

fn dtype_of(word: &str) -> PyResult<DType> {
    let names = || DType::ALL.map(DType::name).join(", ");
    DType::parse(word).ok_or_else(|| PyValueError::new_err(format!("dtype '{word}' is none of {}", names())))
}

fn described<'py>(py: Python<'py>, tally: Tally, spec: TensorSpec) -> PyResult<Bound<'py, PyDict>> {
    let elements = tally.elements;
    let worst = {
        // Of a right output the bound that it kept; of a wrong one the widest, which it broke.
        let grade = tally.grade(&spec).unwrap_or(Grade::Loose);
        tally.score(grade).clone()
    };
    let findings = Findings { tallies: vec![tally], seen: vec![spec.elems() as u64], bad_rows: Vec::new() };
    let verify = findings.verify(std::slice::from_ref(&spec), &["all"], &[]);
    let at = worst.worst_at;
    let dict = PyDict::new(py);
    dict.set_item("ok", verify.ok())?;
    // Where nothing is judged, since all is free, nothing was rounded badly.
    let grade = if verify.ok() { verify.grade.or(Some(Grade::Tight)) } else { None };
    dict.set_item("grade", grade.map(Grade::word))?;
    dict.set_item("elements", elements)?;
    dict.set_item("beyond", worst.beyond)?;
    dict.set_item("ratio", worst.worst)?;
    dict.set_item("index", at.map(|e| e.index))?;
    dict.set_item("got", at.map(|e| e.got))?;
    dict.set_item("expected", at.map(|e| e.expect))?;
    dict.set_item("allowed", at.map(|e| e.allowed))?;
    dict.set_item("rms", verify.regions.first().map(|r| r.rms))?;
    dict.set_item("twin_rms", verify.regions.first().map(|r| r.twin_rms))?;
    dict.set_item("problems", verify.problems)?;
    Ok(dict)
}

/// The name for as long as the process lives, once: a tensor's is never given back.
fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().expect("nobody panics here");
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_string().into_boxed_str());
    names.insert(kept);
    kept
}
