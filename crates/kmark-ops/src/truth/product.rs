//! Products of matrices on the side of truth: operands read in f64, their scales, the products, and how far a kernel may
//! be off.

use super::Out;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::{key, philox};
use kmark_core::gate::Sink;
use kmark_core::op::by_blocks;
use kmark_core::tensor::{TensorSpec, View};
use std::ops::Range;

/// Elements that share a scale where scales are per block.
pub const BLOCK: usize = 128;

/// The scale in row `row` and column `column` of scale tensor `tensor`, for the case's seed. Neighbours in either direction
/// differ by a factor of 1.6 at least, so that a scale taken from the wrong place shows.
fn derived_scale(case: &Case, tensor: &str, row: usize, column: usize) -> f64 {
    let [random, ..] = philox(key(case.seed, tensor), (row as u64) << 32 | column as u64);
    let exponent = (2 * row + column) % 5;
    0.25 * (1u64 << exponent) as f64 * (1.0 + 0.25 * (random >> 8) as f64 / (1 << 24) as f64)
}

/// Rows of a tensor of scales.
pub fn derive_scales(case: &Case, tensor: &TensorSpec, rows: Range<usize>, out: &mut [f64]) {
    let width = if tensor.shape.len() > 1 { tensor.row_len() } else { 1 };
    for (row, out) in rows.zip(out.chunks_mut(width)) {
        out.iter_mut().enumerate().for_each(|(i, v)| *v = derived_scale(case, tensor.name, row, i));
    }
}

/// Scales of an operand: `width` for each `span` of its vectors, one per block of the inner dimension or one in all.
pub struct Scales {
    pub values: Vec<f64>,
    pub width: usize,
    pub span: usize,
}

impl Scales {
    /// Multiplies vectors of length `k`, of which the first is vector `first`, with their scales.
    pub fn apply(&self, first: usize, vectors: &mut [f64], k: usize) {
        let block = if self.width == 1 { k } else { BLOCK };
        for (i, vector) in vectors.chunks_mut(k).enumerate() {
            let scales = &self.values[(first + i) / self.span * self.width..][..self.width];
            vector.chunks_mut(block).zip(scales).for_each(|(part, s)| part.iter_mut().for_each(|x| *x *= s));
        }
    }
}

/// One operand in a view: vectors of length `k`, rows of the first operand or columns of the second.
pub struct Operand<'a> {
    pub inputs: &'a View<'a>,
    pub name: &'static str,
    pub count: usize,
    pub k: usize,
    /// Whether the tensor's rows run across the vectors instead of along them.
    pub across: bool,
    pub scales: Option<Scales>,
}

/// Some vectors of an operand, one after the other, scales applied: nothing is rounded.
struct Vectors {
    data: Vec<f64>,
    k: usize,
}

impl Operand<'_> {
    fn vectors(&self, at: Range<usize>) -> Vectors {
        let (k, count) = (self.k, at.len());
        let mut data = vec![0.0; count * k];
        if self.across {
            let mut row = vec![0.0; count];
            for x in 0..k {
                self.inputs.read(self.name, x * self.count + at.start, &mut row);
                row.iter().enumerate().for_each(|(v, value)| data[v * k + x] = *value);
            }
        } else {
            self.inputs.read(self.name, at.start * k, &mut data);
        }
        if let Some(scales) = &self.scales {
            scales.apply(at.start, &mut data, k);
        }
        Vectors { data, k }
    }
}

impl Vectors {
    fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.data.chunks(self.k)
    }
    fn norms(&self) -> Vec<f64> {
        self.iter().map(|v| dot(v, v).sqrt()).collect()
    }
}

/// In eight partial sums, because one long chain of additions waits for each.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((ac, ar), (bc, br)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in ac.iter().zip(bc) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    sums.iter().sum::<f64>() + ar.iter().zip(br).map(|(a, b)| a * b).sum::<f64>()
}

/// How far the sums of a product over `k` terms may be off, as factors of the norms of its two vectors. Terms have either
/// sign: a sum of them is |a| |b| / sqrt(k) or so, and so is its error, which walks at random.
#[derive(Clone, Copy)]
pub struct Slack {
    /// A chain of additions whose result is as large as sums of its terms usually are, and what else kernels lose.
    chain: f64,
    lost: f64,
    /// How much more if parts of a sum of 8-bit products are rounded on the way, or never promoted.
    loose: f64,
    /// The output's unit, if parts of a sum of 16-bit products may be added up in the output, and what a part is of the norms.
    in_place: f64,
    step: f64,
    /// The accumulator's unit.
    unit: f64,
}

