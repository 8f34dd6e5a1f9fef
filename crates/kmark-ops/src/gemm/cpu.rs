//! Products of matrices on the CPU.

use super::{across, scale_spans};
use crate::cpu::*;
use kmark_device::cpu::matmul::{Into, matmul};

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_acc!(c.dtype, A => launch::<A>(c, b))
}

fn launch<A: Real>(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let ([m, n, k], across, spans) = (["m", "n", "k"].map(|axis| c.axis(axis)), across(c), scale_spans(c));
    let operands = ["a", "b"].map(|name| b.get(name));
    let scales = spans.map(|_| ["a_scale", "b_scale"].map(|name| b.get(name)));
    let (bias, d) = (c.flag("bias").then(|| b.get("bias")), b.get("d"));
    // Kept from launch to launch: fresh memory would be paged in anew by each.
    let (mut wide_a, mut wide_b, mut product) = (Vec::new(), Vec::new(), vec![A::ZERO; m * n]);
    Box::new(move || {
        let bytes = operands.each_ref().map(|b| b.read::<u8>());
        let scales = scales.as_ref().map(|s| s.each_ref().map(|s| s.read::<f32>()));
        let side = |which: usize, count, across| {
            let spans = scales.as_ref().zip(spans);
            let scales = spans.map(|(values, s)| Scales { values: &values[which], width: s[2], span: s[which] });
            Side { scales, ..Side::new(&operands[which], &bytes[which], count, k, across) }
        };
        let (a, b) = (side(0, m, across.0), side(1, n, across.1));
        matmul(&mut product, n, a.wide(&mut wide_a), b.wide(&mut wide_b).transposed(), Into::Set, true);
        let bias = bias.as_ref().map(wide_copy::<A>);
        round_rows(&mut product, n, (d.spec().dtype, &mut d.write(), d.spec().pitch), |row| {
            if let Some(bias) = &bias {
                row.iter_mut().zip(bias).for_each(|(v, b)| *v += *b);
            }
        });
    })
}
