//! The gate must let honest kernels pass that round where hardware makes them round, and our CPU impls do not: softmax
//! weights in 16 bits before the second product, fp8 products added in 14 bits between promotions.

use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cpu::Cpu;
use kmark_device::problem::verify;
use kmark_device::{Device, Fault, Impl, Launch};

/// An impl that is a function of the case and its buffers.
struct Honest(fn(&Case, &Buffers));

impl Impl for Honest {
    fn name(&self) -> &str {
        "test/honest"
    }
    fn about(&self) -> &str {
        "rounds as hardware does"
    }
    fn hash(&self) -> String {
        String::new()
    }
    fn supports(&self, _: &Case) -> Result<(), String> {
        Ok(())
    }
    fn bind(&self, _: &dyn Device, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault> {
        let (f, case, buffers) = (self.0, case.clone(), buffers.clone());
        Ok(Box::new(move || f(&case, &buffers)))
    }
}

fn check(op: &str, dtype: DType, axes: &[(&str, u64)], attrs: &[(&str, &str)], honest: fn(&Case, &Buffers)) {
    let entry = kmark_ops::find(op).unwrap();
    let axes: IndexMap<String, u64> = axes.iter().map(|(k, v)| (k.to_string(), *v)).collect();
    let attrs: IndexMap<String, String> = attrs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let case = Case::new(entry.op, dtype, &axes, &attrs, 7).unwrap();
    let v = verify(&Cpu::new("test"), entry.op, &Honest(honest), &case).unwrap();
    assert!(v.ok(), "{}: {:?}", case.id, v.problems);
}

fn read(b: &Buffer) -> Vec<f64> {
    let mut values = vec![0.0; b.spec().elems()];
    b.spec().read(&b.read::<u8>(), 0, &mut values);
    values
}

fn write(b: &Buffer, values: &[f64]) {
    b.spec().write(values, 0, &mut b.write::<u8>());
}

fn f32_of(v: f64) -> f64 {
    v as f32 as f64
}

/// A dot product added up in f32, one term after the other.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0f32, |sum, (a, b)| sum + (a * b) as f32) as f64
}

/// Heads, sequence lengths, width and mask of a dense case in layout bhsd.
struct Shape {
    heads: usize,
    group: usize,
    sq: usize,
    sk: usize,
    d: usize,
    causal: bool,
    scale: f64,
}

impl Shape {
    fn of(c: &Case) -> Shape {
        let [b, hq, hkv, sq, sk, d] = ["b", "hq", "hkv", "sq", "sk", "d"].map(|a| c.axis(a));
        let scale = 1.0 / (d as f64).sqrt();
        Shape { heads: b * hq, group: hq / hkv, sq, sk, d, causal: c.flag("causal"), scale }
    }
    fn keys(&self, i: usize) -> usize {
        if self.causal { (i + 1 + self.sk).saturating_sub(self.sq) } else { self.sk }
    }
    fn row<'a>(&self, x: &'a [f64], row: usize) -> &'a [f64] {
        &x[row * self.d..(row + 1) * self.d]
    }
    /// Row of k for key `j` of query head `head`; heads of a group are adjacent.
    fn key(&self, head: usize, j: usize) -> usize {
        head / self.group * self.sk + j
    }
}

/// Flash attention: tiles of 64 keys, a running maximum, weights rounded to the tensors' type, sums in f32.
fn flash(c: &Case, b: &Buffers) {
    let s = Shape::of(c);
    let [q, k, v] = ["q", "k", "v"].map(|name| read(&b.get(name)));
    let mut o = vec![0.0; q.len()];
    for head in 0..s.heads {
        for i in 0..s.sq {
            let row = head * s.sq + i;
            let (mut highest, mut total, mut out) = (f64::NEG_INFINITY, 0.0, vec![0.0; s.d]);
            for first in (0..s.keys(i)).step_by(64) {
                let keys = first..(first + 64).min(s.keys(i));
                let logit = |j| f32_of(dot(s.row(&q, row), s.row(&k, s.key(head, j))) * s.scale);
                let logits: Vec<f64> = keys.clone().map(logit).collect();
                let raised = logits.iter().fold(highest, |m: f64, l| m.max(*l));
                let old = f32_of((highest - raised).exp());
                out.iter_mut().for_each(|o| *o = f32_of(*o * old));
                total = f32_of(total * old);
                for (j, logit) in keys.zip(logits) {
                    let p = f32_of((logit - raised).exp());
                    total = f32_of(total + p);
                    let rounded = if c.dtype.size() == 2 { c.dtype.round(p) } else { p };
                    let v = s.row(&v, s.key(head, j));
                    out.iter_mut().zip(v).for_each(|(o, v)| *o = f32_of(*o + rounded * v));
                }
                highest = raised;
            }
            o[row * s.d..(row + 1) * s.d].copy_from_slice(&out.iter().map(|o| o / total).collect::<Vec<_>>());
        }
    }
    write(&b.get("o"), &o);
}

