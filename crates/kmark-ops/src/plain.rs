//! Ops in plain loops: one thread, f64, whole tensors; their types are met at the edges alone. `cpu/naive` is such a loop,
//! and most mutants are the same loop with one twist.

pub mod attention;
pub mod norm_bwd;
pub mod softmax;

use kmark_core::case::Case;
use kmark_core::record::Status;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::{Fault, Launch};

/// The tensors of a launch, widened. What is put back is rounded when the launch ends.
pub struct Tensors<'a> {
    buffers: &'a Buffers,
    done: Vec<(&'a str, Vec<f64>)>,
    harmless: bool,
}

impl<'a> Tensors<'a> {
    /// What a tensor holds, dense: rows follow each other, whatever their pitch.
    pub fn get(&self, name: &str) -> Vec<f64> {
        read(&self.buffers.get(name))
    }

    pub fn has(&self, name: &str) -> bool {
        self.buffers.0.iter().any(|b| b.spec().name == name)
    }

    /// What an output shall hold; nothing if the case has no such output.
    pub fn put(&mut self, name: &'a str, values: Vec<f64>) {
        if self.has(name) {
            self.done.push((name, values));
        }
    }

    /// For a mutant: on these values it is as good as the right one.
    pub fn is_harmless(&mut self) {
        self.harmless = true;
    }
}

/// A tensor as f64, dense.
pub fn read(buffer: &Buffer) -> Vec<f64> {
    let mut values = vec![0.0; buffer.spec().elems()];
    buffer.spec().read(&buffer.read::<u8>(), 0, &mut values);
    values
}

pub fn write(buffer: &Buffer, values: &[f64]) {
    buffer.spec().write(values, 0, &mut buffer.write::<u8>());
}

/// Gate and up of a gated op: tensors of their own, or the halves of the rows of `x` if the form is packed.
pub fn gate_and_up(c: &Case, t: &Tensors) -> (Vec<f64>, Vec<f64>) {
    if !t.has("x") {
        return (t.get("gate"), t.get("up"));
    }
    let (x, n) = (t.get("x"), c.axis("n"));
    let half = |at: usize| x.chunks(2 * n).flat_map(|row| &row[at * n..(at + 1) * n]).copied().collect();
    (half(0), half(1))
}

/// What a mutant says that is as good as the right one on a case.
pub const HARMLESS: &str = "the mutant is no mutant here";

/// An op in plain loops: reads what it needs, computes, puts every output. Mostly an op's `How`, which holds whatever kernels
/// get wrong, each as it is right: a mutant is the same with one of them changed.
pub trait Plain: Sync {
    fn run(&self, c: &Case, t: &mut Tensors);
}

/// Wrong only where something becomes NaN.
pub struct UnlessNan<P>(pub P);

impl<P: Plain> Plain for UnlessNan<P> {
    fn run(&self, c: &Case, t: &mut Tensors) {
        self.0.run(c, t);
        t.harmless = !t.done.iter().any(|(_, values)| values.iter().any(|v| v.is_nan()));
    }
}

/// A launch that may find that there was nothing to do wrong: then it is no mutant on this case, and says so.
pub struct Spoiled<F>(pub F);

impl<F: FnMut() -> bool> Launch for Spoiled<F> {
    fn launch(&mut self) -> Result<(), Fault> {
        (self.0)().then_some(()).ok_or_else(|| Fault::new(Status::Unsupported, HARMLESS))
    }
}

/// `plain` as a launch.
pub fn plainly(c: &Case, b: &Buffers, plain: &'static dyn Plain) -> Box<dyn Launch> {
    let (case, buffers) = (c.clone(), b.clone());
    Box::new(Spoiled(move || {
        let mut tensors = Tensors { buffers: &buffers, done: Vec::new(), harmless: false };
        plain.run(&case, &mut tensors);
        tensors.done.iter().for_each(|(name, values)| write(&buffers.get(name), values));
        !tensors.harmless
    }))
}
