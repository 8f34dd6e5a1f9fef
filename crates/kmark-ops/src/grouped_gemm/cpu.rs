//! Products of groups of rows on the CPU. Which rows belong to which group is read from memory at every launch, as a
//! kernel must do it.

use super::{masked, rows_by_group, scaled};
use crate::cpu::*;
use crate::truth::product::BLOCK;
use kmark_device::cpu::matmul::{Into, matmul};

pub fn bind(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    by_acc!(c.dtype, A => launch::<A>(c, b))
}

fn launch<A: Real>(c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (n, k, slot) = (c.axis("n"), c.axis("k"), masked(c).then(|| c.axis("m")));
    let (width, index) = (k.div_ceil(BLOCK), b.get(if masked(c) { "count" } else { "group" }));
    let scales = scaled(c).then(|| ["a_scale", "b_scale"].map(|name| b.get(name)));
    let [a, b, d] = ["a", "b", "d"].map(|name| b.get(name));
    // Kept from group to group and from launch to launch: fresh memory would be paged in anew.
    let (mut wide_a, mut wide_b, mut product) = (Vec::<A>::new(), Vec::new(), Vec::new());
    Box::new(move || {
        let (a_bytes, b_bytes, mut d_bytes) = (a.read::<u8>(), b.read::<u8>(), d.write::<u8>());
        let scales = scales.as_ref().map(|s| s.each_ref().map(|s| s.read::<f32>()));
        let scales = |which: usize, first: usize, span| {
            scales.as_ref().map(|s| Scales { values: &s[which][first * width..], width, span })
        };
        let bytes = |buffer: &Buffer, rows: usize| rows * buffer.spec().pitch * buffer.spec().dtype.size();
        for (g, rows) in rows_by_group(slot, &index.read()) {
            let a_rows = &a_bytes[bytes(&a, rows.start)..bytes(&a, rows.end)];
            let b_rows = &b_bytes[bytes(&b, g * n)..bytes(&b, (g + 1) * n)];
            let of_a = Side { scales: scales(0, rows.start, 1), ..Side::new(&a, a_rows, rows.len(), k, false) };
            let of_b = Side { scales: scales(1, g * n.div_ceil(BLOCK), BLOCK), ..Side::new(&b, b_rows, n, k, false) };
            product.resize(rows.len() * n, A::ZERO);
            matmul(&mut product, n, of_a.wide(&mut wide_a), of_b.wide(&mut wide_b).transposed(), Into::Set, true);
            let out = &mut d_bytes[bytes(&d, rows.start)..bytes(&d, rows.end)];
            round_rows(&mut product, n, (d.spec().dtype, out, d.spec().pitch), |_| {});
        }
    })
}
