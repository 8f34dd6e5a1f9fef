//! A run may be killed at any moment: what was written stays, the rest is done later, nothing twice.

use crate::{output, records, small_suite, text};
use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn ten_kills_and_resumes_end_in_one_record_each() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    let out_arg = out.to_str().unwrap();
    let mut kept = 0;
    let mut state = 12345u64;
    for kill in 0..10 {
        // With --resume from the first time on: a run that was killed before it began is begun.
        let args = ["run", &suite, "--out", out_arg, "--budget", "40ms", "--quiet", "--no-roofs", "--resume"];
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("kmark"))
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_millis((state >> 33) % 500 + 40 * kill));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        if out.join("records.jsonl").exists() {
            let whole = std::fs::read_to_string(out.join("records.jsonl")).unwrap().matches('\n').count();
            assert!(whole >= kept, "records were lost: {kept} -> {whole}");
            kept = whole;
        }
    }
    let last = output(&["run", &suite, "--out", out_arg, "--budget", "40ms", "--resume", "--quiet"]);
    assert!(last.status.success(), "{}", text(&last.stderr));
    let all = records(&out);
    let distinct: HashSet<String> = all.iter().map(|r| format!("{} {}", r["case"], r["impl"])).collect();
    assert_eq!((all.len(), distinct.len()), (16, 16));
    assert!(all.iter().all(|r| r["status"] == "ok"));
    let run: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).unwrap()).unwrap();
    assert!(run["finished"].is_string());
}

#[test]
fn a_run_that_was_killed_at_its_very_beginning_is_begun() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    let args = ["run", &suite, "--out", out.to_str().unwrap(), "--resume", "--quiet"];
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("records.jsonl"), "").unwrap();
    std::fs::write(out.join(".run.json.new"), "{\"schema\"").unwrap();
    let run = output(&args);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert_eq!(records(&out).len(), 16);
    // Records without a run are somebody else's.
    std::fs::remove_file(out.join("run.json")).unwrap();
    assert_eq!(output(&args).status.code(), Some(2));
    assert_eq!(records(&out).len(), 16);
}

#[test]
fn two_processes_cannot_write_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let mut first = Command::new(assert_cmd::cargo::cargo_bin("kmark"))
        .args(["run", &suite, "--out", out, "--budget", "500ms", "--quiet", "--no-roofs"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !std::path::Path::new(out).join("run.json").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = output(&["run", &suite, "--out", out, "--resume"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(text(&second.stderr).contains("another kmark"), "{}", text(&second.stderr));
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn a_run_goes_on_only_as_it_began() {
    let dir = tempfile::tempdir().unwrap();
    let (out, file) = (dir.path().join("out"), dir.path().join("mine.toml"));
    let suite = |m: usize| {
        format!("about = \"x\"\n[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nconfigs = [\"{m}x8\", \"9x9\"]\n")
    };
    std::fs::write(&file, suite(4)).unwrap();
    let (out, file) = (out.to_str().unwrap(), file.to_str().unwrap());
    let first = ["run", file, "--device", "cpu", "--impl", "cpu/*", "--budget", "5ms", "--rounds", "2", "--out", out];
    assert!(output(&first).status.success());
    let resumed = |args: &[&str]| {
        let out = output(&[args, &["--resume", "--quiet"]].concat());
        (out.status.code(), text(&out.stderr))
    };
    assert_eq!(resumed(&first).0, Some(0));
    let refused = |args: &[&str], part: &str| {
        let (code, line) = resumed(args);
        assert!(code == Some(2) && line.lines().count() == 1 && line.contains(part), "{code:?} {line}");
    };
    let changed = |at: usize, word: &str| -> Vec<String> {
        first.iter().enumerate().map(|(i, w)| if i == at { word.into() } else { w.to_string() }).collect()
    };
    for (at, word, part) in [
        (9, "3", "rounds 2, not 3"),
        (7, "6ms", "budget 5.00 ms, not 6.00 ms"),
        (5, "cpu/naive", "other cases or impls"),
    ] {
        let args = changed(at, word);
        refused(&args.iter().map(String::as_str).collect::<Vec<_>>(), part);
    }
    refused(&[&first[..], &["--set", "m=3"]].concat(), "other cases or impls");
    // The refusal ends with the command that starts anew, ready to be typed.
    let (_, line) = resumed(
        &[&first[..], &["--tag", "a b"]].concat().iter().map(|w| if *w == "2" { "3" } else { w }).collect::<Vec<_>>(),
    );
    let (_, anew) = line.trim_end().split_once("; this starts anew: ").expect("it is offered");
    assert!(anew.contains("--rounds 3") && anew.contains("--tag 'a b'"), "{anew}");
    let done = Command::new("sh").args(["-c", anew]).output().unwrap();
    assert!(done.status.success(), "{anew}: {}", text(&done.stderr));
    let new = std::path::PathBuf::from(format!("{out}-2"));
    assert_eq!(records(&new).len(), records(std::path::Path::new(out)).len());
    std::fs::write(file, suite(5)).unwrap();
    refused(&first, "other cases or impls");
    std::fs::write(file, suite(4)).unwrap();
    // As if the code had been another one.
    let path = std::path::Path::new(out).join("records.jsonl");
    let lines = std::fs::read_to_string(&path).unwrap();
    let hash = records(std::path::Path::new(out))[0]["impl_hash"].as_str().unwrap().to_string();
    std::fs::write(&path, lines.replace(&hash, "0000000000000000")).unwrap();
    refused(&first, "another version of cpu/");
}

#[test]
fn runs_that_start_at_once_get_folders_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["run", "softmax", "--device", "cpu", "--dtype", "f32", "--configs", "4x8", "--budget", "2ms", "--no-roofs"];
    let start = |_| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("kmark"));
        command.args(args).current_dir(dir.path()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..4).map(start).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(std::fs::read_dir(dir.path().join("kmark-runs")).unwrap().count(), 4);
}
