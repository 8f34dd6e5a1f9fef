//! A kernel file bound to a case: compiled, loaded, its arguments laid out, ready to be launched any number of times.

use super::declare::declarations;
use super::directives::Directives;
use super::driver::{Figure, Function, Module, Queue, TensorMap};
use super::jit::{self, Source};
use super::kernel_line::{Fits, Shape};
use super::machine::Machine;
use super::prelude::{For, pack, prelude, slots};
use super::workspace::Workspace;
use super::{Cuda, driver::Address};
use crate::buffer::Buffers;
use crate::{Built, Fault, Launch};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::{KernelFigures, Status};
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// A kernel's text, or what a compiler made of it elsewhere.
#[derive(Clone)]
pub struct KernelFile<'a> {
    /// As errors name it.
    pub name: String,
    pub text: Text<'a>,
    pub directives: Directives,
    pub headers: &'a [(&'a str, &'a str)],
    /// A folder for `#include`, if the file has one.
    pub folder: Option<PathBuf>,
}

#[derive(Clone)]
pub enum Text<'a> {
    Cuda(std::borrow::Cow<'a, str>),
    /// A cubin, or PTX with a zero byte at its end.
    Image(Vec<u8>),
}

/// Mistakes that can be made to any kernel from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wrong {
    /// The last block of the first launch does not run.
    LastBlock,
    /// Barriers of a block do nothing, and half of its warps are late.
    Race,
}

/// Kernels see a grid with as many blocks more than there are as one dimension has lost.
fn skipped((dimension, blocks): (usize, u32)) -> String {
    let more: Vec<u32> = (0..3).map(|d| if d == dimension { blocks } else { 0 }).collect();
    format!(
        "DEVICE dim3 kmark_grid() {{ return dim3(gridDim.x + {}, gridDim.y + {}, gridDim.z + {}); }}\n\
         #define gridDim kmark_grid()\n",
        more[0], more[1], more[2]
    )
}

/// In place of every barrier of a block.
const RACE: &str = "
#ifdef KMARK_EMULATE
DEVICE void kmark_race() {}
#else
DEVICE void kmark_race() {
    if (threadIdx.x / 32 % 2 == 1 || blockDim.x <= 32) for (int i = 0; i < 8; i++) __nanosleep(2000);
}
#endif
#define __syncthreads() kmark_race()
";

