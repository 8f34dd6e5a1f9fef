//! Progress on standard error: a bar with the time left on a terminal, a line per case elsewhere, nothing when quiet.

use super::say;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

pub enum Progress {
    Bar(ProgressBar),
    Lines { done: usize, total: usize },
    Quiet,
}

impl Progress {
    pub fn new(total: usize, quiet: bool) -> Progress {
        if quiet {
            return Progress::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Progress::Lines { done: 0, total };
        }
        let style = ProgressStyle::with_template("{bar:24.cyan/dim} {pos}/{len}  {eta:>3} left  {wide_msg}")
            .expect("a fixed template")
            .progress_chars("━━─");
        Progress::Bar(ProgressBar::new(total as u64).with_style(style))
    }

    /// What is going on right now.
    pub fn now(&self, what: &str) {
        if let Progress::Bar(bar) = self {
            bar.set_message(what.to_string());
        }
    }

    /// A case is done; `line` says how it went.
    pub fn done(&mut self, line: impl FnOnce() -> String) {
        match self {
            Progress::Bar(bar) => bar.inc(1),
            Progress::Lines { done, total } => {
                *done += 1;
                say(&format!("[{done}/{total}] {}", line()));
            }
            Progress::Quiet => {}
        }
    }

    /// A line that stays, above the bar.
    pub fn note(&self, line: &str) {
        match self {
            Progress::Bar(bar) => bar.suspend(|| say(line)),
            Progress::Lines { .. } => say(line),
            Progress::Quiet => {}
        }
    }

    pub fn end(self) {
        if let Progress::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
