//! `kmark completions`: a script for the shell, made from the same table as the help, with the words that there are: ops,
//! suites, dtypes, devices and impls.

use crate::cli::{Cli, CompletionsArgs};
use crate::error::Result;
use crate::python;
use crate::suite::BUILT_IN;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use kmark_device::Impl;

pub fn run(args: CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_words(Cli::command(), &words()), "kmark", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if args.shell == Shell::Fish {
        script += &for_fish(&words());
    }
    super::print(&script)?;
    Ok(0)
}

/// What the generator leaves out for fish: words that are no values of a flag.
fn for_fish(words: &Words) -> String {
    let line = |commands: &str, name: &str| {
        let values = words.iter().find(|(n, _)| *n == name).map(|(_, values)| values.join(" ")).unwrap_or_default();
        format!("complete -c kmark -n '__fish_seen_subcommand_from {commands}' -a '{values}'\n")
    };
    line("run verify build cases", "what") + &line("ops impls", "ops")
}

/// By the name of an argument.
type Words = Vec<(&'static str, Vec<&'static str>)>;

fn words() -> Words {
    let ops: Vec<&'static str> = kmark_ops::OPS.iter().map(|e| e.op.name).collect();
    let what = BUILT_IN.iter().map(|(name, _)| *name).chain(ops.clone()).collect();
    let own = kmark_ops::OPS.iter().flat_map(|e| e.impls()).map(|i| i.name());
    let adapters = python::catalogue().unwrap_or_default().iter().map(|a| a.name());
    let mut impls: Vec<&'static str> = own.chain(adapters).collect();
    impls.sort();
    impls.dedup();
    let mut dtypes: Vec<&'static str> = kmark_ops::OPS.iter().flat_map(|e| e.op.dtypes).map(|d| d.name()).collect();
    dtypes.sort();
    dtypes.dedup();
    let devices = vec!["auto", "cpu", "cuda", "cuda:all"];
    vec![
        ("what", what),
        ("ops", ops.clone()),
        ("template", ops),
        ("dtype", dtypes),
        ("impls", impls.clone()),
        ("baseline", impls),
        ("device", devices),
    ]
}

/// The command with these words as the values of its arguments, in every subcommand. Only for the script: on the command
/// line an unknown word gets an answer of our own.
fn with_words(command: Command, words: &Words) -> Command {
    let command = command.mut_args(|arg| match words.iter().find(|(name, _)| arg.get_id() == *name) {
        Some((_, values)) => arg.value_parser(PossibleValuesParser::new(values)),
        None => arg,
    });
    command.mut_subcommands(|sub| with_words(sub, words))
}
