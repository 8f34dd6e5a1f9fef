//! `kmark`: suite -> cases -> plan -> workers (verify, sample) -> records -> reports. A library, because a Python process
//! is a worker, too; what it needs is public, the rest is the command's own.

mod baselines;
mod bench;
mod cli;
mod cmd;
mod fleet;
mod host;
mod interpreter;
mod log;
mod own;
mod plan;
mod possible;
mod processes;
mod provenance;
mod python;
mod roofs;
mod shard;
mod slurm;
mod suite;
mod turn;

use kmark_core::{error, units};
use kmark_records::{compare, history, merge, report, shown, store};
use kmark_worker::{device, env, faults, impls, seal, worker};

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

/// The command, from the arguments of the process to its exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => return cmd::usage(usage),
    };
    let done = match cli.command {
        Command::Run(args) => cmd::run::run(args),
        Command::Verify(args) => cmd::verify::run(args),
        Command::Build(args) => cmd::build::run(args),
        Command::List(args) => cmd::list::run(args),
        Command::Report(args) => cmd::report::run(args),
        Command::Compare(args) => cmd::compare::run(args),
        Command::History(args) => cmd::history::run(args),
        Command::Merge(args) => cmd::merge::run(args),
        Command::Submit(args) => cmd::submit::run(args),
        Command::Status(args) => cmd::status::run(args),
        Command::Collect(args) => cmd::collect::run(args),
        Command::Fleet(args) => cmd::fleet::run(args),
        Command::Roofline(args) => cmd::roofline::run(args),
        Command::Baselines(args) => cmd::baselines::run(args, python::families),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Schema(args) => cmd::schema::run(args),
        Command::Completions(args) => cmd::completions::run(args),
        Command::Task(args) => cmd::task::run(args),
        Command::Worker(args) => worker::run(&args.family, &args.device),
    };
    cmd::exit(done)
}