impl KernelFile<'_> {
    /// `Err` says why it does not claim the case: on the usual GPU of its architecture, since none is known yet.
    pub fn claims(&self, op: &Op, case: &Case) -> Result<(), String> {
        let tensors = op.tensors(case);
        let machine = Machine::usual(self.directives.archs.first().map_or("", |a| a));
        self.settled(op, case, &machine)?.directives.fits(op, case, &tensors, &machine)
    }

    /// The compiled image for a GPU and the compiler's log; `more` follows the prelude.
    pub fn compile(
        &self,
        jit: &jit::Jit,
        machine: &Machine,
        op: &Op,
        case: &Case,
        reader: For,
        more: &str,
    ) -> Result<(Vec<u8>, String), Fault> {
        let text = match &self.text {
            Text::Image(bytes) => return Ok((bytes.clone(), String::new())),
            Text::Cuda(text) => text,
        };
        let bad = |e: String| Fault::new(Status::BuildFailed, format!("{}: {e}", self.name));
        let mut before = prelude(op, case, &self.directives.constants, reader).map_err(bad)?;
        let tensors = op.tensors(case);
        let file = self.settled(op, case, machine).map_err(bad)?;
        let names = file.directives.names(op, case, &tensors, machine).map_err(bad)?;
        before.push_str(&declarations(&file.directives, &names));
        before.push_str(more);
        let mut flags = self.directives.flags.clone();
        if reader == For::Oracle {
            flags.push("--fmad=false".into());
        }
        let folder = self.folder.as_deref();
        let source = Source { name: &self.name, prelude: &before, text, headers: self.headers, folder, flags };
        jit.compile(&source, &machine.arch).map(|c| (c.cubin, c.log))
    }

    /// Compiles and loads the file and binds it to the case's memory.
    pub fn bind(
        &self,
        cuda: &Cuda,
        op: &Op,
        case: &Case,
        buffers: &Buffers,
        wrong: Option<Wrong>,
    ) -> Result<Program, Fault> {
        let tensors = op.tensors(case);
        let bad = |e: String| Fault::new(Status::Unsupported, format!("{}: {e}", self.name));
        let file = self.settled(op, case, cuda.machine()).map_err(bad)?;
        let names = file.directives.names(op, case, &tensors, cuda.machine()).map_err(bad)?;
        file.directives.check_choice(&names).map_err(bad)?;
        let load = |more: &str| -> Result<(Arc<Module>, String), Fault> {
            let (image, log) = file.compile(cuda.jit(), cuda.machine(), op, case, For::Kernel, more)?;
            Ok((Arc::new(cuda.queue().module(&image)?), log))
        };
        let start = Instant::now();
        let (mut module, mut log) = load(if wrong == Some(Wrong::Race) { RACE } else { "" })?;
        let build_ns = start.elapsed().as_nanos() as f64;
        let compiled = |name: &str, fits: Fits, shape: &Shape| {
            let count = module.function(name).and_then(|f| f.fits(fits, shape)).map_err(|f| f.message)?;
            if count == 0 { Err(format!("kernel {name}: not one block or cluster fits this GPU")) } else { Ok(count) }
        };
        let (mut shapes, mut before) = (Vec::new(), Vec::new());
        for kernel in &self.directives.kernels {
            let shape = kernel.shape(&names, &compiled).map_err(bad)?;
            let list = if kernel.bind.is_empty() { &mut shapes } else { &mut before };
            list.extend(shape.map(|shape| (kernel, shape)));
        }
        if wrong == Some(Wrong::LastBlock) {
            let (_, first) = shapes.first_mut().ok_or_else(|| bad("launches nothing here".into()))?;
            (module, log) = load(&skipped(first.lose_a_block()?))?;
        }
        let steps = shapes.into_iter().map(|(kernel, shape)| Step::new(&module, &kernel.name, shape));
        let steps = steps.collect::<Result<Vec<_>, Fault>>()?;
        let zeroed = self.directives.workspace.as_ref().is_some_and(|(_, zeroed)| *zeroed);
        let workspace = Workspace::new(cuda, self.directives.workspace_bytes(&names).map_err(bad)?, zeroed)?;
        let at = workspace.as_ref().map_or(0, Workspace::address);
        let args = pack(op, case, &slots(op, case), For::Kernel, &|name| address(buffers, name), at);
        let mut maps = Vec::new();
        for map in &self.directives.maps {
            let none = TensorMap([0; 16]);
            let tile = map.tile(&names).map_err(bad)?;
            maps.push(tile.map_or(Ok(none), |t| t.encode(cuda.driver(), address(buffers, &map.tensor)))?);
        }
        let mut made = Vec::new();
        for (kernel, shape) in before {
            let sees = |name: &str| kernel.bind.iter().any(|b| b == name);
            let address = |name: &str| if sees(name) { address(buffers, name) } else { 0 };
            let args = pack(op, case, &slots(op, case), For::Kernel, &address, at);
            let maps = self.directives.maps.iter().zip(&maps);
            let maps = maps.map(|(line, map)| if sees(&line.tensor) { *map } else { TensorMap([0; 16]) }).collect();
            made.push(Made { step: Step::new(&module, &kernel.name, shape)?, args, maps });
        }
        let contract = self.directives.made_of().map(|what| format!("{}, {what} at bind", op.contract(case)));
        let mut notes = Vec::new();
        if let Some(w) = &workspace {
            notes.push(format!("workspace {} bytes", w.bytes));
        }
        if jit::serialises(&log) {
            notes.push("the compiler serialised its products (kmark build says why)".to_string());
        }
        let kernels = steps.iter().map(|s| s.figures(&log)).collect::<Result<Vec<_>, _>>()?;
        let mut program = Program {
            made,
            steps,
            args,
            maps,
            built: Built { build_ns: Some(build_ns), kernels, notes, contract, ..Built::default() },
            queue: Arc::clone(cuda.queue()),
            workspace,
            _buffers: buffers.clone(),
        };
        program.refresh()?;
        Ok(program)
    }
}

