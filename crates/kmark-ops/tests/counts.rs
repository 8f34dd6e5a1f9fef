//! FLOPs and bytes of `Op::cost` against brute force: a walk visits what the contract says must be visited, one element
//! or row after the other, and counts. Walks are written from the contract and know nothing of `cost`.

mod common;
#[path = "common/inputs.rs"]
mod inputs;
#[path = "counts/walks.rs"]
mod walks;

use common::Random;
use inputs::Inputs;
use kmark_core::cost::Cost;
use kmark_core::tensor::TensorSpec;
use kmark_ops::OPS;
use std::ops::Range;

const CASES_PER_OP: usize = 24;
const LONGEST: u64 = 200;

/// What a walk has visited.
pub struct Visited {
    specs: Vec<TensorSpec>,
    read: Vec<Vec<bool>>,
    written: Vec<Vec<bool>>,
    flops: u64,
}

impl Visited {
    fn new(specs: &[TensorSpec]) -> Visited {
        let none: Vec<Vec<bool>> = specs.iter().map(|s| vec![false; s.elems()]).collect();
        Visited { specs: specs.to_vec(), read: none.clone(), written: none, flops: 0 }
    }
    fn tensor(&self, name: &str) -> Option<usize> {
        self.specs.iter().position(|s| s.name == name)
    }
    pub fn has(&self, name: &str) -> bool {
        self.tensor(name).is_some()
    }
    fn known(&self, name: &str) -> usize {
        self.tensor(name).unwrap_or_else(|| panic!("the case has no tensor {name}"))
    }
    pub fn read(&mut self, name: &str, at: Range<usize>) {
        let tensor = self.known(name);
        assert!(self.specs[tensor].role.is_input(), "{name} is no input");
        self.read[tensor][at].fill(true);
    }
    pub fn write(&mut self, name: &str, at: Range<usize>) {
        let tensor = self.known(name);
        assert!(self.specs[tensor].role.is_output(), "{name} is no output");
        self.written[tensor][at].fill(true);
    }
    /// Every element of a tensor, in the direction that its role says; nothing if the case has no such tensor.
    pub fn whole(&mut self, name: &str) {
        let Some(tensor) = self.tensor(name) else { return };
        let (role, all) = (self.specs[tensor].role, 0..self.specs[tensor].elems());
        if role.is_input() {
            self.read(name, all.clone());
        }
        if role.is_output() {
            self.write(name, all);
        }
    }
    pub fn flops(&mut self, count: usize) {
        self.flops += count as u64;
    }
    /// Products, each added to a sum.
    pub fn multiply_adds(&mut self, count: usize) {
        self.flops(2 * count);
    }
    fn bytes(&self, visited: &[Vec<bool>]) -> u64 {
        let count = |v: &[bool]| v.iter().filter(|v| **v).count();
        self.specs.iter().zip(visited).map(|(s, v)| (count(v) * s.dtype.size()) as u64).sum()
    }
    fn cost(&self) -> Cost {
        Cost { bytes_read: self.bytes(&self.read), bytes_written: self.bytes(&self.written), flops: self.flops }
    }
}

#[test]
fn costs_are_what_a_walk_counts() {
    let mut random = Random::new(5, LONGEST);
    for entry in OPS {
        let walk = walks::WALKS.iter().find(|(name, _)| *name == entry.op.name).map(|(_, walk)| walk);
        for _ in 0..CASES_PER_OP {
            let case = random.case(entry);
            let inputs = Inputs::new(entry.op, &case);
            let mut visited = Visited::new(&inputs.specs);
            let cost = entry.op.cost(&case);
            match walk {
                Some(walk) => walk(&case, &inputs.view(), &mut visited),
                None => inputs.specs.iter().for_each(|s| visited.whole(s.name)),
            }
            let counted = visited.cost();
            assert_eq!(
                (cost.bytes_read, cost.bytes_written),
                (counted.bytes_read, counted.bytes_written),
                "{}: bytes read and written, by cost() and by the walk",
                case.id
            );
            match walk {
                Some(_) => assert_eq!(cost.flops, counted.flops, "{}: FLOPs, by cost() and by the walk", case.id),
                None => assert_eq!(cost.flops == 0, is_pure_traffic(&case), "{}: {} FLOPs", case.id, cost.flops),
            }
        }
    }
}

/// Cases that compute nothing.
fn is_pure_traffic(case: &kmark_core::case::Case) -> bool {
    case.op == "stream" && ["copy", "write"].contains(&case.attr("kind"))
}

#[test]
fn a_walk_counts_each_element_once() {
    let entry = kmark_ops::find("softmax").expect("an op");
    let case = Random::new(6, LONGEST).case(entry);
    let mut visited = Visited::new(&entry.op.tensors(&case));
    let size = case.dtype.size() as u64;
    visited.read("x", 0..1);
    visited.read("x", 0..1);
    visited.write("y", 0..1);
    visited.multiply_adds(3);
    assert_eq!(visited.cost(), Cost { bytes_read: size, bytes_written: size, flops: 6 });
}
