//! Before any number: what an empty launch costs, whether a launch of known duration is measured as such, and whether
//! two timers agree. If they do not, there is no measurement.

use crate::buffer::Buffers;
use crate::clock::{second_timer_ns, spin_until};
use crate::{Device, Fault, Launch, Timed};
use kmark_core::record::{Calibration, Mode, Status};
use kmark_core::stats::median;

const KNOWN_NS: u64 = 200_000;
/// A known launch may be measured this much off, two timers may differ this much.
const KNOWN_OFF: f64 = 0.02;
const TIMERS_OFF: f64 = 0.005;
/// Tries before a disturbance counts as a broken clock: another process may take the core in one, not in all.
const TRIES: usize = 20;

pub fn calibrate(device: &dyn Device) -> Result<Calibration, Fault> {
    let time = |launch: &mut dyn Launch| {
        let buffers = Buffers(Vec::new());
        let prepare = &|| Ok(());
        device
            .sample(Timed { launch, buffers: &buffers, prepare, check: None, mode: Mode::Hot, batch: 1 })
            .map(|s| s.ns)
    };
    let mut empty = Vec::new();
    for _ in 0..200 {
        empty.push(time(&mut || {})?);
    }
    let empty_launch_ns = median(&empty);

    let mut known_launch_ratio = f64::INFINITY;
    let mut timer_ratio = f64::INFINITY;
    for _ in 0..TRIES {
        let known = time(&mut || spin_until(KNOWN_NS))? / KNOWN_NS as f64;
        known_launch_ratio = nearer_one(known_launch_ratio, known);
        let (first, second) = (device.now_ns(), second_timer_ns());
        spin_until(2_000_000);
        let (first_end, second_end) = (device.now_ns(), second_timer_ns());
        let ratio = (first_end - first) as f64 / (second_end - second) as f64;
        timer_ratio = nearer_one(timer_ratio, ratio);
        if (known_launch_ratio - 1.0).abs() < KNOWN_OFF && (timer_ratio - 1.0).abs() < TIMERS_OFF {
            let clock_step_ns = clock_step(device);
            return Ok(Calibration {
                clock_step_ns,
                empty_launch_ns,
                empty_call_ns: None,
                known_launch_ratio,
                timer_ratio,
                event_pair_ns: None,
                cold_over_hot: None,
            });
        }
    }
    Err(Fault::new(
        Status::Unavailable,
        format!(
            "the clock cannot be trusted, so nothing is measured: a launch of known duration took {known_launch_ratio:.3} \
             times as long as it should, two timers differ by the factor {timer_ratio:.4}"
        ),
    ))
}

fn nearer_one(a: f64, b: f64) -> f64 {
    if (b - 1.0).abs() < (a - 1.0).abs() { b } else { a }
}

fn clock_step(device: &dyn Device) -> f64 {
    let mut least = u64::MAX;
    let mut before = device.now_ns();
    for _ in 0..10_000 {
        let now = device.now_ns();
        if now > before {
            least = least.min(now - before);
        }
        before = now;
    }
    least as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use crate::fake::Fake;

    #[test]
    fn the_cpu_calibrates() {
        let c = calibrate(&Cpu::new("test")).unwrap();
        assert!(c.clock_step_ns >= 1.0 && c.empty_launch_ns < 100_000.0, "{c:?}");
    }

    #[test]
    fn a_clock_that_stands_still_is_refused() {
        let fault = calibrate(&Fake::new(|_| 10.0)).unwrap_err();
        assert!(fault.message.contains("clock cannot be trusted"), "{}", fault.message);
    }
}
