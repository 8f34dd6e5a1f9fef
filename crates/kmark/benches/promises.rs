//! What kmark promises about its own speed and memory, measured: `cargo bench`, or a part of it: `cargo bench -- records`.
//! Ratios of one run beside the promise; nothing is asserted, because a busy machine is not a bug.

#[path = "promises/records.rs"]
mod records;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const KMARK: &str = env!("CARGO_BIN_EXE_kmark");

fn main() {
    let dir = std::env::temp_dir().join(format!("kmark-promises-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    println!("{:<58} {:>10}   promise", "", "measured");
    type Part = (&'static str, fn(&Path));
    let parts: [Part; 7] = [
        ("roof", against_the_roof),
        ("host", host_overhead),
        ("memory", gate_memory),
        ("start", start_up),
        ("records", records::many),
        ("fleet", records::fleet),
        ("page", records::page),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|w| !w.starts_with('-')).collect();
    for (_, part) in parts.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        part(&dir);
    }
    let _ = std::fs::remove_dir_all(&dir);
}

fn line(what: &str, measured: String, promise: &str) {
    println!("{what:<58} {measured:>10}   {promise}");
}

fn kmark(args: &[&str]) -> Output {
    let out = Command::new(KMARK).args(args).output().expect("kmark runs");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Norm and softmax against a copy of the same size in the same run, and against plain loops.
fn against_the_roof(dir: &Path) {
    let suite = dir.join("large.toml");
    let text = "about = \"64 MiB a tensor and beyond\"\nbudget = \"3s\"\n\
        [[cases]]\nop = \"stream\"\ndtype = \"f32\"\nn = [16777216, 67108864]\n\
        [[cases]]\nop = [\"rmsnorm\", \"softmax\"]\ndtype = \"f32\"\nconfigs = [\"4096x4096\", \"16384x4096\"]\n";
    std::fs::write(&suite, text).expect("writable");
    let out = dir.join("large");
    let args = ["run", suite.to_str().expect("text"), "--out", out.to_str().expect("text"), "--json", "--quiet"];
    let report: Value = serde_json::from_slice(&kmark(&args).stdout).expect("JSON");
    let rate = |case: &str, imp: &str| -> f64 {
        let rows = report[0]["rows"].as_array().expect("rows");
        let row = rows.iter().find(|r| r["case"] == case && r["impl"] == imp).expect("the row was run");
        row["time"]["gb_per_s"].as_f64().expect("a timed row")
    };
    for (elems, shape, size) in [(16777216, "m4096-n4096", "64 MiB"), (67108864, "m16384-n4096", "256 MiB")] {
        let roof = rate(&format!("stream/f32/n{elems}"), "cpu/simd");
        line(&format!("copy roof at {size}"), format!("{roof:.1} GB/s"), "");
        for (op, promise) in [("rmsnorm", "at least 80 %"), ("softmax", "at least 60 %")] {
            let case = format!("{op}/f32/{shape}");
            let (simd, naive) = (rate(&case, "cpu/simd"), rate(&case, "cpu/naive"));
            line(
                &format!("{op} cpu/simd of the copy roof, f32, {size}"),
                format!("{:.0} %", 100.0 * simd / roof),
                promise,
            );
            line(
                &format!("{op} cpu/simd over cpu/naive, f32, {size}"),
                format!("{:.1} x", simd / naive),
                "as the machine allows",
            );
        }
    }
}

/// What the host adds around the work of its workers on the smoke suite.
fn host_overhead(dir: &Path) {
    let out = dir.join("smoke");
    kmark(&["run", "smoke", "--out", out.to_str().expect("text"), "--quiet"]);
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).expect("run.json")).expect("JSON");
    let ns = |key: &str| run["phases"][key].as_f64().expect("a phase");
    let host = ns("wall_ns") - ns("start_ns") - ns("worker_ns");
    line("host time over sampling time, smoke", format!("{:.1} %", 100.0 * host / ns("sample_ns")), "below 5 %");
    line("smoke, whole run", format!("{:.0} s", ns("wall_ns") / 1e9), "below 120 s");
    line("smoke, share of the run spent sampling", format!("{:.0} %", 100.0 * ns("sample_ns") / ns("wall_ns")), "");
}

/// Peak memory of the worker that verifies, over the bytes of the case's tensors.
fn gate_memory(dir: &Path) {
    for (op, attrs) in [("rmsnorm", "w=same"), ("add-rmsnorm", "form=inplace"), ("cross-entropy-bwd", "ignore=-100")] {
        let (m, n) = (16384, 8192);
        let config = format!("{m}x{n}");
        let suite = dir.join("one.toml");
        let (key, value) = attrs.split_once('=').expect("an attribute");
        let text = format!(
            "about = \"one\"\n[[cases]]\nop = \"{op}\"\ndtype = \"bf16\"\nconfigs = \"{config}\"\n{key} = \"{value}\"\n"
        );
        std::fs::write(&suite, text).expect("writable");
        let suite = suite.to_str().expect("text");
        let cases: Value = serde_json::from_slice(&kmark(&["list", "cases", suite, "--json"]).stdout).expect("JSON");
        let tensors = cases[0]["tensor_bytes"].as_f64().expect("bytes");
        let mut child =
            Command::new(KMARK).args(["verify", suite, "--impl", "cpu/simd", "--quiet"]).spawn().expect("kmark runs");
        let mut peak = 0.0f64;
        while child.try_wait().expect("a child").is_none() {
            peak = peak.max(children_peak(child.id()));
            std::thread::sleep(Duration::from_millis(2));
        }
        line(
            &format!("verify {op} bf16 {config}: memory over tensors"),
            format!("{:.2} x", peak / tensors),
            "at most 3 x",
        );
    }
}

/// What a command takes. Where others have the machine, its seconds of processor time tell more than the clock.
struct Taken {
    seconds: f64,
    processor: f64,
    bytes: f64,
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:.1} s ({:.1} s of processors), {:.0} MB", self.seconds, self.processor, self.bytes / 1e6)
    }
}

