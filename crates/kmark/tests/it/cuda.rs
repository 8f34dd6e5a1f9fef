//! The CUDA path from end to end on a stand-in for the driver and the compiler that runs kernels on the CPU: loading,
//! order of calls, modes, faults. What is fast or slow cannot be seen here; what is right can.

use crate::python::python;
use crate::{kmark, records, text};
use assert_cmd::Command;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, OnceLock};

/// Builds the stand-in into a folder of its own; `without` leaves a function of the driver out.
fn build(folder: &str, without: Option<&str>) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmark-device/tests/standin/build.sh");
    let mut command = std::process::Command::new("sh");
    command.arg(script).arg(&out);
    // Nothing is computed on one that lacks something: it need not be fast.
    command.args(without.map(|w| format!("-DSTANDIN_WITHOUT_{w}"))).args(without.map(|_| "-O0"));
    command.envs(without.map(|_| ("NVRTC_FROM", standin())));
    let built = command.output().expect("sh runs");
    assert!(built.status.success(), "{}", text(&built.stderr));
    out
}

pub fn standin() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("standin", None))
}

/// Tests that time take turns: a clock can be calibrated only where it gets some of the processor.
pub static TIMED: Mutex<()> = Mutex::new(());

pub fn on_standin(folder: &Path, args: &[&str]) -> Command {
    with_standin(folder, kmark(args))
}

pub fn with_standin(folder: &Path, mut command: Command) -> Command {
    command.env("KMARK_CUDA_PATH", folder).env("KMARK_STANDIN", folder);
    command.env("KMARK_PYTHON", python());
    // One for all, kept between runs of the tests: the key is everything that a result depends on.
    command.env("KMARK_CACHE", standin().join("cache"));
    // Roofs are measured on as much as a GPU has; a small one takes seconds.
    command.env("KMARK_STANDIN_MEMORY", "33554432");
    command
}

/// A clock made of the host's cannot be calibrated while others have the processor: then it is tried again.
pub fn until_calm(out: Option<&Path>, mut run: impl FnMut() -> Output) -> Output {
    for _ in 0..20 {
        let done = run();
        // A worker that is started anew in the middle of a run calibrates its clock, too: then a record says it.
        let records = out.and_then(|out| std::fs::read_to_string(out.join("records.jsonl")).ok());
        if !(text(&done.stderr) + &records.unwrap_or_default()).contains("timers cannot be trusted") {
            return done;
        }
        out.iter().for_each(|out| drop(std::fs::remove_dir_all(out)));
    }
    panic!("no peace for the stand-in's clock in twenty tries");
}

pub fn cuda(args: &[&str]) -> Output {
    let out = args.iter().position(|a| *a == "--out").map(|at| Path::new(args[at + 1]));
    until_calm(out, || on_standin(standin(), args).output().expect("the binary runs"))
}

/// The calls of a run of one case that succeeds.
fn calls_of(args: &[&str]) -> Vec<String> {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (dir.path().join("log"), dir.path().join("out"));
    let done = until_calm(Some(&out), || {
        let _ = std::fs::remove_file(&log);
        let mut command = on_standin(standin(), &["run", "--device", "cuda", "--dtype", "f32", "--budget", "5ms"]);
        command.args(["--out", out.to_str().unwrap()]).args(args);
        command.args(if args.contains(&"--rounds") { &[][..] } else { &["--rounds", "1"] });
        command.env("KMARK_STANDIN_LOG", &log).output().unwrap()
    });
    assert!(done.status.success(), "{}", text(&done.stderr));
    let log = std::fs::read_to_string(log).unwrap();
    log.lines().map(|l| l.split(" grid").next().unwrap().to_string()).collect()
}

/// Runs `rmsnorm` on small cases with some impl, and its records.
pub fn run_rmsnorm(extra: &[&str]) -> (Vec<serde_json::Value>, Output) {
    run_rmsnorm_for("10ms", extra)
}

