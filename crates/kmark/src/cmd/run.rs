//! `kmark run`: verify, time, record, show.

use super::ahead::Ahead;
use super::lanes::{self, Event, Lanes};
use super::libraries;
use super::progress::Progress;
use crate::cli::{Cache, Measure, RunArgs};
use crate::device::Choice;
use crate::error::{Error, Result};
use crate::log::{self, Log};
use crate::plan::{Plan, Planned, plan};
use crate::report::{self, Options, RunData, against::noise};
use crate::store::{self, Loaded, Store, read_run};
use crate::{env, own, provenance, roofs, units};
use kmark_core::record::{Mode, Record, SCHEMA};
use kmark_core::run::{Gpu, Run, Settings};
use kmark_device::last_words;
use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub fn run(args: RunArgs) -> Result<u8> {
    let plan = plan(&args.measure.selection, args.shard)?;
    if args.dry_run {
        check_baseline(&args.measure, &plan)?;
        return super::dry_run::show(&plan, &settings(&args.measure, &plan)?, args.shard, args.json);
    }
    run_plan(args, plan)
}

pub fn run_plan(args: RunArgs, mut plan: Plan) -> Result<u8> {
    let start = Instant::now();
    let settings = settings(&args.measure, &plan)?;
    check_baseline(&args.measure, &plan)?;
    own::try_references(plan.items.iter().map(|p| &p.case))?;
    let mut run = describe(&args, &settings, &plan)?;
    if let Some(from) = &args.measure.roofs_from {
        let refused = |why| Error::usage(format!("--roofs-from {}: {why}", from.display()));
        roofs::reuse(&mut run, &read_run(store::folder(from))?).map_err(refused)?;
    }
    let dir = args.out.clone().map_or_else(default_dir, Ok)?;
    let (mut store, earlier) = Store::open(&dir, &run, args.resume)?;
    let mut records = Vec::new();
    if let Some(loaded) = earlier {
        check_same_run(&run, &loaded, &plan)?;
        run = Run { finished: None, ..loaded.run };
        records = loaded.records;
    }
    drop_done(&mut plan, &records, settings.mode);
    let again = provenance::resume_command(std::env::args(), &dir);
    last_words::leave(format!("\ninterrupted; the records so far are in {}; go on with\n  {again}\n", dir.display()));
    if !args.quiet {
        super::say(&format!("writing to {}", dir.display()));
        busy(env::load(), std::thread::available_parallelism().ok()).into_iter().for_each(|line| super::say(&line));
    }

    let _ahead = Ahead::start(&args.measure.selection, &plan);
    let progress = Progress::new(plan.items.iter().map(|p| p.impls.len()).collect(), args.quiet);
    let log = Arc::new(Log::new(dir.join(log::FILE)));
    let mut phases = run.phases.unwrap_or_default();
    if !plan.items.is_empty() {
        let (deadline, with_roofs) = (args.measure.selection.deadline, !args.measure.no_roofs);
        let lanes = Lanes::new(&plan, &settings, deadline, with_roofs, Arc::clone(&log), progress);
        let known = lanes::known(&run, &plan.devices)?;
        if let Some(jobs) = args.measure.compile_jobs {
            phases.add(&libraries::compile(&lanes, jobs as usize));
        }
        lanes.run(&known, |event| match event {
            Event::Ready(gpu) => {
                lanes::learn(&mut run, gpu);
                lanes.progress().begin();
                store.write_run(&run)
            }
            Event::Case(planned, new) => {
                store.append(&new)?;
                tell(&mut lanes.progress(), &planned.case.id, &new, args.measure.verbose);
                records.extend(new);
                Ok(())
            }
            Event::End(gpu, spent) => {
                lanes::learn(&mut run, gpu);
                phases.add(&spent);
                Ok(())
            }
        })?;
        lanes.progress().end();
    }

    phases.wall_ns += start.elapsed().as_nanos() as u64;
    run.phases = Some(phases);
    let name = dir.display().to_string();
    let rows = RunData::new(&name, &run, &records, args.measure.baseline.as_deref()).rows;
    run.noise_floor = noise(&rows);
    run.finished = Some(now());
    store.write_run(&run)?;
    if let (Some(path), false) = (log.written(), args.quiet) {
        super::say(&format!("what impls printed is in {}", path.display()));
    }
    show(&args, RunData { name: &name, run: &run, rows })?;
    for r in records.iter().filter(|r| args.quiet && !args.json && r.status.is_failure()) {
        super::say(&super::failure(r.status.word(), &r.case, &r.impl_name, &r.message));
    }
    Ok(super::end(records.iter().map(|r| (r.status, r.message.as_str())), args.measure.selection.strict))
}

