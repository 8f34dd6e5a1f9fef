//! Ops in plain loops: one thread, f64, whole tensors; their types are met at the edges alone. `cpu/naive` is such a loop,
//! and most mutants are the same loop with one twist.

pub mod attention;
pub mod norm_bwd;
pub mod softmax;

use kmark_core::case::Case;
use kmark_core::record::Status;
use kmark_device::buffer::Buffers;
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

    /// The same, unless something that was put is NaN.
    pub fn is_harmless_unless_nan(&mut self) {
        self.harmless = !self.done.iter().any(|(_, values)| values.iter().any(|v| v.is_nan()));
    }
}

/// A tensor as f64, dense.
pub fn read(buffer: &kmark_device::buffer::Buffer) -> Vec<f64> {
    let mut values = vec![0.0; buffer.spec().elems()];
    buffer.spec().read(&buffer.read::<u8>(), 0, &mut values);
    values
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

/// Reads what it needs, computes, puts every output.
pub type Plain = fn(&Case, &mut Tensors);

/// `plain` as a launch. One that finds itself harmless says that it does not support the case.
pub fn plainly(c: &Case, b: &Buffers, plain: impl Fn(&Case, &mut Tensors) + 'static) -> Box<dyn Launch> {
    Box::new(Plainly { case: c.clone(), buffers: b.clone(), plain })
}

struct Plainly<F> {
    case: Case,
    buffers: Buffers,
    plain: F,
}

impl<F: Fn(&Case, &mut Tensors)> Launch for Plainly<F> {
    fn launch(&mut self) -> Result<(), Fault> {
        let mut tensors = Tensors { buffers: &self.buffers, done: Vec::new(), harmless: false };
        (self.plain)(&self.case, &mut tensors);
        for (name, values) in &tensors.done {
            let buffer = self.buffers.get(name);
            buffer.spec().write(values, 0, &mut buffer.write::<u8>());
        }
        if tensors.harmless {
            return Err(Fault::new(Status::Unsupported, HARMLESS));
        }
        Ok(())
    }
}
