//! A run on a cluster: a real Slurm with six nodes on this machine, whose tasks are killed, cancelled, requeued, preempted,
//! out of time, and lose their node. Where Slurm is not installed this is skipped, unless KMARK_TEST_ALL is set, as in CI. A
//! program of its own, so that its tasks do not disturb tests that time things.

use assert_cmd::Command as Kmark;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const NODES: u16 = 6;

fn kmark(args: &[&str]) -> Kmark {
    let mut command = Kmark::cargo_bin("kmark").expect("the binary is built");
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

struct Cluster(PathBuf);

impl Cluster {
    /// `None` where there is no Slurm.
    fn start() -> Option<Cluster> {
        let there = Command::new("sh").args(["-c", "type slurmctld slurmd munged sbatch"]).output().unwrap();
        if !there.status.success() {
            assert!(std::env::var_os("KMARK_TEST_ALL").is_none(), "Slurm is not installed");
            eprintln!("skipped: Slurm is not installed");
            return None;
        }
        let dir = PathBuf::from(format!("/tmp/kmark-slurm-{}", std::process::id()));
        let free = |base: &u16| (*base..=base + NODES).all(|p| TcpListener::bind(("127.0.0.1", p)).is_ok());
        let base = (0..50).map(|i| 20_000 + (std::process::id() % 3000) as u16 * 10 + i * 10).find(free).unwrap();
        std::fs::create_dir_all(&dir).unwrap();
        let cluster = Cluster(dir);
        let started = cluster.script(&["start", cluster.0.to_str().unwrap(), &base.to_string(), &NODES.to_string()]);
        assert!(started.status.success(), "{}", text(&started.stderr));
        Some(cluster)
    }

    fn script(&self, args: &[&str]) -> Output {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/cluster.sh");
        let mut command = Command::new(script);
        // Whoever runs the tests in a job of Slurm's means another cluster.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SLURM_")) {
            command.env_remove(name);
        }
        command.args(args).output().unwrap()
    }

    fn kmark(&self, args: &[&str]) -> Kmark {
        let mut command = kmark(args);
        command.env("SLURM_CONF", self.0.join("slurm.conf"));
        command
    }

    fn slurm(&self, program: &str, args: &[&str]) -> Output {
        let done = Command::new(program).args(args).env("SLURM_CONF", self.0.join("slurm.conf")).output().unwrap();
        assert!(done.status.success(), "{program} {args:?}: {}", text(&done.stderr));
        done
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let dir = self.0.to_str().unwrap().to_string();
        self.script(&["stop", &dir]);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// Asks until it is so, for fifteen minutes.
fn wait<T>(what: &str, mut so: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = so() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(900), "no {what} within fifteen minutes");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The process that runs a task.
fn process(dir: &Path, task: usize) -> Option<String> {
    let end = format!("task\0{}\0", dir.display());
    let is = |pid: &String| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains(&end) && line.ends_with(&format!("\0{task}\0"))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().into_string().ok());
    all.filter(|n| n.bytes().all(|b| b.is_ascii_digit())).find(is)
}

/// Every record line in a folder of runs.
fn lines(dir: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path().join("records.jsonl"));
    folders
        .filter_map(|f| std::fs::read_to_string(f).ok())
        .flat_map(|t| t.lines().map(String::from).collect::<Vec<_>>())
        .collect()
}

fn row(line: &str) -> String {
    let record: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(record["status"], "ok", "{line}");
    format!("{} {}", record["case"].as_str().unwrap(), record["impl"].as_str().unwrap())
}

