//! Cross entropy as libraries compute it: the loss by way of lse or of the difference from the maximum, probabilities by a
//! quotient or from lse, the gradient with p and p - 1 rounded on the way.

use crate::kit::{read, write};
use crate::rows::{Acc, Way, sweep};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;

fn cross_entropy(a: &Acc, _: Way, c: &Case, b: &Buffers) {
    let (n, ignore) = (c.axis("n"), c.number("ignore"));
    let (mut losses, mut lses) = (Vec::new(), Vec::new());
    for (x, t) in read(&b.get("x")).chunks(n).zip(read(&b.get("target"))) {
        let (_, max, total) = a.softmax(x);
        let lse = a.lse(max, total);
        let loss = |x_t: f64| match a.form % 3 {
            0 => a.r(a.near(a.r(total.ln())) - a.r(x_t - max)),
            _ => a.r(lse - x_t),
        };
        losses.push(if t == ignore { 0.0 } else { loss(x[t as usize]) });
        lses.push(lse);
    }
    write(&b.get("loss"), &losses);
    write(&b.get("lse"), &lses);
}

/// dloss * (p - onehot); rounding on the way, p and the difference, and the gradient before it is scaled.
fn gradient(a: &Acc, way: Way, c: &Case, b: &Buffers, p: impl Fn(usize) -> Vec<f64>) {
    let (n, ignore) = (c.axis("n"), c.number("ignore"));
    let (target, dloss) = (read(&b.get("target")), read(&b.get("dloss")));
    let mut dx = Vec::new();
    for (row, (t, dloss)) in target.into_iter().zip(dloss).enumerate() {
        for (i, p) in p(row).into_iter().enumerate() {
            let p = way.r(p);
            let rest = if i as f64 == t { way.r(a.r(p - 1.0)) } else { p };
            let scale = if a.form.is_multiple_of(2) { way.r(dloss) } else { dloss };
            dx.push(if t == ignore { 0.0 } else { a.r(rest * scale) });
        }
    }
    assert_eq!(dx.len() % n, 0);
    write(&b.get("dx"), &dx);
}

fn cross_entropy_bwd(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (n, x, lse) = (c.axis("n"), read(&b.get("x")), read(&b.get("lse")));
    gradient(a, way, c, b, |row| x[row * n..(row + 1) * n].iter().map(|x| a.exp(*x, lse[row])).collect());
}

fn cross_entropy_fwd_bwd(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (n, x) = (c.axis("n"), read(&b.get("x")));
    gradient(a, way, c, b, |row| {
        let x = &x[row * n..(row + 1) * n];
        let (p, max, total) = a.softmax(x);
        // By way of lse, or by the quotient.
        if a.form.is_multiple_of(3) { x.iter().map(|x| a.exp(*x, a.lse(max, total))).collect() } else { p }
    });
}

#[test]
fn cross_entropies() {
    let kernels: [(&str, crate::rows::Kernel); 3] = [
        ("cross-entropy", cross_entropy),
        ("cross-entropy-bwd", cross_entropy_bwd),
        ("cross-entropy-fwd-bwd", cross_entropy_fwd_bwd),
    ];
    sweep(13, 90, &kernels);
}
