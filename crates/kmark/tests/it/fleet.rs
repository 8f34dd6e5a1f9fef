//! Folders of submitted runs without a cluster: `sbatch` is a line of shell here, and tasks are started by hand. What nodes
//! may get wrong has words, and attempts do not get into each other's way.

use crate::{kmark, records, small_suite, text};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

struct Submitted {
    folder: tempfile::TempDir,
    out: PathBuf,
    token: String,
}

/// Hands some cases to an `sbatch` that queues nothing.
fn submit(selection: &[&str], options: &[&str]) -> Submitted {
    let folder = tempfile::tempdir().unwrap();
    small_suite(folder.path());
    for (name, says) in [("sbatch", "echo 7"), ("squeue", "exit 0"), ("sacct", "exit 1")] {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{says}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let out = folder.path().join("out");
    let args = [&["submit"], selection, &["--slurm", "--out", out.to_str().unwrap()], options].concat();
    let done = kmark(&args).current_dir(folder.path()).env("PATH", folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let told: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("submit.json")).unwrap()).unwrap();
    Submitted { folder, out, token: told["token"].as_str().unwrap().into() }
}

const QUICK: &[&str] = &["small.toml", "--rounds", "2", "--no-roofs"];

impl Submitted {
    fn task(&self, number: &str) -> Output {
        let args = ["task", self.out.to_str().unwrap(), &self.token, number];
        kmark(&args).current_dir(self.folder.path()).output().unwrap()
    }

    fn ask(&self, command: &str, more: &[&str]) -> Output {
        let args = [&[command, self.out.to_str().unwrap()], more].concat();
        kmark(&args).env("PATH", self.folder.path()).output().unwrap()
    }

    /// A task that must be refused with these words, which `status` shows then.
    fn refused(&self, why: &str) {
        let done = self.task("1");
        let line = text(&done.stderr);
        assert!(done.status.code() == Some(2) && line.lines().count() == 1 && line.contains(why), "{line}");
        let status = text(&self.ask("status", &[]).stdout);
        assert!(status.contains(why) && status.contains("gone"), "{status}");
    }
}

#[test]
fn tasks_do_their_shards_and_are_collected() {
    let run = submit(QUICK, &["--nodes", "2"]);
    assert!(run.task("1").status.success());
    let half = run.ask("collect", &[]);
    assert_eq!(half.status.code(), Some(6), "{}", text(&half.stderr));
    assert!(text(&half.stderr).contains("4 cases are missing"), "{}", text(&half.stderr));
    assert!(run.task("2").status.success());
    let again = run.task("2");
    assert!(again.status.success() && text(&again.stderr).contains("earlier attempts have recorded every case"));
    let all = run.ask("collect", &[]);
    assert!(all.status.success() && text(&all.stdout).contains("2 runs, 16 records"), "{}", text(&all.stdout));
    let status = text(&run.ask("status", &[]).stdout);
    assert!(status.contains("8 of 8 cases done; `kmark collect"), "{status}");
    std::fs::write(run.folder.path().join("squeue"), "#!/bin/sh\necho squeue: error: no controller >&2; exit 1\n")
        .unwrap();
    let silent = run.ask("status", &[]);
    assert!(
        silent.status.success() && text(&silent.stderr).contains("does not answer; states are from the records alone")
    );
    let resumed =
        kmark(&["submit", "--resume", run.out.to_str().unwrap()]).env("PATH", run.folder.path()).output().unwrap();
    assert!(resumed.status.code() == Some(2) && text(&resumed.stderr).contains("no controller"), "it may be under way");
    let elsewhere = run.folder.path().join("elsewhere");
    assert!(run.ask("collect", &["--out", elsewhere.to_str().unwrap()]).status.success());
    assert_eq!(run.ask("collect", &["--out", elsewhere.to_str().unwrap()]).status.code(), Some(2), "it is not empty");
}

#[test]
fn every_task_runs_the_whole_where_that_is_asked() {
    let run =
        submit(&["small.toml", "--rounds", "2", "--no-roofs", "--filter", "softmax"], &["--nodes", "3", "--whole"]);
    for task in ["1", "2", "3"] {
        assert!(run.task(task).status.success());
        assert_eq!(records(&run.out.join("shards").join(task).join("1/run")).len(), 8);
    }
    assert!(text(&run.ask("collect", &[]).stdout).contains("3 runs, 24 records"));
}

