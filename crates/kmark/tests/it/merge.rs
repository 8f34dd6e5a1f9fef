//! Runs of several GPUs in one folder: every row is there, in whichever order they came and however often.

use crate::{output, text};
use std::collections::BTreeMap;
use std::path::Path;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

/// The fixed run as one of another GPU, with some of its lines.
fn run(dir: &Path, gpu: &str, hash: &str, lines: usize) -> String {
    let path = dir.join(format!("{gpu}-{lines}"));
    std::fs::create_dir(&path).unwrap();
    for file in ["run.json", "records.jsonl"] {
        let text = std::fs::read_to_string(format!("{RUN}/{file}")).unwrap();
        let kept = if file == "run.json" { usize::MAX } else { lines };
        let text: String = text.lines().take(kept).map(|l| format!("{l}\n")).collect();
        std::fs::write(path.join(file), text.replace("Test processor", gpu).replace("0123456789abcdef", hash)).unwrap();
    }
    path.to_str().unwrap().to_string()
}

fn merged(out: &Path, runs: &[&str]) -> (BTreeMap<String, String>, String) {
    let done = output(&[&["merge"], runs, &["--out", out.to_str().unwrap()]].concat());
    assert!(done.status.success(), "{}", text(&done.stderr));
    let mut files = BTreeMap::new();
    for folder in std::fs::read_dir(out).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        for file in ["run.json", "records.jsonl"] {
            let name = format!("{}/{file}", folder.file_name().unwrap().to_str().unwrap());
            files.insert(name, std::fs::read_to_string(folder.join(file)).unwrap());
        }
    }
    (files, text(&done.stderr))
}

#[test]
fn order_and_repetition_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (run(dir.path(), "GPU A", "0123456789abcdef", 13), run(dir.path(), "GPU B", "fedcba9876543210", 13));
    let part = run(dir.path(), "GPU A", "0123456789abcdef", 5);
    let at = |name: &str| dir.path().join(name);
    let (once, told) = merged(&at("once"), &[&a, &b]);
    assert_eq!(once.len(), 4, "{:?}", once.keys());
    assert!(told.contains("these have other code in other runs: cpu/naive, cpu/simd"), "{told}");
    for (i, runs) in [[&b, &a, &a], [&part, &b, &a], [&a, &part, &b], [&b, &part, &a]].iter().enumerate() {
        assert_eq!(merged(&at(&i.to_string()), &runs.map(|r| r.as_str())).0, once, "{runs:?}");
    }
    let before = at("once");
    let again = merged(&at("again"), &[before.to_str().unwrap(), &b, before.to_str().unwrap()]);
    assert_eq!(again.0, once);
    let csv = text(&output(&["report", before.to_str().unwrap(), "--format", "csv", "--columns", "device"]).stdout);
    assert_eq!(["GPU A", "GPU B"].map(|gpu| csv.lines().filter(|l| *l == gpu).count()), [13, 13], "every row is there");
}

#[test]
fn a_changed_copy_is_named_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let a = run(dir.path(), "GPU A", "0123456789abcdef", 13);
    let b = run(dir.path(), "GPU A", "0123456789abcdee", 12);
    let out = dir.path().join("out");
    let done = output(&["merge", &a, &b, "--out", out.to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(2));
    assert!(
        text(&done.stderr).contains("are copies of one run, but differ in rmsnorm/bf16/m1024-n4096/w-f32 cpu/naive")
    );
    assert!(!out.exists());
}
