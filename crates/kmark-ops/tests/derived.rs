//! Bounds derived from a reference, held against our own: the gate judges our impls, mutants and loose variants by what
//! Python derives from the NumPy formula of their op. Every impl must be tight and every loose variant accepted; of the
//! mutants nearly all must be rejected. `--nocapture` shows how many, and which are not; `KMARK_DERIVED_ROUNDS=N` has
//! each mutant meet N times as many cases, `KMARK_DERIVED_SEED=N` others. Honest kernels meet these bounds in `honest`.

mod common;
#[path = "common/derived.rs"]
mod derived;

use common::Random;
use derived::by_reference;
use kmark_core::case::Case;
use kmark_core::record::Status;
use kmark_core::tally::Grade;
use kmark_core::tensor::TensorSpec;
use kmark_device::Impl;
use kmark_device::cpu::Cpu;
use kmark_device::workload::verify;
use kmark_ops::{Entry, OPS, mutants};
use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::sync::Mutex;

const LONGEST: u64 = 200;
/// So many cases are drawn for an op, of which those are taken that a mutant or a dtype still needs.
const DRAWN: usize = 400;
const MOST_ELEMENTS: usize = 8_000;
const MOST_FLOPS: u64 = 1_000_000;
/// Of all mutants together.
const REJECTED: f64 = 0.95;
/// Wrong where no bound looks; guard bands and hashes of inputs find these.
const NOT_IN_OUTPUTS: [&str; 2] = ["mutant/one-past-the-end", "mutant/changes-its-input"];

#[test]
fn derived_bounds_tell_right_from_wrong() {
    let mut random = Random::new(number("KMARK_DERIVED_SEED", 5), LONGEST);
    let chosen: Vec<(&Entry, Vec<Case>)> = OPS.iter().map(|entry| (*entry, choose(&mut random, entry))).collect();
    let (queue, found) = (Mutex::new(chosen.iter().enumerate()), Mutex::new(Vec::new()));
    let work = || {
        while let Some((i, (entry, cases))) = { queue.lock().unwrap().next() } {
            let tally = Tally::of(entry, cases);
            found.lock().unwrap().push((i, tally));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|s| (0..cores).for_each(|_| drop(s.spawn(work))));

    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(i, _)| *i);
    println!("{:22} {:>6} {:>9} {:>9} {:>9}", "op", "cases", "tight", "loose", "rejected");
    for (i, tally) in &found {
        let (entry, cases) = &chosen[*i];
        let Tally { impls, loose, mutants } = tally;
        println!("{:22} {:>6} {impls:>9} {loose:>9} {mutants:>9}", entry.op.name, cases.len());
    }
    let list = |f: fn(&Tally) -> &Share| found.iter().flat_map(|(_, t)| f(t).others.clone()).collect::<Vec<_>>();
    let (missed, all) = (list(|t| &t.mutants), found.iter().map(|(_, t)| t.mutants.of).sum::<usize>());
    println!("{} of {all} mutants are rejected; not:\n{}", all - missed.len(), missed.join("\n"));
    let refused = [list(|t| &t.impls), list(|t| &t.loose)].concat();
    assert!(refused.is_empty(), "{} honest answers are refused:\n{}", refused.len(), refused.join("\n"));
    assert!((all - missed.len()) as f64 >= REJECTED * all as f64, "too few mutants are rejected");
}

/// How many of some verdicts were as they should be, and what the others were.
#[derive(Default)]
struct Share {
    of: usize,
    others: Vec<String>,
}

impl Share {
    fn add(&mut self, right: bool, what: impl FnOnce() -> String) {
        self.of += 1;
        self.others.extend((!right).then(what));
    }
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        f.pad(&format!("{}/{}", self.of - self.others.len(), self.of))
    }
}

#[derive(Default)]
struct Tally {
    impls: Share,
    loose: Share,
    mutants: Share,
}

impl Tally {
    fn of(entry: &'static Entry, cases: &[Case]) -> Tally {
        let (op, device) = (by_reference(entry.op), Cpu::new("test"));
        let mut tally = Tally::default();
        for case in cases {
            for imp in entry.cpu {
                let v = verify(&device, op, *imp, case).unwrap();
                tally.impls.add(v.grade == Some(Grade::Tight), || format!("{} {}: {v:?}", case.id, imp.name()));
            }
            for mutant in mutants::of(entry, "cpu") {
                if mutant.supports(op, case).is_err() || NOT_IN_OUTPUTS.contains(&mutant.name()) {
                    continue;
                }
                let name = || format!("{} {}", case.id, mutant.name());
                match verify(&device, op, &mutant, case) {
                    Ok(v) if mutant.grade().is_none() => {
                        tally.mutants.add(!v.ok(), || format!("{}, graded {:?}", name(), v.grade))
                    }
                    Ok(v) => tally.loose.add(v.ok(), || format!("{}: {v:?}", name())),
                    // It may find only when it runs that there is nothing to spoil.
                    Err(fault) => assert_eq!(fault.status, Status::Unsupported, "{}: {}", case.id, fault.message),
                }
            }
        }
        tally
    }
}

/// A number of the environment's.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Small cases of every dtype, on which every mutant is tried.
fn choose(random: &mut Random, entry: &'static Entry) -> Vec<Case> {
    let rounds = number("KMARK_DERIVED_ROUNDS", 1);
    let mutants = mutants::of(entry, "cpu");
    let mut met = vec![0; mutants.len()];
    let mut by_dtype: HashMap<_, u64> = HashMap::new();
    let mut chosen: Vec<Case> = Vec::new();
    for _ in 0..DRAWN {
        let case = random.case(entry);
        let elements: usize = entry.op.tensors(&case).iter().map(TensorSpec::elems).sum();
        let small = elements <= MOST_ELEMENTS && entry.op.cost(&case).flops <= MOST_FLOPS;
        if !small || entry.op.checks(&case) > 4 || chosen.iter().any(|c| c.id == case.id) {
            continue;
        }
        let meets: Vec<bool> = mutants.iter().map(|m| m.supports(entry.op, &case).is_ok()).collect();
        let wanted = meets.iter().zip(&met).any(|(meets, met)| *meets && *met < rounds);
        let of_dtype = by_dtype.entry(case.dtype).or_default();
        if wanted || *of_dtype < rounds {
            *of_dtype += 1;
            met.iter_mut().zip(meets).for_each(|(met, meets)| *met += u64::from(meets));
            chosen.push(case);
        }
    }
    chosen
}
