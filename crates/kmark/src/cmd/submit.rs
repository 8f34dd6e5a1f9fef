//! `kmark submit`: a run as an array of tasks on a Slurm cluster. Everything that can be wrong is looked for before
//! anything is queued; then it returns at once.

use super::{print_text, run};
use crate::cli::{Measure, SubmitArgs};
use crate::device::Choice;
use crate::error::{Error, Result};
use crate::fleet::{Fleet, Job, LOGS, SCRIPT, Submitted, Survey, Wanted};
use crate::plan::{plan_on, shards};
use crate::provenance::quoted;
use crate::{seal, slurm};
use kmark_core::record::SCHEMA;
use std::path::Path;

pub fn run(args: SubmitArgs) -> Result<u8> {
    match (&args.resume, &args.out) {
        (Some(dir), _) => resume(dir),
        (None, Some(out)) => submit(&args, out),
        (None, None) => Err(Error::usage("--out DIR names the folder for it")),
    }
}

fn submit(args: &SubmitArgs, out: &Path) -> Result<u8> {
    let plan = plan_on(&args.measure.selection, vec![Choice::expected(&device(args))?], None)?;
    run::settings(&args.measure, &plan)?;
    run::check_baseline(&args.measure, &plan)?;
    let (cases, tasks) = (plan.items.len(), args.nodes as usize);
    if !args.whole && tasks > cases {
        return Err(Error::usage(format!("--nodes {tasks}: there are only {cases} cases to divide")));
    }
    let all = Wanted::of(&plan);
    let parts = match args.whole {
        true => vec![all],
        false => {
            let mut parts = vec![Vec::new(); tasks];
            shards(&plan, tasks).into_iter().zip(all).for_each(|(shard, wanted)| parts[shard].push(wanted));
            parts
        }
    };
    let cannot = |e: std::io::Error| Error::usage(format!("--out {}: {e}", out.display()));
    let dir = std::path::absolute(out).map_err(cannot)?;
    if dir.to_str().is_none_or(|d| d.contains(['%', '\\', '\n'])) {
        return Err(Error::usage(format!("--out {}: Slurm cannot write to a folder of that name", dir.display())));
    }
    let submitted = Submitted {
        schema: SCHEMA,
        kmark: env!("CARGO_PKG_VERSION").into(),
        token: seal::Key::draw().map_err(cannot)?.line().trim().chars().take(16).collect(),
        command: std::env::args().collect(),
        folder: std::env::current_dir().map_err(cannot)?,
        tasks,
        options: options(args),
        jobs: Vec::new(),
    };
    let mut fleet = Fleet::create(&dir, submitted, parts)?;
    let all: Vec<usize> = fleet.tasks().collect();
    let id = write_script(&fleet).and_then(|()| queue(&mut fleet, all)).inspect_err(|_| fleet.discard())?;
    let each = if args.whole { format!("{cases} cases each") } else { format!("{cases} cases together") };
    let dir = quoted(&out.display().to_string());
    print_text(&format!("job {id}: {tasks} tasks, {each}; `kmark status {dir}` shows how they stand\n"))?;
    Ok(0)
}

/// Queues what is neither done nor under way.
fn resume(dir: &Path) -> Result<u8> {
    let mut fleet = Fleet::open(dir)?;
    let survey = Survey::of(&fleet)?;
    if let Some(why) = survey.silent {
        return Err(Error::usage(format!("whether tasks are still under way cannot be told: {why}")));
    }
    let live = survey.tasks.iter().filter(|t| t.live).count();
    let again: Vec<usize> = survey.tasks.iter().filter(|t| !t.is_done() && !t.live).map(|t| t.task).collect();
    let under_way =
        if live > 0 { format!("; {live} {} under way", if live == 1 { "is" } else { "are" }) } else { String::new() };
    if again.is_empty() {
        print_text(&format!("nothing to resubmit{under_way}\n"))?;
        return Ok(0);
    }
    let count = again.len();
    let id = queue(&mut fleet, again)?;
    print_text(&format!("job {id}: {count} of {} tasks again{under_way}\n", fleet.submitted.tasks))?;
    Ok(0)
}

fn queue(fleet: &mut Fleet, tasks: Vec<usize>) -> Result<String> {
    let script = fleet.dir.join(SCRIPT);
    let id = slurm::submit(&all_options(fleet), &tasks, script.as_os_str())?;
    fleet.submitted.jobs.push(Job { id: id.clone(), tasks });
    fleet.save()?;
    Ok(id)
}

/// The device that a task runs on: its GPUs, where nobody says anything else.
fn device(args: &SubmitArgs) -> String {
    match (args.measure.selection.device.as_str(), args.gpus_per_node) {
        ("auto", 0) => "cpu".into(),
        ("auto", _) => "cuda:all".into(),
        (word, _) => word.into(),
    }
}

/// What a task measures, on its own device.
pub fn measure(mut args: SubmitArgs) -> Measure {
    args.measure.selection.device = device(&args);
    args.measure
}

fn options(args: &SubmitArgs) -> Vec<String> {
    // A requeued task goes on in the same log; whoever loses its node is queued again.
    let mut options = ["--nodes=1", "--requeue", "--open-mode=append", "--job-name=kmark"].map(String::from).to_vec();
    let mut option = |name: &str, value: &Option<String>| {
        options.extend(value.iter().map(|v| format!("--{name}={v}")));
    };
    option("gpus-per-node", &Some(args.gpus_per_node).filter(|n| *n > 0).map(|n| n.to_string()));
    option("partition", &args.partition);
    option("time", &args.time);
    option("constraint", &args.constraint);
    options.extend(args.sbatch.iter().cloned());
    options
}

/// With the files of the folder, and the folder that the command was typed in: names in it are as they were.
fn all_options(fleet: &Fleet) -> Vec<String> {
    let mut options = fleet.submitted.options.clone();
    options.push(format!("--output={}/%A_%a.log", fleet.dir.join(LOGS).display()));
    options.push(format!("--chdir={}", fleet.submitted.folder.display()));
    options
}

fn write_script(fleet: &Fleet) -> Result<()> {
    let path = fleet.dir.join(SCRIPT);
    let own = |e: std::io::Error| Error::own(format!("{}: {e}", path.display()));
    let program = std::env::current_exe().map_err(own)?;
    let typed = |words: &[String]| words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ").replace('\n', " ");
    let (program, dir) = (quoted(&program.display().to_string()), quoted(&fleet.dir.display().to_string()));
    let script = format!(
        "#!/bin/sh\n\
         # One task of an array: a shard of\n\
         #   {}\n\
         # queued with\n\
         #   sbatch {}\n\
         exec {program} task {dir} {} \"$SLURM_ARRAY_TASK_ID\"\n",
        typed(&fleet.submitted.command),
        typed(&all_options(fleet)),
        fleet.submitted.token,
    );
    std::fs::write(&path, script).map_err(own)
}
