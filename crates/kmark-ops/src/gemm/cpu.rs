//! Products of matrices on the CPU.

use super::{across, plain, scale_spans};
use crate::cpu::{CpuImpl, Real, Scales, Side, by_acc, naive, round_rows, wide_copy};
use kmark_core::case::Case;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cpu::matmul::{Into, matmul};
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
    fn with_sides(&self, f: impl FnOnce(Side, Side)) {
        let (a, b) = (self.a.read::<u8>(), self.b.read::<u8>());
        let scales = self.scales.as_ref().map(|s| [s[0].read::<f32>(), s[1].read::<f32>()]);
        let side = |bytes, buffer: &Buffer, count, across, which: usize| Side {
            bytes,
            dtype: buffer.spec().dtype,
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
}

fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let plan = Plan::new(c, b);
    by_acc!(c.dtype, A => launch::<A>(plan))
}

fn launch<A: Real>(plan: Plan) -> Box<dyn Launch> {
    // Kept from launch to launch: fresh memory would be paged in anew by each.
    let (mut wide_a, mut wide_b, mut product) = (Vec::new(), Vec::new(), vec![A::ZERO; plan.m * plan.n]);
    Box::new(move || {
        plan.with_sides(|a, b| {
            let (a, b) = (a.wide(&mut wide_a), b.wide(&mut wide_b).transposed());
            matmul(&mut product, plan.n, a, b, Into::Set, true);
        });
        let bias = plan.bias.as_ref().map(wide_copy::<A>);
        let spec = plan.d.spec();
        round_rows(&mut product, plan.n, (spec.dtype, &mut plan.d.write(), spec.pitch), |row| {
            if let Some(bias) = &bias {
                row.iter_mut().zip(bias).for_each(|(v, b)| *v += *b);
            }
        });
    })
}
