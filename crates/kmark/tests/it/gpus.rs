//! Several GPUs of one machine, on the stand-in: cases are shared, each record says where it was measured, limits are the
//! GPU's own, and one that stops working does not stop the others.

use crate::cuda::{TIMED, on_standin, standin, until_calm, with_standin};
use crate::{output, records, text, until, with_roofs};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const SELECTION: &[&str] = &["rmsnorm", "softmax", "--dtype", "f32", "--configs", "5x17,16x64,9x40,12x33"];
const QUICKLY: &[&str] = &["--budget", "10ms", "--rounds", "2", "--quiet"];

fn run_on(gpus: &str, device: &str, out: &Path, extra: &[&str]) -> Output {
    let args = [&["run"], SELECTION, QUICKLY, &["--device", device, "--out", out.to_str().unwrap()], extra].concat();
    let run = || with_standin(standin(), with_roofs(&args)).env("KMARK_STANDIN_DEVICES", gpus).output().unwrap();
    until_calm(Some(out), run)
}

fn told(out: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap()
}

fn rows(out: &Path) -> BTreeSet<String> {
    records(out).iter().map(|r| format!("{} {} {}", r["case"], r["impl"], r["status"])).collect()
}

/// The GPUs that each case was measured on.
fn places(out: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for r in records(out) {
        places.entry(r["case"].to_string()).or_default().insert(r["device"]["id"].to_string());
    }
    places
}

#[test]
fn all_of_one_gpu_is_that_gpu_and_several_share_the_cases() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let [one, all, two] = ["one", "all", "two"].map(|name| dir.path().join(name));
    for (device, out) in [("cuda", &one), ("cuda:all", &all)] {
        let done = run_on("1", device, out, &["--no-roofs"]);
        assert!(done.status.success(), "{device}: {}", text(&done.stderr));
    }
    // On a busy machine the first may have done everything before the second is ready.
    let both = |places: &BTreeMap<_, BTreeSet<_>>| places.values().flatten().collect::<BTreeSet<_>>().len() == 2;
    let share = || {
        let _ = std::fs::remove_dir_all(&two);
        let done = run_on("2", "cuda:all", &two, &[]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        places(&two)
    };
    let places = until(share, both);
    assert_eq!(rows(&one), rows(&all));
    assert_eq!(rows(&one), rows(&two));
    assert!(told(&all)["gpus"].is_null());
    assert!(places.values().all(|gpus| gpus.len() == 1), "impls of a case stay together: {places:?}");
    assert!(both(&places), "both had something to do: {places:?}");
    let run = told(&two);
    let gpus = run["gpus"].as_array().unwrap();
    assert!(gpus.len() == 2 && gpus.iter().all(|g| g["roofs"]["copy"].as_f64() > Some(0.0)), "{gpus:?}");
    assert!(gpus[0]["device"] == run["device"] && gpus[0]["roofs"] == run["roofs"], "the first is the run's own");
    let table = output(&["report", two.to_str().unwrap()]);
    assert!(table.status.success() && text(&table.stdout).contains("of roof"), "{}", text(&table.stdout));

    // It goes on only with the same GPUs.
    assert!(run_on("2", "cuda:all", &two, &["--resume"]).status.success());
    for (device, why) in [("cuda:0", "was made with GPUs"), ("cuda:1", "was made with device")] {
        let other = run_on("2", device, &two, &["--resume"]);
        assert!(other.status.code() == Some(2) && text(&other.stderr).contains(why), "{}", text(&other.stderr));
    }
}

#[test]
fn words_for_gpus_that_mean_nothing_are_refused() {
    let wrong = |args: &[&str], why: &str| {
        let done = on_standin(standin(), args).env("KMARK_STANDIN_DEVICES", "2").output().unwrap();
        let line = text(&done.stderr);
        assert!(done.status.code() == Some(2) && line.lines().count() == 1 && line.contains(why), "{args:?} {line}");
    };
    wrong(&["run", "softmax", "--device", "cuda:0,0", "--dry-run"], "each GPU once");
    wrong(&["run", "softmax", "--device", "cuda:0,2", "--dry-run"], "there are 2 GPUs, counted from 0");
    wrong(&["run", "softmax", "--device", "cuda:0,", "--dry-run"], "write it like cuda:0");
    wrong(&["run", "softmax", "--device", "cpu,1", "--dry-run"], "each GPU once");
    wrong(&["verify", "softmax", "--device", "cuda:all"], "takes one device");
    let shown = ["run", "softmax", "--device", "cuda:1,0", "--dry-run"];
    let shown = on_standin(standin(), &shown).env("KMARK_STANDIN_DEVICES", "2").output().unwrap();
    assert!(text(&shown.stdout).contains("on cuda:1, cuda:0"), "{}", text(&shown.stdout));
}

