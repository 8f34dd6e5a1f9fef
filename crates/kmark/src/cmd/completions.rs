//! `kmark completions`: a script for the shell, made from the same table as the help.

use crate::cli::{Cli, CompletionsArgs};
use crate::error::Result;
use clap::CommandFactory;

pub fn run(args: CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "kmark", &mut script);
    super::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
