//! Progress on standard error: on a terminal a bar, and below it how the case stands; a line per step elsewhere; nothing
//! when quiet. Both tell how much is left, from what the steps so far took, and how many rows have failed.

use super::live::{self, Live};
use super::{is_able, say, shown, width_of};
use crate::units;
use indicatif::{ProgressBar, ProgressStyle};
use kmark_core::record::Record;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

pub struct Progress {
    view: View,
    left: Left,
    failed: usize,
    live: Live,
}

enum View {
    Bar(ProgressBar),
    Lines,
    Quiet,
}

/// What is done, and what is not.
struct Left {
    /// Of each step, how much work it is compared with others.
    weights: Vec<usize>,
    done: usize,
    /// How much of the step that goes on is done.
    part: f64,
    /// When the first step began.
    began: Instant,
}

impl Left {
    /// The time that the rest takes if it goes on as it went; not known before some of it is done.
    fn time(&self, elapsed: Duration) -> Option<Duration> {
        let sum = |weights: &[usize]| weights.iter().sum::<usize>() as f64;
        let now = self.weights.get(self.done).map_or(0.0, |w| *w as f64 * self.part);
        let (done, rest) = (sum(&self.weights[..self.done]) + now, sum(&self.weights[self.done..]) - now);
        (done > 0.0 && rest > 0.0).then(|| elapsed.mul_f64(rest / done))
    }

    fn words(&self) -> String {
        let left = self.time(self.began.elapsed());
        left.map(|t| format!("about {} left", units::long(t.as_nanos() as u64))).unwrap_or_default()
    }
}

impl Progress {
    /// One weight for each step, such as the number of impls of a case.
    pub fn new(weights: Vec<usize>, quiet: bool) -> Progress {
        let view = match std::io::stderr().is_terminal() && is_able(std::env::var_os("TERM")) {
            _ if quiet => View::Quiet,
            false => View::Lines,
            true => {
                let style = ProgressStyle::with_template("{bar:24.cyan/dim} {pos}/{len}  {wide_msg}\n{prefix}")
                    .expect("a fixed template")
                    .progress_chars(&shown("━━─"));
                View::Bar(ProgressBar::new(weights.len() as u64).with_style(style))
            }
        };
        Progress {
            view,
            left: Left { weights, done: 0, part: 0.0, began: Instant::now() },
            failed: 0,
            live: Live::default(),
        }
    }

    /// The first step begins now; what was before does not count.
    pub fn begin(&mut self) {
        self.left.began = Instant::now();
    }

    /// What is going on right now.
    pub fn now(&self, what: &str) {
        if let View::Bar(bar) = &self.view {
            bar.set_message(shown(what).into_owned());
        }
    }

    /// How the case stands that is being measured, and who is at it.
    pub fn live(&mut self, case: &str, imp: &str, records: &[&Record], rounds: u32) {
        let View::Bar(bar) = &self.view else { return };
        let width = width_of(std::io::stderr()).unwrap_or(80);
        if let Some(lines) = self.live.lines(case, imp, records, width.into()) {
            self.left.part = live::share(records, rounds);
            let state = self.state();
            let state = if state.is_empty() { state } else { state + "  " };
            bar.set_message(shown(&format!("{state}{case}")).into_owned());
            let lines = lines.replace(|c: char| c.is_control() && c != '\n', "?");
            bar.set_prefix(shown(&lines).into_owned());
        }
    }

    /// What is left, and what has failed so far.
    fn state(&self) -> String {
        let failed = if self.failed > 0 { format!("{} failed", self.failed) } else { String::new() };
        [self.left.words(), failed].into_iter().filter(|s| !s.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// A step is done; `line` says how it went.
    pub fn done(&mut self, line: impl FnOnce() -> String) {
        self.left.done = (self.left.done + 1).min(self.left.weights.len());
        self.left.part = 0.0;
        let state = self.state();
        match &self.view {
            View::Bar(bar) => {
                bar.set_prefix("");
                bar.suspend(|| say(&line()));
                bar.set_message(state);
                bar.inc(1);
            }
            View::Lines => {
                let state = if state.is_empty() { state } else { format!("  ({state})") };
                say(&format!("[{}/{}] {}{state}", self.left.done, self.left.weights.len(), line()));
            }
            View::Quiet => {}
        }
    }

    /// A row has failed: a line that stays, above the bar.
    pub fn failed(&mut self, line: &str) {
        self.failed += 1;
        self.note(line);
    }

    /// A line that stays, above the bar.
    pub fn note(&self, line: &str) {
        match &self.view {
            View::Bar(bar) => bar.suspend(|| say(line)),
            View::Lines => say(line),
            View::Quiet => {}
        }
    }

    pub fn end(&self) {
        if let View::Bar(bar) = &self.view {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_weighed_by_what_was_done() {
        let left = |done: usize| Left { weights: vec![1, 3, 4], done, part: 0.0, began: Instant::now() };
        let at = |done: usize, seconds: u64| left(done).time(Duration::from_secs(seconds));
        assert_eq!((at(0, 5), at(3, 5)), (None, None));
        assert_eq!(at(1, 2), Some(Duration::from_secs(14)));
        assert_eq!(at(2, 8), Some(Duration::from_secs(8)));
        let within = Left { part: 0.5, ..left(0) };
        assert_eq!(within.time(Duration::from_secs(1)), Some(Duration::from_secs(15)), "half of the first step");
    }
}
