//! The CUDA path from end to end on a stand-in for the driver and the compiler that runs kernels on the CPU: loading,
//! order of calls, modes, faults, users' files; and the logic of every kernel and oracle on small cases. What is fast or
//! slow cannot be seen here; what is right can.

use crate::{kmark, records, text};
use assert_cmd::Command;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::{Mutex, OnceLock};

/// Builds the stand-in into a folder of its own; `without` leaves a function out.
fn build(folder: &str, without: Option<&str>) -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmark-device/tests/standin/build.sh");
    let mut command = std::process::Command::new("sh");
    command.arg(script).arg(&out).args(without.map(|w| format!("-DSTANDIN_WITHOUT_{w}")));
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
    let mut command = kmark(args);
    command.env("KMARK_CUDA_PATH", folder).env("KMARK_STANDIN", folder);
    // Kept between runs of the tests: the key is everything that a result depends on.
    command.env("KMARK_CACHE", folder.join("cache"));
    // Roofs are measured on as much as a GPU has; a small one takes seconds.
    command.env("KMARK_STANDIN_MEMORY", "33554432");
    command
}

/// A clock made of the host's cannot be calibrated while other tests have the processor: then the command is tried again.
pub fn cuda(args: &[&str]) -> Output {
    for _ in 0..5 {
        let result = on_standin(standin(), args).output().expect("the binary runs");
        let out = args.iter().position(|a| *a == "--out").map(|at| args[at + 1]);
        // A worker that is started anew in the middle of a run calibrates its clock, too: then a record says it.
        let records = out.and_then(|out| std::fs::read_to_string(Path::new(out).join("records.jsonl")).ok());
        if !(text(&result.stderr) + &records.unwrap_or_default()).contains("timers cannot be trusted") {
            return result;
        }
        out.iter().for_each(|out| drop(std::fs::remove_dir_all(out)));
    }
    panic!("no peace for the stand-in's clock in five tries");
}

/// Runs `rmsnorm` on small cases with some impl, and its records.
fn run_rmsnorm(extra: &[&str]) -> (Vec<serde_json::Value>, Output) {
    run_rmsnorm_for("10ms", extra)
}

fn run_rmsnorm_for(budget: &str, extra: &[&str]) -> (Vec<serde_json::Value>, Output) {
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
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (dir.path().join("log"), dir.path().join("out"));
    let args = ["run", "rmsnorm", "--device", "cuda", "--dtype", "f32", "--configs", "16x64", "--budget", "5ms"];
    let mut command = on_standin(standin(), &args);
    command.args(["--rounds", "1", "--skip-verify", "--out", out.to_str().unwrap()]).env("KMARK_STANDIN_LOG", &log);
    command.assert().success();
    let log = std::fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = log.lines().map(|l| l.split(" grid").next().unwrap()).collect();
    let timed = calls.iter().rposition(|c| c.contains("rms")).expect("the kernel was launched");
    let order = ["km_flush", "km_hold", "km_stamp", "cuEventRecord", "rms", "cuEventRecord", "km_stamp"];
    let about: Vec<&&str> =
        calls[..timed + 3].iter().rev().filter(|c| c.contains("Launch") || c.contains("EventRecord")).take(7).collect();
    for (call, want) in about.iter().rev().zip(order) {
        assert!(call.contains(want), "{want} expected, {call} found in {about:?}");
    }
}

