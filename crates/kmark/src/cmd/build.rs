//! `kmark build`: compiles the kernels of a selection without a GPU, for any architecture, and looks at what the compiler
//! says. Several processes share the work: NVRTC does not get faster with threads, and a crash of it stays in one.

use super::{print, say};
use crate::cli::BuildArgs;
use crate::device::{Choice, kernel_cache};
use crate::error::{BUILD_FAILED, Error, Result};
use crate::plan;
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::spelling::unknown;
use kmark_device::cuda::jit::{Jit, complaints};
use kmark_device::cuda::machine::Machine;
use kmark_device::cuda::{For, compile_oracle};
use kmark_device::{Fault, Impl};
use kmark_ops::Entry;
use kmark_ops::cuda::{ARCHITECTURES, UserKernel, kernel_file};
use kmark_ops::headers;
use kmark_worker::impls::split_choice;
use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// `None` is the oracle.
type Kernel = Option<&'static dyn Impl>;

/// One thing to compile.
struct Job {
    entry: &'static Entry,
    case: Case,
    kernel: Kernel,
    arch: String,
}

pub fn run(args: BuildArgs) -> Result<u8> {
    let archs = archs(&args)?;
    let jobs = jobs(&args, &archs)?;
    Jit::nvrtc().map_err(Error::own)?;
    if let Some((part, parts)) = args.part {
        let mine = jobs.into_iter().enumerate().filter(|(i, _)| i % parts == part).map(|(_, job)| job);
        return Ok(work(mine, args.quick));
    }
    let parts = std::thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len().max(1));
    let mut children = Vec::new();
    for part in 0..parts {
        let exe = std::env::current_exe().map_err(|e| Error::own(format!("cannot find this program: {e}")))?;
        let mut command = Command::new(exe);
        command.args(std::env::args_os().skip(1)).args(["--part", &format!("{part}/{parts}")]).stdout(Stdio::piped());
        children.push(command.spawn().map_err(|e| Error::own(format!("cannot start a compiler process: {e}")))?);
    }
    let (mut bad, mut died) = (Vec::new(), false);
    for child in &mut children {
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        bad.extend(lines.map_while(std::result::Result::ok));
    }
    for mut child in children {
        died |= !child.wait().is_ok_and(|s| s.code().is_some_and(|c| c == 0 || c == BUILD_FAILED as i32));
    }
    for line in &bad {
        print(&format!("{line}\n"))?;
    }
    if died {
        say("a compiler process died; what it had to compile is unknown");
    }
    let kinds = jobs.iter().filter(|j| j.arch == archs[0]).count();
    print(&format!("{} compilations ({kinds} for {}): {}\n", jobs.len(), archs[0], summary(&bad, args.quick)))?;
    Ok(if bad.is_empty() && !died { 0 } else { BUILD_FAILED })
}

fn summary(bad: &[String], quick: bool) -> String {
    let count = bad.iter().filter(|l| !l.starts_with(' ')).count();
    match count {
        0 if quick => "no errors, no warnings".into(),
        0 => "no errors, no spills, no warnings".into(),
        _ => format!("{count} with complaints"),
    }
}

fn archs(args: &BuildArgs) -> Result<Vec<String>> {
    if let Some(wrong) = args.arch.iter().find(|a| !ARCHITECTURES.contains(&a.as_str())) {
        return Err(Error::usage(unknown("architecture", wrong, ARCHITECTURES.iter().copied())));
    }
    Ok(match args.arch.is_empty() {
        true => ARCHITECTURES.iter().map(|a| a.to_string()).collect(),
        false => args.arch.clone(),
    })
}

