//! Python libraries as workers: the same protocol, real processes, and whatever a Python function does becomes a typed
//! record. NumPy stands for all libraries where there is no GPU.

use crate::{kmark, records, text};
use command_fds::{CommandFdExt, FdMapping};
use kmark_worker::seal::{Key, Seal, Way};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// An interpreter that has NumPy; `./check` makes one.
pub fn python() -> PathBuf {
    std::env::var_os("KMARK_PYTHON").map_or_else(|| root().join("target/numpy-env/bin/python"), PathBuf::from)
}

fn program() -> PathBuf {
    assert_cmd::cargo::cargo_bin("kmark")
}

fn extension() -> PathBuf {
    let built = program().with_file_name("libkmark_py.so");
    assert!(built.is_file(), "cargo build --workspace builds {}", built.display());
    built
}

/// Runs kmark with our interpreter; records and exit code.
fn run(args: &[&str]) -> (Vec<Value>, Option<i32>, String) {
    run_rounds("3", args)
}

fn run_rounds(rounds: &str, args: &[&str]) -> (Vec<Value>, Option<i32>, String) {
    extension();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut all = vec!["run"];
    all.extend(args);
    all.extend(["--device", "cpu", "--budget", "20ms", "--rounds", rounds, "--out", out.to_str().unwrap()]);
    let result = kmark(&all).env("KMARK_PYTHON", python()).output().unwrap();
    let err = text(&result.stderr);
    assert!(out.join("records.jsonl").is_file(), "{err}");
    (records(&out), result.status.code(), err)
}

#[test]
fn numpy_runs_beside_ours_under_the_same_gate() {
    let args = ["rmsnorm", "softmax", "cross-entropy", "--dtype", "f32,bf16", "--configs", "17x129"];
    let (records, code, err) = run(&[&args[..], &["--impl", "cpu/simd", "--impl", "numpy"]].concat());
    assert_eq!((code, records.len()), (Some(0), 12), "{err}");
    for r in &records {
        let unsupported = r["impl"] == "numpy" && r["dtype"] == "bf16";
        assert_eq!(r["status"], if unsupported { "unsupported" } else { "ok" }, "{r}");
        if r["impl"] == "numpy" && !unsupported {
            assert!(r["verify"]["elements"].as_u64().unwrap() > 0, "{r}");
            assert!(r["notes"].to_string().contains("numpy "), "{r}");
            assert!(r["times"]["first_call_ns"].as_f64().unwrap() > 0.0, "{r}");
            assert_eq!(r["impl_hash"].as_str().unwrap().len(), 16, "{r}");
        }
    }
}

/// Every NumPy adapter on the smoke suite: right, or said to be unsupported.
#[test]
fn every_numpy_adapter_computes_its_op() {
    extension();
    let args = ["verify", "smoke", "--device", "cpu", "--impl", "numpy", "--json", "--quiet"];
    let result = kmark(&args).env("KMARK_PYTHON", python()).output().unwrap();
    let lines: Vec<Value> = serde_json::from_slice(&result.stdout).unwrap();
    let ok = lines.iter().filter(|l| l["status"] == "ok").count();
    let bad: Vec<&Value> =
        lines.iter().filter(|l| !["ok", "unsupported"].contains(&l["status"].as_str().unwrap())).collect();
    assert!(bad.is_empty(), "{} of {}: {:#?}", bad.len(), lines.len(), bad);
    assert!(ok > 40, "{ok} of {} cases were verified", lines.len());
    assert_eq!(result.status.code(), Some(0));
}

/// What a user's function does, and what the record says of it.
const FUNCTIONS: [(&str, &str, &str); 13] = [
    ("writes", "ok", ""),
    ("returns", "ok", ""),
    ("binds", "ok", ""),
    ("takes_dlpack", "ok", ""),
    ("keeps_what_it_allocates_once", "ok", ""),
    ("raises", "crashed", "ValueError: no such thing (misbehaving.py:"),
    ("segfaults", "crashed", "SIGSEGV"),
    ("hangs", "hung", "no answer after 20"),
    ("leaks", "out-of-memory", "with every launch: a leak"),
    ("changes_its_input", "wrong", "input x was changed"),
    ("returns_a_cached_output", "wrong", "elements of y are wrong"),
    ("returns_another_dtype", "wrong", "y was returned as f64, not as f32"),
    ("returns_another_shape", "wrong", "y was returned with shape"),
];

