//! Products of groups of rows on the CPU. Which rows belong to which group is read from memory at every launch, as a
//! kernel must do it.

use super::{masked, plain, rows_by_group, scaled};
use crate::cpu::{CpuImpl, Real, Scales, Side, by_acc, naive, round_rows};
use crate::truth::product::BLOCK;
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cpu::matmul::{Into, matmul};
use kmark_device::{Impl, Launch};
use std::ops::Range;

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd(
        "group by group: widened, multiplied by the gemm crate on all cores, rounded",
        concat!(include_str!("cpu.rs"), include_str!("mod.rs")),
        bind,
    ),
];

/// What a launch needs to find its way.
struct Plan {
    /// Rows of a slot, if groups lie in slots.
    slot: Option<usize>,
    n: usize,
    k: usize,
    a: Buffer,
    b: Buffer,
    scales: Option<[Buffer; 2]>,
    index: Buffer,
    d: Buffer,
}

impl Plan {
    fn new(c: &Case, b: &Buffers) -> Plan {
        Plan {
            slot: masked(c).then(|| c.axis("m")),
            n: c.axis("n"),
            k: c.axis("k"),
            a: b.get("a"),
            b: b.get("b"),
            scales: scaled(c).then(|| [b.get("a_scale"), b.get("b_scale")]),
            index: b.get(if masked(c) { "count" } else { "group" }),
            d: b.get("d"),
        }
    }

    /// Runs `f` on the rows of every group: which they are, the rows of a, and the columns of the group's matrix.
    fn each_group(&self, mut f: impl FnMut(Range<usize>, Side, Side)) {
        let (n, k, dtype) = (self.n, self.k, self.a.spec().dtype);
        let (a, b) = (self.a.read::<u8>(), self.b.read::<u8>());
        let scales = self.scales.as_ref().map(|s| [s[0].read::<f32>(), s[1].read::<f32>()]);
        let width = k.div_ceil(BLOCK);
        for (g, rows) in rows_by_group(self.slot, &self.index.read()) {
            let side = |bytes, pitch, count, which: usize, first_scale: usize, span| {
                let values = scales.as_ref().map(|s| &s[which][first_scale * width..]);
                let scales = values.map(|values| Scales { values, width, span });
                Side { bytes, dtype, count, k, pitch, across: false, scales }
            };
            let (pa, pb, size) = (self.a.spec().pitch, self.b.spec().pitch, dtype.size());
            let a = side(&a[rows.start * pa * size..rows.end * pa * size], pa, rows.len(), 0, rows.start, 1);
            let b = side(&b[g * n * pb * size..(g + 1) * n * pb * size], pb, n, 1, g * n.div_ceil(BLOCK), BLOCK);
            f(rows, a, b);
        }
    }
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let plan = Plan::new(c, b);
    by_acc!(c.dtype, A => launch::<A>(plan))
}

fn launch<A: Real>(plan: Plan) -> Box<dyn Launch> {
    // Kept from group to group and from launch to launch: fresh memory would be paged in anew.
    let (mut wide_a, mut wide_b, mut product) = (Vec::<A>::new(), Vec::new(), Vec::new());
    Box::new(move || {
        let (n, spec, mut d) = (plan.n, plan.d.spec(), plan.d.write::<u8>());
        let row = spec.pitch * spec.dtype.size();
        plan.each_group(|rows, a, b| {
            product.resize(rows.len() * n, A::ZERO);
            matmul(&mut product, n, a.wide(&mut wide_a), b.wide(&mut wide_b).transposed(), Into::Set, true);
            let out = &mut d[rows.start * row..rows.end * row];
            round_rows(&mut product, n, (spec.dtype, out, spec.pitch), |_| {});
        });
    })
}
