//! Problems of other collections. A Definition with a NumPy reference stands for all where there is no torch; the examples
//! of each format run where KMARK_TORCH_PYTHON is an interpreter that has it.

use crate::python::python;
use crate::{kmark, records, text};
use assert_cmd::Command;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Output;

fn problems() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/problems").canonicalize().unwrap()
}

fn with_python(args: &[&str], python: &Path) -> Output {
    kmark(args).env("KMARK_PYTHON", python).output().unwrap()
}

fn verified(args: &[&str], python: &Path) -> Vec<Value> {
    let out = with_python(&[&["verify"][..], args, &["--device", "cpu", "--json", "--quiet"]].concat(), python);
    serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{args:?}: {}", text(&out.stderr)))
}

const REFERENCE: &str = "import numpy as np\n\ndef run(x, w, ids, eps):\n    r = 1 / np.sqrt((x * x).mean(-1) + eps)\n    \
                         return (x * r[:, None] * w).astype(x.dtype), r[np.abs(ids) % len(r)]\n";

/// A definition, its workloads and two solutions, one of them wrong.
fn put_definition(dir: &Path) -> [String; 3] {
    let tensor = |shape: Value, dtype: &str| json!({"shape": shape, "dtype": dtype});
    let definition = json!({
        "name": "Norm_h48", "op_type": "norm", "axes": {"m": {"type": "var"}, "h": {"type": "const", "value": 48}},
        "inputs": {
            "x": tensor(json!(["m", "h"]), "float32"), "w": tensor(json!(["h"]), "float32"),
            "ids": tensor(json!(["m"]), "int64"), "eps": tensor(Value::Null, "float32"),
        },
        "outputs": {"y": tensor(json!(["m", "h"]), "float32"), "r": tensor(json!(["m"]), "float32")},
        "reference": REFERENCE,
    });
    let workload = |i: u32, m: u32| {
        let (random, eps) = (json!({"type": "random"}), json!({"type": "scalar", "value": 1e-5}));
        let inputs = json!({"x": random, "w": random, "ids": random, "eps": eps});
        json!({"definition": "Norm_h48", "workload": {"uuid": format!("w{i}"), "axes": {"m": m}, "inputs": inputs}})
    };
    let solution = |name: &str, writes: bool, text: &str| {
        json!({
            "name": name, "definition": "Norm_h48", "author": "kmark",
            "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "a/main.py::run",
                     "destination_passing_style": writes},
            "sources": [{"path": "a/main.py", "content": format!("import numpy as np\n{text}")}],
        })
    };
    let right = "def run(x, w, ids, eps, y, r):\n    s = 1 / np.sqrt(np.einsum('ij,ij->i', x, x) / 48 + eps)\n    \
                 y[...] = x * s[:, None] * w\n    r[...] = s[np.abs(ids) % len(s)]\n";
    let off = "def run(x, w, ids, eps):\n    s = 1 / np.sqrt(np.einsum('ij,ij->i', x, x) / 48.5 + eps)\n    \
               return (x * s[:, None] * w).astype('f4'), s[np.abs(ids) % len(s)].astype('f4')\n";
    let put = |name: &str, text: String| {
        std::fs::write(dir.join(name), text).unwrap();
        dir.join(name).display().to_string()
    };
    put("norm.jsonl", format!("{}\n{}\n", workload(1, 7), workload(2, 30)));
    [
        put("norm.json", definition.to_string()),
        put("right.json", solution("right", true, right).to_string()),
        put("off.json", solution("off", false, off).to_string()),
    ]
}

