//! Ops of users: a reference in Python is an op, judged in a process of its own. NumPy stands for torch.

use crate::cuda::{TIMED, cuda};
use crate::python::python;
use crate::{kmark, records, text};
use assert_cmd::Command;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn example(name: &str) -> String {
    root().join("examples").join(name).display().to_string()
}

fn five() -> String {
    root().join("crates/kmark/tests/own/five.py").display().to_string()
}

fn with_python(mut command: Command) -> Output {
    command.env("KMARK_PYTHON", python()).output().unwrap()
}

fn verified(args: &[&str]) -> (Vec<Value>, Output) {
    let args = [&["verify"][..], args, &["--device", "cpu", "--json", "--quiet"]].concat();
    let out = with_python(kmark(&args));
    (serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", text(&out.stderr))), out)
}

#[test]
fn five_ops_and_the_example_tell_right_from_wrong() {
    let (five, drop_norm) = (five(), example("drop_norm.py"));
    for words in [&[five.as_str()][..], &[&drop_norm, "--configs", "9x65", "--set", "p=0.5"]] {
        let (lines, out) = verified(words);
        assert_eq!(out.status.code(), Some(0), "{lines:#?}");
        for line in &lines {
            assert_eq!((&line["status"], &line["verify"]["grade"]), (&"ok".into(), &"tight".into()), "{line}");
            assert!(line["verify"]["bound"]["how"].as_str().unwrap().contains("random rounding"), "{line}");
        }
        let (mutants, out) = verified(&[words, &["--mutants"]].concat());
        assert_eq!(
            out.status.code(),
            Some(0),
            "{:#?}",
            mutants.iter().filter(|m| m["status"] == "ok").collect::<Vec<_>>()
        );
        assert!(mutants.len() > 5 * lines.len() / 2, "{} mutants, {} impls", mutants.len(), lines.len());
    }
}

#[test]
fn a_run_of_a_users_op_is_recorded_as_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let (out, suite) = (dir.path().join("out"), dir.path().join("mine.toml"));
    std::fs::copy(example("drop_norm.py"), dir.path().join("drop_norm.py")).unwrap();
    let cases = "ops = [\"drop_norm.py\"]\n[[cases]]\nop = \"drop-norm\"\ndtype = \"f32\"\nconfigs = [\"9x65\"]\n";
    std::fs::write(&suite, cases).unwrap();
    let args = ["run", suite.to_str().unwrap(), "--device", "cpu", "--budget", "20ms", "--rounds", "2", "--no-roofs"];
    let ran = with_python(kmark(&[&args[..], &["--out", out.to_str().unwrap()]].concat()));
    let records = records(&out);
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let impls: Vec<&str> = records.iter().map(|r| r["impl"].as_str().unwrap().rsplit(':').next().unwrap()).collect();
    assert_eq!(impls, ["plain", "rowwise", "reference"]);
    for r in &records {
        assert_eq!((&r["status"], &r["case"]), (&"ok".into(), &"drop-norm/f32/m9-n65".into()), "{r}");
        assert!(r["contract"].as_str().unwrap().starts_with("x,r,u,w -> y,s by "), "{r}");
        assert!(r["verify"]["bound"]["width"].as_f64().unwrap() > 0.0, "{r}");
        assert!(r["checked"]["fresh"].as_u64().unwrap() > 0 && !r["samples_ns"].as_array().unwrap().is_empty(), "{r}");
        assert_eq!(r["cost"]["flops"], 11 * 9 * 65);
        assert_eq!(r["cost"]["bytes_read"], 4 * (3 * 9 * 65 + 65));
    }
    let report = text(&with_python(kmark(&["report", out.to_str().unwrap()])).stdout);
    assert!(report.contains("drop-norm/f32/m9-n65"), "{report}");
}

#[test]
fn a_cuda_file_computes_a_users_op() {
    let dir = tempfile::tempdir().unwrap();
    let (op, kernel) = (example("drop_norm.py"), example("drop_norm.cu"));
    let wrong = dir.path().join("wrong.cu");
    let source = std::fs::read_to_string(&kernel).unwrap();
    std::fs::write(&wrong, source.replace("/ float(1.0 - P)", "")).unwrap();
    let out = dir.path().join("out");
    let mut args = vec!["run", &op, "--device", "cuda", "--configs", "5x33", "--impl", &kernel];
    args.extend([
        "--impl",
        wrong.to_str().unwrap(),
        "--budget",
        "10ms",
        "--rounds",
        "2",
        "--out",
        out.to_str().unwrap(),
    ]);
    let turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let ran = cuda(&args);
    drop(turn);
    let records = records(&out);
    assert_eq!(records.len(), 4, "{}", text(&ran.stderr));
    for r in records {
        let right = r["impl"].as_str().unwrap().ends_with("drop_norm.cu");
        assert_eq!(r["status"], if right { "ok" } else { "wrong" }, "{r}");
    }
    let template = with_python(kmark(&["list", "ops", "--template", &op]));
    assert!(text(&template.stdout).contains("a.u: read, 256 x 1024 of f32"), "{}", text(&template.stdout));
}