/// What a launch left is compared behind the interval, before anybody waits; wrong values were there before the flush.
#[test]
fn a_sample_is_checked_behind_the_interval_without_another_wait() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (dir.path().join("log"), dir.path().join("out"));
    let args = ["run", "rmsnorm", "--device", "cuda", "--dtype", "f32", "--configs", "16x64", "--budget", "5ms"];
    let mut command = on_standin(standin(), &args);
    command.args(["--rounds", "1", "--out", out.to_str().unwrap()]).env("KMARK_STANDIN_LOG", &log);
    command.assert().success();
    let log = std::fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = log.lines().map(|l| l.split(" grid").next().unwrap()).collect();
    let checked = calls.windows(2).any(|w| w[0].contains("km_stamp") && w[1].contains("km_hash_pieces"));
    assert!(checked, "the comparison follows the stamp");
    let flushes = calls.iter().enumerate().filter(|(_, c)| c.contains("km_flush"));
    let disguised = flushes.filter(|(i, _)| calls[i.saturating_sub(3)..*i].iter().any(|c| c.contains("km_disguise")));
    assert!(disguised.count() > 5, "outputs are given wrong values before the flush");
}

#[test]
fn a_graph_replays_more_memory_than_the_cache_holds() {
    let _turn = TIMED.lock().unwrap_or_else(|e| e.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let (log, out) = (dir.path().join("log"), dir.path().join("out"));
    let args =
        ["run", "stream", "--device", "cuda", "--dtype", "f32", "--configs", "65536", "--budget", "5ms", "--graph"];
    let mut command = on_standin(standin(), &args);
    command.args(["--rounds", "1", "--impl", "cuda/01_plain", "--out", out.to_str().unwrap()]);
    command.env("KMARK_STANDIN_LOG", &log).assert().success();
    let log = std::fs::read_to_string(log).unwrap();
    let captured = log.lines().skip_while(|l| !l.starts_with("cuStreamBeginCapture"));
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
    let old = build("standin-without-graphs", Some("cuStreamBeginCapture_v2"));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut command = on_standin(&old, &run[..8]);
    let result = command.args(["--graph", "--budget", "5ms", "--out", out.to_str().unwrap()]).output().unwrap();
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
    let mut command = on_standin(standin(), &args);
    command.args(["--impl", "cuda/01_plain", "--budget", "10ms", "--out", out.to_str().unwrap()]);
    command.env("KMARK_STANDIN_MEMORY", "50000000");
    assert_eq!(command.output().unwrap().status.code(), Some(6));
    assert_eq!(records(&out)[0]["status"], "out-of-memory");
}

/// Users' files, right and wrong.
pub const GOOD: &str = include_str!("../../../../examples/rmsnorm.cu");

pub fn with_file(name: &str, source: &str, extra: &[&str]) -> (Vec<serde_json::Value>, Output) {
    let dir = tempfile::tempdir().unwrap();
    let (file, choice) = name.split_at(name.find('#').unwrap_or(name.len()));
    let path = dir.path().join(file);
    std::fs::write(&path, source).unwrap();
    let word = format!("{}:mine{choice}", path.display());
    run_rmsnorm(&[&["--impl", &word, "--impl", "cuda/*"][..], extra].concat())
}

/// The user's kernel gets `status`, ours beside it is `ok`.
fn becomes(source: &str, status: &str, code: i32, says: &str, extra: &[&str]) {
    let (records, result) = with_file("mine.cu", source, extra);
    assert_eq!(result.status.code(), Some(code), "{}", text(&result.stderr));
    for r in records {
        let mine = r["impl"].as_str().unwrap().contains("mine.cu");
        assert_eq!(r["status"], if mine { status } else { "ok" }, "{r}");
        assert!(!mine || r["message"].as_str().unwrap().contains(says), "{r}");
    }
}

#[test]
fn a_users_kernel_is_verified_and_timed_beside_ours() {
    assert!(GOOD.lines().count() < 40);
    becomes(GOOD, "ok", 0, "", &[]);
}

/// Values, tensor maps, clusters and launch attributes reach the launch and the code. The stand-in marks maps that it encodes.
#[test]
fn values_maps_and_clusters_reach_a_users_kernel() {
    let lines = "// kmark: let WIDE = n>32?256:32\n// kmark: map in = x box=8,WIDE/32\n\
                 // kmark: kernel mine grid=m*2 block=WIDE cluster=2 with=overlap";
    let source = GOOD
        .replace("// kmark: kernel mine grid=m block=256", lines)
        .replace(
            "const __grid_constant__ Args a)",
            "const __grid_constant__ Args a, const __grid_constant__ Maps maps)",
        )
        .replace(
            "i64 row = blockIdx.x;",
            "i64 row = blockIdx.x / 2; if (((const char*)maps.in.words)[8] != 'T' || blockDim.x != WIDE) return;",
        );
    let (records, result) = with_file("mine.cu", &source, &[]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    let mine: Vec<_> = records.iter().filter(|r| r["impl"].as_str().unwrap().contains("mine.cu")).collect();
    assert_eq!(mine[0]["status"], "unsupported", "{}", mine[0]);
    let says = mine[0]["message"].as_str().unwrap();
    assert!(says.contains("map in: rows of x are apart 34 bytes, not at multiples of 16"), "{says}");
    assert_eq!(mine[1]["status"], "ok", "{}", mine[1]);
}

#[test]
fn a_wrong_kernel_is_rejected_with_place_and_size() {
    becomes(&GOOD.replace("+ acc_t(EPS)", "+ acc_t(0.5)"), "wrong", 5, "elements of y are wrong; y[", &[]);
}

#[test]
fn rows_that_do_not_add_up_are_shown_with_their_sum() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("two.cu");
    let source = "// kmark: kernel two grid=m block=64\n\
        KERNEL two(const __grid_constant__ Args a) { a.y.at(blockIdx.x, threadIdx.x) = 2.0f / 64.0f; }\n";
    std::fs::write(&path, source).unwrap();
    let select = ["softmax", "--dtype", "f32", "--configs", "16x64", "--impl", path.to_str().unwrap()];
    let result = cuda(&[&["verify", "--device", "cuda", "--json", "--quiet"], &select[..]].concat());
    assert_eq!(result.status.code(), Some(5), "{}", text(&result.stderr));
    let says = "y: 16 rows do not add up to 1; row 0 adds up to 2.000000e0, ";
    assert!(text(&result.stdout).contains(says), "{}", text(&result.stdout));
}

#[test]
fn a_kernel_that_does_not_compile_shows_its_own_lines() {
    let broken = GOOD.replace("a.x.at(row, c)", "a.xx.at(row, c)");
    becomes(&broken, "build-failed", 6, "mine.cu:", &[]);
    let (records, _) = with_file("mine.cu", &broken, &[]);
    let line = broken.lines().position(|l| l.contains("a.xx")).unwrap() + 1;
    let message = records.iter().find_map(|r| r["message"].as_str().filter(|m| !m.is_empty())).unwrap();
    assert!(message.contains(&format!("mine.cu:{line}")), "{message}");
}

#[test]
fn a_kernel_that_faults_or_oversteps_or_never_ends_is_recorded_as_that() {
    let put = "a.y.at(row, c) =";
    assert!(GOOD.contains(put));
    becomes(&GOOD.replace(put, "a.y.ptr[1ll << 40] ="), "crashed", 6, "illegal memory access", &[]);
    becomes(
        &GOOD.replace(put, "if (row == 0 && c == 0) a.y.row(a.y.rows)[0] = a.y.at(0, 0);\n        a.y.at(row, c) ="),
        "wrong",
        5,
        "past the end of y",
        &[],
    );
    let forever = GOOD.replace(put, "while (a.m > 0) __nanosleep(1000);\n        a.y.at(row, c) =");
    becomes(&forever, "hung", 6, "no answer after", &["--deadline", "2s"]);
}

/// Every file of `tests/cheats` says in its first line how it ends.
/// A workspace has bands of its own, and what it holds at first is as the file says.
#[test]
fn a_kernel_that_writes_beside_its_workspace_is_wrong() {
    let with = |lines: &str, code: &str| {
        let lines = format!("// kmark: workspace {lines}\n// kmark: kernel mine grid=m block=256");
        let source = GOOD.replace("// kmark: kernel mine grid=m block=256", &lines);
        source.replace("    acc_t squares = 0;", &format!("    {code}\n    acc_t squares = 0;"))
    };
    becomes(
        &with("64", "if (threadIdx.x == 0) a.workspace[64] = 1;"),
        "wrong",
        5,
        "writes behind its workspace of 64 bytes",
        &[],
    );
    becomes(&with("64 zeroed", "if (a.workspace[63] != 0) return;"), "ok", 0, "", &[]);
}

#[test]
fn cheating_kernels_are_found_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "cu"));
    assert!(files.len() >= 10);
    let ends = |file: &Path| {
        let source = std::fs::read_to_string(file).unwrap();
        let ending = source.strip_prefix("// Ends as ").and_then(|s| s.split(':').next()).expect("a first line");
        ending.to_string()
    };
    // Who waits before it cheats, or remembers, shows it in visits of many launches only.
    for (ending, code) in [("wrong", 5), ("inconsistent", 6)] {
        let mut args = vec!["--impl", "cuda/01_rows"];
        let here = files.iter().filter(|f| ends(f) == ending);
        here.for_each(|f| args.extend(["--impl", f.to_str().unwrap()]));
        let (records, result) = run_rmsnorm_for("300ms", &args);
        assert_eq!(result.status.code(), Some(code), "{}", text(&result.stderr));
        assert_eq!(records.len(), args.len(), "two cases for each impl");
        for r in records {
            assert_eq!(r["status"], if r["impl"] == "cuda/01_rows" { "ok" } else { ending }, "{r}");
        }
    }
}

