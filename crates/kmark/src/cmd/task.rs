//! `kmark task`: what a node runs of a submitted run. It looks at what earlier attempts at its shard have recorded, runs
//! the rest as a run of its own, and leaves a word about how it ended.

use super::{run, say, submit};
use crate::cli::{Cli, Command, RunArgs, TaskArgs};
use crate::error::{Error, Result};
use crate::fleet::{Attempt, Fleet, Told, Wanted};
use crate::plan::plan;
use crate::provenance;
use crate::shard::Shard;
use clap::Parser;
use kmark_device::last_words;

pub fn run(args: TaskArgs) -> Result<u8> {
    let fleet = Fleet::open(&args.dir)?;
    let host = provenance::host().unwrap_or("this node".into());
    if fleet.submitted.token != args.token {
        let dir = args.dir.display();
        return Err(Error::usage(format!("{dir} on {host} is not the folder that was submitted: it is not shared")));
    }
    if !fleet.tasks().contains(&args.number) {
        return Err(Error::usage(format!("there are {} tasks, not {}", fleet.submitted.tasks, args.number)));
    }
    last_words::leave(format!(
        "\nended from outside; what was recorded is safe, `kmark submit --resume {}` goes on\n",
        args.dir.display()
    ));
    let variable = |name: &str| std::env::var(name).ok();
    let told = Told {
        job: variable("SLURM_ARRAY_JOB_ID"),
        restarts: variable("SLURM_RESTART_COUNT"),
        node: Some(host),
        started: run::now(),
        ..Told::default()
    };
    let _held = fleet.lock(args.number)?;
    let mut attempt = fleet.attempt(args.number, told)?;
    let done = work(&fleet, args.number, &attempt);
    let (code, error) = match &done {
        Ok(code) => (*code, None),
        Err(e) => (e.code, Some(e.message.clone())),
    };
    attempt.end(code, error, run::now())?;
    done
}

fn work(fleet: &Fleet, task: usize, attempt: &Attempt) -> Result<u8> {
    let (here, asked) = (env!("CARGO_PKG_VERSION"), &fleet.submitted.kmark);
    if here != asked {
        return Err(Error::usage(format!("this node has kmark {here}; {asked} was submitted")));
    }
    let Ok(Cli { command: Command::Submit(submitted) }) = Cli::try_parse_from(&fleet.submitted.command) else {
        return Err(Error::usage("submit.json does not hold a command that this kmark knows"));
    };
    let args = RunArgs {
        shard: (!fleet.is_whole()).then_some(Shard { number: task, of: fleet.submitted.tasks }),
        out: Some(attempt.run()),
        resume: false,
        dry_run: false,
        json: false,
        quiet: false,
        measure: submit::measure(submitted),
    };
    let mut plan = plan(&args.measure.selection, args.shard)?;
    let (wanted, here) = (fleet.wanted(task), Wanted::of(&plan));
    if let Some(w) = wanted.iter().find(|w| !here.contains(w)).or_else(|| here.iter().find(|w| !wanted.contains(w))) {
        let why = "a suite or a file of an impl is not as it was submitted";
        return Err(Error::usage(format!("{} differs on this node: {why}", w.case)));
    }
    let attempts = fleet.attempts(task)?;
    let done = fleet.done(task, &attempts);
    plan.items.retain(|p| !done.contains_key(p.case.id.as_str()));
    if plan.items.is_empty() {
        say("earlier attempts have recorded every case");
        return Ok(0);
    }
    run::run_plan(args, plan)
}