pub fn settings(measure: &Measure, plan: &Plan) -> Result<Settings> {
    if measure.graph && plan.device() == Choice::Cpu {
        return Err(Error::usage("--graph needs a CUDA device: the CPU has no graphs to replay"));
    }
    if measure.e2e && plan.device() == Choice::Cpu {
        return Err(Error::usage("--e2e needs a CUDA device: on the CPU a launch is the host's time already"));
    }
    let warmup_ns = match measure.warmup.as_str() {
        "auto" => None,
        time => {
            let time = units::parse_duration(time).map_err(|e| Error::usage(format!("--warmup: {e}, or auto")))?;
            Some(time.as_nanos() as u64)
        }
    };
    Ok(Settings {
        mode: match measure.cache {
            _ if measure.graph => Mode::Graph,
            _ if measure.e2e => Mode::E2e,
            Cache::Cold => Mode::Cold,
            Cache::Hot => Mode::Hot,
        },
        precision: measure.precision,
        budget_ns: measure.budget.unwrap_or(plan.budget).as_nanos() as u64,
        rounds: measure.rounds,
        warmup_ns,
        seed: measure.selection.seed,
        verify: !measure.skip_verify,
        grade: measure.selection.grade.into(),
        baseline: measure.baseline.clone(),
    })
}

pub fn check_baseline(measure: &Measure, plan: &Plan) -> Result<()> {
    let Some(name) = &measure.baseline else { return Ok(()) };
    if plan.names.contains(name.as_str()) {
        return Ok(());
    }
    let known = plan.names.iter().copied();
    Err(Error::usage(kmark_core::spelling::unknown("baseline (it must be among the impls that run)", name, known)))
}

/// As records of runs have it: to the nanosecond, UTC.
pub fn now() -> String {
    humantime::format_rfc3339_nanos(std::time::SystemTime::now()).to_string()
}

/// A folder of its own for every run, named by the second, and made here: of several runs that start at once each gets one.
fn default_dir() -> Result<PathBuf> {
    let runs = PathBuf::from("kmark-runs");
    let cannot = |e: std::io::Error| Error::usage(format!("{}: {e}; --out DIR names another folder", runs.display()));
    std::fs::create_dir_all(&runs).map_err(cannot)?;
    let now = now()[.."2026-01-31T23:59:59".len()].replace(['-', ':'], "").replace('T', "-");
    let mut name = now.clone();
    for i in 2.. {
        match std::fs::create_dir(runs.join(&name)) {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => name = format!("{now}-{i}"),
            Err(e) => return Err(cannot(e)),
        }
    }
    Ok(runs.join(name))
}

fn describe(args: &RunArgs, settings: &Settings, plan: &Plan) -> Result<Run> {
    Ok(Run {
        schema: SCHEMA,
        kmark: env!("CARGO_PKG_VERSION").into(),
        started: now(),
        finished: None,
        command: std::env::args().collect(),
        selection: args.measure.selection.what.clone(),
        shard: args.shard.map(|s| s.to_string()),
        settings: settings.clone(),
        device: plan.device().id()?,
        gpus: gpus(plan)?,
        environment: env::facts(plan.device().gpu()),
        host: if args.measure.no_host { None } else { provenance::host() },
        git: provenance::git(),
        tags: args.measure.tag.clone(),
        calibration: None,
        roofs: None,
        roofs_from: None,
        no_roofs: None,
        noise_floor: None,
        phases: None,
    })
}

/// Where there are several, each by itself.
fn gpus(plan: &Plan) -> Result<Vec<Gpu>> {
    let one = |d: &Choice| Ok(Gpu { device: d.id()?, calibration: None, roofs: None, no_roofs: None });
    if plan.devices.len() > 1 { plan.devices.iter().map(one).collect() } else { Ok(Vec::new()) }
}

