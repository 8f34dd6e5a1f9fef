//! Whether an impl takes as long on values that it sees for the first time as on those it has seen before. One that
//! remembers results, or skips work while its inputs stay the same, does not. Numbers in, a verdict out.

use crate::stats::{median, quantile};

/// Slower by less than this is no accusation: a machine does that by itself.
pub const MARGIN: f64 = 1.15;
/// Whatever a machine learns of values, it is not so many times faster for it.
const MOST_LEARNT: f64 = 4.0;
/// So many launches with fresh values must all be slower before anybody is accused.
pub const TRIES: usize = 7;

/// Whether a launch stands out from `known`, the times of launches with values seen before. `habit` is what the machine
/// itself may save on those by what it learns, within reason.
pub fn stands_out(fresh: f64, known: &[f64], habit: f64) -> bool {
    is_beyond(fresh, known, 0.9, habit)
}

/// Whether a time is beyond this share of `others`, and clearly longer than they are.
fn is_beyond(time: f64, others: &[f64], share: f64, habit: f64) -> bool {
    if others.is_empty() {
        return false;
    }
    let typical = median(others);
    let learnt = (typical + habit).min(MOST_LEARNT * typical);
    time > quantile(others, share) && time >= learnt.max(MARGIN * typical)
}

/// Whether it is proven that fresh values are slower. `controls` were taken as the fresh ones were, after inputs had been
/// written anew, but with the values they had before; they are as many, and one of them may have been disturbed. Under
/// the same law for both, all fresh ones beyond all controls but one or two happen less than once in a hundred times, and
/// only suspects come here; by a seventh of the time on top of it, in several looks, next to never.
pub fn remembers(fresh: &[f64], controls: &[f64], known: &[f64], habit: f64) -> bool {
    fresh.len() >= TRIES
        && controls.len() >= TRIES
        && fresh.iter().all(|f| is_beyond(*f, controls, 0.75, habit) && stands_out(*f, known, habit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::philox;

    /// A machine that is disturbed now and then: one time in ten half as long again.
    fn noisy(seed: u64, count: usize, typical: f64) -> Vec<f64> {
        let unit = |i: usize| philox(seed, i as u64)[0] as f64 / u32::MAX as f64;
        (0..count)
            .map(|i| typical * (1.0 + 0.1 * unit(2 * i) + if unit(2 * i + 1) > 0.9 { 0.5 } else { 0.0 }))
            .collect()
    }

    #[test]
    fn who_remembers_is_found() {
        for seed in 0..200 {
            let (known, controls) = (noisy(seed, 50, 100.0), noisy(1000 + seed, TRIES, 100.0));
            assert!(remembers(&noisy(2000 + seed, TRIES, 200.0), &controls, &known, 0.0), "{seed}");
        }
    }

    #[test]
    fn one_disturbed_control_acquits_nobody() {
        let (known, mut controls) = (noisy(1, 50, 100.0), noisy(2, TRIES, 100.0));
        controls[3] = 5000.0;
        assert!(remembers(&noisy(3, TRIES, 400.0), &controls, &known, 0.0));
    }

    #[test]
    fn noise_accuses_nobody() {
        let accused = (0..100_000u64).filter(|seed| {
            let known = noisy(3 * seed, 10, 100.0);
            let (controls, fresh) = (noisy(3 * seed + 1, TRIES, 100.0), noisy(3 * seed + 2, TRIES, 100.0));
            remembers(&fresh, &controls, &known, 0.0)
        });
        assert_eq!(accused.count(), 0);
    }

    #[test]
    fn a_refill_that_slows_every_launch_accuses_nobody() {
        let (known, after) = (noisy(1, 50, 100.0), noisy(2, TRIES, 140.0));
        assert!(after.iter().all(|t| stands_out(*t, &known, 0.0)), "suspicious, as it should be");
        assert!(!remembers(&noisy(3, TRIES, 140.0), &after, &known, 0.0));
    }

    #[test]
    fn what_the_machine_may_save_accuses_nobody() {
        let (known, controls, fresh) = (noisy(1, 50, 100.0), noisy(2, TRIES, 100.0), noisy(3, TRIES, 200.0));
        assert!(remembers(&fresh, &controls, &known, 50.0));
        assert!(!remembers(&fresh, &controls, &known, 150.0));
        assert!(remembers(&noisy(4, TRIES, 500.0), &controls, &known, 10_000.0), "no machine learns that much");
    }

    #[test]
    fn a_few_slow_launches_prove_nothing() {
        let known = noisy(1, 50, 100.0);
        let controls = noisy(2, TRIES, 100.0);
        assert!(!remembers(&[200.0; TRIES - 1], &controls, &known, 0.0));
        let mut fresh = vec![200.0; TRIES];
        fresh[3] = 101.0;
        assert!(!remembers(&fresh, &controls, &known, 0.0));
        assert!(!stands_out(200.0, &[], 0.0));
    }
}
