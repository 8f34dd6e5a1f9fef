//! Slurm, by its commands: `sbatch` queues, `squeue` and `sacct` say how tasks stand. Arguments go to them as they are,
//! without a shell; of what they print only fields that were asked for are read.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// How Slurm says that a task stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// Its word: PENDING, RUNNING, NODE_FAIL.
    pub state: String,
    pub reason: Option<String>,
    pub node: Option<String>,
    /// As Slurm writes times.
    pub left: Option<String>,
    pub code: u8,
    pub signal: u8,
    pub restarts: u32,
}

impl Task {
    /// Whether it may yet run, or runs.
    pub fn is_live(&self) -> bool {
        const LIVE: [&str; 11] = [
            "PENDING",
            "RUNNING",
            "CONFIGURING",
            "COMPLETING",
            "SUSPENDED",
            "REQUEUED",
            "REQUEUE_FED",
            "RESIZING",
            "SIGNALING",
            "STAGE_OUT",
            "STOPPED",
        ];
        LIVE.contains(&self.state.as_str())
    }
}

/// Queues an array with these options; its number.
pub fn submit(options: &[String], tasks: &[usize], script: &OsStr) -> Result<String> {
    let mut command = Command::new("sbatch");
    command.arg("--parsable").arg(format!("--array={}", ranges(tasks))).args(options).arg(script);
    let answer = output(&mut command)?;
    // With several clusters it is NUMBER;CLUSTER.
    let id = answer.trim().split(';').next().unwrap_or("").to_string();
    match !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) {
        true => Ok(id),
        false => Err(Error::own(format!("sbatch answered something else than a job's number: {}", answer.trim()))),
    }
}

/// The tasks of a job that Slurm remembers, by number: from the queue, or from the accounts if it has left that.
pub fn tasks(job: &str) -> Result<HashMap<usize, Task>> {
    const FIELDS: &str = "ArrayTaskID:|,State:|,Reason:|,NodeList:|,TimeLeft:|,exit_code:|,RestartCnt:|";
    let asked = ["--noheader", "--array", "--states=all", "--jobs", job, "--Format", FIELDS];
    match output(Command::new("squeue").args(asked)) {
        Ok(text) if !text.trim().is_empty() => Ok(text.lines().filter_map(queued).collect()),
        Err(e) if !e.message.contains("Invalid job id") => Err(e),
        _ => {
            let asked = ["--noheader", "--parsable2", "--allocations", "--jobs", job, "--format"];
            let text = output(Command::new("sacct").args(asked).arg("JobID,State,ExitCode,NodeList"));
            // Clusters without accounts forget their jobs.
            Ok(text.unwrap_or_default().lines().filter_map(accounted).collect())
        }
    }
}

/// A line of squeue.
fn queued(line: &str) -> Option<(usize, Task)> {
    let mut fields = line.split('|').map(str::trim);
    let mut next = || fields.next().map(str::to_string);
    let number = next()?.parse().ok()?;
    let (state, reason, node, left) = (next()?, next()?, next()?, next()?);
    let status: u32 = next()?.parse().ok()?;
    let restarts = next()?.parse().unwrap_or(0);
    let (reason, node) = (told(reason), told(node));
    let left = told(left).filter(|_| state == "RUNNING");
    Some((
        number,
        Task { state, reason, node, left, code: (status >> 8) as u8, signal: (status & 0x7f) as u8, restarts },
    ))
}

/// A line of sacct: `12_3|CANCELLED by 0|0:15|n1`.
fn accounted(line: &str) -> Option<(usize, Task)> {
    let fields: Vec<&str> = line.split('|').map(str::trim).collect();
    let [id, state, exit, node] = fields[..] else { return None };
    let number = id.split_once('_')?.1.parse().ok()?;
    let (code, signal) = exit.split_once(':')?;
    let state = state.split(' ').next()?.to_string();
    let (code, signal) = (code.parse().ok()?, signal.parse().ok()?);
    Some((number, Task { state, node: told(node.to_string()), code, signal, ..Task::default() }))
}

fn told(word: String) -> Option<String> {
    Some(word).filter(|w| !w.is_empty() && !["None", "N/A", "(null)", "None assigned", "INVALID"].contains(&w.as_str()))
}

/// `1-3,5`.
fn ranges(tasks: &[usize]) -> String {
    let runs = tasks.chunk_by(|a, b| a + 1 == *b);
    let word = |run: &[usize]| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    };
    runs.map(word).collect::<Vec<_>>().join(",")
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::usage(format!("{name} was not found: this is no machine of a Slurm cluster"))
        }
        _ => Error::own(format!("cannot run {name}: {e}")),
    })?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let why = said.lines().map(|l| l.trim_start_matches(&format!("{name}: ")).trim_start_matches("error: "));
        return Err(Error::usage(format!("{name}: {}", why.collect::<Vec<_>>().join("; "))));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_queue_and_of_the_accounts_are_understood() {
        let (number, task) = queued("2|CANCELLED|None|n1|59:59|15|1|").unwrap();
        assert_eq!((number, task.code, task.signal, task.restarts, task.is_live()), (2, 0, 15, 1, false));
        assert_eq!((task.reason, task.left, task.node), (None, None, Some("n1".into())));
        let (_, task) = queued("3|RUNNING|None|n2|59:55|0|0|").unwrap();
        assert!(task.is_live() && task.left.as_deref() == Some("59:55"));
        let (_, task) = queued("1|FAILED|NonZeroExitCode|n2|1:00|512|0|").unwrap();
        assert_eq!((task.code, task.signal, task.reason.as_deref()), (2, 0, Some("NonZeroExitCode")));
        let (number, task) = accounted("12_3|CANCELLED by 0|0:15|n1").unwrap();
        assert_eq!((number, task.state.as_str(), task.signal), (3, "CANCELLED", 15));
        for line in ["", "|", "12|COMPLETED|0:0|n1", "nonsense", "a|b|c|d|e|f|g|"] {
            assert!(queued(line).is_none() && accounted(line).is_none(), "{line}");
        }
    }

    #[test]
    fn tasks_are_named_in_ranges() {
        assert_eq!(ranges(&[1, 2, 3, 5, 7, 8]), "1-3,5,7-8");
        assert_eq!((ranges(&[4]), ranges(&[])), ("4".into(), String::new()));
    }
}
