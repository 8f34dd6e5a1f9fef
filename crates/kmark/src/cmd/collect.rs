//! `kmark collect`: what the attempts of all tasks recorded, in one folder of runs: every case once, from the attempt that
//! has it whole.

use super::{end, print_text, say, status};
use crate::cli::CollectArgs;
use crate::error::{CASE_FAILED, Error, Result};
use crate::fleet::{Attempt, COLLECTED, Fleet, Row, Survey};
use crate::merge;
use crate::provenance::quoted;
use crate::store;
use kmark_core::record::Status;
use std::path::Path;
use std::time::Duration;

/// How often the queue is asked.
const EVERY: Duration = Duration::from_secs(3);

pub fn run(args: CollectArgs) -> Result<u8> {
    let fleet = Fleet::open(&args.dir)?;
    if args.wait {
        wait(&fleet)?;
    }
    let own = args.out.is_none();
    let out = args.out.unwrap_or_else(|| args.dir.join(COLLECTED));
    if own && out.join(store::MERGED).exists() {
        // Made of what is in `shards`, and made anew.
        std::fs::remove_dir_all(&out).map_err(|e| Error::own(format!("{}: {e}", out.display())))?;
    }
    merge::fresh(&out)?;
    let mut rows: Vec<(Status, String)> = Vec::new();
    let (mut runs, mut missing) = (0, 0);
    for task in fleet.tasks() {
        let attempts = fleet.attempts(task)?;
        let done = fleet.done(task, &attempts);
        missing += fleet.wanted(task).len() - done.len();
        for (at, attempt) in attempts.iter().enumerate() {
            let wanted = |r: &Row| done.get(r.case.as_str()) == Some(&at);
            runs += usize::from(copy(attempt, wanted, &out)?);
            rows.extend(attempt.rows.iter().filter(|r| wanted(r)).map(|r| (r.status, r.message.clone())));
        }
    }
    merge::seal(&out)?;
    print_text(&format!("{runs} runs, {} records in {}\n", rows.len(), out.display()))?;
    if missing > 0 {
        let dir = quoted(&args.dir.display().to_string());
        say(&format!("{missing} cases are missing; `kmark status {dir}` says why"));
        return Ok(CASE_FAILED);
    }
    Ok(end(rows.iter().map(|(status, message)| (*status, message.as_str())), false))
}

/// Until no task is pending or running; says what changes.
fn wait(fleet: &Fleet) -> Result<()> {
    let mut said = String::new();
    loop {
        let survey = Survey::of(fleet)?;
        let live = survey.is_live() || survey.silent.is_some();
        if !live {
            return Ok(());
        }
        let state = survey.silent.unwrap_or_else(|| status::progress(&survey.tasks));
        if state != said {
            say(&state);
            said = state;
        }
        std::thread::sleep(EVERY);
    }
}

/// One attempt's run as it is, without records of cases that another attempt has whole. Whether there was anything to copy.
fn copy(attempt: &Attempt, wanted: impl Fn(&Row) -> bool, out: &Path) -> Result<bool> {
    if !attempt.rows.iter().any(&wanted) {
        return Ok(false);
    }
    let run = attempt.run();
    let lines = |at: usize| attempt.rows.get(at).is_some_and(&wanted);
    merge::write_run(&out.join(merge::name(&store::read_run(&run)?)), [(run.as_path(), lines)].into_iter())?;
    Ok(true)
}
