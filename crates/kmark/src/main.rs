//! `kmark`: suite -> cases -> plan -> workers (verify, sample) -> records -> reports.

mod bench;
mod cli;
mod cmd;
mod device;
mod env;
mod error;
mod faults;
mod host;
mod plan;
mod report;
mod roofs;
mod store;
mod suite;
mod units;
mod worker;

use clap::Parser;
use cli::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
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
        Command::Roofline(args) => cmd::roofline::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Schema(args) => cmd::schema::run(args),
        Command::Completions(args) => cmd::completions::run(args),
        Command::Worker(args) => worker::run(&args.family, &args.device),
    };
    cmd::exit(done)
}
