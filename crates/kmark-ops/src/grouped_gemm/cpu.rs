//! Products of groups of rows on the CPU. Which rows belong to which group is read from memory at every launch, as a
//! kernel must do it.

use super::{masked, plain, rows_by_group, scaled};
use crate::cpu::{CpuImpl, Elem, Real, Scales, Side, by_any_float, by_float, naive, round_rows};
use crate::truth::product::BLOCK;
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cpu::matmul::{Into, Scalar, matmul};
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
    fn each_group<T: Elem>(&self, mut f: impl FnMut(Range<usize>, Side<T>, Side<T>)) {
        let (n, k) = (self.n, self.k);
        let (a, b) = (self.a.read::<T>(), self.b.read::<T>());
        let scales = self.scales.as_ref().map(|s| [s[0].read::<f32>(), s[1].read::<f32>()]);
        let width = k.div_ceil(BLOCK);
        for (g, rows) in rows_by_group(self.slot, &self.index.read()) {
            let side = |data, pitch, count, which: usize, first_scale: usize, span| {
                let values = scales.as_ref().map(|s| &s[which][first_scale * width..]);
                let scales = values.map(|values| Scales { values, width, span });
                Side { data, count, k, pitch, across: false, scales }
            };
            let (pa, pb) = (self.a.spec().pitch, self.b.spec().pitch);
            let a = side(&a[rows.start * pa..rows.end * pa], pa, rows.len(), 0, rows.start, 1);
            let b = side(&b[g * n * pb..(g + 1) * n * pb], pb, n, 1, g * n.div_ceil(BLOCK), BLOCK);
            f(rows, a, b);
        }
    }
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let plan = Plan::new(c, b);
    by_any_float!(c.dtype, T => simd_launch::<T>(plan))
}

fn simd_launch<T: Elem>(plan: Plan) -> Box<dyn Launch>
where
    T::Acc: Scalar,
{
    // Kept from group to group and from launch to launch: fresh memory would be paged in anew.
    let (mut wide_a, mut wide_b, mut product) = (Vec::new(), Vec::new(), Vec::new());
    Box::new(move || {
        let (n, pitch) = (plan.n, plan.d.spec().pitch);
        by_float!(plan.d.spec().dtype, O => {
            let mut d = plan.d.write::<O>();
            plan.each_group::<T>(|rows, a, b| {
                product.resize(rows.len() * n, <T::Acc as Real>::ZERO);
                matmul(&mut product, n, a.wide(&mut wide_a), b.wide(&mut wide_b).transposed(), Into::Set, true);
                round_rows::<T::Acc, O>(&mut product, n, &mut d[rows.start * pitch..rows.end * pitch], pitch, |_| {});
            });
        })
    })
}
