//! `kmark compare` on pairs of runs whose truth is known.

use crate::{output, text};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");
const VISITS: usize = 40;
const SAMPLES: usize = 5;

/// Times around 100 µs that scatter by 0.3 %.
fn steady(seed: u64, factor: f64) -> Vec<f64> {
    let mut state = seed;
    let mut unit = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut gauss = move || (0..12).map(|_| unit()).sum::<f64>() - 6.0;
    (0..VISITS * SAMPLES).map(|_| 1e5 * factor * (1.0 + 0.003 * gauss())).collect()
}

/// Half of the launches take 2 % longer than the others.
fn heaps(seed: u64, factor: f64) -> Vec<f64> {
    let late = |i: usize| (i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
    steady(seed, factor).into_iter().enumerate().map(|(i, ns)| if late(i) { 1.02 * ns } else { ns }).collect()
}

fn drifting(seed: u64, by: f64) -> Vec<f64> {
    let count = (VISITS * SAMPLES) as f64;
    steady(seed, 1.0).into_iter().enumerate().map(|(i, ns)| ns * (1.0 + by * i as f64 / count)).collect()
}

fn record(impl_name: &str, samples: &[f64]) -> Value {
    let records = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let mut r: Value = serde_json::from_str(records.lines().next().unwrap()).unwrap();
    r["impl"] = impl_name.into();
    r["device"] = json!({"kind": "cuda", "name": "NVIDIA H200", "id": "GPU-1"});
    r["samples_ns"] = json!(samples);
    r["clock_mhz"] = json!([]);
    let visits = samples.chunks(SAMPLES).enumerate();
    r["visits"] = visits.map(|(i, v)| json!({"round": i / 2, "samples": v.len()})).collect();
    r
}

/// A run of these records on a device of this name.
fn run_on(device: &str, records: &[Value]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut run: Value = serde_json::from_str(&std::fs::read_to_string(format!("{RUN}/run.json")).unwrap()).unwrap();
    run["device"] = json!({"kind": "cuda", "name": device, "id": "GPU-1"});
    std::fs::write(dir.path().join("run.json"), run.to_string()).unwrap();
    let lines: Vec<String> = records.iter().map(|r| r.to_string() + "\n").collect();
    std::fs::write(dir.path().join("records.jsonl"), lines.concat()).unwrap();
    dir
}

fn run(records: &[Value]) -> TempDir {
    run_on("NVIDIA H200", records)
}

fn path(dir: &TempDir) -> &str {
    Path::to_str(dir.path()).unwrap()
}

/// Exit code and what was printed.
fn compare(base: &TempDir, new: &TempDir, extra: &[&str]) -> (i32, String) {
    let out = output(&[&["compare", path(base), path(new)], extra].concat());
    (out.status.code().unwrap(), text(&out.stdout) + &text(&out.stderr))
}

/// The verdict on one row, the exit code, and the one with `--strict`.
fn judged(base: Value, new: Value) -> (String, i32, i32) {
    let (base, new) = (run(&[base]), run(&[new]));
    let (code, text) = compare(&base, &new, &["--format", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    let (strict, _) = compare(&base, &new, &["--strict", "--quiet"]);
    (found["rows"][0]["outcome"].as_str().unwrap().to_string(), code, strict)
}

fn of(samples: Vec<f64>) -> Value {
    record("cuda/01_rows", &samples)
}

#[test]
fn known_pairs_are_judged_rightly() {
    let told = |word: &str, code: i32, strict: i32| (word.to_string(), code, strict);
    for seed in 1..6 {
        let base = || of(steady(seed, 1.0));
        let other = seed + 100;
        assert_eq!(judged(base(), base()), told("same", 0, 0), "itself");
        assert_eq!(judged(base(), of(steady(other, 1.0))), told("same", 0, 0), "another run of the same");
        assert_eq!(judged(base(), of(steady(other, 1.01))), told("slower", 3, 3), "1 % slower");
        assert_eq!(judged(base(), of(steady(other, 1.03))), told("slower", 3, 3), "3 % slower");
        assert_eq!(judged(base(), of(steady(other, 0.97))), told("faster", 0, 0), "3 % faster");
        assert_eq!(judged(of(heaps(seed, 1.0)), of(heaps(other, 1.0))), told("same", 0, 0), "two heaps");
        assert_eq!(judged(of(heaps(seed, 1.0)), of(heaps(other, 1.03))), told("slower", 3, 3), "3 % between heaps");
        assert_eq!(judged(base(), of(drifting(other, 0.08))), told("ambiguous", 0, 4), "drift");
        assert_eq!(judged(base(), of(steady(other, 1.5)[..3].to_vec())), told("ambiguous", 0, 4), "three samples");
    }
}

#[test]
fn times_under_other_conditions_are_not_judged() {
    let (base, mut new) = (of(steady(1, 1.0)), of(steady(2, 1.2)));
    for visit in new["visits"].as_array_mut().unwrap() {
        visit["conditions"] = json!({"power_w": 700.0, "temperature_c": 60.0, "sm_mhz": 1200.0, "memory_mhz": 3201.0, "throttled": ["power"]});
    }
    assert_eq!(judged(base.clone(), new.clone()), ("ambiguous".into(), 0, 4));
    let (_, text) = compare(&run(std::slice::from_ref(&base)), &run(&[new]), &[]);
    assert!(text.contains("clocks were held down in the new run only"), "{text}");
    let mut new = of(steady(2, 1.2));
    new["contract"] = "x,w -> y,rstd".into();
    assert_eq!(judged(base.clone(), new.clone()), ("ambiguous".into(), 0, 4));
    let (_, text) = compare(&run(&[base]), &run(&[new]), &[]);
    assert!(text.contains("(other contract)"), "{text}");
}

/// A core that runs wide vectors again takes them up slowly: that the same code took longer says nothing, unless it took
/// three times as long.
#[test]
fn a_cpu_that_changed_its_clock_is_not_judged() {
    let at = |impl_name: &str, factor: f64, mhz: f64| {
        let mut r = record(impl_name, &steady(factor as u64, factor));
        r["device"] = json!({"kind": "cpu", "name": "Test processor", "id": "x86_64, 2 threads"});
        r["clock_mhz"] = json!(vec![mhz; VISITS * SAMPLES]);
        r
    };
    let new = |factor: f64, mhz: f64| at("cpu/a", factor, mhz);
    for (factor, mhz, verdict) in [
        (1.8, 2400.0, "slower"),
        (1.8, 3000.0, "ambiguous"),
        (0.6, 2300.0, "faster"),
        (0.6, 2000.0, "ambiguous"),
        (4.0, 3000.0, "slower"),
    ] {
        assert_eq!(judged(new(1.0, 2400.0), new(factor, mhz)).0, verdict, "{factor} at {mhz} MHz");
        let both = run(&[new(1.0, 2400.0), at("cpu/b", factor, mhz)]);
        let shown = output(&["report", path(&both), "--format", "json", "--baseline", "cpu/a"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown[0]["rows"][1]["against"]["verdict"], verdict, "{factor} at {mhz} MHz: {shown}");
    }
}

#[test]
fn small_slow_downs_are_within_a_threshold() {
    let (base, new) = (run(&[of(steady(1, 1.0))]), run(&[of(steady(2, 1.02))]));
    assert_eq!(compare(&base, &new, &["--threshold", "3%"]).0, 0);
    assert_eq!(compare(&base, &new, &["--threshold", "1%"]).0, 3);
    // Strictly, what a threshold allows must be all that there can be.
    let same = run(&[of(steady(3, 1.0))]);
    let strict = |new: &TempDir, threshold: &str| compare(&base, new, &["--strict", "--threshold", threshold]).0;
    assert_eq!((strict(&same, "3%"), strict(&same, "0.2%")), (0, 4), "the same, as far as 0.6 % can be seen");
    assert_eq!((strict(&new, "5%"), strict(&new, "2.3%")), (0, 4), "2 % slower, give or take 0.6 %");
}

#[test]
fn rows_that_come_go_or_break_are_named() {
    let (kept, gone) = (of(steady(1, 1.0)), record("gone", &steady(2, 1.0)));
    let failed = |status: &str| {
        let mut r = record("gone", &[]);
        (r["status"], r["message"], r["stop"]) = (status.into(), "no | good".into(), Value::Null);
        r["verify"] = json!({"checks": 1, "elements": 100, "regions": [], "problems": ["no | good"]});
        r
    };
    let base = run(&[kept.clone(), gone.clone()]);
    let without = run(std::slice::from_ref(&kept));
    let (code, text) = compare(&base, &without, &[]);
    assert!(code == 0 && text.contains("missing"), "{text}");
    assert_eq!(compare(&base, &without, &["--strict"]).0, 4);
    let (code, text) = compare(&without, &base, &["--strict"]);
    assert!(code == 0 && text.contains("new"), "{text}");
    for (status, wanted) in [("wrong", 5), ("hung", 6)] {
        let broken = run(&[kept.clone(), failed(status)]);
        let (code, text) = compare(&base, &broken, &[]);
        assert!(code == wanted && text.contains(&format!("broken ({status}: no | good)")), "{code} {text}");
        let (code, text) = compare(&broken, &base, &[]);
        assert!(code == 0 && text.contains(&format!("mended (was {status})")), "{code} {text}");
        let (_, text) = compare(&base, &broken, &["--format", "markdown"]);
        assert!(text.contains("no \\| good"), "{text}");
    }
}

#[test]
fn what_differs_is_said_before_any_speed() {
    let (base, new) = (run(&[of(steady(1, 1.0))]), run_on("NVIDIA A100", &[of(steady(2, 2.0))]));
    let (code, text) = compare(&base, &new, &[]);
    let (device, ratio) = (text.find("device: NVIDIA H200 -> NVIDIA A100"), text.find("0.500×"));
    assert!(code == 3 && device.is_some() && device < ratio, "{text}");
    let mut edited = of(steady(2, 1.0));
    edited["impl_hash"] = "fedcba9876543210".into();
    let (_, text) = compare(&base, &run(&[edited]), &[]);
    assert!(text.contains("code of: cuda/01_rows -> changed"), "{text}");
}

/// A record of this GPU.
fn on(gpu: (&str, &str), seed: u64, factor: f64) -> Value {
    let mut r = of(steady(seed, factor));
    r["device"] = json!({"kind": "cuda", "name": gpu.0, "id": gpu.1});
    r
}

/// Rows of a fleet: a run for each record, all of them on one side.
fn fleet(records: &[Value]) -> Vec<TempDir> {
    let one = |r: &Value| {
        let dir = run(std::slice::from_ref(r));
        let path = dir.path().join("run.json");
        let mut told: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        told["device"] = r["device"].clone();
        std::fs::write(path, told.to_string()).unwrap();
        dir
    };
    records.iter().map(one).collect()
}

/// What is said of each row: GPU or model, and verdict; and what differs.
fn held(base: &[Value], new: &[Value]) -> (Vec<(String, String)>, String, i32) {
    let (base, new) = (fleet(base), fleet(new));
    let more = |flag: &'static str, side: &[TempDir]| -> Vec<String> {
        side[1..].iter().flat_map(|d| [flag.to_string(), path(d).to_string()]).collect()
    };
    let more = [more("--base", &base), more("--new", &new), vec!["--format".into(), "json".into()]].concat();
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let (code, text) = compare(&base[0], &new[0], &more);
    let found: Value = serde_json::from_str(&text).unwrap();
    let word = |v: &Value| v.as_str().unwrap_or("").to_string();
    let rows = found["rows"].as_array().unwrap().iter().map(|r| (word(&r["on"]), word(&r["outcome"]))).collect();
    let differs = found["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| format!("{}: {} -> {}; ", word(&d["what"]), word(&d["base"]), word(&d["new"])));
    (rows, differs.collect(), code)
}

#[test]
fn a_gpu_is_held_against_itself_where_both_sides_have_it() {
    const H: &str = "NVIDIA H200";
    const A: &str = "NVIDIA A100";
    let rows = |all: &[(&str, &str)]| all.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>();
    // One GPU is always slow, and another one has become slow: only that is a change, in whichever order they come.
    let base = [on((H, "GPU-1"), 1, 1.0), on((H, "GPU-2"), 2, 1.1), on((H, "GPU-3"), 3, 1.0)];
    let new = [on((H, "GPU-3"), 4, 1.05), on((H, "GPU-2"), 5, 1.1), on((H, "GPU-1"), 6, 1.0)];
    let (found, differs, code) = held(&base, &new);
    assert_eq!(found, rows(&[("GPU-1", "same"), ("GPU-2", "same"), ("GPU-3", "slower")]));
    assert!(code == 3 && !differs.contains("device"), "{differs}");
    let (base_dirs, new_dirs) = (fleet(&base[..2]), fleet(&new[1..]));
    let more = ["--base", path(&base_dirs[1]), "--new", path(&new_dirs[1])];
    let (_, table) = compare(&base_dirs[0], &new_dirs[0], &more);
    assert!(table.contains(" on ") && table.contains("GPU-2"), "{table}");

    // Other GPUs of the model: their records are replicates, and that they are others is said.
    let (found, differs, _) = held(&base[..1], &[on((H, "GPU-8"), 7, 1.0)]);
    assert!(found == rows(&[("", "same")]) && differs.contains("device id: GPU-1 -> GPU-8"), "{found:?} {differs}");
    // Two models on each side are not mixed, nor is a model that one side lacks held against another.
    let two = |ids: [&str; 2], factors: [f64; 2]| [on((H, ids[0]), 1, factors[0]), on((A, ids[1]), 2, factors[1])];
    let (found, ..) = held(&two(["GPU-1", "GPU-2"], [1.0, 2.0]), &two(["GPU-3", "GPU-4"], [1.0, 2.0]));
    assert_eq!(found, rows(&[(H, "same"), (A, "same")]));
    let (found, ..) = held(&two(["GPU-1", "GPU-2"], [1.0, 2.0]), &two(["GPU-3", "GPU-4"], [1.0, 2.0])[..1]);
    assert_eq!(found, rows(&[(H, "same"), (A, "missing")]));
    // One model against another is what was asked for.
    let (found, differs, code) =
        held(&two(["GPU-1", "GPU-2"], [1.0, 2.0])[..1], &two(["GPU-3", "GPU-4"], [1.0, 2.0])[1..]);
    assert!(found == rows(&[("", "slower")]) && code == 3 && differs.contains("device: NVIDIA H200 -> NVIDIA A100"));
}

#[test]
fn a_case_that_went_to_another_gpu_of_the_run_is_told() {
    // As with cuda:all, where each case goes to whichever GPU is free.
    let both = |gpu: &str, seed: u64| {
        let dir = run(&[on(("NVIDIA H200", gpu), seed, 1.0)]);
        let path = dir.path().join("run.json");
        let mut told: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let device = |id: &str| json!({"device": {"kind": "cuda", "name": "NVIDIA H200", "id": id}});
        told["gpus"] = json!([device("GPU-1"), device("GPU-2")]);
        std::fs::write(path, told.to_string()).unwrap();
        dir
    };
    let (code, text) = compare(&both("GPU-1", 1), &both("GPU-2", 2), &[]);
    assert!(code == 0 && text.starts_with("GPU or machine of: 1 of 1 rows -> another one"), "{text}");
    let (_, text) = compare(&both("GPU-1", 1), &both("GPU-1", 2), &[]);
    assert!(!text.contains("GPU or machine"), "{text}");
}

#[test]
fn several_runs_on_a_side_show_how_runs_differ() {
    // Runs of one thing that lie 1 % apart: one pair proves a difference, several do not.
    let runs: Vec<TempDir> = [1.0, 1.012, 0.99, 1.01, 0.998, 1.011, 1.004, 0.991]
        .iter()
        .enumerate()
        .map(|(i, factor)| run(&[of(steady(i as u64, *factor))]))
        .collect();
    assert_eq!(compare(&runs[0], &runs[1], &[]).0, 3);
    let more: Vec<&str> = [(2, "--base"), (4, "--base"), (6, "--base"), (3, "--new"), (5, "--new"), (7, "--new")]
        .iter()
        .flat_map(|(i, side)| [*side, path(&runs[*i])])
        .collect();
    let (code, text) = compare(&runs[0], &runs[1], &more);
    assert!(code == 0 && text.contains("no regression"), "{text}");
}

#[test]
fn rows_can_be_chosen_and_bad_input_is_one_line() {
    let (base, new) = (run(&[of(steady(1, 1.0)), record("b", &steady(3, 1.0))]), run(&[of(steady(2, 1.1))]));
    assert_eq!(compare(&base, &new, &["--filter", "b", "--strict"]).0, 4);
    assert_eq!(compare(&base, &new, &["--filter", "cuda/*"]).0, 3);
    assert_eq!(compare(&base, &new, &["--filter", "rmsnorm"]).0, 3);
    let bad = |args: &[&str], part: &str| {
        let out = output(args);
        let line = text(&out.stderr);
        assert!(out.status.code() == Some(2) && line.lines().count() == 1 && line.contains(part), "{line}");
    };
    bad(&["compare", path(&base), path(&new), "--filter", "nothing"], "no row with times");
    bad(&["compare", path(&base), "/nowhere"], "does not exist");
    bad(&["compare", path(&base)], "required");
    bad(&["compare", path(&base), path(&new), "--threshold", "3x"], "percentage");
    let out = output(&["compare", path(&base), path(&new), "--quiet"]);
    assert!(out.status.code() == Some(3) && out.stdout.is_empty() && out.stderr.is_empty());
}
