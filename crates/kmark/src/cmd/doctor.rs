//! `kmark doctor`: what this machine offers, and what stands in the way of good numbers.

use super::{print, to_json};
use crate::cli::DoctorArgs;
use crate::env;
use crate::error::Result;
use crate::host::Workers;
use crate::units;
use serde::Serialize;

#[derive(Serialize)]
struct Finding {
    what: String,
    value: String,
    /// What to do about it; empty if all is well.
    #[serde(skip_serializing_if = "String::is_empty")]
    advice: String,
}

pub fn run(args: DoctorArgs) -> Result<u8> {
    let mut findings = Vec::new();
    let mut put = |what: &str, value: String, advice: &str| {
        findings.push(Finding { what: what.into(), value, advice: advice.into() });
    };
    put("kmark", env!("CARGO_PKG_VERSION").into(), "");
    for (key, value) in env::facts() {
        let advice = match (key.as_str(), value.as_str()) {
            ("governor", g) if g != "performance" => {
                "the clock may change during a run; `cpupower frequency-set -g performance` fixes it"
            }
            ("load_at_start", l) if l.parse().is_ok_and(|l: f64| l > 0.5) => {
                "something else is running; numbers will be noisier"
            }
            _ => "",
        };
        put(&key.replace('_', " "), value, advice);
    }
    let available = env::available_memory();
    let advice = if available < 2 << 30 { "larger cases will be recorded as out-of-memory" } else { "" };
    put("memory available", units::bytes(available), advice);
    put("vector instructions", vector_instructions(), "");
    if let Some(mhz) = kmark_device::cpu::core_mhz() {
        put("core clock now", format!("{mhz:.0} MHz"), "");
    }
    let mut workers = Workers::new(true);
    let calibrated = workers.start("cpu");
    match (calibrated, workers.hellos.get("cpu").and_then(|h| h.calibration.clone())) {
        (Ok(()), Some(c)) => {
            put("clock step", units::time(c.clock_step_ns), "");
            put("empty launch", units::time(c.empty_launch_ns), "");
            let off = |ratio: f64| units::percent((ratio - 1.0).abs());
            put("known launch is off by", off(c.known_launch_ratio), "");
            put("two timers differ by", off(c.timer_ratio), "");
        }
        (failed, _) => {
            let why = failed.err().map(|e| e.message).unwrap_or_default();
            put("worker", why, "no run is possible until this works");
        }
    }
    put("devices", "cpu".into(), "");
    put("GPU", "none used".into(), "this version of kmark measures on the CPU only");
    let broken = findings.iter().any(|f| f.what == "worker");
    if args.json {
        print(&to_json(&findings))?;
    } else {
        print(&words(&findings))?;
    }
    Ok(u8::from(broken))
}

fn words(findings: &[Finding]) -> String {
    let width = findings.iter().map(|f| f.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for f in findings {
        text.push_str(&format!("{:width$}  {}\n", f.what, f.value));
        if !f.advice.is_empty() {
            text.push_str(&format!("{:width$}    -> {}\n", "", f.advice));
        }
    }
    text
}

fn vector_instructions() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let has = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("f16c", std::arch::is_x86_feature_detected!("f16c")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
            ("avx512bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ];
        has.iter().filter(|(_, yes)| *yes).map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::env::consts::ARCH.to_string()
}
