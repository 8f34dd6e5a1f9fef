//! Shapes that random cases are too small for: rows as long as a vocabulary, outputs that are streamed past the cache,
//! and few long rows, where a gradient that is right in one column only is hard to see.

use indexmap::IndexMap;
use kmark_core::case::{Case, DEFAULT_SEED};
use kmark_core::dtype::DType;
use kmark_core::tally::Grade;
use kmark_device::Impl;
use kmark_device::cpu::Cpu;
use kmark_device::workload::{verify, verify_on};
use kmark_ops::mutants;
use kmark_ops::{Entry, OPS};

fn case(entry: &Entry, dtype: DType, m: u64, n: u64) -> Case {
    let axes: IndexMap<String, u64> = [("m".to_string(), m), ("n".to_string(), n)].into_iter().collect();
    entry.op.case(dtype, &axes, &IndexMap::new(), DEFAULT_SEED).expect("a valid case")
}

fn row_ops() -> impl Iterator<Item = &'static &'static Entry> {
    OPS.iter().filter(|e| e.op.axes.len() == 2 && e.op.axes[0].name == "m")
}

/// Our impls of every op, or all but some.
fn are_tight(dtype: DType, m: u64, n: u64, but: &[&str]) {
    for entry in row_ops() {
        let case = case(entry, dtype, m, n);
        for imp in entry.cpu.iter().filter(|i| !but.contains(&i.name())) {
            // Plain loops add in f64, whatever the dtype: one set of values shows that they take such rows. What else they
            // do is not a matter of length, and random cases show it.
            let sets = if imp.name() == "cpu/naive" { 1 } else { entry.op.checks(&case) };
            let (v, _) = verify_on(&Cpu::new("test"), entry.op, *imp, &case, 0..sets).unwrap();
            assert_eq!(v.grade, Some(Grade::Tight), "{} {}: {:?}", case.id, imp.name(), v);
        }
    }
}

#[test]
fn rows_as_long_as_a_vocabulary_are_tight() {
    are_tight(DType::Bf16, 3, 262_144, &[]);
}

// `cpu/naive` was seen to take long rows above.

#[test]
fn long_rows_of_f32_are_tight() {
    are_tight(DType::F32, 2, 262_144, &["cpu/naive"]);
}

#[test]
fn outputs_that_are_streamed_past_the_cache_are_tight() {
    are_tight(DType::F16, 300, 4097, &["cpu/naive"]);
}

#[test]
fn mutants_are_told_on_few_long_rows() {
    for entry in row_ops() {
        let case = case(entry, DType::Bf16, 8, 12_288);
        for mutant in mutants::of(entry, "cpu").iter().filter(|m| m.supports(entry.op, &case).is_ok()) {
            if let Ok(v) = verify(&Cpu::new("test"), entry.op, mutant, &case) {
                assert_eq!(v.grade, mutant.grade(), "{} on {}: {v:?}", mutant.name(), case.id);
            }
        }
    }
}
