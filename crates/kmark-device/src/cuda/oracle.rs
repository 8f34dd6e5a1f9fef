//! The oracle of an op as CUDA C++: found by its op's name, compiled for a case, loaded.

use super::Cuda;
use super::directives::Directives;
use super::jit::{Headers, Jit};
use super::kernel_line::NOT_COMPILED;
use super::machine::Machine;
use super::memory::Raw;
use super::prelude::For;
use super::program::{KernelFile, Step, Text};
use crate::Fault;
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_core::tensor::TensorSpec;
use std::sync::Arc;

/// The op's oracle, loaded. Of an op that is judged elsewhere there is none.
pub(super) struct Oracle {
    pub(super) kernels: Vec<Step>,
    pub(super) derives: Vec<(String, Step)>,
    pub(super) workspace: Raw,
}

/// Under what name the source of an op's oracle is kept beside the headers.
pub fn oracle_name(op: &Op) -> String {
    format!("{}/00_oracle.cu", op.name)
}

impl Oracle {
    /// The op's oracle as a file.
    fn file(op: &'static Op, headers: Headers) -> Result<KernelFile<'static>, Fault> {
        let name = oracle_name(op);
        let lost = || Fault::new(Status::BuildFailed, format!("there is no {name}"));
        let (_, text) = headers.iter().find(|(known, _)| *known == name).ok_or_else(lost)?;
        let bad = |e| Fault::new(Status::BuildFailed, format!("{name}: {e}"));
        let directives = Directives::parse(text).map_err(bad)?;
        Ok(KernelFile { text: Text::Cuda((*text).into()), directives, headers, folder: None, name })
    }

    pub(super) fn load(cuda: &Cuda, op: &'static Op, case: &Case, specs: &[TensorSpec]) -> Result<Oracle, Fault> {
        if op.judge.is_some() {
            let workspace = Raw::new(cuda.queue(), 8)?;
            return Ok(Oracle { kernels: Vec::new(), derives: Vec::new(), workspace });
        }
        let file = Oracle::file(op, cuda.headers())?;
        let (image, _) = file.compile(cuda.jit(), cuda.machine(), op, case, For::Oracle, "")?;
        let module = Arc::new(cuda.queue().module(&image)?);
        let bad = |e: String| Fault::new(Status::Unsupported, format!("{}: {e}", file.name));
        let names = file.directives.names(op, case, specs, cuda.machine()).map_err(bad)?;
        let (mut kernels, mut derives) = (Vec::new(), Vec::new());
        for line in &file.directives.kernels {
            if let Some(shape) = line.shape(&names, NOT_COMPILED).map_err(bad)? {
                kernels.push(Step::new(&module, &line.name, shape)?);
            }
        }
        for (tensor, line) in &file.directives.derives {
            if let Some(shape) = line.shape(&names, NOT_COMPILED).map_err(bad)? {
                derives.push((tensor.clone(), Step::new(&module, &line.name, shape)?));
            }
        }
        let workspace = Raw::new(cuda.queue(), file.directives.workspace_bytes(&names).map_err(bad)?.max(8))?;
        Ok(Oracle { kernels, derives, workspace })
    }
}

/// The compiled oracle of a case for an architecture: the compiler's log.
pub fn compile_oracle(jit: &Jit, arch: &str, op: &'static Op, case: &Case, headers: Headers) -> Result<String, Fault> {
    let (file, machine) = (Oracle::file(op, headers)?, Machine::usual(arch));
    file.compile(jit, &machine, op, case, For::Oracle, "").map(|(_, log)| log)
}
