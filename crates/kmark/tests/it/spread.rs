//! The same cases on several machines: the slow one is named, in words, in numbers and in a picture.

use crate::{output, text};
use serde_json::Value;
use std::path::Path;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

/// The fixed run on another machine, whose ops of this name take longer by a factor.
fn machine(dir: &Path, host: &str, op: &str, factor: f64) {
    let path = dir.join(host);
    std::fs::create_dir_all(&path).unwrap();
    let mut run: Value = serde_json::from_str(&std::fs::read_to_string(format!("{RUN}/run.json")).unwrap()).unwrap();
    run["host"] = host.into();
    std::fs::write(path.join("run.json"), run.to_string()).unwrap();
    let mut lines = String::new();
    for line in std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap().lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        if op == "*" || record["op"] == op {
            for sample in record["samples_ns"].as_array_mut().unwrap() {
                *sample = (sample.as_f64().unwrap() * factor).into();
            }
        }
        // Rows that failed would be the exit code.
        if record["status"] == "ok" {
            lines.push_str(&format!("{record}\n"));
        }
    }
    std::fs::write(path.join("records.jsonl"), lines).unwrap();
}

fn check(dir: &Path, extra: &[&str]) -> (Option<i32>, String) {
    let done = output(&[&["fleet", "check", dir.to_str().unwrap()], extra].concat());
    (done.status.code(), text(&done.stdout) + &text(&done.stderr))
}

#[test]
fn a_slow_machine_is_named_and_the_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (now, before) = (dir.path().join("now"), dir.path().join("before"));
    for host in ["n1", "n2", "n3", "n4", "n5", "n6"] {
        machine(&now, host, "*", 1.0);
        machine(&before, host, "*", 1.0);
    }
    let (code, said) = check(&now, &[]);
    assert!(code == Some(0) && said.contains("of 6, none is slower"), "{said}");
    let (code, said) = check(&now, &["--threshold", "0.1%", "--strict"]);
    assert!(code == Some(4) && said.contains("on 6 of them so much could have been missed"), "{said}");
    machine(&now, "n4", "*", 1.6);
    let (code, said) = check(&now, &["--threshold", "3%"]);
    assert!(code == Some(3) && said.contains("n4 (Test processor): all ops +60.0 %, slower, 99.98 % sure"), "{said}");
    assert!(said.lines().count() == 3 && said.contains("1 of 6 out of line"), "{said}");
    assert_eq!(check(&now, &["--threshold", "70%"]).0, Some(0));

    let args = ["fleet", "report", now.to_str().unwrap(), "--since", before.to_str().unwrap(), "--json"];
    let found: Value = serde_json::from_slice(&output(&args).stdout).unwrap();
    let first = &found[0]["members"][0];
    assert!(first["host"] == "n4" && (first["all"]["slower_by"].as_f64().unwrap() - 0.6).abs() < 0.01, "{first}");
    assert!((first["since"]["slower_by"].as_f64().unwrap() - 0.6).abs() < 0.01, "{first}");
    assert!(found[0]["members"][1]["since"]["slower_by"].as_f64().unwrap().abs() < 1e-9, "the others have not changed");
    let table = text(&output(&args[..5]).stdout);
    assert!(table.contains("6 machines") && table.lines().nth(3).is_some_and(|l| l.contains("n4")), "{table}");

    let [svg, html] = ["svg", "page.html"].map(|name| dir.path().join(name).display().to_string());
    let runs: Vec<String> = (1..=6).map(|n| now.join(format!("n{n}")).display().to_string()).collect();
    let report = |format: &str, out: &str| {
        let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
        let done = output(&[&["report"], &runs[..], &["--format", format, "--out", out]].concat());
        assert!(done.status.success(), "{}", text(&done.stderr));
    };
    report("svg", &svg);
    let picture = std::fs::read_to_string(format!("{svg}/fleet_Test_processor.svg")).unwrap();
    assert!(picture.contains("n4 · all ops") && picture.contains("+60.0"), "{}", &picture[picture.len() - 2000..]);
    report("html", &html);
    assert!(std::fs::read_to_string(&html).unwrap().contains("fleet Test processor"));
}

#[test]
fn one_op_may_be_slow_on_one_machine() {
    let dir = tempfile::tempdir().unwrap();
    for host in ["n1", "n2", "n3", "n4", "n5"] {
        machine(dir.path(), host, "softmax", if host == "n2" { 1.7 } else { 1.0 });
    }
    let (code, said) = check(dir.path(), &["--filter", "*"]);
    assert!(code == Some(3) && said.contains("n2 (Test processor): softmax +70.0 %"), "{said}");
}

#[test]
fn what_cannot_be_held_against_anything_is_said() {
    let dir = tempfile::tempdir().unwrap();
    machine(dir.path(), "n1", "*", 1.0);
    for path in [dir.path().to_str().unwrap(), "/nowhere"] {
        let done = output(&["fleet", "check", path]);
        assert!(done.status.code() == Some(2) && text(&done.stderr).lines().count() == 1, "{}", text(&done.stderr));
    }
    let rows = output(&["fleet", "report", RUN, dir.path().to_str().unwrap()]);
    assert!(rows.status.success(), "a machine without a name is another one: {}", text(&rows.stderr));
    let failed = output(&["fleet", "check", RUN, dir.path().to_str().unwrap()]);
    assert!(matches!(failed.status.code(), Some(5 | 6)), "the fixed run has rows that failed");
}
