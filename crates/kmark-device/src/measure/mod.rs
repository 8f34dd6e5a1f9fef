//! The measurement engine: warm up until steady, sample until the stopping rule says stop. It sees a launch, a device
//! and numbers, and is the same for every device.

mod calibrate;

pub use calibrate::calibrate;

use crate::buffer::Buffers;
use crate::problem::Problem;
use crate::{Device, Fault, Launch, Timed};
use kmark_core::record::Mode;
use kmark_core::stats::median;
use kmark_core::stop::{Stop, StopRule};
use kmark_core::wire::Warmup;

/// Samples of one turn of one impl.
#[derive(Debug, Default, PartialEq)]
pub struct Visit {
    pub samples_ns: Vec<f64>,
    pub clock_mhz: Vec<f64>,
    pub stop: Option<Stop>,
}

/// What a visit needs of a problem: memory, and how to make it ready again.
pub struct Target<'a> {
    pub buffers: &'a Buffers,
    /// Launches of the problem in one launch: a graph holds several, each on memory of its own.
    pub count: usize,
    pub restore: &'a dyn Fn() -> Result<(), Fault>,
    pub reset: &'a dyn Fn() -> Result<(), Fault>,
    pub in_place: bool,
}

impl<'a> Target<'a> {
    /// `problems` are launched together.
    pub fn with<R>(problems: &[Box<dyn Problem>], f: impl FnOnce(Target) -> R) -> R {
        f(Target {
            buffers: problems[0].buffers(),
            count: problems.len(),
            restore: &|| problems.iter().try_for_each(|p| p.restore()),
            reset: &|| problems.iter().try_for_each(|p| p.reset()),
            in_place: problems[0].is_in_place(),
        })
    }
}

/// A hot sample lasts at least this long, so that the clock's step and the loop do not show.
const HOT_BATCH_NS: f64 = 100_000.0;

/// One turn. With `gate`, the outputs are poisoned before the last sample, so that what the caller finds afterwards
/// is the work of a timed launch and of nothing else.
pub fn visit(
    device: &dyn Device,
    launch: &mut dyn Launch,
    target: &Target,
    mode: Mode,
    rule: &StopRule,
    warmup: Warmup,
    gate: bool,
) -> Result<Visit, Fault> {
    let mut take = |prepare: &dyn Fn() -> Result<(), Fault>, batch: u32| {
        device.sample(Timed { launch: &mut *launch, buffers: target.buffers, prepare, mode, batch })
    };
    let typical = warm_up(device, warmup, || take(target.restore, 1).map(|s| s.ns))?;
    // In place, a second launch of a batch would read what the first one wrote.
    let batch = match mode {
        Mode::Hot if !target.in_place => (HOT_BATCH_NS / typical).ceil().clamp(1.0, 1e5) as u32,
        _ => 1,
    };
    let start = device.now_ns();
    let mut visit = Visit::default();
    let mut push = |visit: &mut Visit, prepare: &dyn Fn() -> Result<(), Fault>| -> Result<(), Fault> {
        let sample = take(prepare, batch)?;
        visit.samples_ns.push(sample.ns / target.count as f64);
        visit.clock_mhz.extend(sample.clock_mhz);
        Ok(())
    };
    loop {
        push(&mut visit, target.restore)?;
        visit.stop = rule.decide(&visit.samples_ns, device.now_ns() - start);
        if visit.stop.is_some() {
            break;
        }
    }
    if gate {
        push(&mut visit, target.reset)?;
    }
    Ok(visit)
}

/// Two windows of this many samples must agree before the machine counts as steady.
const WINDOW: usize = 3;
/// How closely.
const STEADY: f64 = 0.02;

/// Discards samples until they are steady, or the limit is reached; returns a typical time.
fn warm_up(device: &dyn Device, warmup: Warmup, mut take: impl FnMut() -> Result<f64, Fault>) -> Result<f64, Fault> {
    let start = device.now_ns();
    let mut seen = vec![take()?];
    loop {
        let spent = device.now_ns() - start;
        let done = match warmup {
            Warmup::For { ns } => spent >= ns,
            Warmup::UntilSteady { limit_ns } => spent >= limit_ns || is_steady(&seen),
        };
        if done {
            return Ok(median(&seen[seen.len().saturating_sub(WINDOW)..]));
        }
        seen.push(take()?);
    }
}

