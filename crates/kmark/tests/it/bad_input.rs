//! Bad input gets one clear line, exit code 2, no panic, and nothing is overwritten.

use crate::{kmark, output, small_suite, text};
use std::fs;

fn refused(args: &[&str], says: &str) {
    let out = output(args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
    assert_eq!(err.trim_end().lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("error: ") && err.contains(says), "{args:?}: {err}");
    assert!(out.stdout.is_empty(), "{args:?}");
}

#[test]
fn unknown_words_name_the_nearest_right_one() {
    refused(&["run", "softmax", "--set", "m=5", "--set", "m=6"], "--set m is given twice");
    refused(&["run", "smok"], "did you mean 'smoke'?");
    refused(&["run", "rmsnrm"], "did you mean 'rmsnorm'?");
    refused(&["run", "softmax", "--impl", "cpu/smid"], "did you mean 'cpu/simd'?");
    refused(&["run", "softmax", "--dtype", "bf61"], "did you mean 'bf16'?");
    refused(&["run", "softmax", "--set", "q=4"], "unknown axis or attribute 'q'");
    refused(&["run", "rmsnorm", "--set", "w=f23"], "did you mean 'f32'?");
    refused(&["run", "--device", "cdua"], "did you mean 'cuda'?");
    refused(&["run", "--device", "cuda"], "no CUDA driver");
    refused(&["run", "--buget", "1s"], "--budget");
    refused(&["run", "softmax", "--baseline", "torch"], "baseline");
    refused(&["rnu"], "run");
    refused(&["list", "opps"], "ops");
    refused(&["report", "x", "--format", "tabel"], "table");
    refused(&["completions", "bsh"], "bash");
}

#[test]
fn sizes_that_mean_nothing() {
    refused(&["run", "softmax", "--set", "m=0"], "sizes start at 1");
    refused(&["run", "softmax", "--set", "m=-4"], "whole number");
    refused(&["run", "softmax", "--set", "m=4.5"], "whole number");
    refused(&["run", "softmax", "--set", "m=1e18"], "whole number");
    refused(&["run", "softmax", "--set", "m=1000000000000000000"], "larger than any machine");
    refused(&["run", "softmax", "--set", "m=99999999999999999999999"], "whole number");
    refused(&["run", "softmax", "--set", "m=4294967296", "--set", "n=4294967296"], "larger than any machine");
    refused(&["run", "softmax", "--configs", "12"], "wants 2 (mxn)");
    refused(&["run", "softmax", "--configs", "12x"], "whole number");
    refused(&["run", "softmax", "--set", "m"], "write it like");
    refused(&["run", "softmax", "--set", "m=1", "--configs", "1x2"], "not both");
}

#[test]
fn settings_that_mean_nothing() {
    refused(&["run", "--budget", "soon"], "not a duration");
    refused(&["run", "--budget", "0s"], "not a duration");
    refused(&["run", "--precision", "0"], "percentage");
    refused(&["run", "--rounds", "0"], "rounds");
    refused(&["run", "--warmup", "long"], "--warmup");
    refused(&["run", "--seed", "x"], "seed");
    refused(&["run", "--graph"], "CUDA device");
    refused(&["run", "--e2e"], "CUDA device");
    refused(&["run", "--resume"], "--out");
    refused(&["worker", "cpu"], "not by hand");
}

#[test]
fn suites_that_are_broken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    let file = path.to_str().unwrap();
    refused(&["run", file], "No such file");
    refused(&["run", dir.path().to_str().unwrap()], "not a file");
    for (toml, says) in [
        ("[[cases]\nop=1", "s.toml:1"),
        ("about = \"x\"\n\n[[cases]]\nop = \"softmax\"\nop = \"rmsnorm\"", "s.toml:"),
        ("", "no [[cases]]"),
        ("suites = [\"quak\"]", "did you mean 'quack'?"),
        ("[[cases]]\nop = \"softmax\"", "dtype is missing"),
        ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = [1, -1]\nn = 2", "whole number from 1"),
        ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = 1\nn = []", "n must be"),
        ("[[cases]]\nop = \"softmax\"\ndtype = \"i64\"\nm = 1\nn = 1", "no dtype i64"),
    ] {
        fs::write(&path, toml).unwrap();
        refused(&["run", file], says);
    }
    let many: Vec<String> = (1..2000).map(|i| i.to_string()).collect();
    let list = many.join(",");
    fs::write(&path, format!("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = [{list}]\nn = [{list}]")).unwrap();
    refused(&["run", file], "more than 100000");
    fs::write(&path, "#".repeat(5 << 20)).unwrap();
    refused(&["run", file], "at most");
    fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    refused(&["run", file], "s.toml");
}