impl Slack {
    /// How far a product `d` may be off whose norms multiply to `size`. A chain of additions is off by its partial sums, and
    /// where the result is large, so were they: of a walk that ends at z times `step * size`, the squares of the partial sums
    /// are k (1/6 + z²/3) of the square of that step on the average. The error is 0.43 units of the root; this is seven times it.
    fn tight(&self, d: f64, size: f64) -> f64 {
        let walk = 3.0 * (size * size / 6.0 + (d / self.step) * (d / self.step) / 3.0).sqrt();
        (self.chain * size).max(self.unit * (walk + 8.0 * self.step * size)) + self.lost * size
    }

    /// How much more a product `d` may be off whose norms multiply to `size`. Kernels that split k add the parts up in the
    /// output, one after the other, each sum rounded to its type: cuBLAS does, if it is left to itself. Simulated, twelve
    /// of them are off by 6 units of these two at the worst.
    fn loose(&self, d: f64, size: f64) -> f64 {
        self.loose * size + 6.0 * self.in_place * d.hypot(self.step * size)
    }
}

/// `dtype` is that of the operands, `out` that of the product; in `blocks` scales differ along k. f32 operands in `tf32` may be
/// multiplied by tensor cores.
pub fn slack(dtype: DType, out: DType, k: usize, blocks: bool, tf32: bool) -> Slack {
    let (unit, root) = (dtype.accumulator().unit(), (k as f64).sqrt());
    // One chain of additions, the worst order, is off by 0.3 units of |a| |b| on the average.
    let chain = unit * (3.0 + 8.0 / root);
    // Tensor cores cut off what does not fit when they add 16 products to a sum, always towards zero: k/16 steps of about
    // 1.4 units of a partial sum. Measured on an H200 at k = 4096: 6.8 units of |a| |b|. Of TF32 they add eight.
    let cut = if dtype.size() <= 2 {
        unit * root / 8.0
    } else if tf32 {
        unit * root / 4.0
    } else {
        0.0
    };
    // Where scales differ, some blocks count for more than others, and the walk has fewer steps.
    let step = if blocks { 1.75 } else { 1.0 } / root;
    // They add 8-bit products in 14 bits, 32 at a time, between promotions to f32 every 128: simulated, that is 1.3e-4 of
    // the sum on the average, ten times as much at the worst, less in long sums.
    let short = if dtype.size() == 1 { step * (1.2e-3 + 2e-2 / (k.max(BLOCK) as f64).sqrt()) } else { 0.0 };
    let in_place = if dtype.size() == 2 && out.size() == 2 { out.unit() } else { 0.0 };
    // Four parts rounded. Sums of 8-bit products that are never promoted lose 2.3e-5 * sqrt(k) on the average, and a dozen
    // times as much where partial sums are large.
    let loose = if dtype.size() == 1 && out.size() == 2 { step * (4.0 * out.unit() + 3e-4 * root) } else { 0.0 };
    Slack { chain, lost: short + cut, loose, in_place, step, unit }
}

/// Which share of that slack the RMS error may be. A chain in f32 has a tenth; what three products of bf16 in the place of
/// f32 lose, more. The rounding of a 16-bit output leaves room for all that the sum may be off.
pub fn rms_share(dtype: DType, out: DType, tf32: bool) -> f64 {
    match (dtype.size(), out.size()) {
        (4 | 8, _) if !tf32 => 0.13,
        (1, 2) => 0.05,
        _ => 0.3,
    }
}

/// Values of an operand held in f64 at a time: 64 MiB.
const PANEL: usize = 1 << 23;
/// Rows at a time, and columns that stay in the cache while those rows are multiplied with them.
const TILE: usize = 16;

/// Puts the products of some vectors of `a` with some of `b` into `d`; `bias` has one for each of `b`, `start` says where a
/// pair stands.
pub fn put(
    sink: &dyn Sink,
    (a, rows): (&Operand, Range<usize>),
    (b, columns): (&Operand, Range<usize>),
    off: Slack,
    bias: Option<&[f64]>,
    start: impl Fn(usize, usize) -> usize + Sync,
) {
    in_panels((PANEL / b.k).max(TILE), a, rows, b, columns, |row, column, sums, sizes| {
        let mut out = Out::default();
        for (i, (d, size)) in sums.iter().zip(sizes).enumerate() {
            let bias = bias.map_or(0.0, |b| b[column + i]);
            // Scales multiplied, the product scaled and the bias added: each rounds in the accumulator.
            let after = off.unit * (4.0 * d.abs() + 2.0 * bias.abs());
            out.put(d + bias, off.tight(*d, *size) + after, off.loose(*d, *size));
        }
        out.flush(sink, "d", start(row, column), off.loose + off.in_place > 0.0);
    });
}

