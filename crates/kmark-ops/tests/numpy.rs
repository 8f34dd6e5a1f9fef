//! Every oracle against NumPy and SciPy: libraries that thousands have read, called as their manuals say. Writes inputs
//! and what our oracles expect; then `numpy/oracles.py` and the modules beside it compute the same from the inputs alone
//! and compare.

mod common;
#[path = "common/inputs.rs"]
mod inputs;

use common::Random;
use inputs::Inputs;
use kmark_core::case::Case;
use kmark_core::gate::{Block, Sink};
use kmark_core::op::Op;
use kmark_core::tensor::TensorSpec;
use kmark_ops::OPS;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

const CASES_PER_OP: usize = 24;
const LONGEST: u64 = 200;

#[test]
fn oracles_agree_with_numpy() {
    let folder = Folder::new("numpy-all");
    let mut random = Random::new(3, LONGEST);
    let mut written = Written::default();
    for entry in OPS {
        for _ in 0..CASES_PER_OP {
            written.add(entry.op, &random.case(entry), 0.0);
        }
    }
    let out = folder.judge(&written);
    assert!(out.status.success(), "{}", text(&out));
}

/// The comparison itself can fail: one element that is off by a hundred millionth is found and named.
#[test]
fn a_wrong_oracle_is_found() {
    let folder = Folder::new("numpy-wrong");
    let mut random = Random::new(4, LONGEST);
    let entry = kmark_ops::find("softmax").expect("an op");
    let case = random.case(entry);
    let mut written = Written::default();
    written.add(entry.op, &case, 1e-8);
    let out = folder.judge(&written);
    assert!(!out.status.success());
    assert!(text(&out).contains(&format!("{}: y[0, 0]: ", case.id)), "{}", text(&out));
    assert!(text(&out).contains("rmsnorm: no case was written for it"), "{}", text(&out));
}

/// A manifest of cases, and all their numbers one after the other.
#[derive(Default)]
struct Written {
    manifest: String,
    numbers: Vec<f64>,
}

impl Written {
    /// Adds a case; the first element of its first output is spoilt by `spoil`, relative.
    fn add(&mut self, op: &'static Op, case: &Case, spoil: f64) {
        let inputs = Inputs::new(op, case);
        let view = inputs.view();
        let sink = Collect::new(&inputs.specs);
        (op.oracle)(case, &view, &sink);
        let mut expected = sink.finish(case);

        let (mut given, mut outputs) = (Map::new(), Map::new());
        for spec in &inputs.specs {
            if spec.role.is_input() {
                given.insert(spec.name.into(), self.tensor(spec, &view.all(spec.name)));
            }
            if let Some(values) = expected.get_mut(spec.name) {
                let rounded: Vec<f64> = values.iter().map(|v| spec.dtype.round(*v)).collect();
                values[0] *= if outputs.is_empty() { 1.0 + spoil } else { 1.0 };
                let mut entry = self.tensor(spec, values);
                entry["rounded"] = self.tensor(spec, &rounded)["at"].take();
                outputs.insert(spec.name.into(), entry);
            }
        }
        let line = json!({
            "id": case.id, "op": case.op, "dtype": case.dtype, "axes": case.axes, "attrs": case.attrs,
            "tensors": given, "outputs": outputs,
        });
        self.manifest += &format!("{line}\n");
    }

    fn tensor(&mut self, spec: &TensorSpec, values: &[f64]) -> Value {
        let at = self.numbers.len();
        self.numbers.extend(values);
        json!({ "shape": spec.shape, "dtype": spec.dtype, "at": at })
    }
}

/// A sink that keeps what the oracle expects. An element that the contract leaves free becomes NaN.
struct Collect(Mutex<HashMap<&'static str, Vec<Option<f64>>>>);

impl Collect {
    fn new(specs: &[TensorSpec]) -> Collect {
        let outputs = specs.iter().filter(|s| s.role.is_output());
        Collect(Mutex::new(outputs.map(|s| (s.name, vec![None; s.elems()])).collect()))
    }

    fn finish(self, case: &Case) -> HashMap<&'static str, Vec<f64>> {
        let known = self.0.into_inner().expect("no panic in the oracle");
        let all = |name: &str, values: Vec<Option<f64>>| -> Option<Vec<f64>> {
            let missing = values.iter().filter(|v| v.is_none()).count();
            assert!(missing == 0, "{}: the oracle left out {missing} elements of {name}", case.id);
            values.into_iter().collect()
        };
        known.into_iter().map(|(name, values)| (name, all(name, values).expect("none is missing"))).collect()
    }
}

impl Sink for Collect {
    fn put(&self, block: Block) {
        assert_eq!(block.expect.len(), block.slack.len());
        let mut known = self.0.lock().expect("no panic in the oracle");
        let tensor = known.get_mut(block.tensor).unwrap_or_else(|| panic!("{} is no output", block.tensor));
        for (i, (expect, slack)) in block.expect.iter().zip(block.slack).enumerate() {
            let free = *slack == f64::INFINITY;
            assert!(free || !expect.is_nan(), "{}[{}]: the oracle expects NaN", block.tensor, block.start + i);
            let before = tensor[block.start + i].replace(if free { f64::NAN } else { *expect });
            assert!(before.is_none(), "{}[{}] was put twice", block.tensor, block.start + i);
        }
    }
}

/// A folder of its own for what Python reads.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("cargo's folder is writable");
        Folder(path)
    }

    fn judge(&self, written: &Written) -> Output {
        let bytes: Vec<u8> = written.numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
        fs::write(self.0.join("numbers.f64"), bytes).expect("the folder is writable");
        fs::write(self.0.join("manifest.jsonl"), &written.manifest).expect("the folder is writable");
        let python = python();
        let run = |args: &[&Path]| Command::new(&python).env("PYTHONDONTWRITEBYTECODE", "1").args(args).output();
        let usable = run(&["-c".as_ref(), "import numpy, scipy".as_ref()]).is_ok_and(|o| o.status.success());
        assert!(usable, "{} has no numpy and scipy: run ./check, or set KMARK_PYTHON", python.display());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/numpy/oracles.py");
        run(&[&script, &self.0]).expect("Python runs")
    }
}

impl Drop for Folder {
    /// A failed test leaves its numbers for whoever looks into it.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

fn python() -> PathBuf {
    let made_by_check = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/numpy-env/bin/python");
    std::env::var_os("KMARK_PYTHON").map_or_else(made_by_check, PathBuf::from)
}

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}