#[test]
fn whatever_a_python_function_does_is_recorded_as_that() {
    let file = root().join("crates/kmark/tests/it/python/misbehaving.py");
    let names: Vec<String> = FUNCTIONS.iter().map(|(f, ..)| format!("{}:{f}", file.display())).collect();
    let mut args =
        vec!["rmsnorm", "--dtype", "f32", "--configs", "64x512", "-v", "--deadline", "20s", "--impl", "cpu/simd"];
    names.iter().for_each(|n| args.extend(["--impl", n]));
    // A leak shows after some launches, however slow the machine.
    let (records, code, err) = run_rounds("10", &args);
    assert_eq!((code, records.len()), (Some(5), FUNCTIONS.len() + 1), "{err}");
    for r in &records {
        let name = r["impl"].as_str().unwrap();
        let known = FUNCTIONS.iter().find(|(f, ..)| name.ends_with(&format!(":{f}")));
        let (_, status, says) = known.unwrap_or(&("", "ok", ""));
        assert_eq!(r["status"], *status, "{r}");
        assert!(r["message"].as_str().unwrap().contains(says), "{says}: {r}");
        let raised = says.starts_with("ValueError");
        assert_eq!(r["traceback"].to_string().contains("in raises"), raised, "{r}");
    }
    assert!(err.contains("Traceback (most recent call last)"), "{err}");
}

/// A library compiles when it is verified; bound again to be timed, it finds what it compiled.
#[test]
fn what_compiling_took_is_told_though_it_was_done_to_verify() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("compiles.py");
    let code = "import time\nimport kmark\nimport numpy as np\n\nBUILT = set()\n\n\n\
                @kmark.impl(op='rmsnorm', devices=('cpu',), arrays='numpy')\ndef once(case, t):\n    \
                with case.building():\n        time.sleep(0 if case.id in BUILT else 0.2)\n    \
                BUILT.add(case.id)\n    eps = case.number('eps')\n    \
                return lambda: {'y': t.x / np.sqrt((t.x**2).mean(axis=1, keepdims=True) + eps) * t.w}\n";
    std::fs::write(&file, code).unwrap();
    let name = format!("{}:once", file.display());
    let (records, code, err) = run(&["rmsnorm", "--dtype", "f64", "--configs", "17x129,18x129", "--impl", &name]);
    assert_eq!((code, records.len()), (Some(0), 2), "{err}");
    for r in &records {
        let times = &r["times"];
        assert!(times["build_ns"].as_f64().unwrap() >= 0.2e9 && times["plan_ns"].as_f64().unwrap() < 0.2e9, "{r}");
    }
}

