//! `kmark verify`: the gate alone, over impls or over mutants.

use super::ahead::Ahead;
use super::progress::Progress;
use super::{print, to_json};
use crate::bench::{Bench, Deadlines};
use crate::cli::VerifyArgs;
use crate::error::{Error, Result, WRONG_ANSWER};
use crate::host::Workers;
use crate::own;
use crate::plan::{Planned, plan};
use kmark_core::gate::Verify;
use kmark_core::record::{Mode, Status};
use kmark_core::run::{Phases, Settings};
use kmark_core::tally::Grade;
use kmark_device::cuda::LAUNCH_FAILED;
use kmark_device::{Fault, Impl};
use kmark_ops::mutants;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Line {
    case: String,
    #[serde(rename = "impl")]
    impl_name: String,
    status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<Verify>,
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    traceback: String,
    /// A mutant that the gate did not tell for what it is, or an impl that failed.
    #[serde(skip)]
    bad: bool,
}

pub fn run(args: VerifyArgs) -> Result<u8> {
    let plan = plan(&args.selection, args.shard)?;
    if plan.devices.len() > 1 {
        let word = &args.selection.device;
        return Err(Error::usage(format!("--device {word}: `kmark verify` takes one device, `kmark run` several")));
    }
    let settings = Settings {
        mode: Mode::Cold,
        precision: 1.0,
        budget_ns: 0,
        rounds: 1,
        warmup_ns: None,
        seed: args.selection.seed,
        verify: true,
        grade: args.selection.grade.into(),
        baseline: None,
    };
    own::try_references(plan.items.iter().map(|p| &p.case))?;
    let _ahead = Ahead::start(&args.selection, &plan);
    let mut workers = Workers::new(plan.device(), false);
    let deadlines = Deadlines::of(args.selection.deadline);
    let (roofs, phases) = (None, Phases::default());
    let mut bench = Bench { workers: &mut workers, settings: &settings, deadlines, roofs, phases };
    let mut progress = Progress::new(plan.items.iter().map(|p| p.impls.len().max(1)).collect(), args.quiet);
    let mut lines: Vec<Line> = Vec::new();
    for planned in &plan.items {
        let start = lines.len();
        if args.oracle {
            progress.now(&format!("{} oracle", planned.case.id));
            lines.push(against_host(&mut bench, planned));
        }
        for (name, grade) in names(planned, &args, plan.device().kind()) {
            progress.now(&format!("{} {name}", planned.case.id));
            let mut line = check(&mut bench, planned, name);
            line.bad = if args.mutants { !is_told(&line, grade) } else { line.status.is_failure() };
            // A mutant may find only when it runs that there is nothing to spoil.
            if !(args.mutants && line.status == Status::Unsupported) {
                lines.push(line);
            }
        }
        let bad = lines[start..].iter().filter(|l| l.bad).count();
        let absent = |l: &&Line| matches!(l.status, Status::Unsupported | Status::Unavailable);
        let checked = lines[start..].iter().filter(|l| !absent(l)).count();
        progress.done(|| format!("{}  {checked} of {} checked, {bad} bad", planned.case.id, lines.len() - start));
    }
    progress.end();
    let blind =
        if args.mutants { super::blind::proposals(&mut bench, &plan.items, &missed(&lines)) } else { Vec::new() };
    let bad: Vec<&Line> = lines.iter().filter(|l| l.bad).collect();
    let failures = failures(&bad, args.mutants, args.verbose);
    if args.json {
        print(&to_json(&lines))?;
    } else if args.quiet {
        failures.iter().for_each(|line| super::say(line));
    } else {
        super::print_text(&failures.iter().map(|line| format!("{line}\n")).collect::<String>())?;
        super::print_text(&summary(&lines, bad.len(), args.mutants))?;
        super::print_text(&blind.iter().map(|line| format!("{line}\n")).collect::<String>())?;
    }
    Ok(match (args.mutants, bad.is_empty()) {
        (true, true) => 0,
        (true, false) => WRONG_ANSWER,
        (false, _) => super::end(lines.iter().map(|l| (l.status, l.message.as_str())), args.selection.strict),
    })
}

/// Mutants of users' ops that were taken for right, by op and name, with the first case where they were.
fn missed(lines: &[Line]) -> BTreeMap<(String, String), String> {
    let mut found = BTreeMap::new();
    for line in lines.iter().filter(|l| l.bad && l.status == Status::Ok) {
        let op = line.case.split('/').next().unwrap_or("");
        if kmark_core::own::find(op).is_some() {
            found.entry((op.to_string(), line.impl_name.clone())).or_insert_with(|| line.case.clone());
        }
    }
    found
}