fn taken(command: &mut Command) -> Taken {
    const TICKS_PER_SECOND: f64 = 100.0;
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().expect("it runs");
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default();
    let (mut processor, mut bytes) = (0.0f64, 0.0f64);
    // Its figures stay until it is waited for.
    while field(&of("status"), "VmRSS:") > 0.0 || bytes == 0.0 {
        bytes = bytes.max(field(&of("status"), "VmHWM:"));
        std::thread::sleep(Duration::from_millis(2));
    }
    let seconds = start.elapsed().as_secs_f64();
    let stat = of("stat");
    let after_name = stat.rsplit(')').next().unwrap_or("").split_whitespace();
    after_name.skip(11).take(2).for_each(|ticks| processor += ticks.parse::<f64>().unwrap_or(0.0) / TICKS_PER_SECOND);
    assert!(child.wait().expect("a child").success(), "{command:?}");
    Taken { seconds, processor, bytes }
}

/// A size of a process, in bytes.
fn field(status: &str, key: &str) -> f64 {
    let value = status.lines().find_map(|l| l.strip_prefix(key)).and_then(|v| v.trim().strip_suffix(" kB"));
    1024.0 * value.and_then(|v| v.trim().parse::<f64>().ok()).unwrap_or(0.0)
}

/// The largest resident size that a child of `parent` has had, in bytes.
fn children_peak(parent: u32) -> f64 {
    let mut peak = 0.0f64;
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        let owner = status.lines().find_map(|l| l.strip_prefix("PPid:")).and_then(|p| p.trim().parse().ok());
        if owner == Some(parent) {
            peak = peak.max(field(&status, "VmHWM:"));
        }
    }
    peak
}

fn start_up(_: &Path) {
    for args in [&["--help"][..], &["list", "ops"], &["list", "suites"], &["list", "cases", "dsv3"]] {
        let mut times: Vec<f64> = (0..21)
            .map(|_| {
                let start = Instant::now();
                kmark(args);
                start.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        line(&format!("kmark {}", args.join(" ")), format!("{:.1} ms", times[times.len() / 2]), "below 20 ms");
    }
}
