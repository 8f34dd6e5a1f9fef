//! `kmark status`: how the tasks of a submitted run stand.

use super::{print, print_text, say, to_json};
use crate::cli::StatusArgs;
use crate::error::Result;
use crate::fleet::{Fleet, Standing, Survey};
use serde_json::json;

pub fn run(args: StatusArgs) -> Result<u8> {
    let fleet = Fleet::open(&args.dir)?;
    let survey = Survey::of(&fleet)?;
    if let Some(why) = &survey.silent {
        say(&format!("Slurm does not answer; states are from the records alone: {why}"));
    }
    if args.json {
        let jobs: Vec<&str> = fleet.submitted.jobs.iter().map(|j| j.id.as_str()).collect();
        print(&to_json(&json!({"jobs": jobs, "tasks": survey.tasks})))?;
    } else {
        print_text(&text(&survey.tasks, &args.dir.display().to_string()))?;
    }
    Ok(0)
}

fn text(tasks: &[Standing], dir: &str) -> String {
    let mut lines = vec![["task", "state", "node", "attempts", "cases", "failed", "left", "why"].map(String::from)];
    for t in tasks {
        let word = |text: &Option<String>| text.clone().unwrap_or_default();
        lines.push([
            t.task.to_string(),
            t.state.clone(),
            word(&t.node),
            t.attempts.to_string(),
            format!("{} of {}", t.cases_done, t.cases),
            if t.failed > 0 { t.failed.to_string() } else { String::new() },
            word(&t.time_left),
            t.why.as_deref().and_then(|w| w.lines().next()).unwrap_or("").to_string(),
        ]);
    }
    let wide: [usize; 8] = std::array::from_fn(|i| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0));
    // A column that says nothing is left out.
    let shown: Vec<usize> = (0..8).filter(|i| lines[1..].iter().any(|l| !l[*i].is_empty())).collect();
    let mut text = String::new();
    for line in &lines {
        let cells: Vec<String> = shown.iter().map(|i| format!("{:<w$}", line[*i], w = wide[*i])).collect();
        text.push_str(&format!("{}\n", cells.join("  ").trim_end()));
    }
    text + "\n" + &summary(tasks, dir)
}

/// Where it stands as a whole.
pub fn progress(tasks: &[Standing]) -> String {
    let sum = |count: fn(&Standing) -> usize| tasks.iter().map(count).sum::<usize>();
    let failed = match sum(|t| t.failed) {
        0 => String::new(),
        1 => ", 1 row failed".into(),
        n => format!(", {n} rows failed"),
    };
    format!("{} of {} cases done{failed}", sum(|t| t.cases_done), sum(|t| t.cases))
}

/// And what to type next.
fn summary(tasks: &[Standing], dir: &str) -> String {
    let dir = crate::provenance::quoted(dir);
    let next = match () {
        _ if tasks.iter().any(|t| !t.live && !t.is_done()) => format!("; `kmark submit --resume {dir}` goes on"),
        _ if tasks.iter().all(Standing::is_done) => format!("; `kmark collect {dir}` puts them into one folder"),
        _ => String::new(),
    };
    format!("{}{next}\n", progress(tasks))
}
