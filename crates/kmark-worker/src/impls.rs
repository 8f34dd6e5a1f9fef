//! Impls by name: those in this program, and kernels in files.

use crate::faults;
use kmark_core::error::{Error, Result};
use kmark_device::Impl;
use kmark_ops::Entry;
use kmark_ops::cuda::UserKernel;
use std::path::Path;

/// The impls of an op on a kind of device, those for tests included where a test asked for them.
pub fn impls_of(entry: &'static Entry, device: &str) -> Vec<&'static dyn Impl> {
    entry.impls_on(device).iter().copied().chain(faults::of(entry, device)).collect()
}

/// Whether an impl's name is a CUDA kernel in a file.
pub fn is_kernel_file(name: &str) -> bool {
    let path = split_entry(name).0;
    [".cu", ".ptx", ".cubin"].iter().any(|end| path.ends_with(end))
}

/// A name, and the word for tuned values behind it.
pub fn split_choice(name: &str) -> (&str, Option<&str>) {
    name.split_once('#').map_or((name, None), |(name, choice)| (name, Some(choice)))
}

/// Path and kernel.
fn split_entry(name: &str) -> (&str, Option<&str>) {
    let name = split_choice(name).0;
    match name.rsplit_once(':') {
        Some((path, entry)) if !entry.contains('/') => (path, Some(entry)),
        _ => (name, None),
    }
}

/// A kernel of the user's. Directives of a cubin, which has no room for them, stand in `mine.cubin.kmark` beside it.
pub fn user_kernel(name: &str) -> Result<UserKernel> {
    let (path, entry) = split_entry(name);
    let wrong = |e: &dyn std::fmt::Display| Error::usage(format!("--impl {name}: {e}"));
    let bytes = std::fs::read(path).map_err(|e| wrong(&e))?;
    let beside = std::fs::read_to_string(format!("{path}.kmark")).ok();
    let (word, choice) = split_choice(name);
    let kernel = UserKernel::new(word, Path::new(path), bytes, entry, beside.as_deref()).map_err(|e| wrong(&e))?;
    match choice {
        Some(choice) => UserKernel::variant_of(&kernel, name, choice).map_err(|e| wrong(&e)),
        None => Ok(kernel),
    }
}
