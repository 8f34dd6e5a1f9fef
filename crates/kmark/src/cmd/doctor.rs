//! `kmark doctor`: what this machine offers, and what stands in the way of good numbers.

use super::{print, to_json};
use crate::cli::DoctorArgs;
use crate::device::{Choice, gpus};
use crate::env;
use crate::error::Result;
use crate::host::Workers;
use crate::units;
use crate::{baselines, interpreter, python};
use kmark_device::cuda::jit::Jit;
use kmark_device::cuda::{Driver, Matmul, Nvml};
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
    for (key, value) in env::facts(None) {
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
    if let Some(mhz) = kmark_device::clock::core_mhz() {
        put("core clock now", format!("{mhz:.0} MHz"), "");
    }
    calibrate(Choice::Cpu, "cpu", &mut put);
    libraries(&mut put);
    python(&mut put);
    match gpus() {
        Err(why) => put("GPU", "none".into(), &format!("{why}; without one, everything runs on the CPU")),
        Ok(0) => put("GPU", "none".into(), "the driver is there, but it knows no GPU"),
        Ok(count) => {
            for n in 0..count {
                gpu(n, &mut put);
            }
        }
    }
    let broken = findings.iter().any(|f| f.what == "worker");
    if args.json {
        print(&to_json(&findings))?;
    } else {
        print(&words(&findings))?;
    }
    Ok(u8::from(broken))
}

type Put<'a> = dyn FnMut(&str, String, &str) + 'a;

/// Starts a worker on the device, which calibrates itself.
fn calibrate(device: Choice, family: &str, put: &mut Put) {
    let mut workers = Workers::new(device, true);
    let started = workers.start(family);
    let hello = workers.hellos.get(family);
    match (started, hello.and_then(|h| h.calibration.clone())) {
        (Ok(()), Some(c)) => {
            let word = device.word();
            put(&format!("{word}: clock step"), units::time(c.clock_step_ns), "");
            put(&format!("{word}: empty launch"), units::time(c.empty_launch_ns), "");
            let off = |ratio: f64| units::percent((ratio - 1.0).abs());
            put(&format!("{word}: known launch is off by"), off(c.known_launch_ratio), "");
            put(&format!("{word}: two timers differ by"), off(c.timer_ratio), "");
            if let Some(ratio) = c.cold_over_hot {
                let advice =
                    if ratio < 1.1 { "the flush does not empty the cache: cold samples are not cold" } else { "" };
                put(&format!("{word}: cold over hot read"), units::digits(ratio), advice);
            }
            if let Some(memory) = hello.and_then(|h| h.memory) {
                put(&format!("{word}: free memory"), units::bytes(memory), "");
            }
        }
        (failed, _) => {
            let why = failed.err().map(|e| e.message).unwrap_or_default();
            put("worker", format!("{}: {why}", device.word()), "no run on this device is possible until this works");
        }
    }
}

/// NVIDIA's libraries: where they are, or how to get them.
fn libraries(put: &mut Put) {
    let found = |path: &str, version: String| format!("{version} {path}").trim().to_string();
    match Driver::get() {
        Ok(d) => put("CUDA driver", found(&d.path, format!("{}.{}", d.version.0, d.version.1)), ""),
        Err(why) => put("CUDA driver", "missing".into(), &why),
    }
    match Jit::nvrtc() {
        Ok(n) => put("NVRTC", found(&n.path, format!("{}.{}", n.version.0, n.version.1)), ""),
        Err(why) => put("NVRTC", "missing".into(), &why),
    }
    match Nvml::get() {
        Ok(n) => put("NVML", found(&n.path, n.driver_version().unwrap_or_default()), ""),
        Err(why) => put("NVML", "missing".into(), &format!("{why}; power, clocks and throttling are not recorded")),
    }
    match Matmul::library_path() {
        Ok(path) => put("cuBLASLt", path, ""),
        Err(why) => put("cuBLASLt", "missing".into(), &format!("{why}; impl cublaslt is unavailable")),
    }
}

/// Whether Python libraries can run here, and which environments there are for them.
fn python(put: &mut Put) {
    let python = baselines::default_python();
    let found = if python.components().count() == 1 { interpreter::on_path(&python) } else { None };
    let interpreter = found.unwrap_or(python).display().to_string();
    match python::catalogue() {
        Ok(adapters) => put("Python", format!("{interpreter}, {} adapters", adapters.len()), ""),
        Err(why) => put("Python", "no libraries".into(), why),
    }
    let installed: Vec<&str> =
        baselines::all().iter().filter(|b| b.installed().is_some()).map(|b| b.name.as_str()).collect();
    let (value, advice) = match installed[..] {
        [] => {
            ("none".to_string(), "libraries run in that interpreter; `kmark baselines list` shows pinned environments")
        }
        _ => (installed.join(" "), ""),
    };
    put("environments", value, advice);
}

fn gpu(n: usize, put: &mut Put) {
    let word = Choice::Cuda(n).word();
    for (key, value) in env::gpu_facts(n).into_iter().filter(|(key, _)| key != "nvrtc" && key != "cuda_driver") {
        let advice = match (key.as_str(), value.as_str()) {
            ("mig", "on") => "a slice of a GPU: its limits are not those of the whole GPU",
            ("throttled_now", _) => "clocks are held down already before a run",
            _ => "",
        };
        put(&format!("{word}: {}", key.replace('_', " ")), value, advice);
    }
    calibrate(Choice::Cuda(n), "doctor", put);
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
