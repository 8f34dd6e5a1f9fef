//! The measurement engine: warm up until steady, sample until the stopping rule says stop. It sees samples and numbers,
//! and is the same for every device. Where samples come from, checked or not, stands beside it.

mod calibrate;
mod known;
mod stage;
mod turn;

pub use calibrate::calibrate;
pub use stage::Stage;
pub use turn::Outcome;

use crate::buffer::Buffers;
use crate::{Device, Fault, Launch, Sample, Timed};
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

/// Where samples come from.
pub trait Source {
    /// A sample of `batch` launches, which counts or only warms up.
    fn take(&mut self, batch: u32, counts: bool) -> Result<Sample, Fault>;
    /// What a sample took in earlier turns, if there were any.
    fn typical_ns(&self) -> Option<f64> {
        None
    }
    /// Whether several launches in a row do the same work: not where one reads what the last one wrote.
    fn repeats(&self) -> bool;
}

/// Launches whose results nobody looks at.
pub struct Unchecked<'a> {
    pub device: &'a dyn Device,
    pub launch: &'a mut dyn Launch,
    pub buffers: &'a Buffers,
    pub prepare: &'a dyn Fn() -> Result<(), Fault>,
    pub mode: Mode,
    pub repeats: bool,
}

impl Source for Unchecked<'_> {
    fn take(&mut self, batch: u32, _counts: bool) -> Result<Sample, Fault> {
        let Unchecked { launch, buffers, prepare, mode, .. } = self;
        self.device.sample(Timed { launch: &mut **launch, buffers, prepare, check: None, mode: *mode, batch })
    }
    fn repeats(&self) -> bool {
        self.repeats
    }
}

/// A hot sample lasts at least this long, so that the clock's step and the loop do not show.
const HOT_BATCH_NS: f64 = 100_000.0;

/// One turn.
pub fn visit(
    device: &dyn Device,
    source: &mut dyn Source,
    mode: Mode,
    rule: &StopRule,
    warmup: Warmup,
) -> Result<Visit, Fault> {
    let known = source.typical_ns();
    let typical = warm_up(device, warmup, known, || source.take(1, false).map(|s| s.ns))?;
    let batch = match mode {
        Mode::Hot if source.repeats() => (HOT_BATCH_NS / typical).ceil().clamp(1.0, 1e5) as u32,
        _ => 1,
    };
    let start = device.now_ns();
    let mut visit = Visit::default();
    while visit.stop.is_none() {
        let sample = source.take(batch, true)?;
        visit.samples_ns.push(sample.ns);
        visit.clock_mhz.extend(sample.clock_mhz);
        visit.stop = rule.decide(&visit.samples_ns, device.now_ns() - start);
    }
    Ok(visit)
}

/// Two windows of this many samples must agree before the machine counts as steady.
const WINDOW: usize = 3;
/// How closely.
const STEADY: f64 = 0.02;

/// Discards samples until they are steady, or the limit is reached; returns a typical time.
fn warm_up(
    device: &dyn Device,
    warmup: Warmup,
    known: Option<f64>,
    mut take: impl FnMut() -> Result<f64, Fault>,
) -> Result<f64, Fault> {
    if let (Warmup::UntilSteady { .. }, Some(known)) = (warmup, known.filter(|k| *k >= device.long_ns())) {
        return Ok(known);
    }
    let start = device.now_ns();
    let mut seen = vec![take()?];
    loop {
        let spent = device.now_ns() - start;
        let done = match warmup {
            Warmup::For { ns } => spent >= ns,
            Warmup::UntilSteady { limit_ns } => spent >= limit_ns || is_steady(&seen, known),
        };
        if done {
            return Ok(median(&seen[seen.len().saturating_sub(WINDOW)..]));
        }
        seen.push(take()?);
    }
}