/// A run is of the same devices, one way of measuring, and one state of the code.
fn check_same_run(now: &Run, then: &Loaded, plan: &Plan) -> Result<()> {
    let differs = |what: &str, then_is: &str, now_is: &str| {
        let anew = provenance::anew_command(std::env::args(), Path::new(&then.name));
        let was = format!("{} was made with {what} {then_is}, not {now_is}", then.name);
        Err(Error::usage(format!("--resume: {was}; this starts anew: {anew}")))
    };
    let (a, b) = (&then.run, now);
    if a.device != b.device {
        return differs(
            "device",
            &format!("{} ({})", a.device.name, a.device.id),
            &format!("{} ({})", b.device.name, b.device.id),
        );
    }
    let all = |run: &Run| run.gpus.iter().map(|g| g.device.id.as_str()).collect::<Vec<_>>().join(", ");
    if all(a) != all(b) {
        let word = |run: &Run| if run.gpus.is_empty() { "one".into() } else { all(run) };
        return differs("GPUs", &word(a), &word(b));
    }
    if a.selection != b.selection {
        return differs("selection", &a.selection.join(" "), &b.selection.join(" "));
    }
    if a.shard != b.shard {
        let word = |shard: &Option<String>| shard.clone().unwrap_or("all".into());
        return differs("shard", &word(&a.shard), &word(&b.shard));
    }
    if a.settings.seed != b.settings.seed {
        return differs("seed", &a.settings.seed.to_string(), &b.settings.seed.to_string());
    }
    if a.settings.mode != b.settings.mode {
        return differs("mode", a.settings.mode.word(), b.settings.mode.word());
    }
    if a.settings.verify != b.settings.verify {
        return differs("verify", &a.settings.verify.to_string(), &b.settings.verify.to_string());
    }
    if a.kmark != b.kmark {
        return differs("kmark", &a.kmark, &b.kmark);
    }
    let (a, b) = (&a.settings, &b.settings);
    let time = |ns: u64| units::time(ns as f64);
    for (what, then_is, now_is) in [
        ("rounds", a.rounds.to_string(), b.rounds.to_string()),
        ("budget", time(a.budget_ns), time(b.budget_ns)),
        ("precision", units::percent(a.precision), units::percent(b.precision)),
        ("warm-up", a.warmup_ns.map_or("auto".into(), time), b.warmup_ns.map_or("auto".into(), time)),
        ("grade", a.grade.word().into(), b.grade.word().into()),
    ] {
        if then_is != now_is {
            return differs(what, &then_is, &now_is);
        }
    }
    let planned: HashMap<&str, &Planned> = plan.items.iter().map(|p| (p.case.id.as_str(), p)).collect();
    for r in &then.records {
        let Some(imp) = planned.get(r.case.as_str()).and_then(|p| p.impls.iter().find(|i| i.name() == r.impl_name))
        else {
            return differs("other cases or impls:", &format!("{} {}", r.case, r.impl_name), "in this command");
        };
        let known = r.source_hash.as_ref().unwrap_or(&r.impl_hash);
        if r.status.is_comparable() && *known != imp.hash() {
            return differs("another version of", &r.impl_name, "this one");
        }
    }
    Ok(())
}

/// Leaves out what the resumed run has already.
fn drop_done(plan: &mut Plan, records: &[Record], mode: Mode) {
    let done: HashSet<_> = records.iter().map(Record::key).collect();
    for p in &mut plan.items {
        let id = &p.case.id;
        p.impls.retain(|i| !done.contains(&(id.clone(), i.name().to_string(), mode)));
    }
    plan.items.retain(|p: &Planned| !p.impls.is_empty());
}

/// How a case went: failures stay, with their reasons.
fn tell(progress: &mut Progress, case: &str, new: &[Record], verbose: bool) {
    for r in new.iter().filter(|r| r.status.is_failure()) {
        let why = r.message.lines().next().unwrap_or("");
        progress.failed(&format!("{}: {} {}: {why}", r.status.word(), r.case, r.impl_name));
        if verbose && !r.traceback.is_empty() {
            progress.note(r.traceback.trim_end());
        }
    }
    progress.done(|| line(case, new));
}

/// What to say where others use the machine, too.
fn busy(load: Option<f64>, cores: Option<NonZero<usize>>) -> Option<String> {
    let (load, cores) = (load?, cores?);
    let much = load > cores.get() as f64;
    much.then(|| format!("the machine is busy: a load of {load:.1} on {cores} cores; times will scatter"))
}

/// How a case went, for logs: `case  impl 12.3 µs ± 0.4 %, impl wrong`.
fn line(case: &str, records: &[Record]) -> String {
    let parts: Vec<String> = records
        .iter()
        .map(|r| match r.time() {
            Some(t) => {
                let half = units::percent(t.width() / 2.0);
                format!("{} {} ± {half}", r.impl_name, units::time(t.value))
            }
            None => format!("{} {}", r.impl_name, r.status.word()),
        })
        .collect();
    format!("{case}  {}", parts.join(", "))
}

fn show(args: &RunArgs, data: RunData) -> Result<()> {
    let options = Options { color: super::color(), width: super::terminal_width(), ..Options::default() };
    match (args.json, args.quiet) {
        (true, _) => super::print(&report::json(&[data], &options)),
        (false, false) => super::print_text(&report::table(&[data], &options)),
        (false, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_mentioned() {
        let cores = NonZero::new(2);
        assert!(busy(Some(2.5), cores).unwrap().contains("a load of 2.5 on 2 cores"));
        assert_eq!((busy(Some(1.9), cores), busy(None, cores)), (None, None));
    }
}