#[test]
fn what_is_wrong_with_an_op_is_one_clear_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.py");
    let head = "import kmark\nimport numpy as np\n";
    for (contract, body, says) in [
        ("x: m n -> y: m n", "raise ValueError('no such luck')", "no such luck"),
        ("x: m n -> y: m n", "return x.sum(-1)", "shape"),
        ("x: m n -> y: m n", "return x.astype(np.float32) * 2", "computes in float32"),
        ("x: m n -> y: m n", "return x + np.random.rand(*x.shape)", "random"),
        ("x: m n -> y: m k*q", "return x", "mine wants 4 (mxnxkxq)"),
        ("x: m n", "return x", "has no output"),
        ("x: m n -> y: m n wavy(3)", "return x", "there is no function wavy"),
        ("x: m n, i: m i32 -> y: m n", "return x", "mine.py"),
        ("x: m n index(n -> y: m n", "return x", "index"),
        ("z: m n -> y: m n", "return x", "no parameter z"),
        ("x: m n+ -> y: m n", "return x", "a value is missing"),
        ("x: m n made -> y: m n", "return x", "inputs="),
    ] {
        let text_of = format!(
            "{head}\n@kmark.op(\"{contract}\", configs=[\"4x8\"])\ndef mine(x):\n    {body}\n\n@mine.impl\ndef f(x):\n    return x\n"
        );
        std::fs::write(&file, text_of).unwrap();
        let out = with_python(kmark(&["verify", file.to_str().unwrap(), "--device", "cpu", "--quiet"]));
        let err = text(&out.stderr);
        assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{contract} {body}: {err}");
        assert!(err.contains(says), "{contract} {body}: {err}");
    }
    for (text_of, args, says) in [
        ("x = 1\n", &[][..], "there is no op in it"),
        ("import kmark\n1/0\n", &[], "ZeroDivisionError"),
        ("import kmark\nsyntax error\n", &[], "SyntaxError"),
        (
            "import kmark\n@kmark.op('x: n -> y: n', name='gemm')\ndef f(x):\n    return x\n",
            &[],
            "give yours another name",
        ),
        ("import kmark\n@kmark.op('x: n -> y: n')\ndef f(x):\n    return x\n", &[], "needs axis n"),
        (
            "import kmark\n@kmark.op('x: n -> y: n')\ndef f(x):\n    return x\n",
            &["--set", "n=99999999999"],
            "GiB are available",
        ),
    ] {
        std::fs::write(&file, text_of).unwrap();
        let out =
            with_python(kmark(&[&["verify", file.to_str().unwrap(), "--device", "cpu", "--quiet"], args].concat()));
        let err = text(&out.stderr);
        assert_eq!((out.status.code(), err.lines().count()), (Some(2), 1), "{text_of}: {err}");
        assert!(err.contains(says), "{text_of}: {err}");
    }
    let out = with_python(kmark(&["verify", "./nowhere.py", "--device", "cpu"]));
    assert_eq!(text(&out.stderr), "error: ./nowhere.py: there is no such file\n");
}

#[test]
fn what_no_case_shows_is_said_with_a_case_that_does() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.py");
    let op = "import kmark\nimport numpy as np\n\n@kmark.op('x: m n -> y: m n', dtypes='f16 f32', configs=['4x8'])\n\
              def mine(x):\n    return 2 * x\n\n@mine.mutant\ndef nearly(x):\n    return (2.0002 * x.astype('f8')).astype(x.dtype)\n";
    std::fs::write(&file, op).unwrap();
    let args = ["verify", file.to_str().unwrap(), "--mutants", "--dtype", "f16", "--device", "cpu"];
    let out = with_python(kmark(&args));
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(5), "{said}");
    assert!(said.contains("blind: nearly is not seen on mine/f16/m4-n8; mine/f32/m4-n8 shows it"), "{said}");
}
