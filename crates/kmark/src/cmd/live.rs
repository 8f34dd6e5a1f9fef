//! How a case stands while it is measured: a line for each impl with its time so far, its clock and power, or how it failed.
//! Looks at records as they grow; measures nothing itself.

use crate::report::short;
use crate::units;
use indexmap::IndexMap;
use kmark_core::record::{Record, Status};
use std::time::{Duration, Instant};

/// Looking is not free: times are computed anew this often at the most.
const EVERY: Duration = Duration::from_millis(250);
/// Impls that are shown; more would fill the screen.
const MOST: usize = 12;
/// Of a name.
const LONGEST: usize = 28;

#[derive(Default)]
pub struct Live {
    case: String,
    /// What is said of each impl, and how many visits it had then.
    impls: IndexMap<String, (usize, String)>,
    looked: Option<Instant>,
}

impl Live {
    /// The lines for the case, `imp` being measured; none where it is too early for new ones.
    pub fn lines(&mut self, case: &str, imp: &str, records: &[&Record], width: usize) -> Option<String> {
        let new = self.case != case;
        if !new && self.looked.is_some_and(|then| then.elapsed() < EVERY) {
            return None;
        }
        if new {
            *self = Live { case: case.to_string(), ..Live::default() };
        }
        for r in records {
            let (visits, said) = self.impls.entry(r.impl_name.clone()).or_default();
            if *visits != r.visits.len() || r.visits.is_empty() {
                (*visits, *said) = (r.visits.len(), words(r));
            }
        }
        self.looked = Some(Instant::now());
        let name = |name: &str| short(name, LONGEST);
        let wide = self.impls.keys().map(|n| name(n).chars().count()).max().unwrap_or(0);
        let line = |(n, (_, said)): (&String, &(usize, String))| {
            let line = format!("{} {:<wide$}  {said}", if n == imp { '>' } else { ' ' }, name(n));
            "\n".to_string() + &line.chars().take(width.saturating_sub(1)).collect::<String>()
        };
        let mut text: String = self.impls.iter().take(MOST).map(line).collect();
        if self.impls.len() > MOST {
            text.push_str(&format!("\n  and {} more", self.impls.len() - MOST));
        }
        Some(text.trim_start_matches('\n').to_string())
    }
}

/// How much of a case is done, by the visits that it has had.
pub fn share(records: &[&Record], rounds: u32) -> f64 {
    let all = (2 * rounds as usize * records.len()).max(1);
    let done: usize = records.iter().map(|r| r.visits.len()).sum();
    (done as f64 / all as f64).min(1.0)
}

fn words(r: &Record) -> String {
    if !matches!(r.status, Status::Ok | Status::Unverified) {
        return r.status.word().to_string();
    }
    let Some(t) = r.time() else { return "checking".into() };
    // One visit says nothing of how much visits differ.
    let half = if t.width() > 0.0 { format!("± {}", units::percent(t.width() / 2.0)) } else { String::new() };
    let mut words = vec![format!("{:>8} {half:<8}", units::time(t.value))];
    words.extend(r.clock_mhz.last().map(|mhz| format!("{mhz:.0} MHz")));
    if let Some(c) = r.visits.last().and_then(|v| v.conditions.as_ref()) {
        words.push(format!("{:.0} W", c.power_w));
        if !c.throttled.is_empty() {
            words.push(format!("held down: {}", c.throttled.join(", ")));
        }
    }
    words.join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmark_core::record::{Conditions, Visit};

    fn record(impl_name: &str, samples: &[f64]) -> Record {
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");
        let mut r = crate::store::load(run.as_ref()).unwrap().records.swap_remove(0);
        (r.impl_name, r.samples_ns, r.clock_mhz) = (impl_name.into(), samples.to_vec(), vec![1755.0; samples.len()]);
        let conditions = Some(Conditions {
            power_w: 612.3,
            temperature_c: 50.0,
            sm_mhz: 1700.0,
            memory_mhz: 1.0,
            throttled: vec![],
        });
        r.visits = vec![Visit { round: 0, samples: samples.len() as u32, conditions }];
        r.visits.retain(|v| v.samples > 0);
        r
    }

    #[test]
    fn times_clocks_and_failures_are_shown_while_a_case_goes_on() {
        let (timed, mut failed) = (record("a", &[1e4, 1.1e4, 1.2e4]), record("b/long", &[]));
        failed.status = Status::Hung;
        let mut live = Live::default();
        let text = live.lines("case", "a", &[&timed, &failed, &record("c", &[])], 80).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("> a        11.0 µs  ") && lines[0].ends_with("1755 MHz  612 W"), "{text}");
        assert_eq!(lines[1..], ["  b/long  hung", "  c       checking"]);
        assert!(live.lines("case", "a", &[&timed], 80).is_none(), "not so soon again");
        let other = live.lines("other", "a", &[&timed], 20).unwrap();
        assert!(other.lines().count() == 1 && other.chars().count() < 20, "{other}");
        assert_eq!(share(&[&timed, &failed], 2), 0.125);
    }
}