/// Its backward: p and ds rounded to the tensors' type, sums in f32.
fn flash_backward(c: &Case, b: &Buffers) {
    let s = Shape::of(c);
    let [q, k, v, o, dout, lse] = ["q", "k", "v", "o", "dout", "lse"].map(|name| read(&b.get(name)));
    let [mut dq, mut dk, mut dv] = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
    let add = |sum: &mut [f64], at: usize, weight: f64, x: &[f64]| {
        sum[at * s.d..].iter_mut().zip(x).for_each(|(sum, x)| *sum = f32_of(*sum + weight * x));
    };
    for head in 0..s.heads {
        for i in 0..s.sq {
            let row = head * s.sq + i;
            let delta = dot(s.row(&dout, row), s.row(&o, row));
            for j in 0..s.keys(i) {
                let key = s.key(head, j);
                let p = f32_of((dot(s.row(&q, row), s.row(&k, key)) * s.scale - lse[row]).exp());
                let ds = f32_of(p * (dot(s.row(&dout, row), s.row(&v, key)) - delta));
                let (p, ds) = (c.dtype.round(p), c.dtype.round(ds));
                add(&mut dq, row, ds, s.row(&k, key));
                add(&mut dk, key, ds, s.row(&q, row));
                add(&mut dv, key, p, s.row(&dout, row));
            }
        }
    }
    let scaled = |x: Vec<f64>| x.iter().map(|v| f32_of(v * s.scale)).collect::<Vec<_>>();
    write(&b.get("dq"), &scaled(dq));
    write(&b.get("dk"), &scaled(dk));
    write(&b.get("dv"), &dv);
}

const SHAPES: [[u64; 6]; 3] = [[1, 2, 1, 130, 130, 64], [1, 4, 2, 65, 700, 128], [2, 2, 2, 200, 200, 24]];
const AXES: [&str; 6] = ["b", "hq", "hkv", "sq", "sk", "d"];

#[test]
fn attention_with_rounded_weights_passes() {
    for shape in SHAPES {
        let axes: Vec<(&str, u64)> = AXES.into_iter().zip(shape).collect();
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            for causal in ["no", "yes"] {
                check("attention", dtype, &axes, &[("causal", causal)], flash);
                check("attention-bwd", dtype, &axes, &[("causal", causal)], flash_backward);
            }
        }
    }
}

/// 32 products at a time, each and the sum cut to 14 bits below the largest; every 128 the sum is promoted to f32.
fn fp8_tensor_core(c: &Case, b: &Buffers) {
    let (m, n, k) = (c.axis("m"), c.axis("n"), c.axis("k"));
    let [a, w, sa, sb] = ["a", "b", "a_scale", "b_scale"].map(|name| read(&b.get(name)));
    let blocks = k.div_ceil(128);
    let mut d = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            let mut promoted = 0.0;
            for block in 0..blocks {
                let mut sum = 0.0f64;
                for first in (block * 128..k.min((block + 1) * 128)).step_by(32) {
                    let terms: Vec<f64> = (first..k.min(first + 32).min((block + 1) * 128))
                        .map(|x| a[i * k + x] * w[j * k + x])
                        .collect();
                    let largest = terms.iter().fold(sum.abs(), |m, t| m.max(t.abs()));
                    let step = 2f64.powi(largest.max(1e-30).log2().floor() as i32 - 13);
                    let cut = |v: f64| (v / step).trunc() * step;
                    sum = cut(cut(sum) + terms.iter().map(|t| cut(*t)).sum::<f64>());
                }
                promoted = f32_of(promoted + sum * f32_of(sa[i * blocks + block] * sb[j / 128 * blocks + block]));
            }
            d[i * n + j] = promoted;
        }
    }
    write(&b.get("d"), &d);
}

#[test]
fn fp8_products_in_14_bits_pass() {
    for k in [128, 512, 7168] {
        let axes = [("m", 24), ("n", 40), ("k", k)];
        check("gemm", DType::F8e4m3, &axes, &[("layout", "nt"), ("scale", "block")], fp8_tensor_core);
    }
}