#[test]
fn an_array_survives_what_clusters_do() {
    let Some(cluster) = Cluster::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (suite, out) = (folder.path().join("many.toml"), folder.path().join("out"));
    let sizes = (0..36).map(|i| format!("\"{}x64\"", 8 + i)).collect::<Vec<_>>().join(", ");
    std::fs::write(&suite, format!("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nconfigs = [{sizes}]\n")).unwrap();
    let out_arg = out.to_str().unwrap();
    let selection =
        ["many.toml", "--impl", "cpu/naive", "--budget", "200ms", "--rounds", "2", "--precision", "0.0001%"];
    let selection = [&selection[..], &["--no-roofs"]].concat();
    let nodes = ["--slurm", "--nodes", "6", "--sbatch=--exclusive", "--out", out_arg];
    let args = [&["submit"], &selection[..], &nodes].concat();
    let submitted = cluster.kmark(&args).current_dir(folder.path()).output().unwrap();
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    assert!(text(&submitted.stdout).contains("6 tasks, 36 cases together"), "{}", text(&submitted.stdout));

    let status = || -> Vec<serde_json::Value> {
        let told = cluster.kmark(&["status", out_arg, "--json"]).output().unwrap();
        assert!(told.status.success(), "{}", text(&told.stderr));
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        told["tasks"].as_array().unwrap().clone()
    };
    // Each stands still when it has recorded something, so that none is done before it is hit.
    let signal = |signal: &str, task: usize| {
        let pid = process(&out, task).expect("the task runs");
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    };
    let mut still = BTreeSet::new();
    wait("first case of every task", || {
        for (task, told) in (1..).zip(status()) {
            if told["cases_done"].as_u64() > Some(0) && still.insert(task) {
                signal("-STOP", task);
            }
        }
        (still.len() == 6).then_some(())
    });
    let job: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("submit.json")).unwrap()).unwrap();
    let job = job["jobs"][0]["id"].as_str().unwrap().to_string();
    let node_of = |task: usize| status()[task - 1]["node"].as_str().unwrap().to_string();
    let (lost, wanted) = (node_of(4), node_of(6));
    signal("-KILL", 1);
    cluster.slurm("scancel", &[&format!("{job}_2")]);
    cluster.slurm("scontrol", &["requeue", &format!("{job}_3")]);
    cluster.slurm("scontrol", &["update", &format!("nodename={lost}"), "state=down", "reason=test"]);
    cluster.slurm("scontrol", &["update", &format!("jobid={job}_5"), "timelimit=0"]);
    let urgent = ["--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 0"];
    cluster.slurm("sbatch", &[&urgent[..], &[&format!("--nodelist={wanted}")]].concat());
    let kept: Vec<String> = (1..=6).flat_map(|t| lines(&out.join(format!("shards/{t}/1")))).collect();
    let records = |task: usize, attempt: usize| out.join(format!("shards/{task}/{attempt}/run/records.jsonl"));
    assert!((1..=6).all(|t| records(t, 1).exists()) && kept.len() >= 6, "{kept:?}");

    // What happened is told. Those that were requeued begin again by themselves.
    let ends = [
        ("failed", "signal 9"),
        ("cancelled", ""),
        ("pending", "requeued"),
        ("pending", "requeued"),
        ("timeout", ""),
        ("preempted", ""),
    ];
    let mut seen = [false; 6];
    wait("words for all ends", || {
        for ((task, (state, why)), seen) in status().iter().zip(ends).zip(&mut seen) {
            let begun_again = why == "requeued" && task["attempts"].as_u64() > Some(1); // before anybody asked
            *seen |= task["state"] == state && task["why"].as_str().unwrap_or("").contains(why) || begun_again;
        }
        seen.iter().all(|s| *s).then_some(())
    });
    let resumed = cluster.kmark(&["submit", "--resume", out_arg]).output().unwrap();
    let said = text(&resumed.stdout);
    assert!(said.contains("4 of 6 tasks again"), "{said} {}", text(&resumed.stderr));
    let again = cluster.kmark(&["submit", "--resume", out_arg]).output().unwrap();
    assert!(text(&again.stdout).starts_with("nothing to resubmit; "), "{}", text(&again.stdout));

    let collected = cluster.kmark(&["collect", out_arg, "--wait"]).timeout(Duration::from_secs(1800)).output().unwrap();
    assert!(collected.status.success(), "{}", text(&collected.stderr));
    assert!(status().iter().all(|t| t["state"] == "done" && t["attempts"].as_u64() >= Some(2)), "{:?}", status());
    let all = lines(&out.join("collected"));
    assert!(kept.iter().all(|line| all.contains(line)), "what was recorded before stays");
    let rows: Vec<String> = all.iter().map(|l| row(l)).collect();
    let distinct: BTreeSet<&String> = rows.iter().collect();
    assert_eq!((rows.len(), distinct.len()), (36, 36), "every row once");
    let plain = [&["run"], &selection[..], &["--device", "cpu", "--dry-run", "--json"]].concat();
    let plain = kmark(&plain).current_dir(folder.path()).output().unwrap();
    let plain: serde_json::Value = serde_json::from_slice(&plain.stdout).unwrap();
    for case in plain["cases"].as_array().unwrap() {
        for name in case["impls"].as_array().unwrap() {
            let row = format!("{} {}", case["case"].as_str().unwrap(), name.as_str().unwrap());
            assert!(distinct.contains(&row), "{row} is missing");
        }
    }
    let said = cluster.kmark(&["submit", "--resume", out_arg]).output().unwrap();
    assert_eq!(text(&said.stdout), "nothing to resubmit\n");

    // What Slurm refuses leaves no folder.
    let refused = folder.path().join("refused");
    let args = ["submit", "smoke", "--slurm", "--partition", "nope", "--out", refused.to_str().unwrap()];
    let done = cluster.kmark(&args).output().unwrap();
    let line = text(&done.stderr);
    assert!(done.status.code() == Some(2) && line.lines().count() == 1 && line.contains("nope"), "{line}");
    assert!(!refused.exists());
    // GPUs are asked for, and more than a node has are refused.
    let gpus = |count: &str, out: &str| {
        let out = folder.path().join(out);
        let args = ["submit", "many.toml", "--filter", "*m8-*", "--device", "cpu", "--budget", "5ms", "--rounds", "2"];
        let args = [&args[..], &["--no-roofs", "--slurm", "--gpus-per-node", count, "--out", out.to_str().unwrap()]];
        cluster.kmark(&args.concat()).current_dir(folder.path()).output().unwrap()
    };
    let done = gpus("3", "three");
    let line = text(&done.stderr);
    assert!(done.status.code() == Some(2) && line.lines().count() == 1, "{line}");
    assert!(gpus("2", "two").status.success());
    let two = folder.path().join("two");
    assert!(std::fs::read_to_string(two.join("job.sh")).unwrap().contains("--gpus-per-node=2"));
    let done = cluster.kmark(&["collect", two.to_str().unwrap(), "--wait"]).timeout(Duration::from_secs(1800)).output();
    assert!(text(&done.unwrap().stdout).contains("1 runs, 2 records"));
    // A node that does not see the folder, for which it is elsewhere a while.
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let args = ["submit", "smoke", "--slurm", "--sbatch=--hold", "--out", here.to_str().unwrap()];
    let held = text(&cluster.kmark(&args).output().unwrap().stdout);
    let job = held.split([' ', ':']).nth(1).unwrap();
    std::fs::rename(&here, &there).unwrap();
    cluster.slurm("scontrol", &["release", job]);
    wait("end of the task", || {
        let told = text(&cluster.kmark(&["status", there.to_str().unwrap()]).output().unwrap().stdout);
        told.contains("it wrote nothing: the node may not see this folder").then_some(())
    });
}
