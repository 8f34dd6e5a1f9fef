//! Every op, every impl, random shapes, attributes, seeds and all dtypes: our answers are tight, mutants are rejected or
//! graded loose. Nothing here names an op; a new one is tested by being in the registry.

mod common;

use common::Random;
use kmark_core::record::Status;
use kmark_core::tally::Grade;
use kmark_device::Impl;
use kmark_device::cpu::Cpu;
use kmark_device::workload::verify;
use kmark_ops::{Entry, OPS, mutants};

/// Longer than any vector unit or block of the impls, short enough for many cases.
const LONGEST: u64 = 2500;

/// All ops, or those that `KMARK_OP` names, for whoever works on them: `KMARK_OP=rmsnorm,softmax`.
fn ops() -> impl Iterator<Item = &'static Entry> {
    let named = std::env::var("KMARK_OP").ok();
    OPS.iter().copied().filter(move |e| named.as_ref().is_none_or(|names| names.split(',').any(|n| n == e.op.name)))
}

#[test]
fn our_impls_are_tight_on_random_cases() {
    let device = Cpu::new("test");
    let mut random = Random::new(1, LONGEST);
    for entry in ops() {
        let mut spent = 0;
        for n in 0..120 {
            // Matrix ops are tried less often: their plain loops take a while.
            if n >= 30 && spent > 80_000_000 {
                break;
            }
            let case = random.case(entry);
            spent += entry.op.cost(&case).flops * entry.op.checks(&case);
            for imp in entry.cpu {
                let v = verify(&device, entry.op, *imp, &case).unwrap();
                assert_eq!(v.grade, Some(Grade::Tight), "{} {}: {:?}", case.id, imp.name(), v);
                assert_eq!(v.checks as u64, entry.op.checks(&case));
            }
        }
    }
}

#[test]
fn mutants_are_told_on_random_cases() {
    let device = Cpu::new("test");
    let mut random = Random::new(2, LONGEST);
    for entry in ops() {
        let own = entry.mutants().filter(|m| m.grade.is_none()).count();
        assert!(own >= 3, "{} has too few mutants of its own", entry.op.name);
        for mutant in mutants::of(entry, "cpu") {
            let mut tried = 0;
            for _ in 0..20_000 {
                let case = random.case(entry);
                if tried == 10 {
                    break;
                }
                if mutant.supports(entry.op, &case).is_err() {
                    continue;
                }
                match verify(&device, entry.op, &mutant, &case) {
                    Ok(v) => {
                        tried += 1;
                        assert_eq!(v.grade, mutant.grade(), "{} on {}: {v:?}", mutant.name(), case.id);
                    }
                    // It may find only when it runs that there is nothing to spoil.
                    Err(fault) => assert_eq!(fault.status, Status::Unsupported, "{}: {}", case.id, fault.message),
                }
            }
            assert!(tried >= 5, "{} of {} applied to {tried} cases only", mutant.name(), entry.op.name);
        }
    }
}
