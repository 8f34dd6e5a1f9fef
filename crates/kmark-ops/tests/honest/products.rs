//! Products of matrices as libraries compute them: sums in several orders, split along k, on tensor cores that cut off,
//! fp8 in 14 bits with and without promotion.

use crate::arith::{Arith, Exp, ORDERS, add_cut};
use crate::common::Random;
use crate::kit::{Verdicts, pick, read, rounds, small, write};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tally::Grade;
use kmark_device::buffer::Buffers;

#[derive(Clone, Copy, Debug)]
struct Product {
    arith: Arith,
    /// Parts of k with a sum of their own.
    splits: usize,
    /// These are rounded to the output's type.
    round_parts: bool,
    /// fp8: 32 products at a time in 14 bits; promoted to f32 every 128, or never.
    short: Option<bool>,
}

/// Operands as vectors along k with their scales per block of k, and where the output's rows and columns lie.
struct Operands {
    a: Vec<f64>,
    b: Vec<f64>,
    k: usize,
    /// For each element of the output: vector of a, vector of b, place.
    pairs: Vec<(usize, usize, usize)>,
    a_scale: Box<dyn Fn(usize, usize) -> f64>,
    b_scale: Box<dyn Fn(usize, usize) -> f64>,
    bias: Option<Vec<f64>>,
    n: usize,
}

fn transposed(x: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| x[r * columns + c])).collect()
}

impl Operands {
    fn gemm(c: &Case, buffers: &Buffers) -> Operands {
        let [m, n, k] = ["m", "n", "k"].map(|a| c.axis(a));
        let (mut a, mut b) = (read(&buffers.get("a")), read(&buffers.get("b")));
        if c.attr("layout").starts_with('t') {
            a = transposed(&a, k, m);
        }
        if c.attr("layout").ends_with('n') {
            b = transposed(&b, k, n);
        }
        let (how, blocks) = (c.attr("scale").to_string(), k.div_ceil(128));
        let scale = |name: &str, span: usize| -> Box<dyn Fn(usize, usize) -> f64> {
            let values = if how == "none" { vec![1.0] } else { read(&buffers.get(name)) };
            match how.as_str() {
                "row" => Box::new(move |v, _| values[v]),
                "block" => Box::new(move |v, block| values[v / span * blocks + block]),
                _ => Box::new(move |_, _| values[0]),
            }
        };
        let pairs = (0..m * n).map(|i| (i / n, i % n, i)).collect();
        let bias = c.flag("bias").then(|| read(&buffers.get("bias")));
        Operands { a, b, k, pairs, a_scale: scale("a_scale", 1), b_scale: scale("b_scale", 128), bias, n }
    }

    fn grouped(c: &Case, buffers: &Buffers) -> Operands {
        let [m, n, k] = ["m", "n", "k"].map(|a| c.axis(a));
        let (a, b, blocks) = (read(&buffers.get("a")), read(&buffers.get("b")), k.div_ceil(128));
        let group: Vec<f64> = match c.attr("form") {
            "masked" => {
                let count = read(&buffers.get("count"));
                let of = |g: usize| (0..m).map(move |i| (g, i));
                (0..c.axis("g"))
                    .flat_map(of)
                    .map(|(g, i)| if i < count[g] as usize { g as f64 } else { -1.0 })
                    .collect()
            }
            _ => read(&buffers.get("group")),
        };
        let real = group.iter().enumerate().filter(|(_, g)| **g >= 0.0);
        let pairs = real.flat_map(|(row, g)| (0..n).map(move |j| (row, *g as usize * n + j, row * n + j))).collect();
        let scaled = c.dtype.size() == 1;
        let values = |name: &str| if scaled { read(&buffers.get(name)) } else { vec![1.0] };
        let (of_a, of_b, wide) = (values("a_scale"), values("b_scale"), n.div_ceil(128));
        Operands {
            a,
            b,
            k,
            pairs,
            a_scale: Box::new(move |v, block| if scaled { of_a[v * blocks + block] } else { 1.0 }),
            b_scale: Box::new(
                move |v, block| {
                    if scaled { of_b[(v / n * wide + v % n / 128) * blocks + block] } else { 1.0 }
                },
            ),
            bias: None,
            n,
        }
    }
}

impl Product {
    fn random(random: &mut Random, case: &Case, grade: Grade) -> Product {
        let eight = case.dtype.size() == 1;
        let loose = grade == Grade::Loose;
        let short = if !eight {
            None
        } else if loose {
            pick(random, &[Some(true), Some(false)])
        } else {
            pick(random, &[None, Some(true), Some(true)])
        };
        let round_parts = loose && short != Some(false);
        let splits = if round_parts { pick(random, &[2, 4, 8]) } else { pick(random, &[1, 1, 3, 8]) };
        Product { arith: Arith::new(case, pick(random, &ORDERS), Exp::Exact), splits, round_parts, short }
    }

