//! Reports of a fixed run, as snapshots.

use crate::{output, text};

fn report(format: &str, extra: &[&str]) -> String {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");
    let args = [&["report", data, "--format", format], extra].concat();
    let out = output(&args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout).replace(data, "RUN")
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