/// Calls `put` with runs of the product of some vectors of `a` with some of `b`: the vector of `a`, the first of `b`,
/// the products and for each the product of the norms. In parallel, every pair once, `width` vectors of `b` at a
/// time.
fn in_panels(
    width: usize,
    a: &Operand,
    rows: Range<usize>,
    b: &Operand,
    columns: Range<usize>,
    put: impl Fn(usize, usize, &[f64], &[f64]) + Sync,
) {
    for start in columns.clone().step_by(width) {
        let panel = b.vectors(start..(start + width).min(columns.end));
        let norms = panel.norms();
        by_blocks(rows.len(), TILE, |at| {
            let first = rows.start + at.start;
            let block = a.vectors(first..first + at.len());
            let mut out = vec![0.0; at.len() * norms.len()];
            for (t, tile) in panel.data.chunks(TILE * b.k).enumerate() {
                for (a, out) in block.iter().zip(out.chunks_mut(norms.len())) {
                    let out = &mut out[t * TILE..];
                    tile.chunks(b.k).zip(out).for_each(|(b, out)| *out = dot(a, b));
                }
            }
            for ((i, norm), out) in block.norms().iter().enumerate().zip(out.chunks(norms.len())) {
                let sizes: Vec<f64> = norms.iter().map(|n| n * norm).collect();
                put(first + i, start, out, &sizes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kmark_core::fill::Fill;
    use kmark_core::inputs::fill;
    use kmark_core::tensor::TensorSpec;
    use std::sync::Mutex;

    fn filled(specs: &[TensorSpec]) -> Vec<Vec<u8>> {
        let of = |s: &TensorSpec| {
            let mut bytes = vec![0; s.bytes()];
            fill(s, 7, &mut bytes);
            bytes
        };
        specs.iter().map(of).collect()
    }

    /// A row times one that resembles it: partial sums grow all the way, and their roundings with them.
    #[test]
    fn a_chain_of_additions_may_be_off_by_more_where_its_result_is_large() {
        let (rows, k) = (1000, 512);
        let spec = |name| TensorSpec::input(name, DType::F32, &[rows, k], Fill::Normal { mean: 0.0, std: 1.0 });
        let specs = [spec("a"), spec("b")];
        let bytes = filled(&specs);
        let view = View { specs: &specs, bytes: bytes.iter().map(|b| Some(b.as_slice())).collect() };
        let (a, b) = (view.all("a"), view.all("b"));
        let slack = slack(DType::F32, DType::F32, k, false, false);
        let (mut most, mut beyond_usual) = (0.0f64, 0);
        for (a, b) in a.chunks(k).zip(b.chunks(k)) {
            let like: Vec<f64> = a.iter().zip(b).map(|(a, b)| f64::from((b + 0.25 * a) as f32)).collect();
            let chain = a.iter().zip(&like).fold(0.0f32, |sum, (a, b)| (*a as f32).mul_add(*b as f32, sum));
            let (d, size) = (dot(a, &like), (dot(a, a) * dot(&like, &like)).sqrt());
            let off = (f64::from(chain) - d).abs();
            most = most.max(off / slack.tight(d, size));
            beyond_usual += usize::from(off > (slack.chain + slack.lost) * size);
        }
        assert!(most < 1.0, "{most}");
        assert!(beyond_usual > 3, "{beyond_usual}");
    }

    /// Several panels and tiles, against the plain sum.
    #[test]
    fn every_pair_is_multiplied_once() {
        let (m, n, k) = (19, 100, 45);
        let spec =
            |name, shape: &[usize]| TensorSpec::input(name, DType::F8e4m3, shape, Fill::Normal { mean: 0.0, std: 1.0 });
        let specs = [spec("a", &[m, k]), spec("b", &[k, n])];
        let bytes = filled(&specs);
        let view = View { specs: &specs, bytes: bytes.iter().map(|b| Some(b.as_slice())).collect() };
        let a = Operand { inputs: &view, name: "a", count: m, k, across: false, scales: None };
        let b = Operand { inputs: &view, name: "b", count: n, k, across: true, scales: None };
        let seen = Mutex::new(vec![0.0; m * n]);
        in_panels(40, &a, 1..m, &b, 2..n, |row, column, values, sizes| {
            assert!(values.iter().zip(sizes).all(|(v, s)| v.abs() <= *s));
            let mut seen = seen.lock().unwrap();
            values.iter().enumerate().for_each(|(i, v)| seen[row * n + column + i] += v);
        });
        let seen = seen.into_inner().unwrap();
        let (wa, wb) = (view.all("a"), view.all("b"));
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let sum = (0..k).map(|x| wa[i * k + x] * wb[x * n + j]).sum();
            let plain: f64 = if i >= 1 && j >= 2 { sum } else { 0.0 };
            assert!((plain - seen[i * n + j]).abs() < 1e-12, "{i} {j}");
        }
    }
}
