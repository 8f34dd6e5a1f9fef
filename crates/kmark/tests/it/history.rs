//! `kmark history` on runs whose truth is known.

use crate::{output, text};
use serde_json::{Value, json};
use std::path::Path;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

/// A run of one row that takes this long, give or take 0.2 %.
fn put(dir: &Path, name: &str, day: usize, us: f64, commit: &str, status: &str) {
    let mut run: Value = serde_json::from_str(&std::fs::read_to_string(format!("{RUN}/run.json")).unwrap()).unwrap();
    run["started"] = format!("2026-01-{day:02}T10:00:00Z").into();
    run["git"] = json!({"commit": commit, "dirty": false});
    run["tags"] = json!(["nightly"]);
    run["device"] = json!({"kind": "cuda", "name": "NVIDIA H200", "id": "GPU-1"});
    let lines = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let mut r: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    r["device"] = run["device"].clone();
    let ns = |i: usize| 1e3 * us * (1.0 + 0.002 * ((i * 7 + day) % 5) as f64 / 5.0);
    r["samples_ns"] = (0..80).map(ns).collect();
    r["clock_mhz"] = json!([]);
    r["visits"] = (0..40).map(|i| json!({"round": i / 2, "samples": 2})).collect();
    if status != "ok" {
        (r["status"], r["samples_ns"], r["visits"]) = (status.into(), json!([]), json!([]));
    }
    let folder = dir.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("run.json"), run.to_string()).unwrap();
    std::fs::write(folder.join("records.jsonl"), r.to_string() + "\n").unwrap();
}

#[test]
fn a_change_is_found_where_it_was_and_with_what_came_with_it() {
    let dir = tempfile::tempdir().unwrap();
    // Not in the order of their names.
    for (name, day, us, commit, status) in [
        ("e", 1, 100.0, "aaaaaaaaaaaa", "ok"),
        ("d", 2, 100.1, "aaaaaaaaaaaa", "ok"),
        ("c", 3, 110.0, "bbbbbbbbbbbb", "ok"),
        ("b", 4, 110.1, "bbbbbbbbbbbb", "ok"),
        ("a", 5, 0.0, "cccccccccccc", "hung"),
        ("f", 6, 110.0, "dddddddddddd", "ok"),
    ] {
        put(dir.path(), name, day, us, commit, status);
    }
    std::fs::create_dir(dir.path().join("broken")).unwrap();
    std::fs::write(dir.path().join("broken/run.json"), "{").unwrap();
    let path = dir.path().to_str().unwrap();
    for extra in [&[][..], &["--cases"][..]] {
        let out = output(&[&["history", path, "--tag", "nightly", "--format", "json"], extra].concat());
        let lines: Value = serde_json::from_slice(&out.stdout).unwrap();
        let points = lines[0]["points"].as_array().unwrap();
        let outcomes: Vec<&str> = points.iter().map(|p| p["changes"][0]["outcome"].as_str().unwrap_or("")).collect();
        assert_eq!(outcomes, ["", "", "slower", "", "broken", "mended"], "{lines:#}");
        let with = &points[2]["came_with"][0];
        assert_eq!((&with["what"], &with["base"]), (&"commit".into(), &"aaaaaaaaaa".into()), "{with}");
        assert!((points[3]["speed"].as_f64().unwrap() - 0.908).abs() < 0.01, "{lines:#}");
        assert!(text(&out.stderr).starts_with("left out: "), "{}", text(&out.stderr));
    }
    let table = text(&output(&["history", path]).stdout);
    assert!(table.contains("1 of 1 slower") && table.contains("commit: aaaaaaaaaa -> bbbbbbbbbb"), "{table}");
    assert!(table.contains("6 runs, 3 changes"), "{table}");
    // A folder of copies adds nothing.
    let copies = dir.path().join("copies");
    let merged = output(&["merge", &format!("{path}/a"), &format!("{path}/c"), "--out", copies.to_str().unwrap()]);
    assert!(merged.status.success(), "{}", text(&merged.stderr));
    let again = text(&output(&["history", path]).stdout);
    assert_eq!(again, table);
    let none = output(&["history", path, "--tag", "weekly"]);
    assert_eq!(none.status.code(), Some(2));
}