/// Two windows that agree, or, where there were earlier turns, the last sample and those.
fn is_steady(seen: &[f64], known: Option<f64>) -> bool {
    if let (Some(known), Some(last)) = (known, seen.last())
        && (last - known).abs() <= STEADY * known
    {
        return true;
    }
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

    fn run(fake: &Fake, mode: Mode, repeats: bool) -> (Visit, u32) {
        let prepared = Cell::new(0);
        let prepare = || {
            prepared.set(prepared.get() + 1);
            Ok(())
        };
        let (buffers, mut launch) = (Buffers(Vec::new()), || {});
        let mut source =
            Unchecked { device: fake, launch: &mut launch, buffers: &buffers, prepare: &prepare, mode, repeats };
        let warmup = Warmup::UntilSteady { limit_ns: 100_000 };
        let visit = visit(fake, &mut source, mode, &RULE, warmup).unwrap();
        (visit, prepared.get())
    }

    #[test]
    fn warm_up_waits_for_a_steady_machine() {
        // 30 slow samples that speed up by 10 % each, then a steady 100 ns.
        let fake = Fake::new(|i| if i < 30 { 100.0 * 1.1f64.powi(30 - i as i32) } else { 100.0 });
        let (visit, ..) = run(&fake, Mode::Cold, true);
        assert_eq!(visit.stop, Some(Stop::Precision));
        assert!(visit.samples_ns.iter().all(|s| *s == 100.0), "{:?}", visit.samples_ns);
    }

    #[test]
    fn a_long_launch_warms_up_only_once() {
        let (fake, warmup) = (Fake::new(|_| 10.0), Warmup::UntilSteady { limit_ns: 0 });
        let takes = |known: Option<f64>, warmup: Warmup| {
            let mut count = 0;
            warm_up(&fake, warmup, known, || {
                count += 1;
                Ok(2e9)
            })
            .unwrap();
            count
        };
        assert_eq!((takes(None, warmup), takes(Some(2e9), warmup), takes(Some(2e8), warmup)), (1, 0, 1));
        assert_eq!(takes(Some(2e9), Warmup::For { ns: 0 }), 1, "who asks for a warm-up gets it");
    }

    #[test]
    fn a_noisy_launch_ends_with_the_budget() {
        let fake = Fake::new(|i| 1000.0 + 5.0 * (i * 37 % 101) as f64);
        let (visit, ..) = run(&fake, Mode::Cold, true);
        assert_eq!(visit.stop, Some(Stop::Budget));
        let spent: f64 = visit.samples_ns.iter().sum();
        assert!((1e6..1.1e6).contains(&spent), "{spent}");
    }

    #[test]
    fn every_launch_of_an_in_place_op_is_prepared() {
        let fake = Fake::new(|_| 10.0);
        let (visit, prepared) = run(&fake, Mode::Hot, false);
        assert_eq!(prepared as usize, fake.launches());
        assert_eq!(visit.samples_ns.len(), 5);
    }

    #[test]
    fn hot_samples_are_batched() {
        let fake = Fake::new(|_| 10.0);
        run(&fake, Mode::Hot, true);
        assert_eq!(fake.largest_batch(), 10_000);
    }

    #[test]
    fn a_slow_down_of_five_percent_is_always_found_on_the_fake_clock() {
        use kmark_core::verdict::{Round, Series, Verdict, compare};
        let series = |factor: f64| -> Series {
            let fake = Fake::new(move |i| factor * (1000.0 + (i % 3) as f64));
            let one = || median(&run(&fake, Mode::Cold, true).0.samples_ns);
            let rounds: Vec<Round> = (0..5).map(|_| Round { first: one(), second: one() }).collect();
            Series { time_ns: rounds[0].first, rounds }
        };
        assert_eq!(compare(&series(1.05), &series(1.0), 0.0).verdict, Verdict::Slower);
        assert_eq!(compare(&series(1.0), &series(1.05), 0.0).verdict, Verdict::Faster);
        assert_eq!(compare(&series(1.0), &series(1.0), 0.0).verdict, Verdict::Same);
    }
}
