//! Compiling ahead: while a run starts and measures its first cases, processes of their own compile the kernels and oracles
//! of the later ones into the cache, where workers find them. A GPU's host has cores that a run does not use.

use crate::cli::Selection;
use crate::device::kernel_cache;
use crate::impls::is_kernel_file;
use crate::plan::Plan;
use kmark_ops::cuda::kernel_file;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// Compilers at work; they end when this is let go.
pub struct Ahead(Vec<Child>);

impl Ahead {
    /// Starts them, if there is something to do, a GPU, a cache, and more than two cores.
    pub fn start(selection: &Selection, plan: &Plan) -> Ahead {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let parts = if kernel_cache().is_some() && !plan.items.is_empty() { cores / 2 } else { 0 };
        let (Some(arch), Ok(program), true) = (plan.device().arch(), std::env::current_exe(), parts > 1) else {
            return Ahead(Vec::new());
        };
        // A plan may be a shard, or the rest of a run, which no flags name.
        let cases: String = plan.items.iter().map(|p| format!("{}\n", p.case.id)).collect();
        let start = |part: usize| {
            let mut command = Command::new(&program);
            command.arg("build").args(words(selection, plan)).arg("--cases-from-stdin");
            command.args(["--arch", &arch, "--part", &format!("{part}/{parts}")]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
            let (mut to, cases) = (child.stdin.take()?, cases.clone());
            std::thread::spawn(move || drop(to.write_all(cases.as_bytes()))); // it reads when it has made its cases
            Some(child)
        };
        Ahead((0..parts).filter_map(start).collect())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The selection as it is typed, with the kernels of ours that run. Kernels in files are compiled when they are verified.
fn words(selection: &Selection, plan: &Plan) -> Vec<String> {
    let mut words = selection.what.clone();
    let mut option = |name: &str, values: &[String]| {
        for value in values {
            words.extend([format!("--{name}"), value.clone()]);
        }
    };
    let choice = &selection.choice;
    option("dtype", &choice.dtype);
    option("set", &choice.set);
    option("configs", &choice.configs);
    option("filter", &choice.filter);
    option("exclude", &choice.exclude);
    option("seed", &[selection.seed.to_string()]);
    let ours = plan.items.iter().flat_map(|p| &p.impls).filter(|i| kernel_file(**i).is_some());
    let names: BTreeSet<&str> = ours.map(|i| i.name()).filter(|name| !is_kernel_file(name)).collect();
    option("impl", &names.iter().map(|n| n.to_string()).collect::<Vec<_>>());
    if names.is_empty() {
        words.push("--no-kernels".into());
    }
    words
}
