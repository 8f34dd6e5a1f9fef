//! Where a run comes from: the commit of the folder that it is started in, the machine's name, and how to type it again.

use kmark_core::run::Git;
use std::path::Path;
use std::process::{Command, Stdio};

/// What git says of this folder; nothing where there is no repository or no git. Files that it does not know do not count:
/// the run itself may be one.
pub fn git() -> Option<Git> {
    let question = ["--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"];
    let answer = Command::new("git").args(question).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    read(&String::from_utf8_lossy(&answer.stdout))
}

fn read(status: &str) -> Option<Git> {
    let commit = status.lines().find_map(|line| line.strip_prefix("# branch.oid "))?;
    let dirty = status.lines().any(|line| !line.starts_with('#'));
    commit.bytes().all(|b| b.is_ascii_hexdigit()).then(|| Git { commit: commit.into(), dirty })
}

/// The machine's name: Slurm's name of the node, where there is one.
pub fn host() -> Option<String> {
    if let Some(node) = std::env::var("SLURMD_NODENAME").ok().filter(|n| !n.is_empty()) {
        return Some(node);
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_string()).filter(|n| !n.is_empty())
}

/// The command that goes on with a run in this folder.
pub fn resume_command(typed: impl Iterator<Item = String>, dir: &Path) -> String {
    format!("{} --resume", command_into(typed, dir))
}

/// The command that starts it anew, beside this folder.
pub fn anew_command(typed: impl Iterator<Item = String>, dir: &Path) -> String {
    let beside = |i: usize| format!("{}-{i}", dir.display());
    let free = (2..).map(beside).find(|name| !Path::new(name).exists()).expect("some name is free");
    command_into(typed, Path::new(&free))
}

/// What was typed, with this folder to write into.
fn command_into(typed: impl Iterator<Item = String>, dir: &Path) -> String {
    let (mut words, mut typed): (Vec<String>, _) = (Vec::new(), typed);
    while let Some(word) = typed.next() {
        match word.as_str() {
            "--out" => drop(typed.next()),
            "--resume" => {}
            word if word.starts_with("--out=") => {}
            _ => words.push(word),
        }
    }
    words.extend(["--out".into(), dir.display().to_string()]);
    words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ")
}

/// As a shell takes it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_says_is_understood() {
        let clean = "# branch.oid 3f2a\n# branch.head main\n";
        assert_eq!(read(clean), Some(Git { commit: "3f2a".into(), dirty: false }));
        assert_eq!(read(&format!("{clean}1 .M N... a.cu\n")), Some(Git { commit: "3f2a".into(), dirty: true }));
        assert_eq!((read("# branch.oid (initial)\n"), read("")), (None, None));
    }

    #[test]
    fn a_command_is_typed_again_as_a_shell_takes_it() {
        let again = |words: &[&str]| resume_command(words.iter().map(|w| w.to_string()), Path::new("a b"));
        assert_eq!(again(&["kmark", "run", "--impl", "cuda/*"]), "kmark run --impl 'cuda/*' --out 'a b' --resume");
        assert_eq!(again(&["kmark", "run", "--resume", "--out=c"]), "kmark run --out 'a b' --resume");
        let dir = tempfile::tempdir().unwrap();
        let (taken, free) = (dir.path().join("run-2"), dir.path().join("run-3"));
        std::fs::create_dir(taken).unwrap();
        let typed = ["kmark", "run", "--out", "c", "--resume", "--rounds", "3"].map(String::from);
        let anew = anew_command(typed.into_iter(), &dir.path().join("run"));
        assert_eq!(anew, format!("kmark run --rounds 3 --out {}", free.display()));
    }
}