#[test]
fn bad_kernel_files_get_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.cu");
    for (source, words) in [
        ("__global__ void mine() {}", "no line `// kmark: kernel"),
        ("// kmark: kernal mine grid=1 block=1", "did you mean 'kernel'"),
        ("// kmark: kernel other grid=1 block=1", "unknown kernel 'mine'"),
        ("// kmark: kernel mine grid=1 block=1\n// kmark: let 1 = 2", "line 2: `1 = 2`: write it like let TILE"),
    ] {
        std::fs::write(&path, source).unwrap();
        let out = cuda(&["run", "rmsnorm", "--device", "cuda", "--impl", &format!("{}:mine", path.display())]);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains(words) && err.trim().lines().count() == 1, "{err}");
    }
    let out = cuda(&["run", "rmsnorm", "--device", "cuda", "--impl", "./nowhere.cu"]);
    assert_eq!(out.status.code(), Some(2));
    let out = kmark(&["run", "rmsnorm", "--device", "cpu", "--impl", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
}

#[test]
fn signature_and_template_are_printed_and_the_template_runs() {
    let out = cuda(&["list", "ops", "rmsnorm", "--signature"]);
    assert!(text(&out.stdout).contains("Tensor<const x_t> x;"), "{}", text(&out.stdout));
    for entry in kmark_ops::OPS {
        assert_eq!(cuda(&["list", "ops", "--template", entry.op.name]).status.code(), Some(0));
    }
    let template = text(&cuda(&["list", "ops", "--template", "rmsnorm"]).stdout);
    becomes(&template, "wrong", 5, "elements of y are wrong", &[]);
}

/// A few small cases of every op: each dtype that matters and each word of an attribute.
fn every_op() -> &'static str {
    static WRITTEN: OnceLock<String> = OnceLock::new();
    WRITTEN.get_or_init(|| from_smoke("every-op", 1_000_000))
}