pub fn run_rmsnorm_for(budget: &str, extra: &[&str]) -> (Vec<serde_json::Value>, Output) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut args = vec!["run", "rmsnorm", "--device", "cuda", "--dtype", "bf16"];
    // A graph of tiny tensors would have thousands of them.
    args.extend(["--configs", if extra.contains(&"--graph") { "64x1024,96x1500" } else { "5x17,16x64" }]);
    args.extend(["--budget", budget, "--rounds", "3", "--out", out.to_str().unwrap()]);
    args.extend(extra);
    let turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let result = cuda(&args);
    drop(turn);
    (records(&out), result)
}

#[test]
fn a_run_on_a_gpu_verifies_times_and_records() {
    let (records, result) = run_rmsnorm(&[]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    assert_eq!(records.len(), 2);
    for r in records {
        assert_eq!((r["status"].as_str(), r["device"]["kind"].as_str()), (Some("ok"), Some("cuda")), "{r}");
        assert!(r["device"]["id"].as_str().unwrap().starts_with("GPU-"), "{r}");
        assert_eq!(r["samples_ns"].as_array().unwrap().len(), r["clock_mhz"].as_array().unwrap().len());
        assert!(r["kernels"][0]["registers"].as_u64().is_some(), "{r}");
        assert!(r["times"]["build_ns"].as_f64().unwrap() > 0.0 && r["times"]["first_call_ns"].as_f64().unwrap() > 0.0);
        assert!(r["verify"]["checks"].as_u64().unwrap() >= 3, "{r}");
    }
}

#[test]
fn every_mode_works() {
    for mode in [&["--cache", "hot"][..], &["--graph"], &["--e2e"]] {
        let (records, result) = run_rmsnorm(mode);
        assert_eq!(result.status.code(), Some(0), "{mode:?} {}", text(&result.stderr));
        let word = mode[mode.len() - 1].trim_start_matches('-');
        assert!(records.iter().all(|r| r["status"] == "ok" && r["mode"] == word), "{mode:?} {records:?}");
    }
}

/// What is timed stands alone between the events, behind the blocker, on a flushed cache.
#[test]
fn a_cold_sample_is_enqueued_in_its_order() {
    let calls = calls_of(&["rmsnorm", "--configs", "16x64", "--skip-verify"]);
    let timed = calls.iter().rposition(|c| c.contains("rms")).expect("the kernel was launched");
    let order = ["km_flush", "km_hold", "km_stamp", "cuEventRecord", "rms", "cuEventRecord", "km_stamp"];
    let about: Vec<&String> =
        calls[..timed + 3].iter().rev().filter(|c| c.contains("Launch") || c.contains("EventRecord")).take(7).collect();
    for (call, want) in about.iter().rev().zip(order) {
        assert!(call.contains(want), "{want} expected, {call} found in {about:?}");
    }
}

/// What a launch left is compared behind the interval, before anybody waits; wrong values were there before the flush.
#[test]
fn a_sample_is_checked_behind_the_interval_without_another_wait() {
    let calls = calls_of(&["rmsnorm", "--configs", "16x64"]);
    let checked = calls.windows(2).any(|w| w[0].contains("km_stamp") && w[1].contains("km_hash_pieces"));
    assert!(checked, "the comparison follows the stamp");
    let flushes = calls.iter().enumerate().filter(|(_, c)| c.contains("km_flush"));
    let disguised = flushes.filter(|(i, _)| calls[i.saturating_sub(3)..*i].iter().any(|c| c.contains("km_disguise")));
    assert!(disguised.count() > 5, "outputs are given wrong values before the flush");
}

/// All tensors lie elsewhere in each round but the first, and launches, which are checked, do not notice.
#[test]
fn small_tensors_lie_elsewhere_in_each_round() {
    let maps = |rounds| {
        let calls = calls_of(&["rmsnorm", "--configs", "16x64", "--rounds", rounds]);
        calls.iter().filter(|c| c.starts_with("cuMemMap")).count()
    };
    // Three of them, each aside for the copy and then in its place.
    assert_eq!(maps("4") - maps("1"), 3 * 3 * 2);
}

#[test]
fn a_graph_replays_more_memory_than_the_cache_holds() {
    let calls = calls_of(&["stream", "--configs", "65536", "--graph", "--impl", "cuda/01_plain"]);
    let captured = calls.iter().skip_while(|l| !l.starts_with("cuStreamBeginCapture"));
    let launches =
        captured.take_while(|l| !l.starts_with("cuStreamEndCapture")).filter(|l| l.contains("Launch")).count();
    // The stand-in has 1 MiB of cache, a copy of 65536 floats moves half of one.
    assert!(launches >= 4, "{launches} launches in the graph");
}

#[test]
fn what_a_driver_lacks_or_does_not_explain_is_said() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let says = |out: Output, code: i32, words: &str| {
        let err = text(&out.stderr) + &text(&out.stdout);
        assert_eq!(out.status.code(), Some(code), "{err}");
        assert!(err.contains(words) && !err.contains("panicked"), "{err}");
    };
    let fail =
        |what: &str, args: &[&str]| on_standin(standin(), args).env("KMARK_STANDIN_FAIL", what).output().unwrap();
    let run = ["run", "rmsnorm", "--device", "cuda", "--dtype", "f32", "--configs", "4x4", "--quiet"];
    says(fail("cuInit:1=9999", &run), 2, "error 9999, which this driver does not explain");
    says(fail("cuInit:1=100", &run), 2, "no CUDA-capable device");
    says(cuda(&["run", "--device", "cuda:7"]), 2, "there are 1 GPUs, counted from 0");
    let none = kmark(&run).env("KMARK_CUDA_PATH", "/nowhere").output().unwrap();
    if none.status.code() != Some(0) {
        says(none, 2, "no CUDA driver");
    }
    // Without pages that can be exchanged, tensors stay where they are.
    let old = build("standin-without-pages", Some("cuMemGetAllocationGranularity"));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("still");
    let more = ["--budget", "1ms", "--rounds", "2", "--no-roofs", "--out", out.to_str().unwrap()];
    let still = until_calm(Some(&out), || on_standin(&old, &[&run[..], &more].concat()).output().unwrap());
    assert_eq!(still.status.code(), Some(0), "{}", text(&still.stderr));
    let old = build("standin-without-graphs", Some("cuStreamBeginCapture_v2"));
    let out = dir.path().join("out");
    // A graph of tiny tensors would have thousands of them, each with a module of its own.
    let run = ["run", "rmsnorm", "--device", "cuda", "--dtype", "f32", "--configs", "64x1024"];
    let args = [&run[..], &["--graph", "--budget", "5ms", "--out", out.to_str().unwrap()]].concat();
    let result = until_calm(Some(&out), || on_standin(&old, &args).output().unwrap());
    assert_eq!(result.status.code(), Some(7), "nothing could be timed: {}", text(&result.stderr));
    let record = &records(&out)[0];
    assert_eq!(record["status"], "unavailable");
    assert!(record["message"].as_str().unwrap().contains("has no cuStreamBeginCapture: it is too old"), "{record}");
}

#[test]
fn memory_that_a_card_does_not_have_is_recorded() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let args = ["run", "stream", "--device", "cuda", "--dtype", "f32", "--configs", "8388608", "--quiet"];
    let args = [&args[..], &["--impl", "cuda/01_plain", "--budget", "10ms", "--out", out.to_str().unwrap()]].concat();
    let run = || on_standin(standin(), &args).env("KMARK_STANDIN_MEMORY", "50000000").output().unwrap();
    assert_eq!(until_calm(Some(&out), run).status.code(), Some(6));
    assert_eq!(records(&out)[0]["status"], "out-of-memory");
}

/// The stand-in itself: what it shows of kernels is worth as much as it is.
#[test]
fn the_stand_in_stands_its_own_test() {
    let (here, built) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmark-device/tests/standin"), standin());
    let program = built.join("selftest");
    let compile = ["-std=c++17", "-O1", "-o", program.to_str().unwrap(), "selftest.cpp", "-ldl", "-pthread"];
    assert!(std::process::Command::new("g++").args(compile).current_dir(&here).status().unwrap().success());
    let out = std::process::Command::new(&program).arg(&here).arg(built).env("KMARK_STANDIN", built).output().unwrap();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
}
