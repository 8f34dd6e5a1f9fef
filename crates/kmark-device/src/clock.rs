//! Clocks beside the main one: the core's frequency, and a second timer to hold the first against.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// The frequency of the core that runs this, from a loop of one cycle per turn. Costs a few microseconds. The better of
/// two tries, because an interrupt makes one look slow. `None` on architectures without such a loop.
pub fn core_mhz() -> Option<f64> {
    const TURNS: u64 = 8000;
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let start = Instant::now();
        one_cycle_turns(TURNS)?;
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    Some(TURNS as f64 / best * 1e3)
}

#[cfg(target_arch = "x86_64")]
fn one_cycle_turns(turns: u64) -> Option<()> {
    // SAFETY: counts a register down to zero; touches nothing else.
    unsafe { std::arch::asm!("2:", "dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack)) }
    Some(())
}

#[cfg(target_arch = "aarch64")]
fn one_cycle_turns(turns: u64) -> Option<()> {
    // SAFETY: counts a register down to zero; touches nothing else.
    unsafe { std::arch::asm!("2:", "subs {0}, {0}, #1", "b.ne 2b", inout(reg) turns => _, options(nomem, nostack)) }
    Some(())
}

/// A timer apart from [`Instant`]: on Linux the raw hardware clock, which no time service slews.
pub fn second_timer_ns() -> u64 {
    #[cfg(target_os = "linux")]
    let id = ClockId::MonotonicRaw;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::Realtime;
    let t = clock_gettime(id);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Spins for `ns` by the second timer: a launch of known duration.
pub fn spin_until(ns: u64) {
    let end = second_timer_ns() + ns;
    while second_timer_ns() < end {
        std::hint::spin_loop();
    }
}
