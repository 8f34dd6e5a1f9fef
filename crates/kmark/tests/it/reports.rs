//! Reports of a fixed run, as snapshots.

use crate::{output, text};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

fn report(format: &str, extra: &[&str]) -> String {
    report_of(RUN, format, extra)
}

fn report_of(run: &str, format: &str, extra: &[&str]) -> String {
    let args = [&["report", run, "--format", format], extra].concat();
    let out = output(&args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout).replace(run, "RUN")
}

#[test]
fn table() {
    insta::assert_snapshot!(report("table", &[]));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(report("markdown", &[]));
}

#[test]
fn csv() {
    insta::assert_snapshot!(report("csv", &[]));
}

#[test]
fn json() {
    insta::assert_snapshot!(report("json", &["--baseline", "cpu/simd"]));
}

#[test]
fn the_baseline_of_a_run_is_that_of_its_reports() {
    let dir = tempfile::tempdir().unwrap();
    let run = std::fs::read_to_string(format!("{RUN}/run.json")).unwrap();
    let named = run.replace(r#""verify": true"#, r#""verify": true, "baseline": "cpu/simd""#);
    assert_ne!(run, named);
    std::fs::write(dir.path().join("run.json"), named).unwrap();
    std::fs::copy(format!("{RUN}/records.jsonl"), dir.path().join("records.jsonl")).unwrap();
    let of = |extra: &[&str]| report_of(dir.path().to_str().unwrap(), "csv", extra);
    assert_eq!(of(&[]), report("csv", &["--baseline", "cpu/simd"]));
    assert_ne!(of(&["--baseline", "cpu/naive"]), of(&[]));
}