/// Runs on two GPUs, of which some are lost while the first cases are measured. On a busy machine one of these may not be
/// at a case then, or all are done.
fn losing(which: &str, dir: &Path) -> (Output, PathBuf) {
    let in_time = |(_, out): &(Output, PathBuf)| {
        let all = records(out);
        all.iter().any(|r| r["status"] != "ok") && (which != "all" || cases(&all).len() < 8)
    };
    until(|| losing_once(which, dir), in_time)
}

fn losing_once(which: &str, dir: &Path) -> (Output, PathBuf) {
    let (out, gone) = (dir.join("out"), dir.join("gone"));
    let _ = std::fs::remove_dir_all(&out);
    let args = ["--device", "cuda:all", "--budget", "150ms", "--rounds", "3", "--no-roofs", "--out"];
    let args = [&["run"], SELECTION, &args, &[out.to_str().unwrap()]].concat();
    let done = until_calm(Some(&out), || {
        let _ = std::fs::remove_file(&gone);
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("kmark"));
        let folder = standin();
        command.args(&args).env("KMARK_CUDA_PATH", folder).env("KMARK_STANDIN", folder);
        command.env("KMARK_CACHE", folder.join("cache")).env("KMARK_STANDIN_MEMORY", "33554432");
        command.env("KMARK_STANDIN_DEVICES", "2").env("KMARK_STANDIN_LOST", format!("{which}:{}", gone.display()));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = || std::fs::metadata(out.join("records.jsonl")).is_ok_and(|m| m.len() > 0);
        while !begun() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::fs::write(&gone, "").unwrap();
        child.wait_with_output().unwrap()
    });
    (done, out)
}

/// The cases of these records.
fn cases(records: &[Value]) -> BTreeSet<String> {
    records.iter().map(|r| r["case"].to_string()).collect()
}

#[test]
fn a_gpu_that_stops_working_does_not_stop_the_other() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (done, out) = losing("1", dir.path());
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(6), "{said}");
    assert!(said.contains("does not work: "), "{said}");
    let all = records(&out);
    assert_eq!(cases(&all).len(), 8, "every case has a record");
    let second = told(&out)["gpus"][1]["device"]["id"].clone();
    let (failed, well): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|r| r["status"] != "ok");
    assert_eq!(cases(&failed).len(), 1, "the case that it was at: {:?}", cases(&failed));
    assert!(failed.iter().all(|r| r["status"] == "crashed" && r["device"]["id"] == second), "{failed:?}");
    assert!(well.len() > failed.len(), "the other went on");
}

#[test]
fn without_any_gpu_left_a_run_ends_and_goes_on_later() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (done, out) = losing("all", dir.path());
    let said = text(&done.stderr);
    let last = said.lines().last().unwrap_or("");
    assert_eq!(done.status.code(), Some(6), "{said}");
    let before = records(&out);
    let (seen, missing) = (cases(&before).len(), 8 - cases(&before).len());
    assert!(last.contains(&format!("no GPU is left, {missing} cases were not run: ")) && missing > 0, "{said}");
    assert_eq!(last.matches("does not work: ").count(), 2, "why, of both: {last}");
    let failed: Vec<Value> = before.iter().filter(|r| r["status"] != "ok").cloned().collect();
    assert!(failed.iter().all(|r| r["status"] == "crashed") && (1..=2).contains(&cases(&failed).len()), "{failed:?}");
    assert!(told(&out)["finished"].is_null());

    // Once they are back, what was not run is run, and only that.
    let args = ["--device", "cuda:all", "--budget", "150ms", "--rounds", "3", "--no-roofs", "--resume", "--out"];
    let args = [&["run"], SELECTION, &args, &[out.to_str().unwrap()]].concat();
    let resume = || on_standin(standin(), &args).env("KMARK_STANDIN_DEVICES", "2").output().unwrap();
    let again = until_calm(None, resume);
    assert_eq!(again.status.code(), Some(6), "those that failed have failed: {}", text(&again.stderr));
    let after = records(&out);
    assert!(after[..before.len()] == before[..] && seen < 8, "{}", text(&again.stderr));
    assert_eq!(cases(&after).len(), 8, "{}", text(&again.stderr));
}
