//! Whatever an impl does, it becomes a typed record and the run goes on.

use crate::{is_hidden, kmark, records, small_suite, text, until};

fn run_with(fault: &str, extra: &[&str]) -> (Vec<serde_json::Value>, Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    let mut args = vec!["run", &suite, "--out", out.to_str().unwrap(), "--impl", "cpu/simd", "--impl", fault];
    args.extend(["--set", "m=16", "--dtype", "f32"]);
    args.extend(extra);
    let result = kmark(&args).env("KMARK_TEST_FAULTS", "1").output().unwrap();
    (records(&out), result.status.code(), text(&result.stderr))
}

/// The fault gets `status` in every case, the good impl beside it is `ok`.
fn becomes(fault: &str, status: &str, code: i32, says: &str, extra: &[&str]) {
    let (records, exit, err) = run_with(fault, extra);
    assert_eq!(exit, Some(code), "{err}");
    assert_eq!(records.len(), 8, "{err}");
    for r in records {
        if r["impl"] == fault {
            assert_eq!(r["status"], status, "{r}");
            assert!(r["message"].as_str().unwrap().contains(says), "{r}");
            assert_eq!(r["samples_ns"].as_array().unwrap().len(), 0);
        } else {
            assert_eq!(r["status"], "ok", "{r}");
            assert!(!r["samples_ns"].as_array().unwrap().is_empty());
        }
    }
    assert!(!err.contains("RUST_BACKTRACE"), "no panic reaches the user: {err}");
}

#[test]
fn a_crash_is_recorded() {
    becomes("fault/crash", "crashed", 6, "aborted", &[]);
}

#[test]
fn a_crash_in_the_middle_of_sampling_is_recorded() {
    becomes("fault/crash-later", "crashed", 6, "aborted", &[]);
}

#[test]
fn a_panic_is_recorded_with_its_words() {
    becomes("fault/panic", "crashed", 6, "a panic inside an impl", &[]);
}

#[test]
fn a_hang_is_ended_at_the_deadline() {
    becomes("fault/hang", "hung", 6, "no answer after", &["--deadline", "5s"]);
}

#[test]
fn memory_without_end_is_ended() {
    becomes("fault/memory", "out-of-memory", 6, "grew to", &[]);
}

#[test]
fn a_forged_answer_is_recorded_as_that() {
    becomes("fault/garbage", "crashed", 6, "something wrote to the worker's pipe", &[]);
}

#[test]
fn noise_on_standard_output_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["run", "softmax", "--device", "cpu", "--dtype", "f32", "--configs", "4x8", "--impl", "fault/noise"];
    let args = [&args[..], &["--budget", "2ms", "--rounds", "2", "--no-roofs", "--out", "out"]].concat();
    let done = kmark(&args).current_dir(dir.path()).env("KMARK_TEST_FAULTS", "1").output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(records(&dir.path().join("out")).iter().all(|r| r["status"] == "ok"));
    assert!(text(&done.stderr).contains("what impls printed is in out/impls.log"), "{}", text(&done.stderr));
    let log = std::fs::read_to_string(dir.path().join("out/impls.log")).unwrap();
    assert!(log.contains("-- fault: softmax/f32/m4-n8 fault/noise\nnoise noise"), "{}", &log[..200]);
}

/// Each fault gets its status and words in every case, the good impls beside them are `ok`.
fn all_become(faults: &[(&str, &str, &str)], extra: &[&str]) {
    let others: Vec<&str> = faults.iter().flat_map(|(fault, ..)| ["--impl", fault]).collect();
    let of = |r: &serde_json::Value| faults.iter().find(|(fault, ..)| r["impl"] == *fault);
    let all_seen = |found: &[serde_json::Value]| !found.iter().any(|r| of(r).is_some_and(|e| is_hidden(r, e.1)));
    let (records, _, err) = until(|| run_with("fault/twin", &[&others, extra].concat()), |(found, ..)| all_seen(found));
    assert_eq!(records.len(), 4 * (faults.len() + 2), "{err}");
    for r in records {
        let expected = of(&r);
        assert_eq!(r["status"], expected.map_or("ok", |e| e.1), "{r}");
        assert!(r["message"].as_str().unwrap().contains(expected.map_or("", |e| e.2)), "{r}");
        assert_eq!(r["samples_ns"].as_array().unwrap().is_empty(), expected.is_some(), "{r}");
    }
}

/// It left another result than the checked one, or was wrong on new values: chance decides which comes first.
const LEFT: &str = "a timed launch ";

/// What is timed is checked: whoever saves work in a timed launch is found out, and whoever does not is left alone.
#[test]
fn cheats_are_found_out() {
    let cheats = [
        ("fault/every-other", "wrong", LEFT),
        ("fault/at-first", "wrong", LEFT),
        ("fault/on-poison", "wrong", LEFT),
        ("fault/looks-right", "wrong", LEFT),
        ("fault/half", "wrong", LEFT),
        ("fault/hole", "wrong", LEFT),
        ("fault/wobbles-at-first", "wrong", LEFT),
        ("fault/deferred", "wrong", "elements of y are wrong"),
        ("fault/remembers", "inconsistent", "on values that it has not seen"),
        ("fault/keeps-last", "inconsistent", "on values that it has not seen"),
    ];
    all_become(&cheats, &[]);
}

