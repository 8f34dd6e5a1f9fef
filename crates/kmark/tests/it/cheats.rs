//! Functions that cheat, each in a process of its own: none of them gets a time that is not its own. Which status each
//! one gets is part of the method; `tests/cheats` holds the functions.

use crate::python::python;
use crate::{is_hidden, kmark, records, text, until};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Functions, the status that each gets, and words of its message.
type Cheats = &'static [(&'static str, &'static str, &'static str)];

const NOT_PLAIN: &str = "only numpy.ndarray and torch.Tensor themselves are taken";

const LATE_OR_LAZY: Cheats = &[
    ("lazy_array", "wrong", NOT_PLAIN),
    ("lazy_dict", "wrong", NOT_PLAIN),
    ("lazy_tuple", "wrong", NOT_PLAIN),
    ("generator", "wrong", NOT_PLAIN),
    ("array_protocol", "wrong", NOT_PLAIN),
    ("dlpack_protocol", "wrong", NOT_PLAIN),
    ("works_in_the_collector", "wrong", ""),
    ("works_in_numpy", "wrong", ""),
    ("thread_returns_later", "wrong", ""),
    ("thread_writes_later", "wrong", ""),
    ("thread_is_late_when_timed", "wrong", ""),
    ("child_writes_later", "wrong", ""),
    ("arranges_its_result", "crashed", "only adapters of the package may do it outside"),
];

const KEPT_OR_SKIPPED: Cheats = &[
    ("keeps_its_first_result", "wrong", "elements of y are wrong"),
    ("remembers_by_address", "wrong", "elements of y are wrong"),
    ("skips_every_other_launch", "wrong", "elements of y are wrong"),
    ("stops_returning", "wrong", "changed after the first launch"),
    ("view_of_an_input", "wrong", "y was returned as memory of the input x"),
    ("another_dtype", "wrong", "y was returned as f64, not as f32"),
    ("swapped_bytes", "wrong", "y was returned as"),
    ("another_shape", "wrong", "y was returned with shape"),
    ("too_many", "wrong", "2 arrays were returned"),
    ("no_such_output", "wrong", "z was returned, which is no output"),
    ("changes_an_input", "wrong", "input x was changed"),
    ("writes_past_the_end", "wrong", "1 bytes past the end of y"),
    ("writes_the_old_guard", "wrong", "bytes past the end of y"),
    ("writes_far_past_the_end", "crashed", "SIGSEGV"),
    ("writes_far_before_the_start", "crashed", "SIGSEGV"),
];

/// Found only because timed launches are checked launches, on values that change.
const RIGHT_WHEN_ASKED: Cheats = &[
    ("remembers_by_content", "inconsistent", ""),
    ("works_only_on_poison", "wrong", ""),
    ("half_of_the_rows", "wrong", ""),
    ("skips_when_the_answer_is_there", "ok", ""),
];

const PIPES_AND_WORDS: Cheats = &[
    ("forges_answers", "crashed", "something wrote to the worker's pipe"),
    ("forges_requests", "crashed", "somebody else than the host sent a request"),
    ("reads_requests", "hung", "no answer after"),
    ("closes_descriptors", "crashed", ""),
    ("replaces_descriptors", "crashed", ""),
    ("says_a_library_is_missing", "crashed", "ImportError"),
    ("says_memory_is_short", "out-of-memory", "MemoryError"),
    ("says_it_is_unsupported", "crashed", "not this case"),
    ("explains_itself", "crashed", "which nobody is to hear of"),
    ("replaces_the_package", "wrong", ""),
    ("serves_once_more", "crashed", "taken before"),
];

const ENDINGS: Cheats = &[
    ("exits", "crashed", "SystemExit"),
    ("exits_at_once", "crashed", "ended with code 0"),
    ("leaves_a_child_with_the_pipe", "crashed", "ended with code 0"),
    ("recurses", "crashed", "RecursionError"),
    ("ends_its_group", "crashed", "signal 15"),
    ("stops_itself", "hung", "no answer after"),
    ("limits_its_processor_time", "crashed", ""),
];

/// What is allowed, and does not help: the time is that of the whole call.
const NO_USE: Cheats = &[
    ("stops_the_clocks", "ok", ""),
    ("rounds_up", "ok", ""),
    ("takes_one_core", "ok", ""),
    ("makes_garbage", "ok", ""),
    ("leaves_a_daemon", "ok", ""),
    ("leaves_a_child", "ok", ""),
];

/// Runs each function, and looks at what it got.
fn run(file: &str, cheats: Cheats) -> Vec<Value> {
    let all_seen = |found: &Vec<Value>| !found[1..].iter().zip(cheats).any(|(r, (_, status, _))| is_hidden(r, status));
    let records = until(|| run_once(file, cheats), all_seen);
    for (r, (name, status, says)) in records[1..].iter().zip(cheats) {
        assert_eq!(r["status"], *status, "{name}: {}", r["message"]);
        assert!(r["message"].as_str().unwrap().contains(says), "{name}: {}", r["message"]);
        assert_eq!(r["samples_ns"].as_array().unwrap().is_empty(), *status != "ok", "{name}");
    }
    records
}

