//! The commands: one file each. Here and in `report` alone anything is printed.

mod ahead;
pub mod baselines;
mod blind;
pub mod build;
pub mod collect;
pub mod compare;
pub mod completions;
pub mod doctor;
mod dry_run;
pub mod fleet;
pub mod history;
mod kernels;
mod lanes;
mod libraries;
pub mod list;
mod live;
pub mod merge;
mod progress;
pub mod report;
pub mod roofline;
pub mod run;
pub mod schema;
pub mod status;
pub mod submit;
pub mod task;
pub mod verify;

use crate::cli::Cli;
use crate::error::{Error, NOTHING, Result, USAGE, exit_code};
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use kmark_core::record::Status;
use kmark_core::spelling::nearest;
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

/// Prints to standard output. A reader that has gone away is not an error: `kmark list ops | head` ends well.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::own(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// Prints what people read: in ASCII where they asked for that.
pub fn print_text(text: &str) -> Result<()> {
    print(&shown(text))
}

/// A line on standard error. What a terminal would obey is not shown: an impl's words may be among it.
pub fn say(text: &str) {
    let text = text.replace(|c: char| c.is_control() && !"\n\t".contains(c), "?");
    let _ = writeln!(std::io::stderr().lock(), "{}", shown(&text));
}

fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    let plain = locale.is_some_and(|l| l == "C" || l == "POSIX");
    if plain && !text.is_ascii() { text.chars().map(ascii).collect::<String>().into() } else { text.into() }
}

/// One for one, so that tables stay tables.
fn ascii(c: char) -> char {
    match c {
        '×' => 'x',
        'µ' => 'u',
        '±' => '~',
        '†' => '+',
        '‡' => '#',
        '·' => '-',
        '…' => '.',
        '–' | '─' => '-',
        '━' => '=',
        c if c.is_ascii() => c,
        _ => '?',
    }
}

pub fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data") + "\n"
}

/// A row that failed, in one line.
pub fn failure(status: &str, case: &str, impl_name: &str, message: &str) -> String {
    format!("{status}: {case} {impl_name}  {}", message.lines().next().unwrap_or(""))
}

/// The exit code of a command that checked these; if it could check nothing, it says why.
pub fn end<'a>(all: impl Iterator<Item = (Status, &'a str)> + Clone, strict: bool) -> u8 {
    let code = exit_code(all.clone().map(|(status, _)| status), strict);
    if let (NOTHING, Some((status, why))) = (code, all.clone().next()) {
        let why = why.lines().next().unwrap_or("");
        say(&format!(
            "nothing could be checked: {} rows are unsupported or unavailable, the first {}: {why}",
            all.count(),
            status.word()
        ));
    }
    code
}

/// How a command ends: its exit code, or one line about what went wrong.
pub fn exit(done: Result<u8>) -> ExitCode {
    match done {
        Ok(code) => code.into(),
        Err(e) => {
            say(&format!("error: {e}"));
            e.code.into()
        }
    }
}

/// What clap has to say, in one line; help and version as they are.
pub fn usage(e: clap::Error) -> ExitCode {
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return exit(print(&help_text(&e)).map(|()| 0));
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say(&e.render().to_string());
            return USAGE.into();
        }
        _ => {}
    }
    let text = e.render().to_string();
    let mut lines = text.lines().map(str::trim).take_while(|l| !l.starts_with("Usage:")).filter(|l| !l.is_empty());
    let mut line = lines.next().unwrap_or("error: wrong usage").to_string();
    for more in lines.filter(|l| !l.starts_with("tip: to pass") && !l.starts_with("For more")) {
        line.push_str(if line.ends_with(':') { " " } else { "; " });
        line.push_str(more.trim_start_matches("tip: "));
    }
    // clap does not see that `rnu` is `run` with two letters swapped.
    if let (Some(ContextValue::String(word)), None) =
        (e.get(ContextKind::InvalidSubcommand), e.get(ContextKind::SuggestedSubcommand))
    {
        let command = Cli::command();
        let known = command.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name());
        if let Some(near) = nearest(word, known) {
            line.push_str(&format!("; did you mean '{near}'?"));
        }
    }
    line.push_str("; see --help");
    say(&line);
    USAGE.into()
}

fn help_text(e: &clap::Error) -> String {
    if color() { e.render().ansi().to_string() } else { e.render().to_string() }
}

/// Columns of the terminal on standard output, if it is one.
pub fn terminal_width() -> Option<u16> {
    width_of(std::io::stdout())
}

/// Columns of a terminal, if it is one.
fn width_of(stream: impl IsTerminal + std::os::fd::AsFd) -> Option<u16> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(size.ws_col).filter(|w| *w >= 20)
}

/// Colours only on a terminal that has them, and not where the user asked for none.
pub fn color() -> bool {
    std::io::stdout().is_terminal() && is_able(std::env::var_os("TERM")) && !is_set(std::env::var_os("NO_COLOR"))
}

fn is_set(value: Option<OsString>) -> bool {
    value.is_some_and(|v| !v.is_empty())
}

/// Whether a terminal of this kind knows colours and a cursor that moves.
pub fn is_able(term: Option<OsString>) -> bool {
    term.is_none_or(|t| t != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_gets_neither_colours_nor_a_bar() {
        assert!(!is_able(Some("dumb".into())) && is_able(Some("xterm".into())) && is_able(None));
        assert!(is_set(Some("1".into())) && !is_set(Some("".into())) && !is_set(None));
    }
}
