//! Parts of a plan: together they are the plan, each is the same wherever it is asked for, and a run of one is that one.

use crate::cuda::{on_standin, standin};
use crate::{output, records, small_suite, text};
use std::collections::BTreeSet;
use std::path::Path;

/// Cases with their impls, as `--dry-run` shows them.
fn planned(args: &[&str]) -> Vec<String> {
    let out = output(&[&["run"], args, &["--device", "cpu", "--dry-run", "--json"]].concat());
    assert!(out.status.success(), "{args:?} {}", text(&out.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    plan["cases"].as_array().unwrap().iter().map(|c| format!("{} {}", c["case"], c["impls"])).collect()
}

#[test]
fn shards_together_are_the_plan_however_it_is_typed() {
    let dir = tempfile::tempdir().unwrap();
    let small = small_suite(dir.path());
    for (what, of) in [(vec!["smoke"], 1), (vec!["smoke"], 7), (vec!["quack", "tails"], 40), (vec![small.as_str()], 8)]
    {
        let whole = planned(&what);
        let mut parts = Vec::new();
        for number in 1..=of {
            let shard = format!("{number}/{of}");
            let part = planned(&[&what[..], &["--shard", &shard]].concat());
            let backwards: Vec<&str> = what.iter().rev().copied().collect();
            let again: BTreeSet<String> =
                planned(&[&backwards[..], &["--shard", &shard]].concat()).into_iter().collect();
            assert_eq!(again, part.iter().cloned().collect(), "{what:?} {shard}");
            assert!(part.len() <= whole.len() / of + whole.len() / 2 + 1, "{what:?} {shard}: {}", part.len());
            parts.extend(part);
        }
        assert_eq!(parts.len(), whole.len(), "{what:?}: nothing twice");
        assert_eq!(parts.into_iter().collect::<BTreeSet<_>>(), whole.into_iter().collect(), "{what:?}: nothing lost");
    }
    let shown = text(&output(&["run", &small, "--device", "cpu", "--shard", "2/8", "--dry-run"]).stdout);
    assert!(shown.contains("1 cases, 2 rows on cpu, shard 2/8"), "{shown}");
}

#[test]
fn ten_thousand_cases_are_planned_in_no_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("many.toml");
    let sizes = |from: usize| (from..from + 100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let cases = format!("m = [{}]\nn = [{}]\n", sizes(1), sizes(500));
    std::fs::write(&file, format!("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\n{cases}")).unwrap();
    let start = std::time::Instant::now();
    let part = planned(&[file.to_str().unwrap(), "--shard", "123/500"]);
    assert_eq!(part.len(), 20);
    assert!(start.elapsed().as_secs() < 300, "{:?}; unoptimised it takes less than a second", start.elapsed());
}

fn rows(dir: &Path) -> BTreeSet<String> {
    records(dir).iter().map(|r| format!("{} {} {}", r["case"], r["impl"], r["status"])).collect()
}

#[test]
fn runs_of_shards_merge_into_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (suite, at) = (small_suite(dir.path()), |name: &str| dir.path().join(name).display().to_string());
    let run = |out: &str, extra: &[&str]| {
        output(&[&["run", &suite, "--device", "cpu", "--rounds", "2", "--quiet", "--out", out][..], extra].concat())
    };
    assert!(run(&at("whole"), &[]).status.success());
    for shard in ["1/3", "2/3", "3/3"] {
        let out = at(&shard[..1]);
        assert!(run(&out, &["--shard", shard]).status.success());
        let told = std::fs::read_to_string(format!("{out}/run.json")).unwrap();
        assert!(told.contains(&format!("\"shard\": \"{shard}\"")), "{told}");
    }
    for (shard, was) in
        [(&["--shard", "2/3"][..], "1/3, not 2/3"), (&[], "1/3, not all"), (&["--shard", "1/4"], "1/3, not 1/4")]
    {
        let other = run(&at("1"), &[shard, &["--resume"]].concat());
        let line = text(&other.stderr);
        assert!(other.status.code() == Some(2) && line.contains(&format!("shard {was}")), "{line}");
    }
    assert!(run(&at("1"), &["--shard", "1/3", "--resume"]).status.success());
    assert!(output(&["merge", &at("1"), &at("2"), &at("3"), "--out", &at("all")]).status.success());
    let folders = std::fs::read_dir(at("all")).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir());
    let merged: Vec<BTreeSet<String>> = folders.map(|folder| rows(&folder)).collect();
    assert_eq!(merged.len(), 3);
    assert_eq!(merged.iter().map(BTreeSet::len).sum::<usize>(), 16, "nothing twice");
    assert_eq!(merged.into_iter().flatten().collect::<BTreeSet<_>>(), rows(Path::new(&at("whole"))));
}

#[test]
fn a_shard_that_is_none_is_refused() {
    for (shard, why) in [("0/3", "counted from 1 to 3"), ("4/3", "counted from 1 to 3"), ("1", "write it like 1/8")] {
        let out = output(&["run", "softmax", "--device", "cpu", "--shard", shard, "--dry-run"]);
        let line = text(&out.stderr);
        assert!(out.status.code() == Some(2) && line.lines().count() == 1 && line.contains(why), "{line}");
    }
    let none =
        output(&["verify", "softmax", "--device", "cpu", "--configs", "4x8", "--dtype", "f32", "--shard", "2/2"]);
    assert!(none.status.code() == Some(2) && text(&none.stderr).contains("fewer cases than shards"));
}

/// As a run of a shard does it ahead of its cases.
#[test]
fn only_the_cases_of_a_shard_are_compiled() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["build", "rmsnorm", "softmax", "--dtype", "f32", "--configs", "5x17", "--arch", "sm_89"];
    let args = [&args[..], &["--impl", "cuda/01_rows", "--cases-from-stdin", "--part", "0/1"]].concat();
    let mut command = on_standin(standin(), &args);
    let done = command.env("KMARK_CACHE", cache.path()).write_stdin("rmsnorm/f32/m5-n17\n").output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let compiled = std::fs::read_dir(cache.path().join("kernels")).unwrap().count();
    assert_eq!(compiled, 2, "an oracle and a kernel, not those of softmax");
}