    fn run(&self, c: &Case, b: &Buffers) {
        let x = if c.op == "gemm" { Operands::gemm(c, b) } else { Operands::grouped(c, b) };
        let out = b.get("d");
        let dtype = out.spec().dtype;
        let mut d = vec![0.0; out.spec().elems()];
        for (i, j, at) in &x.pairs {
            let (va, vb) = (&x.a[i * x.k..(i + 1) * x.k], &x.b[j * x.k..(j + 1) * x.k]);
            let scale = |block: usize| self.arith.round((x.a_scale)(*i, block) * (x.b_scale)(*j, block));
            // Splits end with blocks.
            let part = x.k.div_ceil(128).div_ceil(self.splits) * 128;
            let parts = (0..x.k).step_by(part).map(|from| {
                let sum = self.part(c, &va[from..x.k.min(from + part)], &vb[from..x.k.min(from + part)], |block| {
                    scale(from / 128 + block)
                });
                if self.round_parts { dtype.round(sum) } else { sum }
            });
            let sum = parts.fold(0.0, |s, p| self.arith.round(s + p));
            d[*at] = self.arith.round(sum + x.bias.as_ref().map_or(0.0, |b| b[at % x.n]));
        }
        write(&out, &d);
    }

    /// A sum along some of k, block by block where scales differ.
    fn part(&self, c: &Case, a: &[f64], b: &[f64], scale: impl Fn(usize) -> f64) -> f64 {
        let scaled = c.dtype.size() == 1 && (c.op == "grouped-gemm" || c.attr("scale") != "none");
        let by_block = self.short == Some(true) || (scaled && (c.op == "grouped-gemm" || c.attr("scale") == "block"));
        let length = if by_block { 128 } else { a.len().max(1) };
        let blocks = a.chunks(length).zip(b.chunks(length)).enumerate();
        let round = |v| self.arith.round(v);
        blocks.fold(0.0, |sum, (block, (a, b))| {
            let own = match self.short {
                None => self.arith.dot(a, b),
                Some(_) => a.chunks(32).zip(b.chunks(32)).fold(0.0, |s, (a, b)| {
                    let terms: Vec<f64> = a.iter().zip(b).map(|(a, b)| a * b).collect();
                    add_cut(s, &terms, 14)
                }),
            };
            round(sum + round(own * if scaled { scale(block) } else { 1.0 }))
        })
    }
}

fn judge(verdicts: &mut Verdicts, random: &mut Random, case: &Case) {
    let entry = kmark_ops::find(&case.op).unwrap();
    let out = entry.op.tensors(case).last().expect("an output").dtype;
    let rounds = case.dtype.size() <= 2 && out.size() == 2;
    for grade in Grade::ALL.into_iter().filter(|g| *g == Grade::Tight || rounds) {
        let kernel = Product::random(random, case, grade);
        verdicts.add(entry, case, &format!("{kernel:?}"), grade, move |c, b| kernel.run(c, b));
    }
}

#[test]
fn products_as_libraries_compute_them() {
    for (op, seed) in [("gemm", 40), ("grouped-gemm", 41)] {
        let (mut random, mut verdicts) = (Random::new(seed, 400), Verdicts::default());
        for _ in 0..rounds(200) {
            let case = small(&mut random, kmark_ops::find(op).unwrap(), 1 << 21);
            judge(&mut verdicts, &mut random, &case);
        }
        verdicts.close();
    }
}

/// Sums so long that their orders matter.
#[test]
fn long_products() {
    let (mut random, mut verdicts) = (Random::new(42, 400), Verdicts::default());
    let entry = kmark_ops::find("gemm").unwrap();
    for _ in 0..rounds(12) {
        let dtype = pick(&mut random, &[DType::F32, DType::F32, DType::Bf16, DType::F8e4m3, DType::F64]);
        let k = pick(&mut random, &[1024, 4096, 7168, 16384]);
        let axes = [("m", 24), ("n", 40), ("k", k)].into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        let scale = if dtype.size() == 1 { pick(&mut random, &["tensor", "row", "block"]) } else { "none" };
        let out = if dtype.size() <= 2 { pick(&mut random, &["same", "f32"]) } else { "same" };
        let attrs = [("layout", "nt"), ("scale", scale), ("out", out)];
        let attrs = attrs.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let case = entry.op.case(dtype, &axes, &attrs, random.below(1 << 20)).unwrap();
        judge(&mut verdicts, &mut random, &case);
    }
}