#[test]
fn a_definition_runs_and_its_records_become_traces() {
    let dir = tempfile::tempdir().unwrap();
    let [definition, right, off] = put_definition(dir.path());
    let out = dir.path().join("out").display().to_string();
    let reference = format!("{definition}:reference");
    let args = ["run", &definition, "--impl", &right, "--impl", &off, "--impl", &reference, "--device", "cpu"];
    let more = ["--budget", "20ms", "--rounds", "2", "--no-roofs", "--out", &out];
    let ran = with_python(&[&args[..], &more].concat(), &python());
    assert_eq!(ran.status.code(), Some(5), "{}", text(&ran.stderr));
    let records = records(Path::new(&out));
    assert_eq!(records.len(), 6);
    for r in &records {
        let is_off = r["impl"] == off.as_str();
        assert_eq!(r["status"], if is_off { "wrong" } else { "ok" }, "{r}");
        assert!(["norm_h48/f32/m7", "norm_h48/f32/m30"].contains(&r["case"].as_str().unwrap()), "{r}");
        // A hundredth is what flashinfer-bench allows.
        assert_eq!(
            (&r["verify"]["theirs"]["gate"], &r["verify"]["theirs"]["ok"]),
            (&"flashinfer-bench".into(), &true.into())
        );
        let error = r["verify"]["theirs"]["figures"]["max_relative_error"].as_f64().unwrap();
        assert_eq!(error > 1e-3, is_off, "{r}");
    }
    let package = problems().join("../../python");
    let extension = assert_cmd::cargo::cargo_bin("kmark").with_file_name("libkmark_py.so");
    let mut trace = Command::new(python());
    trace.args(["-m", "kmark.foreign", "trace", &definition, &out]);
    let traced = trace.env("PYTHONPATH", package).env("KMARK_EXTENSION", extension).output().unwrap();
    let traces: Vec<Value> = text(&traced.stdout).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(traces.len(), 4, "{}", text(&traced.stderr));
    for t in &traces {
        let (evaluation, is_off) = (&t["evaluation"], t["solution"] == "off");
        assert_eq!(
            (&t["definition"], &evaluation["status"]),
            (&"Norm_h48".into(), &(if is_off { "INCORRECT_NUMERICAL" } else { "PASSED" }).into())
        );
        let axes = if t["workload"]["uuid"] == "w1" { 7 } else { 30 };
        assert_eq!(t["workload"]["axes"], json!({"m": axes}));
        assert_eq!(evaluation["correctness"]["extra"]["kmark"]["flashinfer_bench"]["ok"], true);
        assert_eq!(evaluation["performance"].is_null(), is_off, "{t}");
        assert!(is_off || evaluation["performance"]["reference_latency_ms"].as_f64().unwrap() > 0.0, "{t}");
    }
}

#[test]
fn mutants_of_a_problem_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let [definition, ..] = put_definition(dir.path());
    let lines = verified(&[&definition, "--mutants"], &python());
    let names: Vec<&str> = lines.iter().map(|l| l["impl"].as_str().unwrap().rsplit(':').next().unwrap()).collect();
    assert!(names.contains(&"mutant.last-48-missing"), "{names:?}");
    assert!(lines.iter().all(|l| l["status"] == "wrong"), "{lines:#?}");
}

