//! The tool as its users meet it: the real binary, real workers, real files.

mod architectures;
mod bad_input;
mod baselines;
mod cheats;
mod compare;
mod cuda;
mod every_kernel;
mod faults;
mod fleet;
mod foreign;
mod gpus;
mod history;
mod kernels;
mod lists;
mod merge;
mod own;
mod python;
mod reports;
mod resume;
mod rules;
mod runs;
mod shards;
mod spread;
mod tune;

use assert_cmd::Command;
use std::path::Path;
use std::process::Output;

/// Runs without roofs, which take longer to measure than all else in a small one.
pub fn kmark(args: &[&str]) -> Command {
    let mut command = with_roofs(args);
    if args.first() == Some(&"run") && !args.iter().any(|arg| ["--no-roofs", "--roofs-from"].contains(arg)) {
        command.arg("--no-roofs");
    }
    command
}

pub fn with_roofs(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("kmark").expect("the binary is built");
    command.args(args).env_remove("KMARK_TEST_FAULTS");
    for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
        command.env_remove(name); // of tests that look at tables
    }
    command
}

pub fn output(args: &[&str]) -> Output {
    kmark(args).output().expect("the binary runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is text")
}

/// Runs it again until it shows what a busy machine may hide, five times at the most; what it came to last.
pub fn until<T>(mut run: impl FnMut() -> T, shows: impl Fn(&T) -> bool) -> T {
    let mut found = run();
    for _ in 1..5 {
        if shows(&found) {
            break;
        }
        found = run();
    }
    found
}

/// Whether a busy machine hid one that remembers, which times alone show.
pub fn is_hidden(record: &serde_json::Value, expected: &str) -> bool {
    expected == "inconsistent" && record["status"] == "ok"
}

/// Records of a run, as JSON.
pub fn records(dir: &Path) -> Vec<serde_json::Value> {
    let lines = std::fs::read_to_string(dir.join("records.jsonl")).expect("the run wrote records");
    lines.lines().map(|l| serde_json::from_str(l).expect("each line is JSON")).collect()
}

/// A small suite file for tests that need few and quick cases.
pub fn small_suite(dir: &Path) -> String {
    let path = dir.join("small.toml");
    let suite = "about = \"a few quick cases\"\nbudget = \"10ms\"\n\
                 [[cases]]\nop = [\"rmsnorm\", \"softmax\"]\ndtype = [\"f32\", \"bf16\"]\nconfigs = [\"5x17\", \"16x64\"]\n";
    std::fs::write(&path, suite).expect("the folder is writable");
    path.display().to_string()
}
