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

#[test]
fn an_impossible_row_is_shown_with_its_time_and_compared_with_nobody() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(format!("{RUN}/run.json"), dir.path().join("run.json")).unwrap();
    let records = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let record = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let mut lines: Vec<_> = records.lines().map(record).collect();
    assert_eq!(lines[1]["impl"], "cpu/simd");
    lines[1]["status"] = "impossible".into();
    lines[1]["message"] = "takes too little".into();
    let changed: String = lines.iter().map(|l| format!("{l}\n")).collect();
    std::fs::write(dir.path().join("records.jsonl"), changed).unwrap();
    let of = |format: &str| report_of(dir.path().to_str().unwrap(), format, &[]);
    let csv = of("csv");
    let mut rows = csv.lines().filter(|l| l.contains("rmsnorm/bf16/m1024-n4096/w-f32"));
    let (naive, simd) = (rows.next().unwrap(), rows.next().unwrap());
    assert!(simd.contains(",impossible,") && !simd.contains("faster") && !simd.contains("slower"), "{simd}");
    assert!(!naive.contains("cpu/simd"), "nobody is compared with it: {naive}");
    assert!(of("table").contains("impossible: rmsnorm/bf16/m1024-n4096/w-f32 cpu/simd: takes too little"));
}

#[test]
fn rows_and_columns_are_chosen_sorted_and_given_a_unit() {
    let asked = ["--columns", "m,impl,time_ns,speedup", "--filter", "softmax*", "--filter", "rmsnorm", "--unit", "us"];
    let csv = report("csv", &[&asked[..], &["--sort", "-time_ns"]].concat());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "m,impl,time_us,speedup");
    assert_eq!(lines[1], "8192,cpu/naive,33939.2675,");
    assert!(lines.last().unwrap().ends_with(",,"), "what has no time comes last: {csv}");
    let naive = report("csv", &["--columns", "impl,baseline", "--filter", "cpu/simd"]);
    assert!(naive.contains("cpu/simd,cpu/naive") && !naive.contains("\ncpu/naive"), "a baseline counts unseen: {naive}");
    let lines = report("jsonl", &asked);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["m"], &first["impl"]), (&1024.into(), &"cpu/naive".into()));
    assert!(report("table", &asked).contains("33939 µs"));
    for (wrong, says) in [
        (["--filter", "gemm"], "no row is like --filter gemm"),
        (["--sort", "time_n"], "unknown column 'time_n'; did you mean 'time_ns'?"),
        (["--columns", "time_ns,x"], "unknown column 'x'"),
        (["--unit", "h"], "invalid value 'h'"),
    ] {
        let out = output(&[&["report", RUN], &wrong[..]].concat());
        let (code, line) = (out.status.code(), text(&out.stderr));
        assert!(code == Some(2) && line.contains(says) && line.lines().count() == 1, "{wrong:?}: {code:?} {line}");
    }
}