/// Each from a copy of its file, because functions of one file share a process.
fn run_once(file: &str, cheats: Cheats) -> Vec<Value> {
    let (dir, args) = set_up(file, cheats);
    let out = dir.path().join("out");
    let mut command = kmark(&args.iter().map(String::as_str).collect::<Vec<_>>());
    command.env("KMARK_PYTHON", python()).env("KMARK_CHEAT_PIDS", dir.path().join("pids"));
    let result = command.output().unwrap();
    let err = text(&result.stderr);
    assert!(out.join("records.jsonl").is_file(), "{err}");
    let records = records(&out);
    assert_eq!(records.len(), cheats.len() + 1, "{err}");
    assert_eq!(records[0]["status"], "ok", "who is honest is not harmed: {}", records[0]);
    for pid in std::fs::read_to_string(dir.path().join("pids")).unwrap_or_default().lines() {
        assert!(!Path::new("/proc").join(pid).exists(), "process {pid} outlived the run");
    }
    records
}

fn set_up(file: &str, cheats: Cheats) -> (tempfile::TempDir, Vec<String>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats");
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(source.join("honest.py"), dir.path().join("honest.py")).unwrap();
    let words =
        "run rmsnorm --device cpu --dtype f32 --configs 64x512 --budget 20ms --rounds 3 --deadline 30s --impl cpu/simd";
    let mut args: Vec<String> = words.split(' ').map(String::from).collect();
    for (name, ..) in cheats {
        let copy = dir.path().join(format!("{name}.py"));
        std::fs::copy(source.join(file), &copy).unwrap();
        args.extend(["--impl".into(), format!("{}:{name}", copy.display())]);
    }
    args.extend(["--out".into(), dir.path().join("out").display().to_string()]);
    (dir, args)
}

#[test]
fn results_that_come_late_are_no_results() {
    run("results.py", LATE_OR_LAZY);
}

#[test]
fn results_that_are_kept_or_lie_elsewhere_are_wrong() {
    run("results.py", KEPT_OR_SKIPPED);
}

#[test]
fn who_is_right_only_when_asked_is_found_out() {
    let records = run("results.py", RIGHT_WHEN_ASKED);
    all_slept(&records, "skips_when_the_answer_is_there");
}

#[test]
fn nobody_but_the_engine_speaks_for_a_launch() {
    run("process.py", PIPES_AND_WORDS);
}

#[test]
fn however_a_process_ends_it_is_recorded_at_once() {
    let start = Instant::now();
    run("process.py", ENDINGS);
    // Two of them wait for a deadline; a child that sleeps for an hour holds nobody up.
    assert!(start.elapsed() < Duration::from_secs(1800), "{:?}", start.elapsed());
}

#[test]
fn what_is_no_use_is_allowed() {
    let records = run("process.py", NO_USE);
    all_slept(&records, "stops_the_clocks");
}

/// Every launch of `name` sleeps for 2 ms, and its times say so.
fn all_slept(records: &[Value], name: &str) {
    let slept = records.iter().find(|r| r["impl"].as_str().unwrap().ends_with(&format!(":{name}"))).unwrap();
    for ns in slept["samples_ns"].as_array().unwrap() {
        assert!(ns.as_f64().unwrap() > 2e6, "{name}: a launch that sleeps for 2 ms took {ns} ns");
    }
}

/// Sums in any order are right. Where a case asks for the same bits from every launch, they are not what it asks for.
#[test]
fn who_must_leave_the_same_bits_does_so_on_every_launch() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cheats/other_bits.py");
    let statuses = |deterministic: &str| -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let words =
            "run attention-bwd --device cpu --dtype f32 --configs 1x2x2x33x40x16 --budget 20ms --rounds 3 --set";
        let mut args: Vec<String> = words.split(' ').map(String::from).collect();
        args.push(format!("deterministic={deterministic}"));
        for name in ["same_order", "any_order"] {
            args.extend(["--impl".into(), format!("{file}:{name}")]);
        }
        args.extend(["--out".into(), out.display().to_string()]);
        let mut command = kmark(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let result = command.env("KMARK_PYTHON", python()).output().unwrap();
        assert_eq!(result.status.code(), Some(if deterministic == "yes" { 6 } else { 0 }), "{}", text(&result.stderr));
        let all = records(&out);
        assert_eq!(all[1]["message"].as_str().unwrap().contains("different bits"), deterministic == "yes");
        all.iter().map(|r| r["status"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(statuses("no"), ["ok", "ok"]);
    assert_eq!(statuses("yes"), ["ok", "inconsistent"]);
    let words = "verify attention-bwd --device cpu --dtype f32 --configs 1x2x2x33x40x16 --set deterministic=yes --impl";
    let verified = |name: &str| {
        let mut command = kmark(&words.split(' ').chain([format!("{file}:{name}").as_str()]).collect::<Vec<_>>());
        command.env("KMARK_PYTHON", python()).output().unwrap().status.code()
    };
    assert_eq!([verified("same_order"), verified("any_order")], [Some(0), Some(6)]);
}

/// Whoever may signal the host can end it. Then there is no record, and no worker stays behind.
#[test]
fn a_killed_host_leaves_no_record() {
    let (dir, args) = set_up("process.py", &[("kills_its_parent", "", "")]);
    let mut command = kmark(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let result = command.env("KMARK_PYTHON", python()).output().unwrap();
    assert_eq!(result.status.code(), None, "it was killed");
    let lines = std::fs::read_to_string(dir.path().join("out/records.jsonl")).unwrap_or_default();
    assert!(lines.is_empty(), "{lines}");
}
