//! The inputs of a case as every kernel receives them, filled and derived, with a view that an oracle reads.

use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::tensor::{TensorSpec, View};
use kmark_device::Device;
use kmark_device::cpu::Cpu;

pub struct Inputs {
    pub specs: Vec<TensorSpec>,
    bytes: Vec<Option<Vec<u8>>>,
}

impl Inputs {
    pub fn new(op: &'static Op, case: &Case) -> Inputs {
        let problem = Cpu::new("test").workload(op, case, op.value_seed(case, 0));
        let problem = problem.unwrap_or_else(|fault| panic!("{}: {}", case.id, fault.message));
        let (specs, bytes) = (problem.buffers().0.iter())
            .map(|b| (b.spec().clone(), b.spec().role.is_input().then(|| b.read::<u8>().to_vec())))
            .unzip();
        Inputs { specs, bytes }
    }

    pub fn view(&self) -> View<'_> {
        View { specs: &self.specs, bytes: self.bytes.iter().map(|b| b.as_deref()).collect() }
    }
}