/// What is checked of a case; of a mutant also what the gate must say.
fn names(planned: &Planned, args: &VerifyArgs, device: &str) -> Vec<(String, Option<Grade>)> {
    if args.oracle {
        Vec::new()
    } else if args.mutants && planned.entry.op.judge.is_some() {
        own::mutants_of(&planned.case.op).into_iter().map(|name| (name, None)).collect()
    } else if args.mutants {
        let all = mutants::of(planned.entry, device).into_iter();
        all.filter(|m| m.supports(planned.entry.op, &planned.case).is_ok())
            .map(|m| (m.name().to_string(), m.grade()))
            .collect()
    } else {
        planned.impls.iter().map(|i| (i.name().to_string(), None)).collect()
    }
}

fn check(bench: &mut Bench, planned: &Planned, impl_name: String) -> Line {
    let supported = planned
        .impls
        .iter()
        .find(|i| i.name() == impl_name)
        .map_or(Ok(()), |i| i.supports(planned.entry.op, &planned.case));
    let result = match (bench.too_large(planned), supported) {
        (Some(fault), _) => Err(fault),
        (None, Err(why)) => Err(Fault::new(Status::Unsupported, why)),
        (None, Ok(())) => bench.verify(planned, &impl_name, false),
    };
    let (status, verify, message, traceback) = match result {
        Ok(v) if v.ok() => (Status::Ok, Some(v), String::new(), String::new()),
        Ok(v) => {
            let message = v.problems.join("; ");
            (Status::Wrong, Some(v), message, String::new())
        }
        Err(f) => (f.status, None, f.message, f.traceback),
    };
    Line { case: planned.case.id.clone(), impl_name, status, verify, message, traceback, bad: false }
}

/// The GPU's oracle held against the host's.
fn against_host(bench: &mut Bench, planned: &Planned) -> Line {
    let (case, impl_name) = (planned.case.id.clone(), "oracle".to_string());
    let (status, message) = match bench.oracle(planned) {
        Ok(problems) if problems.is_empty() => (Status::Ok, String::new()),
        Ok(problems) => (Status::Wrong, problems.join("; ")),
        Err(f) => (f.status, f.message),
    };
    Line { case, impl_name, status, verify: None, message, traceback: String::new(), bad: status.is_failure() }
}

/// Whether the gate told a mutant for what it is: wrong, or of the grade that it must have. A kernel launched or compiled
/// wrongly may fault on the GPU instead of giving a wrong answer; nothing else may.
fn is_told(line: &Line, grade: Option<Grade>) -> bool {
    let on_gpu = line.status == Status::Crashed && line.message.starts_with(LAUNCH_FAILED);
    let faulted = on_gpu && mutants::may_fault(&line.impl_name);
    faulted || line.verify.as_ref().is_some_and(|v| v.grade == grade)
}

fn grade_of(line: &Line) -> Option<Grade> {
    line.verify.as_ref().and_then(|v| v.grade)
}

/// What is wrong with each of these.
fn failures(bad: &[&Line], as_mutants: bool, verbose: bool) -> Vec<String> {
    let mut text = Vec::new();
    for l in bad {
        let status = match grade_of(l) {
            Some(grade) if as_mutants => format!("graded {}", grade.word()),
            _ => l.status.word().to_string(),
        };
        let theirs = l.verify.as_ref().and_then(|v| v.theirs.as_ref()).filter(|t| t.ok);
        let theirs = theirs.map(|t| format!("; {} accepts it", t.gate)).unwrap_or_default();
        text.push(super::failure(&status, &l.case, &l.impl_name, &l.message) + &theirs);
        if verbose && !l.traceback.is_empty() {
            text.push(l.traceback.trim_end().to_string());
        }
    }
    text
}

fn summary(lines: &[Line], bad: usize, as_mutants: bool) -> String {
    let distinct = |key: &dyn Fn(&Line) -> String| {
        let mut all: Vec<String> = lines.iter().map(key).collect();
        all.sort();
        all.dedup();
        all.len()
    };
    let cases = distinct(&|l| l.case.clone());
    if as_mutants {
        let op = |l: &Line| format!("{} {}", l.case.split('/').next().unwrap_or(""), l.impl_name);
        let kinds = distinct(&op);
        let loose = lines.iter().filter(|l| !l.bad && grade_of(l) == Some(Grade::Loose)).count();
        let rejected = lines.len() - bad - loose;
        format!("{kinds} mutants on {cases} cases: {rejected} rejected, {loose} graded loose, {bad} neither\n")
    } else {
        let elements: u64 = lines.iter().filter_map(|l| l.verify.as_ref()).map(|v| v.elements).sum();
        let ok = lines.iter().filter(|l| l.status == Status::Ok).count();
        format!("{cases} cases, {ok} of {} ok, {elements} elements compared\n", lines.len())
    }
}
