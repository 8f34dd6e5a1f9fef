//! Parts of a plan for several machines. Which part a case falls into follows from the cases of the plan alone: not from
//! their order, nor from the machine, so that machines that never speak to each other divide the work between them.

use crate::device::Choice;
use crate::plan::Planned;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::time::Duration;

/// What is expected of a row's launches beside its budget: two visits in each of 20 rounds, five samples at the least, and
/// as many again for checks and warm-up.
const LAUNCHES: u64 = 400;
/// Bytes and FLOP that a launch gets through in a microsecond; what matters is that large cases weigh more.
const CPU_SPEED: (u64, u64) = (5_000, 5_000);
const GPU_SPEED: (u64, u64) = (1_000_000, 50_000_000);

/// One of several parts, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub number: usize,
    pub of: usize,
}

impl Shard {
    /// `2/8`: the second of eight.
    pub fn parse(text: &str) -> Result<Shard, String> {
        let parsed =
            text.split_once('/').and_then(|(i, n)| Some(Shard { number: i.parse().ok()?, of: n.parse().ok()? }));
        match parsed {
            None => Err("write it like 1/8, the first of eight".into()),
            Some(s) if s.number == 0 || s.number > s.of => Err(format!("shards of {} are counted from 1 to {0}", s.of)),
            Some(s) => Ok(s),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// The shard of each case, from 0: the dearest case first, each to the shard that has least to do.
pub fn divide(cases: &[(&str, u64)], shards: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|i| (Reverse(cases[*i].1), cases[*i].0));
    let mut loads: BinaryHeap<_> = (0..shards).map(|shard| Reverse((0u64, shard))).collect();
    let mut chosen = vec![0; cases.len()];
    for i in order {
        let mut least = loads.peek_mut().expect("there is a shard at least");
        chosen[i] = least.0.1;
        least.0.0 = least.0.0.saturating_add(cases[i].1);
    }
    chosen
}

/// How long a case may take on such a device, in microseconds.
pub fn expected_us(planned: &Planned, device: Choice, budget: Duration) -> u64 {
    let op = planned.entry.op;
    let rows = planned.impls.iter().filter(|i| i.supports(op, &planned.case).is_ok()).count() as u64;
    let (bytes, flops) = if device == Choice::Cpu { CPU_SPEED } else { GPU_SPEED };
    let cost = op.cost(&planned.case);
    let launch = (cost.bytes() / bytes).max(cost.flops / flops);
    rows.saturating_mul((budget.as_micros() as u64).saturating_add(LAUNCHES.saturating_mul(launch)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Numbers without a pattern.
    fn random(state: &mut u64) -> u64 {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *state >> 33
    }

    #[test]
    fn any_plan_is_divided_without_rest_by_content_and_evenly() {
        let mut state = 7;
        for round in 0..300 {
            let (cases, shards) = (1 + random(&mut state) as usize % 200, 1 + random(&mut state) as usize % 40);
            let dear = |state: &mut u64| 1 + random(state) % if round % 3 == 0 { 1 } else { 1000 };
            let names: Vec<(String, u64)> =
                (0..cases).map(|_| (random(&mut state).to_string(), dear(&mut state))).collect();
            let mut names: HashMap<String, u64> = names.into_iter().collect(); // in an order of its own
            let list: Vec<(&str, u64)> = names.iter().map(|(n, c)| (n.as_str(), *c)).collect();
            let (chosen, mut loads) = (divide(&list, shards), vec![0; shards]);
            assert!(chosen.len() == list.len() && chosen.iter().all(|s| *s < shards), "each case has one shard");
            chosen.iter().zip(&list).for_each(|(shard, (_, cost))| loads[*shard] += cost);
            let (least, most) = (*loads.iter().min().unwrap(), *loads.iter().max().unwrap());
            let dearest = list.iter().map(|(_, cost)| *cost).max().unwrap();
            assert!(most - least <= dearest, "{loads:?} differ by more than a case");
            if list.len() >= shards {
                assert!(least > 0, "no shard is empty while there are cases: {loads:?}");
            }
            let mut sorted = list.clone();
            sorted.sort();
            let again: HashMap<&str, usize> = sorted.iter().map(|(n, _)| *n).zip(divide(&sorted, shards)).collect();
            assert!(list.iter().zip(&chosen).all(|((n, _), shard)| again[n] == *shard), "order does not matter");
            names.clear();
        }
    }

    #[test]
    fn ten_thousand_cases_are_divided_at_once() {
        let names: Vec<String> = (0..10_000).map(|i| format!("case {i}")).collect();
        let cases: Vec<(&str, u64)> = names.iter().enumerate().map(|(i, n)| (n.as_str(), 1 + i as u64 % 97)).collect();
        let start = std::time::Instant::now();
        let chosen = divide(&cases, 500);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        let mut counts = vec![0; 500];
        chosen.iter().for_each(|s| counts[*s] += 1);
        assert!(counts.iter().all(|c| *c > 10), "{counts:?}");
    }

    #[test]
    fn a_shard_is_one_of_so_many() {
        assert_eq!(Shard::parse("2/8"), Ok(Shard { number: 2, of: 8 }));
        assert_eq!(Shard { number: 2, of: 8 }.to_string(), "2/8");
        for wrong in ["", "2", "0/8", "9/8", "1/0", "a/b", "-1/8", "1/2/3"] {
            assert!(Shard::parse(wrong).is_err(), "{wrong}");
        }
    }
}