/// Two processes more than without it, which have launched every case once; then everything is as ever.
#[test]
fn libraries_compile_ahead_in_processes_of_their_own() {
    extension();
    let dir = tempfile::tempdir().unwrap();
    let note = "import os\nwith open(os.environ['STARTS'], 'a') as f:\n    f.write(f'{os.environ.get(\"KMARK_AHEAD\")} {os.environ.get(\"MAX_JOBS\")}\\n')\n";
    std::fs::write(dir.path().join("sitecustomize.py"), note).unwrap();
    let starts = |name: &str, more: &[&str]| {
        let (out, starts) = (dir.path().join(name), dir.path().join(format!("{name}-starts")));
        let args =
            ["run", "rmsnorm", "softmax", "--dtype", "f32,bf16", "--configs", "17x129,18x129", "--impl", "numpy"];
        let how = ["--device", "cpu", "--budget", "2ms", "--rounds", "2", "--no-roofs", "--out", out.to_str().unwrap()];
        let mut command = kmark(&[&args[..], &how, more].concat());
        command.env("KMARK_PYTHON", python()).env("PYTHONPATH", dir.path()).env("STARTS", &starts);
        let result = command.env_remove("MAX_JOBS").output().unwrap();
        assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
        let states: Vec<Value> = records(&out).iter().map(|r| r["status"].clone()).collect();
        let phases: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
        assert!(phases["phases"]["prepare_ns"].as_u64().unwrap() > 0);
        (std::fs::read_to_string(starts).unwrap(), states, text(&result.stderr))
    };
    let (one_by_one, states, _) = starts("plain", &[]);
    let (ahead, same, told) = starts("ahead", &["--compile-jobs", "2"]);
    assert_eq!((ahead.lines().count(), &same), (one_by_one.lines().count() + 2, &states), "{told}");
    // Those two know it and share the cores; who times has them all.
    let share = (std::thread::available_parallelism().unwrap().get() / 2).max(1);
    assert_eq!(ahead.lines().filter(|line| *line == format!("1 {share}")).count(), 2, "{ahead}");
    assert_eq!(ahead.lines().filter(|line| *line == "None None").count(), one_by_one.lines().count(), "{ahead}");
    assert!(told.contains("libraries were ready for 8 rows after"), "{told}");
}

/// A library with half a million objects, as torch is one: those are not looked through again in every case.
#[test]
fn what_lives_between_two_cases_is_not_collected_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("crowded.py");
    let code = "import gc\nimport numpy as np\n\nCROWD = [[i] for i in range(500_000)]\n\n\n\
                def norm(x, w, eps):\n    crowd = gc.get_freeze_count()\n    \
                if (crowd > 500_000) != (len(x) == 18):\n        raise ValueError(f'{crowd} of {len(x)} rows')\n    \
                return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps) * w\n";
    std::fs::write(&file, code).unwrap();
    let name = format!("{}:norm", file.display());
    let (records, code, err) = run(&["rmsnorm", "--dtype", "f64", "--configs", "17x129,18x129", "--impl", &name]);
    assert_eq!((code, records.len()), (Some(0), 2), "{err}");
    assert!(records.iter().all(|r| r["status"] == "ok"), "{records:#?}");
}

#[test]
fn functions_that_are_not_there_are_bad_input() {
    let file = root().join("crates/kmark/tests/it/python/misbehaving.py").display().to_string();
    for (name, says) in [
        (format!("{file}:write"), "did you mean 'writes'?"),
        (file.clone(), "name the function, like ./mine.py:fast"),
        ("./nowhere.py:f".into(), "No such file"),
        ("numppy".into(), "did you mean 'numpy'?"),
        ("quack".into(), "quack is for cuda only, not cpu"),
        ("flashmla".into(), "flashmla is for cuda only, not cpu"),
    ] {
        let result = kmark(&["run", "rmsnorm", "--device", "cpu", "--impl", &name])
            .env("KMARK_PYTHON", python())
            .output()
            .unwrap();
        let err = text(&result.stderr);
        assert_eq!((result.status.code(), err.lines().count()), (Some(2), 1), "{err}");
        assert!(err.contains(says), "{says}: {err}");
    }
}

/// Names that a file binds in any way: what is a function when it is loaded runs.
#[test]
fn whatever_is_a_function_in_a_file_runs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.py");
    let text = r#"
import functools
import numpy as np
import kmark
from helper import imported

def plain(x, w, y, eps, *, scale=1.0, block=64):
    r = 1 / np.sqrt((x.astype(np.float64) ** 2).mean(1) + eps)
    y[:] = scale * (x * r[:, None] * w)

assigned = functools.partial(plain, block=8)
if hasattr(np, "ndarray"):
    def conditional(x, w, y, eps, other=None):
        plain(x, w, y, eps)

@kmark.impl("named", op="rmsnorm", devices="cpu", arrays="numpy", strided=True)
def under_another_name(case, t):
    eps = case.number("eps")
    return lambda: plain(t.x, t.w, t.y, eps)

