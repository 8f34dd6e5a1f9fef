//! The search among the variants of a kernel that leaves values to be tuned: each is verified as any impl is, then they take
//! turns under the same clock, on the same memory. Nothing is kept for another run: what is best on one GPU, driver or day may
//! not be on the next.

use super::Bench;
use crate::host::Limits;
use crate::plan::Planned;
use crate::turn::{Turn, seats};
use kmark_core::record::{Tried, Tuned};
use kmark_core::wire::Request;
use kmark_worker::impls::split_choice;
use std::time::Instant;

/// Rounds of the search: two differ in place and order, the third decides where one was disturbed.
const ROUNDS: u32 = 3;

impl Bench<'_> {
    /// Chooses the variant that `turn` goes on with; it fails if all of them do.
    pub(super) fn tune(&mut self, planned: &Planned, turn: &mut Turn, limits: Limits) {
        let arch = self.workers.device().arch().unwrap_or_default();
        let variants = turn.imp.variants(planned.entry.op, &planned.case, &arch);
        if variants.is_empty() {
            return;
        }
        let start = Instant::now();
        let mut tries: Vec<(String, Turn)> = Vec::new();
        for values in variants {
            let mut one = self.turn(planned, turn.imp, &turn.record.group);
            // The values include those that are fixed in the name.
            one.word = format!("{}#{values}", split_choice(turn.imp.name()).0);
            self.check(planned, &mut one);
            tries.push((values, one));
        }
        for (_, one) in tries.iter_mut().filter(|(_, t)| !t.failed) {
            self.prepare(planned, one);
        }
        let (slice, count) = (self.turns(0).slice_ns(), tries.len());
        for round in 0..ROUNDS {
            for i in 0..count {
                let (_, one) = &mut tries[(i + round as usize) % count];
                if one.failed {
                    continue;
                }
                self.visit_here(planned, one, limits, round, slice, self.usual_check());
                if one.failed {
                    let seat = one.seat.clone();
                    self.clear(&seat, &mut tries.iter_mut().map(|(_, t)| t).collect::<Vec<_>>(), limits);
                }
            }
        }
        for seat in seats(tries.iter().map(|(_, t)| t).filter(|t| t.generation > 0)) {
            let _ = self.workers.ask(&seat, &Request::Release, limits);
        }
        let time = |t: &Turn| if t.failed { None } else { t.record.time().map(|typical| typical.value) };
        tries.sort_by(|(_, a), (_, b)| {
            let [a, b] = [a, b].map(|t| time(t).unwrap_or(f64::INFINITY));
            a.total_cmp(&b)
        });
        let (values, best) = &tries[0];
        if time(best).is_none() {
            let fault = best.fault();
            return turn.fail(fault);
        }
        turn.word = best.word.clone();
        turn.tune_ns = Some(start.elapsed().as_nanos() as f64);
        let tried = tries.iter().map(|(values, t)| Tried {
            values: values.clone(),
            time_ns: time(t),
            message: t.record.message.lines().next().unwrap_or_default().to_string(),
        });
        turn.record.tuned = Some(Tuned { chosen: values.clone(), tried: tried.collect() });
    }
}
