//! NVML: what the GPU is and does while kernels run. Absent in some containers; then nothing is known and nothing fails.

use super::library::{Library, functions};
use kmark_core::record::Conditions;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

type Handle = *mut c_void;

functions! {
    #[allow(non_snake_case)]
    struct Table {
        nvmlInit_v2: fn();
        nvmlSystemGetDriverVersion: fn(text: *mut c_char, len: c_uint);
        nvmlDeviceGetHandleByUUID: fn(uuid: *const c_char, device: *mut Handle);
        nvmlDeviceGetPowerUsage: fn(device: Handle, milliwatts: *mut c_uint);
        nvmlDeviceGetEnforcedPowerLimit: fn(device: Handle, milliwatts: *mut c_uint);
        nvmlDeviceGetTemperature: fn(device: Handle, sensor: c_int, celsius: *mut c_uint);
        nvmlDeviceGetClockInfo: fn(device: Handle, which: c_int, mhz: *mut c_uint);
        nvmlDeviceGetMaxClockInfo: fn(device: Handle, which: c_int, mhz: *mut c_uint);
        nvmlDeviceGetCurrentClocksThrottleReasons: fn(device: Handle, bits: *mut u64);
        nvmlDeviceGetEccMode: fn(device: Handle, now: *mut c_uint, pending: *mut c_uint);
        nvmlDeviceGetMigMode: fn(device: Handle, now: *mut c_uint, pending: *mut c_uint);
        nvmlDeviceGetPersistenceMode: fn(device: Handle, mode: *mut c_uint);
    }
}

pub struct Nvml {
    table: Table,
    pub path: String,
    _library: Library,
}

// SAFETY: NVML may be called from any thread.
unsafe impl Send for Nvml {}
// SAFETY: as above.
unsafe impl Sync for Nvml {}

const SM: c_int = 1;
const MEMORY: c_int = 2;

/// Bits of the throttle reasons that hold clocks down; idling and settings of the user do not.
const THROTTLES: [(u64, &str); 5] = [
    (0x4, "power limit"),
    (0x8, "hardware slowdown"),
    (0x20, "temperature (software)"),
    (0x40, "temperature (hardware)"),
    (0x80, "power brake"),
];

/// What NVML says of a GPU; what it does not know is absent.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    pub temperature_c: Option<f64>,
    pub sm_mhz: Option<f64>,
    pub sm_max_mhz: Option<f64>,
    pub memory_mhz: Option<f64>,
    pub memory_max_mhz: Option<f64>,
    pub ecc: Option<bool>,
    pub mig: Option<bool>,
    pub persistence: Option<bool>,
    pub throttled: Vec<String>,
}

impl Nvml {
    pub fn get() -> Result<&'static Nvml, String> {
        static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
        NVML.get_or_init(Nvml::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Nvml, String> {
        let library = Library::open(&["libnvidia-ml.so.1", "libnvidia-ml.so"]).map_err(|e| format!("no NVML: {e}"))?;
        let nvml = Nvml { table: Table::of(&library), path: library.path.clone(), _library: library };
        // SAFETY: takes nothing.
        match unsafe { nvml.table.nvmlInit_v2() } {
            0 => Ok(nvml),
            code => Err(format!("{}: nvmlInit failed with code {code}", nvml.path)),
        }
    }

    /// Version of the kernel driver, such as 580.159.
    pub fn driver_version(&self) -> Option<String> {
        let mut text = [0u8; 96];
        // SAFETY: at most as many bytes are written as there are.
        let code = unsafe { self.table.nvmlSystemGetDriverVersion(text.as_mut_ptr().cast(), text.len() as c_uint) };
        let known = CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned();
        (code == 0).then_some(known)
    }

    fn handle(&self, uuid: &str) -> Option<Handle> {
        let uuid = CString::new(uuid).ok()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: one handle is written.
        let code = unsafe { self.table.nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &mut handle) };
        (code == 0).then_some(handle)
    }