#[test]
fn what_is_wrong_on_a_node_has_words() {
    let run = submit(QUICK, &[]);
    let other = kmark(&["task", run.out.to_str().unwrap(), "0123456789abcdef", "1"]).output().unwrap();
    assert!(
        other.status.code() == Some(2) && text(&other.stderr).contains("it is not shared"),
        "{}",
        text(&other.stderr)
    );
    let nowhere = kmark(&["task", "/nowhere", "0123456789abcdef", "1"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
    assert_eq!(run.task("2").status.code(), Some(2), "there is one task");

    let (suite, told) = (run.folder.path().join("small.toml"), run.out.join("submit.json"));
    let (cases, submitted) = (std::fs::read_to_string(&suite).unwrap(), std::fs::read_to_string(&told).unwrap());
    std::fs::write(&suite, cases.replace("5x17", "6x17")).unwrap();
    run.refused("differs on this node: a suite or a file of an impl is not as it was submitted");
    std::fs::remove_file(&suite).unwrap();
    run.refused("small.toml: No such file");
    std::fs::write(&suite, cases).unwrap();
    let version = format!("\"kmark\": \"{}\"", env!("CARGO_PKG_VERSION"));
    std::fs::write(&told, submitted.replace(&version, "\"kmark\": \"0.0.9\"")).unwrap();
    run.refused("0.0.9 was submitted");
    std::fs::write(&told, submitted).unwrap();
    assert!(run.task("1").status.success(), "and then all is well");
}

#[test]
fn a_task_that_runs_twice_at_once_records_once() {
    let run = submit(QUICK, &[]);
    let start = || {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("kmark"));
        command.args(["task", run.out.to_str().unwrap(), &run.token, "1"]).current_dir(run.folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    for mut child in [start(), start(), start()] {
        assert!(child.wait().unwrap().success());
    }
    let shard = run.out.join("shards/1");
    let lines = |attempt: &str| std::fs::read_to_string(shard.join(attempt).join("run/records.jsonl")).ok();
    assert_eq!(lines("1").unwrap().lines().count(), 16);
    assert!(shard.join("3/attempt.json").exists() && lines("2").is_none() && lines("3").is_none());
}

#[test]
fn a_line_that_was_cut_off_is_measured_again() {
    let run = submit(&[QUICK, &["--filter", "softmax"]].concat(), &[]);
    assert!(run.task("1").status.success());
    let path = run.out.join("shards/1/1/run/records.jsonl");
    let text_of = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text_of[..text_of.len() - 40]).unwrap(); // as if the node had died there
    assert!(run.task("1").status.success());
    assert_eq!(records(&run.out.join("shards/1/2/run")).len(), 2, "the case of that line, with all its impls");
    let all = run.ask("collect", &[]);
    assert!(text(&all.stdout).contains("2 runs, 8 records"), "{}", text(&all.stdout));
}

#[test]
fn bad_input_is_refused_before_anything_is_queued() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let refused = |args: &[&str], why: &str| {
        let args = [&["submit"], args, &["--out", out.to_str().unwrap()]].concat();
        let done = kmark(&args).env("PATH", folder.path()).output().unwrap();
        let line = text(&done.stderr);
        assert!(done.status.code() == Some(2) && line.lines().count() == 1 && line.contains(why), "{args:?}: {line}");
        assert!(!out.exists(), "{args:?} left something");
    };
    refused(&["smoke", "--slurm"], "sbatch was not found: this is no machine of a Slurm cluster");
    refused(&["smoke"], "--slurm");
    refused(&["nosuch", "--slurm"], "nosuch");
    refused(&["./nosuch.toml", "--slurm"], "nosuch.toml");
    refused(&["smoke", "--slurm", "--baseline", "nobody"], "nobody");
    refused(&["smoke", "--slurm", "--graph"], "--graph needs a CUDA device");
    refused(&["softmax", "--configs", "4x8", "--dtype", "f32", "--slurm", "--nodes", "2"], "only 1 cases to divide");
    refused(&["smoke", "--slurm", "--device", "tpu"], "tpu");
    let status = kmark(&["status", folder.path().to_str().unwrap()]).output().unwrap();
    assert!(status.status.code() == Some(2) && text(&status.stderr).contains("is not the folder of a submitted run"));
}

/// The records of a task as a node would have left them, made from one that was measured.
fn record(run: &Path, cases: &[serde_json::Value]) {
    std::fs::create_dir_all(run).unwrap();
    let told = std::fs::read_to_string(format!("{RUN}/run.json")).unwrap();
    let told = told.replace("\"run\"", &format!("\"task\", \"{}\"", run.display()));
    std::fs::write(run.join("run.json"), told).unwrap();
    let kept = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let mut line: serde_json::Value = serde_json::from_str(kept.lines().next().unwrap()).unwrap();
    let mut text = String::new();
    for case in cases {
        line["case"] = case["case"].clone();
        for name in case["impls"].as_object().unwrap().keys() {
            line["impl"] = name.as_str().into();
            text.push_str(&format!("{line}\n"));
        }
    }
    std::fs::write(run.join("records.jsonl"), text).unwrap();
}

#[test]
fn ten_thousand_cases_of_five_hundred_tasks_are_collected_and_merged() {
    let sizes = |from: usize| (from..from + 100).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let (m, n) = (format!("m={}", sizes(1)), format!("n={}", sizes(500)));
    let start = std::time::Instant::now();
    let run = submit(&["softmax", "--dtype", "f32", "--set", &m, "--set", &n], &["--nodes", "500"]);
    let planned = start.elapsed();
    let plan: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(run.out.join("plan.json")).unwrap()).unwrap();
    for (task, cases) in plan.as_array().unwrap().iter().enumerate() {
        record(&run.out.join(format!("shards/{}/1/run", task + 1)), cases.as_array().unwrap());
    }
    let start = std::time::Instant::now();
    let all = run.ask("collect", &[]);
    let collected = start.elapsed();
    assert!(text(&all.stdout).contains("500 runs, 20000 records"), "{} {}", text(&all.stdout), text(&all.stderr));
    // The same by hand: runs of 500 machines that no one submitted.
    let runs: Vec<String> =
        (1..=500).map(|t| run.out.join(format!("shards/{t}/1/run")).display().to_string()).collect();
    let merged = run.folder.path().join("merged");
    let args = [vec!["merge", "--out", merged.to_str().unwrap()], runs.iter().map(String::as_str).collect()].concat();
    let start = std::time::Instant::now();
    let all = kmark(&args).output().unwrap();
    let took = start.elapsed();
    assert!(text(&all.stdout).contains("500 runs in "), "{} {}", text(&all.stdout), text(&all.stderr));
    eprintln!("planned in {planned:?}, collected in {collected:?}, merged in {took:?}");
    let enough = [planned, collected, took].iter().all(|t| t.as_secs() < 600);
    assert!(enough, "{planned:?} {collected:?} {took:?}: many times what it takes");
}