impl Shape {
    /// One block less, or one cluster, in the dimension that has the most: the least of the work is lost. Which dimension,
    /// and how many blocks it were.
    fn lose_a_block(&mut self) -> Result<(usize, u32), Fault> {
        let most = (0..3).max_by_key(|d| self.grid[*d] / self.cluster[*d]).expect("three dimensions");
        if self.grid[most] / self.cluster[most] < 2 {
            return Err(Fault::new(Status::Unsupported, "there is only one block to skip"));
        }
        self.grid[most] -= self.cluster[most];
        Ok((most, self.cluster[most]))
    }
}

pub fn address(buffers: &Buffers, name: &str) -> Address {
    buffers.get(name).address()
}

/// One launch of a loaded kernel.
pub struct Step {
    function: Function,
    shape: Shape,
    _module: Arc<Module>,
}

impl Step {
    pub fn new(module: &Arc<Module>, name: &str, shape: Shape) -> Result<Step, Fault> {
        let function = module.function(name)?;
        function.allow_shared(shape.shared)?;
        function.allow_cluster(shape.cluster)?;
        Ok(Step { function, shape, _module: Arc::clone(module) })
    }

    /// All kernels take one struct by value, and the maps of their file, if it has any, as a second one.
    pub fn launch(&self, queue: &Queue, args: &mut [u64], maps: &mut [TensorMap]) -> Result<(), Fault> {
        let mut params = [args.as_mut_ptr().cast::<c_void>(), maps.as_mut_ptr().cast::<c_void>()];
        let count = if maps.is_empty() { 1 } else { 2 };
        queue.launch(&self.function, &self.shape, &mut params[..count])
    }

    fn figures(&self, log: &str) -> Result<KernelFigures, Fault> {
        Ok(KernelFigures {
            name: self.function.name.clone(),
            registers: self.function.figure(Figure::Registers)?,
            shared_bytes: self.function.figure(Figure::Shared)?,
            dynamic_shared_bytes: self.shape.shared,
            local_bytes: self.function.figure(Figure::Local)?,
            spilled_bytes: jit::spilled(log, &self.function.name),
            grid: self.shape.grid,
            block: self.shape.block,
        })
    }
}

/// A launch before all that are timed, with what it sees of the case.
struct Made {
    step: Step,
    args: Vec<u64>,
    maps: Vec<TensorMap>,
}

pub struct Program {
    /// Run when the file is bound, and when values have changed.
    made: Vec<Made>,
    steps: Vec<Step>,
    args: Vec<u64>,
    maps: Vec<TensorMap>,
    built: Built,
    queue: Arc<Queue>,
    workspace: Option<Workspace>,
    _buffers: Buffers,
}

impl Launch for Program {
    fn launch(&mut self) -> Result<(), Fault> {
        for step in &self.steps {
            step.launch(&self.queue, &mut self.args, &mut self.maps)?;
        }
        Ok(())
    }

    fn refresh(&mut self) -> Result<(), Fault> {
        for Made { step, args, maps } in &mut self.made {
            step.launch(&self.queue, args, maps)?;
        }
        if self.made.is_empty() { Ok(()) } else { self.queue.wait() }
    }

    fn settle(&mut self) -> Result<(), Fault> {
        self.workspace.as_ref().map_or(Ok(()), Workspace::check)
    }

    fn built(&self) -> Built {
        self.built.clone()
    }
}
