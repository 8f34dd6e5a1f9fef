//! Ops judged by bounds that `numpy/bounds.py` derives from their NumPy formulas alone: what somebody has who writes
//! nothing but a reference. Python is asked when the gate asks, once for each set of values.

use kmark_core::case::Case;
use kmark_core::gate::{Block, Region, Sink};
use kmark_core::op::Op;
use kmark_core::tensor::View;
use serde_json::{Map, json};
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex};

/// Slack is six standard deviations, so that an RMS error of half of it is far from honest.
const RMS_SHARE: f64 = 0.25;

/// The op with one region, no invariants and a derived bound.
pub fn by_reference(op: &'static Op) -> &'static Op {
    Box::leak(Box::new(Op {
        regions: Op::NEW.regions,
        invariants: Op::NEW.invariants,
        properties: Op::NEW.properties,
        tensors: |case| {
            let own = kmark_ops::find(&case.op).expect("an op of ours").op;
            own.tensors(case).into_iter().map(|t| t.with_rms_share(RMS_SHARE)).collect()
        },
        oracle: put,
        ..*op
    }))
}

/// For each output its expectations, slack and what the loose grade adds, one after the other.
type Numbers = &'static [f64];

static KNOWN: LazyLock<Mutex<HashMap<u64, Numbers>>> = LazyLock::new(Default::default);

fn put(case: &Case, view: &View, sink: &dyn Sink) {
    let key = key(case, view);
    let known = KNOWN.lock().unwrap().get(&key).copied();
    let mut numbers = known.unwrap_or_else(|| {
        let derived: Numbers = Vec::leak(ask(case, view));
        KNOWN.lock().unwrap().insert(key, derived);
        derived
    });
    for spec in view.specs.iter().filter(|s| s.role.is_output()) {
        let mut take = || numbers.split_off(..spec.elems()).expect("as many as there are elements");
        let (expect, slack, loose) = (take(), take(), take());
        let loose: &[f64] = if spec.dtype.size() == 2 { loose } else { &[] };
        sink.put(Block { tensor: spec.name, start: 0, expect, slack, loose, region: Region::One(0) });
    }
}

/// The inputs of a case as a number.
fn key(case: &Case, view: &View) -> u64 {
    let mut hash = DefaultHasher::new();
    case.id.hash(&mut hash);
    for spec in view.specs.iter().filter(|s| s.role.is_input()) {
        view.all(spec.name).iter().for_each(|v| v.to_bits().hash(&mut hash));
    }
    hash.finish()
}

/// A Python process for each core: one line of JSON and the numbers of the inputs in, the number of numbers and these out.
static PYTHONS: LazyLock<Vec<Mutex<Python>>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    (0..cores).map(|_| Mutex::new(Python::start())).collect()
});

struct Python {
    /// It ends with us: its pipe closes.
    _child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Python {
    fn start() -> Python {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let made_by_check = || here.join("../../target/numpy-env/bin/python");
        let python = std::env::var_os("KMARK_PYTHON").map_or_else(made_by_check, PathBuf::from);
        let mut command = Command::new(&python);
        command.arg(here.join("tests/numpy/bounds.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", here.join("../../python"));
        command.env("OMP_NUM_THREADS", "1").env("OPENBLAS_NUM_THREADS", "1");
        let no_python = |e| panic!("{}: {e}: run ./check, or set KMARK_PYTHON", python.display());
        let mut child = command.spawn().unwrap_or_else(no_python);
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Python { _child: child, to, from: BufReader::new(from) }
    }

    /// An answer is missing if Python died; it has said why.
    fn ask(&mut self, line: &str, numbers: &[f64]) -> std::io::Result<Vec<f64>> {
        writeln!(self.to, "{line}")?;
        self.to.write_all(&numbers.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
        self.to.flush()?;
        let mut count = String::new();
        self.from.read_line(&mut count)?;
        let count: usize = count.trim().parse().map_err(std::io::Error::other)?;
        let mut bytes = vec![0; count * 8];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect())
    }
}

fn ask(case: &Case, view: &View) -> Vec<f64> {
    let mut numbers: Vec<f64> = Vec::new();
    let (mut given, mut outputs) = (Map::new(), Map::new());
    for spec in view.specs {
        if spec.role.is_input() {
            let tensor = json!({ "shape": spec.shape, "dtype": spec.dtype, "at": numbers.len() });
            given.insert(spec.name.into(), tensor);
            numbers.extend(view.all(spec.name));
        }
        if spec.role.is_output() {
            outputs.insert(spec.name.into(), json!({ "shape": spec.shape, "dtype": spec.dtype }));
        }
    }
    let line = json!({
        "id": case.id, "op": case.op, "dtype": case.dtype, "axes": case.axes, "attrs": case.attrs,
        "tensors": given, "outputs": outputs, "numbers": numbers.len(),
    });
    let mut python = PYTHONS.iter().find_map(|p| p.try_lock().ok()).unwrap_or_else(|| PYTHONS[0].lock().unwrap());
    let answer = python.ask(&line.to_string(), &numbers);
    answer.unwrap_or_else(|e| panic!("{}: numpy/bounds.py gives no answer: {e}", case.id))
}
