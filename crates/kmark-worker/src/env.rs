//! Facts about this machine, read from where the system keeps them.

use indexmap::IndexMap;
use kmark_core::units;
use kmark_device::cuda::{Driver, Nvml, jit::Jit};
use std::fs::read_to_string;

/// The processor's model name.
pub fn cpu_name() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

/// Bytes that can be allocated without pushing anything out: the system's view, and the container's if that is less.
pub fn available_memory() -> u64 {
    let system = meminfo("MemAvailable").unwrap_or(u64::MAX);
    let number = |path: &str| read_to_string(path).ok().and_then(|s| s.trim().parse::<u64>().ok());
    let limit = number("/sys/fs/cgroup/memory.max").unwrap_or(u64::MAX);
    let used = number("/sys/fs/cgroup/memory.current").unwrap_or(0);
    system.min(limit.saturating_sub(used))
}

pub fn total_memory() -> Option<u64> {
    meminfo("MemTotal")
}

fn meminfo(key: &str) -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", key)?.strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The largest cache of the first core, in bytes.
pub fn last_level_cache() -> Option<u64> {
    let sizes = (0..8).filter_map(|i| read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size")).ok());
    sizes.filter_map(|s| s.trim().strip_suffix('K')?.parse::<u64>().ok()).max().map(|k| k * 1024)
}

/// Average number of busy threads over the last minute.
pub fn load() -> Option<f64> {
    read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Resident memory of a process, in bytes.
pub fn resident(pid: u32) -> Option<u64> {
    let pages: u64 = read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// What every run.json says about where it was made, and about the GPU of that number, if it was made on one.
pub fn facts(gpu: Option<usize>) -> IndexMap<String, String> {
    let mut facts = IndexMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.to_string(), value);
        }
    };
    put("os", field("/etc/os-release", "PRETTY_NAME").map(|v| v.trim_matches('"').to_string()));
    put("kernel", read_to_string("/proc/sys/kernel/osrelease").ok().map(|s| s.trim().to_string()));
    put("cpu", Some(cpu_name()));
    put("threads", std::thread::available_parallelism().ok().map(|n| n.to_string()));
    put("memory", total_memory().map(units::bytes));
    put("last_level_cache", last_level_cache().map(units::bytes));
    put(
        "governor",
        read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok().map(|s| s.trim().into()),
    );
    if let Some(n) = gpu {
        for (key, value) in gpu_facts(n) {
            put(&key, Some(value));
        }
    }
    put("load_at_start", load().map(|l| format!("{l:.2}")));
    facts
}

/// What is known of a GPU without using it; what is not known is left out.
pub fn gpu_facts(ordinal: usize) -> IndexMap<String, String> {
    let mut facts = IndexMap::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.to_string(), value);
        }
    };
    let Ok(driver) = Driver::get() else { return facts };
    let device = ordinal as i32;
    put("gpu", driver.device_name(device).ok());
    let uuid = driver.device_uuid(device).ok();
    put("gpu_uuid", uuid.clone());
    put("gpu_memory", driver.total_memory(device).ok().map(units::bytes));
    put("cuda_driver", Some(format!("{}.{}", driver.version.0, driver.version.1)));
    put("nvrtc", Jit::nvrtc().ok().map(|n| format!("{}.{} ({})", n.version.0, n.version.1, n.path)));
    if let Ok(nvml) = Nvml::get() {
        put("driver", nvml.driver_version());
        let state = uuid.and_then(|u| nvml.state(&u)).unwrap_or_default();
        let mhz = |now: Option<f64>, max: Option<f64>| Some(format!("{:.0} of {:.0} MHz", now?, max?));
        let yes = |flag: Option<bool>| flag.map(|f| if f { "on" } else { "off" }.to_string());
        put("sm_clock", mhz(state.sm_mhz, state.sm_max_mhz));
        put("memory_clock", mhz(state.memory_mhz, state.memory_max_mhz));
        put("power", state.power_w.zip(state.power_limit_w).map(|(now, limit)| format!("{now:.0} of {limit:.0} W")));
        put("temperature", state.temperature_c.map(|t| format!("{t:.0} °C")));
        put("ecc", yes(state.ecc));
        put("mig", yes(state.mig));
        put("persistence_mode", yes(state.persistence));
        put("throttled_now", (!state.throttled.is_empty()).then(|| state.throttled.join(", ")));
    }
    facts
}

/// The value behind `key` in a file of `key: value` or `key=value` lines.
fn field(path: &str, key: &str) -> Option<String> {
    let text = read_to_string(path).ok()?;
    let line = text.lines().find(|l| l.strip_prefix(key).is_some_and(|r| r.trim_start().starts_with([':', '='])))?;
    Some(line[key.len()..].trim_start().trim_start_matches([':', '=']).trim().to_string())
}