@kmark.impl("elsewhere", op="rmsnorm", devices="cuda")
def not_here(x):
    return x

number = 3
"#;
    std::fs::write(&file, text).unwrap();
    let helper = "import numpy as np\ndef imported(x, w, y, eps):\n                      y[:] = x / np.sqrt((x.astype('f8') ** 2).mean(1, keepdims=True) + eps) * w\n";
    std::fs::write(dir.path().join("helper.py"), helper).unwrap();
    let functions = [
        ("assigned", "ok", ""),
        ("conditional", "ok", ""),
        ("imported", "ok", ""),
        ("named", "ok", ""),
        ("elsewhere", "unsupported", "runs on cuda, not on cpu"),
        ("number", "crashed", "is no function, but int"),
    ];
    let names: Vec<String> = functions.iter().map(|(f, ..)| format!("{}:{f}", file.display())).collect();
    let mut args = vec!["rmsnorm", "--dtype", "f32", "--configs", "17x129"];
    names.iter().for_each(|n| args.extend(["--impl", n]));
    let (records, _, err) = run(&args);
    assert_eq!(records.len(), functions.len(), "{err}");
    for (r, (name, status, says)) in records.iter().zip(functions) {
        assert_eq!(r["status"], status, "{name}: {r}");
        assert!(r["message"].as_str().unwrap().contains(says), "{name}: {r}");
        if status == "ok" {
            let bin = python().parent().unwrap().display().to_string();
            assert!(r["notes"].to_string().contains(&format!("({bin}/")), "the interpreter is named: {r}");
        }
    }
}

/// A program in an environment's `bin` uses that environment's interpreter, whatever the search path has.
#[test]
fn an_installed_program_uses_the_python_it_came_with() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, site) = (dir.path().join("bin"), dir.path().join("lib/python3.99/site-packages"));
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(&site).unwrap();
    std::fs::copy(program(), bin.join("kmark")).unwrap();
    std::os::unix::fs::symlink(root().join("python/kmark"), site.join("kmark")).unwrap();
    std::os::unix::fs::symlink(python(), bin.join("python3")).unwrap();
    let doctor = |change: &dyn Fn(&mut Command)| {
        let mut command = Command::new(bin.join("kmark"));
        command.args(["doctor"]).env_remove("KMARK_PYTHON").env_remove("KMARK_PACKAGE");
        change(&mut command);
        text(&command.output().unwrap().stdout)
    };
    let own = format!("{}, ", bin.canonicalize().unwrap().join("python3").display());
    let said = doctor(&|_| {});
    assert!(said.contains(&own), "{own}: {said}");
    let said = doctor(&|c| {
        c.env("KMARK_PYTHON", python());
    });
    assert!(said.contains(&format!("{}, ", python().display())), "{said}");
    std::fs::remove_file(bin.join("python3")).unwrap();
    let said = doctor(&|_| {});
    let found = said.lines().find(|l| l.starts_with("Python")).unwrap_or("").to_string();
    assert!(found.contains('/') && !found.contains(&own), "the one of the search path, by its whole name: {found}");
}

#[test]
fn without_an_interpreter_a_library_is_unavailable_and_ours_run() {
    let (records, code, err) = {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let mine = root().join("examples/mine.py:plain").display().to_string();
        let args = ["run", "rmsnorm", "--device", "cpu", "--dtype", "f32", "--configs", "5x17", "--budget", "10ms"];
        let args = [&args[..], &["--impl", "cpu/simd", "--impl", &mine, "--out", out.to_str().unwrap()]].concat();
        let result = kmark(&args).env("KMARK_PYTHON", "/nowhere/python").output().unwrap();
        (records(&out), result.status.code(), text(&result.stderr))
    };
    let status: Vec<&str> = records.iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!((code, status), (Some(0), vec!["ok", "unavailable"]), "{err}");
}

