//! Every op, every impl, random shapes, attributes, seeds and all dtypes: right answers pass, mutants do not. Nothing
//! here names an op; a new one is tested by being in the registry.

use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::op::AttrKind;
use kmark_device::cpu::Cpu;
use kmark_device::problem::verify;
use kmark_ops::mutants::{self, MutantImpl};
use kmark_ops::{Entry, OPS};

/// A generator that is the same everywhere, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
    /// Sizes that break kernels: 1, odd ones, around powers of two, now and then a long one.
    fn size(&mut self) -> u64 {
        match self.below(8) {
            0 => 1,
            1 => 1 << self.below(9),
            2 => (1 << (1 + self.below(9))) - 1,
            3 => (1 << self.below(9)) + 1,
            4 => 500 + self.below(2000),
            _ => 1 + self.below(100),
        }
    }
    fn case(&mut self, entry: &Entry) -> Case {
        let op = entry.op;
        let dtype = op.dtypes()[self.below(op.dtypes().len() as u64) as usize];
        let mut axes = IndexMap::new();
        for (i, axis) in op.axes().iter().enumerate() {
            // Only one axis is long, so that a test takes milliseconds.
            let size = self.size();
            axes.insert(axis.name.to_string(), if i + 1 == op.axes().len() { size } else { size.min(70) });
        }
        let mut attrs = IndexMap::new();
        for attr in op.attrs() {
            if let AttrKind::OneOf(words) = attr.kind {
                attrs.insert(attr.name.to_string(), words[self.below(words.len() as u64) as usize].to_string());
            }
        }
        Case::new(op, dtype, &axes, &attrs, self.below(1 << 20)).expect("random cases are valid")
    }
}

#[test]
fn right_impls_pass_on_random_cases() {
    let device = Cpu::new("test");
    let mut random = Random(1);
    for entry in OPS {
        for _ in 0..240 {
            let case = random.case(entry);
            for imp in entry.impls {
                let v = verify(&device, entry.op, *imp, &case).unwrap();
                assert!(v.ok(), "{} {}: {:?}", case.id, imp.name(), v.problems);
                assert_eq!(v.checks, 2);
            }
        }
    }
}

#[test]
fn mutants_are_rejected_on_random_cases() {
    let device = Cpu::new("test");
    let mut random = Random(2);
    for entry in OPS {
        assert!(entry.mutants.len() >= 3, "{} has too few mutants of its own", entry.op.name());
        for mutant in mutants::of(entry) {
            let mut tried = 0;
            for _ in 0..60 {
                let case = random.case(entry);
                if (mutant.applies)(&case) {
                    tried += 1;
                    let v = verify(&device, entry.op, &MutantImpl::new(entry, mutant), &case).unwrap();
                    assert!(!v.ok(), "the gate let mutant/{} pass on {}", mutant.name, case.id);
                }
            }
            assert!(tried >= 5, "mutant/{} of {} applied to {tried} cases only", mutant.name, entry.op.name());
        }
    }
}

#[test]
fn costs_agree_with_the_tensors() {
    let mut random = Random(3);
    for entry in OPS {
        for _ in 0..50 {
            let case = random.case(entry);
            let cost = entry.op.cost(&case);
            let tensors = entry.op.tensors(&case);
            let bytes = |keep: fn(kmark_core::tensor::Role) -> bool| -> u64 {
                tensors.iter().filter(|t| keep(t.role)).map(|t| t.bytes() as u64).sum()
            };
            // Each input is read once and each output written once: the compulsory traffic of the contract.
            assert_eq!(cost.bytes_read, bytes(|r| r.is_input()), "{}", case.id);
            assert_eq!(cost.bytes_written, bytes(|r| r.is_output()), "{}", case.id);
        }
    }
}
