//! Products of matrices on the CPU.

use super::{across, plain, scale_spans};
use crate::cpu::{CpuImpl, Elem, Real, Scales, Side, by_any_float, by_float, naive, round_rows, widen_weight};
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cpu::matmul::{Into, Scalar, matmul};
use kmark_device::{Impl, Launch};

pub const IMPLS: &[&dyn Impl] = &[
    &naive(plain::right, concat!(include_str!("plain.rs"), include_str!("mod.rs"))),
    &CpuImpl::simd("widened, multiplied by the gemm crate on all cores, rounded", include_str!("cpu.rs"), bind),
];

/// What a launch needs to find its way.
struct Plan {
    m: usize,
    n: usize,
    k: usize,
    across: (bool, bool),
    spans: Option<[usize; 3]>,
    a: Buffer,
    b: Buffer,
    scales: Option<[Buffer; 2]>,
    bias: Option<Buffer>,
    d: Buffer,
}

impl Plan {
    fn new(c: &Case, b: &Buffers) -> Plan {
        Plan {
            m: c.axis("m"),
            n: c.axis("n"),
            k: c.axis("k"),
            across: across(c),
            spans: scale_spans(c),
            a: b.get("a"),
            b: b.get("b"),
            scales: scale_spans(c).map(|_| [b.get("a_scale"), b.get("b_scale")]),
            bias: c.flag("bias").then(|| b.get("bias")),
            d: b.get("d"),
        }
    }

    /// Runs `f` on both operands.
    fn with_sides<T: Elem>(&self, f: impl FnOnce(Side<T>, Side<T>)) {
        let (a, b) = (self.a.read::<T>(), self.b.read::<T>());
        let scales = self.scales.as_ref().map(|s| [s[0].read::<f32>(), s[1].read::<f32>()]);
        let side = |data, buffer: &Buffer, count, across, which: usize| Side {
            data,
            count,
            k: self.k,
            pitch: buffer.spec().pitch,
            across,
            scales: scales.as_ref().zip(self.spans).map(|(values, spans)| Scales {
                values: &values[which],
                width: spans[2],
                span: spans[which],
            }),
        };
        f(side(&a, &self.a, self.m, self.across.0, 0), side(&b, &self.b, self.n, self.across.1, 1))
    }

    fn bias<A: Real>(&self) -> Option<Vec<A>> {
        self.bias.as_ref().map(widen_weight)
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
    let zero = <T::Acc as Real>::ZERO;
    // Kept from launch to launch: fresh memory would be paged in anew by each.
    let (mut wide_a, mut wide_b, mut product) = (Vec::new(), Vec::new(), vec![zero; plan.m * plan.n]);
    Box::new(move || {
        plan.with_sides::<T>(|a, b| {
            let (a, b) = (a.wide(&mut wide_a), b.wide(&mut wide_b).transposed());
            matmul(&mut product, plan.n, a, b, Into::Set, true);
        });
        let bias = plan.bias::<T::Acc>();
        let add = |row: &mut [T::Acc]| {
            if let Some(bias) = &bias {
                row.iter_mut().zip(bias).for_each(|(v, b)| *v += *b);
            }
        };
        let spec = plan.d.spec();
        by_float!(spec.dtype, O => round_rows::<T::Acc, O>(&mut product, plan.n, &mut plan.d.write(), spec.pitch, add));
    })
}
