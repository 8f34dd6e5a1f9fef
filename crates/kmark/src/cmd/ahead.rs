//! Compiling ahead: while a run starts and measures its first cases, processes of their own compile the kernels and oracles
//! of the later ones into the cache, where workers find them. A GPU's host has cores that a run does not use.

use crate::cli::Selection;
use crate::device::{Choice, kernel_cache};
use std::process::{Child, Command, Stdio};

/// Compilers at work; they end when this is let go.
pub struct Ahead(Vec<Child>);

impl Ahead {
    /// Starts them, if there is a GPU, a cache, and more than two cores.
    pub fn start(selection: &Selection, device: Choice) -> Ahead {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let parts = if kernel_cache().is_some() { cores / 2 } else { 0 };
        let (Some(arch), Ok(program), true) = (device.arch(), std::env::current_exe(), parts > 1) else {
            return Ahead(Vec::new());
        };
        let start = |part: usize| {
            let mut command = Command::new(&program);
            command.arg("build").args(words(selection)).args(["--arch", &arch, "--part", &format!("{part}/{parts}")]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
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

/// The selection as it is typed. Kernels in files are compiled when they are verified.
fn words(selection: &Selection) -> Vec<String> {
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
    words
}