fn is_steady(seen: &[f64]) -> bool {
    let Some(before) = seen.len().checked_sub(2 * WINDOW) else { return false };
    let (old, new) = seen[before..].split_at(WINDOW);
    let (old, new) = (median(old), median(new));
    (new - old).abs() <= STEADY * old
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use std::cell::Cell;

    const RULE: StopRule = StopRule { precision: 0.005, budget_ns: 1_000_000, min_samples: 5, max_samples: 1000 };

    fn run(fake: &Fake, mode: Mode, in_place: bool, gate: bool) -> (Visit, u32, u32) {
        let (restores, resets) = (Cell::new(0), Cell::new(0));
        let buffers = Buffers(Vec::new());
        let target = Target {
            buffers: &buffers,
            count: 1,
            restore: &|| {
                restores.set(restores.get() + 1);
                Ok(())
            },
            reset: &|| {
                resets.set(resets.get() + 1);
                Ok(())
            },
            in_place,
        };
        let warmup = Warmup::UntilSteady { limit_ns: 100_000 };
        let visit = visit(fake, &mut || {}, &target, mode, &RULE, warmup, gate).unwrap();
        (visit, restores.get(), resets.get())
    }

    #[test]
    fn warm_up_waits_for_a_steady_machine() {
        // 30 slow samples that speed up by 10 % each, then a steady 100 ns.
        let fake = Fake::new(|i| if i < 30 { 100.0 * 1.1f64.powi(30 - i as i32) } else { 100.0 });
        let (visit, ..) = run(&fake, Mode::Cold, false, false);
        assert_eq!(visit.stop, Some(Stop::Precision));
        assert!(visit.samples_ns.iter().all(|s| *s == 100.0), "{:?}", visit.samples_ns);
    }

    #[test]
    fn a_noisy_launch_ends_with_the_budget() {
        let fake = Fake::new(|i| 1000.0 + (i * 37 % 101) as f64);
        let (visit, ..) = run(&fake, Mode::Cold, false, false);
        assert_eq!(visit.stop, Some(Stop::Budget));
        let spent: f64 = visit.samples_ns.iter().sum();
        assert!((1e6..1.1e6).contains(&spent), "{spent}");
    }

    #[test]
    fn every_launch_of_an_in_place_op_is_restored_and_the_gated_one_reset() {
        let fake = Fake::new(|_| 10.0);
        let (visit, restores, resets) = run(&fake, Mode::Hot, true, true);
        assert_eq!(resets, 1);
        assert_eq!(restores as usize + 1, fake.launches());
        assert_eq!(visit.samples_ns.len(), 6, "five by the rule, one for the gate");
    }

    #[test]
    fn hot_samples_are_batched() {
        let fake = Fake::new(|_| 10.0);
        run(&fake, Mode::Hot, false, false);
        assert_eq!(fake.largest_batch(), 10_000);
    }

    #[test]
    fn a_slow_down_of_five_percent_is_always_found_on_the_fake_clock() {
        use kmark_core::verdict::{Round, Series, Verdict, compare};
        let series = |factor: f64| -> Series {
            let fake = Fake::new(move |i| factor * (1000.0 + (i % 3) as f64));
            let one = || median(&run(&fake, Mode::Cold, false, false).0.samples_ns);
            let rounds: Vec<Round> = (0..5).map(|_| Round { first: one(), second: one() }).collect();
            Series { median_ns: rounds[0].first, rounds }
        };
        assert_eq!(compare(&series(1.05), &series(1.0), 0.0).verdict, Verdict::Slower);
        assert_eq!(compare(&series(1.0), &series(1.05), 0.0).verdict, Verdict::Faster);
        assert_eq!(compare(&series(1.0), &series(1.0), 0.0).verdict, Verdict::Same);
    }
}