    /// What the GPU is and does now.
    pub fn state(&self, uuid: &str) -> Option<State> {
        let device = self.handle(uuid)?;
        let number = |get: &dyn Fn(*mut c_uint) -> c_int| {
            let mut value = 0;
            (get(&mut value) == 0).then_some(value as f64)
        };
        let flag = |get: &dyn Fn(*mut c_uint, *mut c_uint) -> c_int| {
            let (mut now, mut pending) = (0, 0);
            (get(&mut now, &mut pending) == 0).then_some(now == 1)
        };
        let (t, mut bits) = (&self.table, 0);
        // SAFETY: every call writes the integers it is given.
        unsafe {
            t.nvmlDeviceGetCurrentClocksThrottleReasons(device, &mut bits);
            Some(State {
                power_w: number(&|p| t.nvmlDeviceGetPowerUsage(device, p)).map(|v| v / 1e3),
                power_limit_w: number(&|p| t.nvmlDeviceGetEnforcedPowerLimit(device, p)).map(|v| v / 1e3),
                temperature_c: number(&|p| t.nvmlDeviceGetTemperature(device, 0, p)),
                sm_mhz: number(&|p| t.nvmlDeviceGetClockInfo(device, SM, p)),
                sm_max_mhz: number(&|p| t.nvmlDeviceGetMaxClockInfo(device, SM, p)),
                memory_mhz: number(&|p| t.nvmlDeviceGetClockInfo(device, MEMORY, p)),
                memory_max_mhz: number(&|p| t.nvmlDeviceGetMaxClockInfo(device, MEMORY, p)),
                ecc: flag(&|a, b| t.nvmlDeviceGetEccMode(device, a, b)),
                mig: flag(&|a, b| t.nvmlDeviceGetMigMode(device, a, b)),
                persistence: number(&|p| t.nvmlDeviceGetPersistenceMode(device, p)).map(|v| v == 1.0),
                throttled: THROTTLES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, w)| w.to_string()).collect(),
            })
        }
    }
}

/// Looks at a GPU every few milliseconds, on a thread of its own, and keeps the extremes.
pub struct Watch {
    seen: Arc<Mutex<Option<Conditions>>>,
    stop: Arc<AtomicBool>,
}

/// NVML's own figures change every 20 to 100 ms.
const EVERY: Duration = Duration::from_millis(20);

impl Watch {
    /// `None` where NVML is not there.
    pub fn start(uuid: &str) -> Option<Watch> {
        let nvml = Nvml::get().ok()?;
        nvml.handle(uuid)?;
        let watch = Watch { seen: Arc::default(), stop: Arc::default() };
        let (uuid, seen, stop) = (uuid.to_string(), Arc::clone(&watch.seen), Arc::clone(&watch.stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Some(state) = nvml.state(&uuid) {
                    let mut seen = seen.lock().unwrap_or_else(|e| e.into_inner());
                    *seen = Some(merge(seen.take(), &state));
                }
                std::thread::sleep(EVERY);
            }
        });
        Some(watch)
    }

    /// What was seen since the last call.
    pub fn take(&self) -> Option<Conditions> {
        self.seen.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn merge(before: Option<Conditions>, now: &State) -> Conditions {
    let first = before.is_none();
    let mut c = before.unwrap_or_default();
    let high = |old: &mut f64, new: Option<f64>| *old = old.max(new.unwrap_or(0.0));
    let low = |old: &mut f64, new: Option<f64>| {
        let new = new.unwrap_or(0.0);
        *old = if first { new } else { old.min(new) };
    };
    high(&mut c.power_w, now.power_w);
    high(&mut c.temperature_c, now.temperature_c);
    low(&mut c.sm_mhz, now.sm_mhz);
    low(&mut c.memory_mhz, now.memory_mhz);
    for why in &now.throttled {
        if !c.throttled.contains(why) {
            c.throttled.push(why.clone());
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_kept() {
        let state = |power, mhz, why: &[&str]| State {
            power_w: Some(power),
            sm_mhz: Some(mhz),
            throttled: why.iter().map(|w| w.to_string()).collect(),
            ..State::default()
        };
        let c = merge(None, &state(300.0, 1980.0, &[]));
        let c = merge(Some(c), &state(690.0, 1500.0, &["power limit"]));
        let c = merge(Some(c), &state(500.0, 1700.0, &["power limit"]));
        assert_eq!((c.power_w, c.sm_mhz, c.throttled.len()), (690.0, 1500.0, 1));
    }
}
