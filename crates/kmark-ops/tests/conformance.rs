//! Every op, every impl, random shapes, attributes, seeds and all dtypes: right answers pass, mutants do not. Nothing
//! here names an op; a new one is tested by being in the registry.

use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::op::AttrKind;
use kmark_core::record::Status;
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
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
    /// A case that the op accepts; an op may refuse combinations.
    fn case(&mut self, entry: &Entry) -> Case {
        for _ in 0..1000 {
            if let Ok(case) = self.any(entry) {
                return case;
            }
        }
        panic!("{}: no random case is valid", entry.op.name())
    }
    fn any(&mut self, entry: &Entry) -> Result<Case, String> {
        let op = entry.op;
        let dtype = self.of(op.dtypes());
        let mut axes = IndexMap::new();
        for (i, axis) in op.axes().iter().enumerate() {
            // Only one axis is long, so that a test takes milliseconds.
            let size = match axis.tries {
                [] if i + 1 == op.axes().len() => self.size(),
                [] => self.size().min(70),
                tries => self.of(tries),
            };
            axes.insert(axis.name.to_string(), size);
        }
        let mut attrs = IndexMap::new();
        for attr in op.attrs() {
            let value = match attr.kind {
                AttrKind::OneOf(words) => self.of(words).to_string(),
                AttrKind::Count(tries) | AttrKind::Size(tries) => self.of(tries).to_string(),
                AttrKind::Scale => self.of(&["auto", "auto", "0.3"]).to_string(),
                AttrKind::Positive | AttrKind::Integer => attr.default.to_string(),
            };
            attrs.insert(attr.name.to_string(), value);
        }
        Case::new(op, dtype, &axes, &attrs, self.below(1 << 20))
    }
}

#[test]
fn right_impls_pass_on_random_cases() {
    let device = Cpu::new("test");
    let mut random = Random(1);
    for entry in OPS {
        let mut spent = 0;
        for n in 0..240 {
            // Matrix ops are tried less often: their plain loops take a while.
            if n >= 40 && spent > 200_000_000 {
                break;
            }
            let case = random.case(entry);
            spent += entry.op.cost(&case).flops;
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
            for _ in 0..120 {
                let case = random.case(entry);
                if !(mutant.applies)(&case) || tried >= 20 {
                    continue;
                }
                match verify(&device, entry.op, &MutantImpl::new(entry, mutant), &case) {
                    Ok(v) => {
                        tried += 1;
                        assert!(!v.ok(), "the gate let mutant/{} pass on {}", mutant.name, case.id);
                    }
                    // It may find only when it runs that there is nothing to spoil.
                    Err(fault) => assert_eq!(fault.status, Status::Unsupported, "{}: {}", case.id, fault.message),
                }
            }
            assert!(tried >= 5, "mutant/{} of {} applied to {tried} cases only", mutant.name, entry.op.name());
        }
    }
}
