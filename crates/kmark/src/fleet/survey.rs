//! How the tasks of a submitted run stand: what their records say, and what the queue says where they are not done.

use super::{Attempt, Fleet};
use crate::error::Result;
use crate::slurm::{self, Task};
use serde::Serialize;
use std::collections::HashMap;

const KILL: u8 = 9;
const TERM: u8 = 15;

/// One task.
#[derive(Serialize)]
pub struct Standing {
    pub task: usize,
    /// `done`, `pending`, `running`, `cancelled`, `preempted`, `timeout`, `node-fail`, `failed` and whatever else Slurm
    /// has words for; `gone` if it has forgotten the task, `unknown` if it does not answer.
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    pub attempts: usize,
    pub cases: usize,
    pub cases_done: usize,
    /// Rows of them that are failures.
    pub failed: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_left: Option<String>,
    #[serde(skip)]
    pub live: bool,
}

impl Standing {
    pub fn is_done(&self) -> bool {
        self.cases_done == self.cases
    }
}

pub struct Survey {
    pub tasks: Vec<Standing>,
    /// Why the queue could not be asked.
    pub silent: Option<String>,
}

impl Survey {
    pub fn of(fleet: &Fleet) -> Result<Survey> {
        let (mut queue, mut silent) = (HashMap::new(), None);
        for job in &fleet.submitted.jobs {
            match slurm::tasks(&job.id) {
                // Of a task that was queued again the last time counts.
                Ok(tasks) => {
                    job.tasks.iter().for_each(|t| drop(queue.remove(t)));
                    queue.extend(tasks);
                }
                Err(e) => silent = Some(e.message),
            }
        }
        let one = |task| standing(fleet, task, queue.get(&task), silent.is_some());
        Ok(Survey { tasks: fleet.tasks().map(one).collect::<Result<_>>()?, silent })
    }

    pub fn is_live(&self) -> bool {
        self.tasks.iter().any(|t| t.live)
    }
}

fn standing(fleet: &Fleet, task: usize, queued: Option<&Task>, silent: bool) -> Result<Standing> {
    let attempts = fleet.attempts(task)?;
    let done = fleet.done(task, &attempts);
    let is_failure = |(at, a): (usize, &Attempt)| {
        a.rows.iter().filter(|r| done.get(r.case.as_str()) == Some(&at) && r.status.is_failure()).count()
    };
    let mut standing = Standing {
        task,
        state: "done".into(),
        why: None,
        node: attempts.last().and_then(|a| a.told.node.clone()),
        attempts: attempts.len(),
        cases: fleet.wanted(task).len(),
        cases_done: done.len(),
        failed: attempts.iter().enumerate().map(is_failure).sum(),
        time_left: None,
        live: queued.is_some_and(Task::is_live),
    };
    if standing.is_done() {
        standing.live = false;
        return Ok(standing);
    }
    let error = attempts.last().and_then(|a| a.told.error.clone());
    match queued {
        Some(queued) => {
            standing.state = queued.state.to_lowercase().replace('_', "-");
            standing.node = queued.node.clone().or(standing.node);
            standing.time_left = queued.left.clone();
            standing.why = why(queued, error, attempts.is_empty());
        }
        None => {
            standing.state = if silent { "unknown" } else { "gone" }.into();
            standing.why = error;
        }
    }
    Ok(standing)
}

/// What is known beside the state: what the attempt said, or how Slurm saw it end.
fn why(queued: &Task, error: Option<String>, nothing_written: bool) -> Option<String> {
    let mut said: Vec<String> = Vec::new();
    match queued.restarts {
        0 => {}
        1 => said.push("requeued".into()),
        n => said.push(format!("requeued {n} times")),
    }
    if queued.is_live() {
        said.extend(queued.reason.clone());
        return (!said.is_empty()).then(|| said.join(", "));
    }
    let ended = match (queued.signal, queued.code, error) {
        (_, _, Some(error)) => Some(error),
        (0, 0, _) => None,
        (0, code @ (126 | 127), _) => Some(format!("code {code}: the node has no such kmark")),
        (signal @ (KILL | TERM), _, _) => Some(format!("ended by signal {signal}")),
        // Slurm has numbers of its own for jobs that it could not start, such as for want of the log's folder.
        _ if nothing_written => Some("it wrote nothing: the node may not see this folder".into()),
        (0, code, _) => Some(format!("code {code}")),
        (signal, _, _) => Some(format!("ended by signal {signal}")),
    };
    said.extend(ended);
    (!said.is_empty()).then(|| said.join(", "))
}