#[test]
fn what_cannot_be_mapped_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let [definition, right, _] = put_definition(dir.path());
    let path = |name: &str| dir.path().join(name).display().to_string();
    let put = |name: &str, text: &str| {
        std::fs::create_dir_all(Path::new(&path(name)).parent().unwrap()).unwrap();
        std::fs::write(path(name), text).unwrap();
        path(name)
    };
    let changed = |from: &str, to: &str| std::fs::read_to_string(&definition).unwrap().replace(from, to);
    let model = "import torch.distributed\nclass Model: pass\ndef get_inputs(): return []\n";
    put("many/task.yml", "multi_gpu: true\ntests:\n  - {n: 1}\n");
    std::fs::create_dir(path("none")).unwrap();
    std::fs::copy(path("norm.jsonl"), path("lost.jsonl")).unwrap();
    for (problem, why) in [
        (put("sampling.json", &changed("\"norm\"", "\"sampling\"")), "at random"),
        (put("bool.json", &changed("\"int64\"", "\"bool\"")), "ids is bool"),
        (put("lost.json", &changed("def run", "def walk")), "no function 'run'"),
        (put("1_all.py", model), "distributed"),
        (path("many"), "distributed"),
        (path("none"), "no task.yml"),
    ] {
        let out = with_python(&["verify", &problem, "--device", "cpu"], &python());
        let said = text(&out.stderr);
        assert_eq!((out.status.code(), said.trim().lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(why) && said.contains(&problem), "{said}");
    }
    // What one solution cannot do, others may.
    let cuda = put("cuda.json", &std::fs::read_to_string(&right).unwrap().replace("\"python\"", "\"cuda\""));
    let lines = verified(&[&definition, "--configs", "7", "--impl", &cuda, "--impl", &right], &python());
    assert_eq!([&lines[0]["status"], &lines[1]["status"]], ["unsupported", "ok"], "{lines:#?}");
    assert!(lines[0]["message"].as_str().unwrap().contains("a solution in cuda"), "{lines:#?}");
}

/// Problem, honest impl, wrong impl, and whether the collection's own check accepts that on our values.
const EXAMPLES: &[(&str, &str, &str, bool)] = &[
    ("definitions/gemm_n256_k512.json", "definitions/gemm_f32.json", "definitions/gemm_bf16.json", true),
    ("definitions/rmsnorm_h512.json", "definitions/rmsnorm_plain.json", "definitions/rmsnorm_padded.json", true),
    (
        "definitions/softmax_gather_v2048.json",
        "definitions/softmax_gather_lse.json",
        "definitions/softmax_gather_flush.json",
        true,
    ),
    ("kernelbench/1_softmax.py", "kernelbench/softmax_new.py:ModelNew", "kernelbench/softmax_new.py:Flush", true),
    ("kernelbench/1_softmax.py", "kernelbench/softmax_new.py:ModelNew", "kernelbench/softmax_new.py:NoMaximum", false),
    (
        "kernelbench/2_linear_gelu.py",
        "kernelbench/linear_gelu_new.py:ModelNew",
        "kernelbench/linear_gelu_new.py:NoTail",
        true,
    ),
    (
        "kernelbench/3_layernorm.py",
        "kernelbench/layernorm_new.py:ModelNew",
        "kernelbench/layernorm_new.py:NoWeight",
        false,
    ),
    (
        "gpumode/vectoradd",
        "gpumode/vectoradd/submission.py:custom_kernel",
        "gpumode/vectoradd/submission.py:coarse",
        true,
    ),
    (
        "gpumode/prefixsum",
        "gpumode/prefixsum/submission.py:custom_kernel",
        "gpumode/prefixsum/submission.py:rounded",
        true,
    ),
    ("gpumode/conv2d", "gpumode/conv2d/submission.py:custom_kernel", "gpumode/conv2d/submission.py:narrow", true),
];

#[test]
fn examples_of_every_format_are_judged() {
    let Some(python) = std::env::var_os("KMARK_TORCH_PYTHON").map(PathBuf::from) else {
        eprintln!("SKIPPED: KMARK_TORCH_PYTHON names no interpreter with torch; problems in torch are not run");
        return;
    };
    for (problem, honest, wrong, accepted) in EXAMPLES {
        let [problem, honest, wrong] = [problem, honest, wrong].map(|p| problems().join(p).display().to_string());
        let lines = verified(&[&problem, "--impl", &honest, "--impl", &wrong], &python);
        assert!(!lines.is_empty() && lines.len().is_multiple_of(2), "{lines:#?}");
        for line in &lines {
            let is_honest = line["impl"] == honest.as_str();
            assert_eq!(line["status"], if is_honest { "ok" } else { "wrong" }, "{line}");
            assert_eq!(line["verify"]["theirs"]["ok"], is_honest || *accepted, "{line}");
        }
    }
}