/// What stands on libraries has a hash of its own source, too.
#[test]
fn a_run_does_not_go_on_with_an_edited_function() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.py");
    let code = std::fs::read_to_string(root().join("examples/mine.py")).unwrap();
    std::fs::write(&file, &code).unwrap();
    let args = ["run", "rmsnorm", "--device", "cpu", "--dtype", "f32", "--configs", "5x17", "--budget", "10ms"];
    let args = [&args[..], &["--rounds", "2", "--no-roofs", "--impl", "./mine.py:plain", "--out", "out"]].concat();
    let run = |more: &[&str]| {
        let mut command = kmark(&[&args[..], more].concat());
        command.env("KMARK_PYTHON", python()).current_dir(dir.path()).output().unwrap()
    };
    assert!(run(&[]).status.success() && run(&["--resume"]).status.success());
    std::fs::write(&file, format!("{code}\n# edited\n")).unwrap();
    let refused = run(&["--resume"]);
    let line = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && line.contains("another version of ./mine.py:plain"), "{line}");
}

/// The requests of the transcript, each with what must come back. `…` stands for what differs from run to run.
fn transcript() -> Vec<(Value, Value)> {
    let lines = include_str!("python/transcript.jsonl").lines();
    lines.map(|l| serde_json::from_str::<(Value, Value)>(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect()
}

/// Numbers that a machine measures, and names that are its own.
fn redacted(value: &Value) -> Value {
    let measured = [
        "busy_ns",
        "samples_ns",
        "clock_mhz",
        "times",
        "calibration",
        "device",
        "stop",
        "worst",
        "rms",
        "twin_rms",
        "samples",
        "whole",
    ];
    match value {
        Value::Object(map) => {
            let hide = |(k, v): (&String, &Value)| {
                (k.clone(), if measured.contains(&k.as_str()) { json!("…") } else { redacted(v) })
            };
            Value::Object(map.iter().map(hide).collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(redacted).collect()),
        other => other.clone(),
    }
}

/// Plays the transcript to a worker and holds its replies against it.
fn plays(mut command: Command) {
    let (requests_rx, mut requests) = std::io::pipe().unwrap();
    let (replies, replies_tx) = std::io::pipe().unwrap();
    let pipes = vec![
        FdMapping { parent_fd: requests_rx.into(), child_fd: 3 },
        FdMapping { parent_fd: replies_tx.into(), child_fd: 4 },
    ];
    command.fd_mappings(pipes).unwrap();
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut replies = BufReader::new(replies).lines();
    let key = Key::draw().unwrap();
    let (mut outgoing, mut incoming) = (Seal::new(&key, Way::Request), Seal::new(&key, Way::Reply));
    write!(requests, "{}", key.line()).unwrap();
    for (request, expected) in transcript() {
        write!(requests, "{}", outgoing.close(&request.to_string())).unwrap();
        let line = replies.next().expect("an answer").unwrap() + "\n";
        let reply: Value = serde_json::from_slice(incoming.open(line.as_bytes()).expect("sealed")).unwrap();
        assert_eq!(redacted(&reply), expected, "to {request}");
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn our_worker_plays_the_golden_transcript() {
    let mut command = Command::new(program());
    command.args(["worker", "cpu", "--device", "cpu"]);
    plays(command);
}

#[test]
fn the_python_worker_plays_the_golden_transcript() {
    let mut command = Command::new(python());
    command.args(["-m", "kmark.worker", "cpu", "--device", "cpu"]);
    command.env("PYTHONPATH", root().join("python")).env("KMARK_EXTENSION", extension());
    plays(command);
}

#[test]
fn the_python_tests_pass() {
    let mut command = Command::new(python());
    command.args(["-m", "unittest", "discover", "-s", "python/tests"]).current_dir(root());
    command.env("PYTHONPATH", root().join("python")).env("KMARK_EXTENSION", extension());
    command.env("KMARK_COMMAND", program());
    let result = command.output().unwrap();
    assert!(result.status.success(), "{}", text(&result.stderr));
}