#[test]
fn json_suites_that_are_broken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.json");
    let file = path.to_str().unwrap();
    refused(&["run", file], "No such file");
    refused(&["run", "nowhere.json"], "nowhere.json: No such file");
    for (json, says) in [
        ("{\"gemm\": [\n  {\"M\": 1,}\n]}", "s.json:2:11: trailing comma"),
        ("about = \"TOML\"", "s.json:1:1: expected value"),
        ("[]", "s.json: a suite in JSON is an object"),
        ("{}", "s.json: no kernels"),
        (r#"{"softmax": []}"#, "softmax must be a list"),
        (r#"{"sofmax": [{"m": 1, "n": 1}]}"#, "did you mean 'softmax'?"),
        (r#"{"mah": [{"batch": 1}]}"#, "did you mean 'mha'?"),
        (r#"{"softmax": [{"m": 1, "n": 1}, {"m": 1}]}"#, "softmax number 2: n is missing"),
        (r#"{"rmsnorm": [{"m": 1, "n": 1, "rtsd": true}]}"#, "did you mean 'rstd'?"),
        (r#"{"rmsnorm": [{"m": 1, "n": 1, "rstd": "maybe"}]}"#, "unknown value of rmsnorm's rstd 'maybe'"),
        (r#"{"softmax": [{"m": true, "n": 1}]}"#, "m = true: a size is a whole number"),
        (r#"{"softmax": [{"m": 1e3, "n": 1}]}"#, "a size is a whole number"),
        (r#"{"softmax": [{"m": 1, "n": 1, "dtype": "flaot16"}]}"#, "did you mean 'float16'?"),
        (r#"{"softmax": [{"m": 1, "n": 1, "n": 2}]}"#, "n is given twice"),
        (r#"{"nsa": [{"batch": 1, "heads": 6, "seq_len": 8, "dim": 4, "groups": 4}]}"#, "does not divide heads"),
    ] {
        fs::write(&path, json).unwrap();
        refused(&["run", file], says);
    }
    fs::write(&path, "[".repeat(100_000)).unwrap();
    refused(&["run", file], "recursion limit");
}

#[test]
fn kernel_files_that_take_no_case_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.cu");
    let good = crate::kernels::GOOD;
    for (line, says) in [
        ("let EPS = 1", "let EPS: the name has a meaning already; it takes none of these cases"),
        ("require m<3", "needs m<3; it takes none of these cases"),
    ] {
        fs::write(&file, good.replacen("// kmark: ", &format!("// kmark: {line}\n// kmark: "), 1)).unwrap();
        let mine = file.to_str().unwrap();
        refused(&["build", "rmsnorm", "--dtype", "f32", "--configs", "5x17", "--arch", "sm_89", "--impl", mine], says);
    }
}

#[test]
fn output_folders_are_never_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    assert!(output(&["run", &suite, "--out", out, "--quiet"]).status.success());
    let before = fs::read(format!("{out}/records.jsonl")).unwrap();
    refused(&["run", &suite, "--out", out], "--resume");
    assert_eq!(fs::read(format!("{out}/records.jsonl")).unwrap(), before);

    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("precious"), "1").unwrap();
    refused(&["run", &suite, "--out", other.to_str().unwrap()], "not empty");
    refused(&["run", &suite, "--out", &suite], "small.toml");
    refused(&["run", &suite, "--out", "/proc/nowhere"], "/proc/nowhere");
    refused(&["run", &suite, "--out", other.to_str().unwrap(), "--resume"], "holds no run to go on with");

    let report = dir.path().join("r.md");
    fs::write(&report, "precious").unwrap();
    refused(&["report", out, "--format", "markdown", "--out", report.to_str().unwrap()], "exists");
    assert_eq!(fs::read_to_string(&report).unwrap(), "precious");
}

#[test]
fn runs_that_are_broken_name_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let run = dir.path().join("run");
    let run = run.to_str().unwrap();
    assert!(output(&["run", &suite, "--out", run, "--quiet"]).status.success());
    let records = format!("{run}/records.jsonl");
    let good = fs::read_to_string(&records).unwrap();
    let lines: Vec<&str> = good.lines().collect();
    let first = lines[0];

    let broken = |text: String, says: &str, line: &str| {
        fs::write(&records, &text).unwrap();
        refused(&["report", run], says);
        refused(&["report", run], line);
        assert_eq!(fs::read_to_string(&records).unwrap(), text, "a report changes nothing");
    };
    broken(format!("{first}\n{{\"hello\": 1}}\n"), "no schema version", "records.jsonl:2");
    broken(format!("{first}\nnot json\n"), "expected", "records.jsonl:2");
    broken(format!("{first}\n{first}\n"), "a second record", "records.jsonl:2");
    broken(first.replace("\"schema\":1", "\"schema\":7") + "\n", "schema 7", "records.jsonl:1");
    broken(first.replace("\"status\":\"ok\"", "\"status\":\"wrong\"") + "\n", "carries samples_ns", "records.jsonl:1");
    broken(format!("{first}\n{}", &lines[1][..50]), "cut off", "records.jsonl:2");

    // Resuming mends a line that was cut off, and nothing else.
    fs::write(&records, format!("{first}\nnot json\n")).unwrap();
    refused(&["run", &suite, "--out", run, "--resume"], "records.jsonl:2");
    fs::write(&records, format!("{first}\n{}", &lines[1][..50])).unwrap();
    assert!(output(&["run", &suite, "--out", run, "--resume", "--quiet"]).status.success());
    assert_eq!(fs::read_to_string(&records).unwrap().lines().count(), lines.len());

    refused(&["report", dir.path().to_str().unwrap()], "run.json");
    refused(&["report", "/nowhere"], "does not exist");
    refused(&["report", run, "--baseline", "cpu/naif"], "did you mean 'cpu/naive'?");
    refused(&["run", &suite, "--out", run, "--resume", "--cache", "hot"], "mode cold");
    refused(&["run", "softmax", "--out", run, "--resume"], "selection");
    refused(&["run", &suite, "--out", run, "--resume", "--seed", "1"], "seed 42");
}

#[test]
fn a_closed_pipe_is_no_error() {
    for args in [vec!["list", "cases", "smoke"], vec!["schema"], vec!["--help"]] {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("kmark"))
            .args(&args)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
        assert!(!text(&out.stderr).contains("panicked"));
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("kmark"));
    let out = command.args(["list", "ops"]).stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("cannot write to standard output"), "{}", text(&out.stderr));
}

#[test]
fn a_full_disk_loses_nothing_that_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    // The shell's file size limit plays the full disk: writes beyond it fail, and the signal is ignored.
    let script = format!(
        "trap '' XFSZ; ulimit -f 16; exec '{}' run '{suite}' --out '{}' --quiet --no-roofs",
        assert_cmd::cargo::cargo_bin("kmark").display(),
        out.display()
    );
    let run = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    let err = text(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot write") && err.contains("--resume"), "{err}");
    assert_eq!(err.trim_end().lines().count(), 1, "{err}");
    let written = fs::read_to_string(out.join("records.jsonl")).unwrap();
    assert!(written.is_empty() || written.ends_with('\n'), "no broken line");
    let resumed = kmark(&["run", &suite, "--out", out.to_str().unwrap(), "--resume", "--quiet"]).output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let after = fs::read_to_string(out.join("records.jsonl")).unwrap();
    assert!(after.starts_with(&written));
    assert_eq!(after.lines().count(), 16);
}