/// A case of every op in each dtype that matters.
fn every_dtype() -> &'static str {
    static WRITTEN: OnceLock<String> = OnceLock::new();
    WRITTEN.get_or_init(|| from_smoke("every-dtype", 0))
}

/// A suite of cases from `smoke`, as cheap as smoke has them, because a GPU of fibers is slow: one for each op and dtype, and
/// for each word of an attribute that costs less than `words`. An op that is not in it fails by name.
fn from_smoke(name: &str, words_below: u64) -> String {
    let listed = text(&kmark(&["list", "cases", "smoke", "--json"]).output().unwrap().stdout);
    let mut cases: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let work =
        |c: &serde_json::Value| -> u64 { c["cost"].as_object().unwrap().values().flat_map(|v| v.as_u64()).sum() };
    cases.retain(|c| {
        (10_000..10_000_000).contains(&work(c)) && ["f32", "bf16", "f8e4m3"].iter().any(|d| c["dtype"] == *d)
    });
    cases.sort_by_key(work);
    let (mut covered, mut suite) = (HashSet::new(), String::new());
    for case in &cases {
        let op = case["op"].as_str().unwrap();
        let words = case["attrs"].as_object().unwrap().iter().filter(|_| work(case) < words_below);
        let mut shows: Vec<String> = words.map(|(k, v)| format!("{op} {k} {v}")).collect();
        shows.push(format!("{op} {}", case["dtype"]));
        if shows.into_iter().filter(|s| covered.insert(s.clone())).count() == 0 {
            continue;
        }
        suite += &format!("[[cases]]\nop = \"{op}\"\ndtype = {}\n", case["dtype"]);
        let sizes = case["axes"].as_object().unwrap().iter().chain(case["attrs"].as_object().unwrap());
        sizes.for_each(|(key, value)| suite += &format!("{key} = {value}\n"));
    }
    for entry in kmark_ops::OPS {
        let found = suite.contains(&format!("op = \"{}\"", entry.op.name));
        assert!(found, "no case of {} in suites/smoke.toml is small enough for the stand-in", entry.op.name);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&path, suite).unwrap();
    path.display().to_string()
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

#[test]
fn oracles_on_the_card_agree_with_the_hosts() {
    let out = cuda(&["verify", every_op(), "--device", "cuda", "--oracle", "--quiet", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
}

#[test]
fn every_kernel_computes_its_op() {
    // Each is compiled once and runs for milliseconds.
    let mut verify = on_standin(standin(), &["verify", every_op(), "--device", "cuda", "--quiet", "--json"]);
    let out = verify.env("KMARK_STANDIN_FLAGS", "-O0").output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
}

/// Of some ops; the gate is one for all, and a real GPU is asked about all of `smoke`.
#[test]
fn the_gate_on_the_card_rejects_mutants() {
    let dir = tempfile::tempdir().unwrap();
    let suite = dir.path().join("some.toml");
    let cases = "[[cases]]\nop = [\"rmsnorm-bwd\", \"softmax\", \"cross-entropy-bwd\"]\ndtype = \"f32\"\nm = 17\nn = 129\n\
                 [[cases]]\nop = \"gemm\"\ndtype = \"bf16\"\nconfigs = [\"33x70x65\"]\n\
                 [[cases]]\nop = \"attention-decode\"\ndtype = \"f32\"\npage = 16\nconfigs = [\"3x70x4x2x24\"]\n";
    std::fs::write(&suite, cases).unwrap();
    let suite = suite.display().to_string();
    let out = cuda(&["verify", &suite, "--device", "cuda", "--mutants", "--deadline", "300s"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
}

/// The real compiler, from the Python environment that `./check` makes: no GPU, no toolkit.
fn nvrtc() -> PathBuf {
    let python = std::env::var_os("KMARK_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/numpy-env/bin/python"));
    let find = "import nvidia, pathlib; print(next(pathlib.Path(list(nvidia.__path__)[0]).glob('*/lib/libnvrtc.so.*')).parent)";
    let found = std::process::Command::new(&python).args(["-c", find]).output();
    match found {
        Ok(out) if out.status.success() => PathBuf::from(text(&out.stdout).trim()),
        _ => panic!("{} has no nvidia-cuda-nvrtc; ./check installs it, or set KMARK_PYTHON", python.display()),
    }
}

const HOPPER_FORMS: &str = r#"
[[cases]]
op = "gemm"
dtype = "bf16"
layout = ["nt", "nn", "tn", "tt"]
configs = ["4096x4096x4096"]
[[cases]]
op = "gemm"
dtype = "f16"
layout = "nt"
bias = "yes"
configs = ["4096x576x7168", "2048x2112x7168", "100x7168x4096", "16x4096x4096"]
[[cases]]
op = "gemm"
dtype = "f8e4m3"
layout = "nt"
scale = ["tensor", "block"]
configs = ["4096x4096x4096", "48x4096x4096"]
[[cases]]
op = "grouped-gemm"
dtype = ["bf16", "f8e4m3"]
form = ["contiguous", "masked"]
configs = ["4x1024x4096x2048", "5x200x576x512"]
[[cases]]
op = "attention"
dtype = "bf16"
causal = ["no", "yes"]
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention"
dtype = "f16"
lse = "yes"
configs = ["2x16x16x4096x4096x64", "1x2x2x50x100x256"]
[[cases]]
op = "attention"
dtype = "bf16"
causal = "yes"
window = 100
configs = ["2x16x16x4096x4096x128", "2x16x16x4096x4096x64"]
[[cases]]
op = "attention-bwd"
dtype = "f16"
layout = "bshd"
configs = ["2x16x16x4096x4096x128", "2x16x16x4096x4096x64"]
[[cases]]
op = "attention-bwd"
dtype = "bf16"
causal = "yes"
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention-varlen"
dtype = "bf16"
lengths = "ragged"
configs = ["4x1000x8x2x128"]
[[cases]]
op = "attention-decode"
dtype = "bf16"
configs = ["64x4096x32x8x128"]
[[cases]]
op = "mla-decode"
dtype = "bf16"
configs = ["64x4096x128", "4x200x16"]
"#;

/// Without errors or warnings, and for Ampere and Hopper without spills: every kernel; oracles in one dtype, and for the
/// other architectures fewer dtypes, hardly optimised. Kernels for Hopper alone in the forms that they take there:
/// no product is serialised.
/// (Every case of `smoke` was compiled for Hopper by the run in `evidence/`, whose test looks at spills.)
#[test]
fn every_kernel_compiles_for_every_architecture() {
    let folder = nvrtc();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let forms = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forms.toml");
    std::fs::write(&forms, HOPPER_FORMS).unwrap();
    let [forms, example] =
        [forms.to_str().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gemm_wgmma.cu")];
    let for_hopper =
        ["--impl", "cuda/02*", "--impl", "cuda/03*", "--impl", "cuda/04*", "--arch", "sm_90a", "--no-oracles"];
    for args in [
        &["build", every_dtype(), "--arch", "sm_90a", "--no-oracles"][..],
        &["build", every_dtype(), "--arch", "sm_90a", "--no-kernels", "--dtype", "bf16", "--quick"],
        &[&["build", forms][..], &for_hopper].concat(),
        &[
            "build",
            "gemm",
            "--set",
            "layout=nt",
            "--dtype",
            "bf16",
            "--arch",
            "sm_90a",
            "--no-oracles",
            "--impl",
            example,
        ],
        &["build", every_dtype(), "--arch", "sm_80", "--no-oracles"],
        &["build", every_dtype(), "--arch", "sm_100a", "--no-oracles", "--dtype", "bf16,f8e4m3", "--quick"],
        &["build", every_dtype(), "--arch", "sm_86,sm_89,sm_120a", "--no-oracles", "--dtype", "f8e4m3", "--quick"],
    ] {
        let out = kmark(args).env("KMARK_CUDA_PATH", &folder).env("KMARK_CACHE", &cache).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}{}", text(&out.stdout), text(&out.stderr));
    }
}