/// Nobody is timed who was not right both in the process that verifies and as it is bound for timing.
#[test]
fn who_is_right_in_one_binding_only_is_not_timed() {
    for fault in ["fault/first-binding", "fault/later-bindings"] {
        let (records, ..) = run_with(fault, &[]);
        for r in records.iter().filter(|r| r["impl"] == fault) {
            assert_eq!(r["status"], "wrong", "{r}");
            assert!(r["message"].as_str().unwrap().contains("elements of y are wrong"), "{r}");
            assert!(r["checked"].is_null(), "it was timed: {r}");
        }
    }
}

/// Alone in its process, since its threads write into the memory of whoever comes next.
#[test]
fn who_goes_on_writing_after_the_call_is_found_out() {
    becomes("fault/late", "wrong", 5, "", &[]);
}

#[test]
fn cheats_are_found_out_on_a_hot_cache() {
    let cheats = [("fault/at-first", "wrong", LEFT), ("fault/half", "wrong", LEFT), ("fault/on-poison", "wrong", LEFT)];
    all_become(&cheats, &["--cache", "hot"]);
}

/// An impl whose last bits change is no cheat.
#[test]
fn who_is_right_with_other_bits_every_time_is_right() {
    let (records, exit, err) = run_with("fault/wobbles", &[]);
    assert_eq!(exit, Some(0), "{err}");
    for r in records {
        assert_eq!(r["status"], "ok", "{r}");
        assert_eq!(r["checked"]["same_bits"], r["impl"] != "fault/wobbles", "{r}");
    }
}

#[test]
fn every_sample_is_checked_and_values_change() {
    let (records, exit, err) = run_with("fault/twin", &[]);
    assert_eq!(exit, Some(0), "{err}");
    for r in records {
        let (checked, samples) = (&r["checked"], r["samples_ns"].as_array().unwrap().len());
        assert_eq!(checked["samples"], samples, "{r}");
        assert_eq!(checked["whole"], samples, "small outputs are checked whole: {r}");
        assert!(checked["fresh"].as_u64().unwrap() >= 1 && checked["same_bits"] == true, "{r}");
    }
    let (records, ..) = run_with("fault/twin", &["--skip-verify"]);
    assert!(records.iter().all(|r| r.get("checked").is_none() && r["status"] == "unverified"));
}

#[test]
fn a_crash_does_not_take_its_family_along() {
    // twin and crash-later share a worker process: when it dies, twin must be set up again and finish.
    let (records, exit, err) = run_with("fault/crash-later", &["--impl", "fault/twin"]);
    assert_eq!(exit, Some(6), "{err}");
    for r in records.iter().filter(|r| r["impl"] == "fault/twin") {
        assert_eq!(r["status"], "ok", "{r}");
    }
}

#[test]
fn faults_cannot_be_selected_by_users() {
    let out = kmark(&["run", "softmax", "--impl", "fault/crash"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let list = kmark(&["list", "impls"]).output().unwrap();
    assert!(!text(&list.stdout).contains("fault"));
}

#[test]
fn a_case_that_does_not_fit_is_out_of_memory_before_it_is_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["run", "softmax", "--configs", "1048576x1048576", "--dtype", "f32", "--out", out.to_str().unwrap()];
    let start = std::time::Instant::now();
    let result = kmark(&args).output().unwrap();
    assert_eq!(result.status.code(), Some(6));
    assert!(start.elapsed().as_secs() < 600);
    for r in records(&out) {
        assert_eq!(r["status"], "out-of-memory");
        assert!(r["message"].as_str().unwrap().contains("8.00 TiB"), "{r}");
    }
}

#[test]
fn plain_loops_refuse_what_would_take_them_minutes() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["run", "gemm", "--configs", "2048x2048x2048", "--impl", "cpu/naive", "--out", out.to_str().unwrap()];
    assert_eq!(kmark(&args).output().unwrap().status.code(), Some(7), "nothing was timed");
    let verified = kmark(&[&["verify"], &args[1..6]].concat()).output().unwrap();
    let why = text(&verified.stderr);
    assert!(
        verified.status.code() == Some(7) && why.contains("nothing could be checked: ") && why.contains(" 0 of "),
        "{why}"
    );
    let elsewhere = dir.path().join("strict");
    let strict = [&args[..6], &["--out", elsewhere.to_str().unwrap(), "--strict"]].concat();
    assert_eq!(kmark(&strict).output().unwrap().status.code(), Some(6), "all of it was asked for");
    for r in records(&out) {
        assert_eq!(r["status"], "unsupported");
        assert!(r["message"].as_str().unwrap().contains("17 GFLOP"), "{r}");
    }
}