/// Every kernel and oracle of the selection once per text that the compiler would see.
fn jobs(args: &BuildArgs, archs: &[String]) -> Result<Vec<Job>> {
    let (mut jobs, mut seen) = (Vec::new(), HashSet::new());
    let mut cases = plan::cases(&args.selection.what, &args.selection.choice, args.selection.seed)?.0;
    if args.cases_from_stdin {
        let wanted: HashSet<String> = std::io::stdin().lock().lines().map_while(std::result::Result::ok).collect();
        cases.retain(|c| wanted.contains(&c.id));
    }
    let patterns = &args.selection.impls;
    plan::check_patterns(patterns, &cases, Choice::Cuda(0))?;
    let users = plan::users(patterns, Choice::Cuda(0))?;
    // Files that were named: why they refuse the first case, unless they take one.
    let mut refused: Vec<(&str, Option<String>)> = users.iter().map(|u| (u.name(), Some(String::new()))).collect();
    for case in cases {
        let entry = kmark_ops::find(&case.op).expect("cases are made of known ops");
        let ours = entry.cuda.iter().copied().filter(|k| plan::wanted(patterns, k.name()));
        let all = ours.chain(users.iter().copied());
        let mut supports = |k: &dyn Impl| {
            let claim = k.supports(entry.op, &case);
            if let Some((_, why)) = refused.iter_mut().find(|(name, _)| *name == k.name()) {
                match &claim {
                    Ok(()) => *why = None,
                    Err(e) => why.iter_mut().filter(|w| w.is_empty()).for_each(|w| w.clone_from(e)),
                }
            }
            claim.is_ok()
        };
        let claimed: Vec<_> = all.filter(|k| !args.no_kernels && supports(*k)).collect();
        let oracle = (!args.no_oracles).then_some(None);
        for kernel in oracle.into_iter().chain(claimed.into_iter().map(Some)) {
            let file = kernel.map(kernel_file);
            if matches!(file, Some(None)) {
                continue; // a library's function is compiled by its makers
            }
            let directives = file.flatten().map(|f| f.directives).unwrap_or_default();
            let sizes: Vec<String> = directives.constants.iter().map(|c| format!("{c}{}", case.axis(c))).collect();
            let (name, tensors) = (kernel.map_or("oracle", |k| k.name()), entry.op.tensors(&case));
            for arch in archs.iter().filter(|a| directives.runs_on(a)) {
                let machine = Machine::usual(arch);
                let names = directives.names(entry.op, &case, &tensors, &machine);
                let own = names.map(|n| n.lets).unwrap_or_default();
                let key = format!("{name} {} {} {:?} {sizes:?} {own:?} {arch}", case.op, case.dtype, case.attrs);
                if !seen.insert(key) {
                    continue;
                }
                for kernel in variants(kernel, entry.op, &case, arch)? {
                    jobs.push(Job { entry, case: case.clone(), kernel, arch: arch.clone() });
                }
            }
        }
    }
    match refused.into_iter().find_map(|(name, why)| why.filter(|w| !w.is_empty()).map(|w| format!("{name}: {w}"))) {
        Some(why) => Err(Error::usage(format!("{why}; it takes none of these cases"))),
        None => Ok(jobs),
    }
}

/// A kernel with each choice of its tuned values; itself, or the oracle, where there is nothing to choose.
fn variants(kernel: Kernel, op: &'static Op, case: &Case, arch: &str) -> Result<Vec<Kernel>> {
    let Some(imp) = kernel else { return Ok(vec![None]) };
    let words = imp.variants(op, case, arch);
    if words.is_empty() {
        return Ok(vec![kernel]);
    }
    let one = |word: &String| {
        let name = format!("{}#{word}", split_choice(imp.name()).0);
        let chosen = UserKernel::variant_of(imp, &name, word).map_err(|e| Error::own(format!("{name}: {e}")))?;
        Ok(Some(&*Box::leak(Box::new(chosen)) as &dyn Impl)) // a few, for as long as the program runs
    };
    words.iter().map(one).collect()
}

/// Compiles, and prints what is wrong: a line for each job, the compiler's words below it.
fn work(jobs: impl Iterator<Item = Job>, quick: bool) -> u8 {
    let jit = Jit::new(kernel_cache());
    let jit = if quick { jit.quick() } else { jit };
    let mut code = 0;
    for job in jobs {
        let log = match job.kernel {
            Some(kernel) => {
                let file = kernel_file(kernel).expect("only files are compiled");
                let machine = Machine::usual(&job.arch);
                file.compile(&jit, &machine, job.entry.op, &job.case, For::Kernel, "").map(|(_, log)| log)
            }
            None => compile_oracle(&jit, &job.arch, job.entry.op, &job.case, headers()),
        };
        let wrong = match log {
            Err(Fault { message, .. }) => message.lines().map(String::from).collect(),
            // An oracle is meant to be plain, not fast; what is hardly optimised says nothing of registers.
            Ok(log) if quick || job.kernel.is_none() => {
                complaints(&log).into_iter().filter(|l| !l.contains("spill")).collect()
            }
            Ok(log) => complaints(&log),
        };
        if !wrong.is_empty() {
            let name = job.kernel.map_or("00_oracle", |k| k.name());
            let mut text = format!("{} {} {name}\n", job.arch, job.case.id);
            wrong.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
            let _ = print(&text);
            code = BUILD_FAILED;
        }
    }
    code
}
