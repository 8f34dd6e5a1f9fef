//! Norms and their backward as libraries compute them: two passes, Welford's way, rstd from a fast reciprocal root, products
//! in any order, gradients of the weight from sums in any order.

use crate::common::Random;
use crate::kit::{Verdicts, read, write};
use crate::rows::{Acc, Way, sweep};
use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::tally::Grade;
use kmark_device::buffer::Buffers;

fn rms(a: &Acc, z: &[f64], eps: f64) -> f64 {
    let n = z.len() as f64;
    let squares = a.dot(z, z);
    let mean = if a.form.is_multiple_of(2) { a.r(squares / n) } else { a.r(squares * a.r(1.0 / n)) };
    a.rsqrt(a.r(mean + a.r(eps)))
}

/// z * rstd * w, in one of two orders. Rounding on the way: the row before the weight (as Llama's), or rstd as well.
fn scaled(a: &Acc, way: Way, z: &[f64], r: f64, w: &[f64]) -> Vec<f64> {
    let one = |(z, w): (&f64, &f64)| match a.form % 3 {
        0 if !way.rounds() => a.r(z * a.r(r * w)),
        1 => a.r(way.r(a.r(z * way.r(r))) * w),
        _ => a.r(way.r(a.r(z * r)) * w),
    };
    z.iter().zip(w).map(one).collect()
}

fn rmsnorm(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (x, w) = (read(&b.get("x")), read(&b.get("w")));
    let (mut y, mut rstd) = (Vec::new(), Vec::new());
    for x in x.chunks(w.len()) {
        let r = rms(a, x, c.number("eps"));
        y.extend(scaled(a, way, x, r, &w));
        rstd.push(r);
    }
    write(&b.get("y"), &y);
    if c.flag("rstd") {
        write(&b.get("rstd"), &rstd);
    }
}

fn add_rmsnorm(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (x, residual, w) = (read(&b.get("x")), read(&b.get("residual")), read(&b.get("w")));
    let (mut y, mut sums) = (Vec::new(), Vec::new());
    for (x, residual) in x.chunks(w.len()).zip(residual.chunks(w.len())) {
        let z: Vec<f64> = x.iter().zip(residual).map(|(x, r)| a.r(x + r)).collect();
        // A loose kernel may take the sum for the other of the two that there are.
        let other = way.rounds() && a.form < 6;
        let rounds = (c.attr("sum") == "rounded") != other;
        let normed: Vec<f64> = z.iter().map(|z| if rounds { c.dtype.round(*z) } else { *z }).collect();
        let r = rms(a, &normed, c.number("eps"));
        y.extend(scaled(a, if other { Way::NONE } else { way }, &normed, r, &w));
        sums.extend(z);
    }
    let in_place = c.attr("form") == "inplace";
    write(&b.get(if in_place { "x" } else { "y" }), &y);
    write(&b.get(if in_place { "residual" } else { "z" }), &sums);
}

/// Mean and variance in one pass: each lane its own, then merged (Chan): two by two, as a GPU does, or one after the other,
/// those of the elements that no vector has first, as torch.compile does on a CPU.
fn welford(a: &Acc, x: &[f64]) -> (f64, f64) {
    type Part = (f64, f64, f64);
    let parts = |x: &[f64], lanes: usize| -> Vec<Part> {
        let one = |lane| {
            let (mut count, mut mean, mut m2) = (0.0, 0.0, 0.0);
            for v in x.iter().skip(lane).step_by(lanes) {
                count += 1.0;
                let d = a.r(v - mean);
                mean = a.mul_add(d, a.r(1.0 / count), mean);
                m2 = a.mul_add(d, a.r(v - mean), m2);
            }
            (count, mean, m2)
        };
        (0..x.len().min(lanes)).map(one).collect()
    };
    let merge = |(na, ma, sa): Part, (nb, mb, sb): Part| {
        let (n, d) = (na + nb, a.r(mb - ma));
        let share = a.r(nb / n);
        (n, a.mul_add(d, share, ma), a.r(a.r(sa + sb) + a.r(a.r(d * d) * a.r(na * share))))
    };
    let all = if a.form % 4 == 1 {
        let (vectors, rest) = x.split_at(x.len() / 16 * 16);
        let each = [rest, vectors].map(|x| parts(x, 16).into_iter().reduce(merge));
        each.into_iter().flatten().reduce(merge).expect("a row has elements")
    } else {
        let mut parts = parts(x, 32);
        while parts.len() > 1 {
            parts = parts.chunks(2).map(|pair| if let [a, b] = *pair { merge(a, b) } else { pair[0] }).collect();
        }
        parts[0]
    };
    (all.1, a.r(all.2 / x.len() as f64))
}

fn layernorm(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (x, w, eps) = (read(&b.get("x")), read(&b.get("w")), c.number("eps"));
    let n = w.len();
    let bias = if c.flag("bias") { read(&b.get("b")) } else { vec![0.0; n] };
    let (mut y, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for x in x.chunks(n) {
        let (mean, variance) = if a.form.is_multiple_of(2) {
            let mean = a.r(a.sum(x) / n as f64);
            let d: Vec<f64> = x.iter().map(|x| a.r(x - mean)).collect();
            (mean, a.r(a.dot(&d, &d) / n as f64))
        } else {
            welford(a, x)
        };
        let r = a.rsqrt(a.r(variance + a.r(eps)));
        for i in 0..n {
            let xh = way.r(a.r(a.r(x[i] - mean) * r));
            y.push(if way.rounds() { a.r(way.r(xh * w[i]) + bias[i]) } else { a.mul_add(xh, w[i], bias[i]) });
        }
        means.push(mean);
        rstds.push(r);
    }
    write(&b.get("y"), &y);
    if c.flag("stats") {
        write(&b.get("mean"), &means);
        write(&b.get("rstd"), &rstds);
    }
}

/// dw or dbias: sums over rows.
fn column_sums(a: &Acc, terms: &[f64], n: usize) -> Vec<f64> {
    let column = |i: usize| a.sum(&terms.iter().skip(i).step_by(n).copied().collect::<Vec<_>>());
    (0..n).map(column).collect()
}

/// A gradient of the weight in more than 16 bits is not rounded on the way.
fn way_of_dw(way: Way, b: &Buffers) -> Way {
    if b.get("dw").spec().dtype.size() == 2 { way } else { Way::NONE }
}

fn rmsnorm_bwd(a: &Acc, way: Way, _: &Case, b: &Buffers) {
    let [x, w, dout, rstd] = ["x", "w", "dout", "rstd"].map(|name| read(&b.get(name)));
    let n = w.len();
    let (mut dx, mut dw_terms) = (Vec::new(), Vec::new());
    for (row, r) in rstd.iter().enumerate() {
        let (x, dout) = (&x[row * n..(row + 1) * n], &dout[row * n..(row + 1) * n]);
        let g: Vec<f64> = dout.iter().zip(&w).map(|(d, w)| way.r(a.r(d * w))).collect();
        let hat = |way: Way| x.iter().map(|x| way.r(a.r(x * r))).collect::<Vec<_>>();
        let (xh, for_dw) = (hat(way), way_of_dw(way, b));
        dw_terms.extend(dout.iter().zip(hat(for_dw)).map(|(d, xh)| for_dw.r(a.r(d * xh))));
        if way.rounds() {
            let terms: Vec<f64> = g.iter().zip(&xh).map(|(g, xh)| way.r(g * xh)).collect();
            let mean = way.r(a.r(a.sum(&terms) / n as f64));
            dx.extend(g.iter().zip(&xh).map(|(g, xh)| way.r(g - way.r(xh * mean)) * r));
        } else if a.form < 6 {
            let mean = a.r(a.dot(&g, &xh) / n as f64);
            dx.extend(g.iter().zip(&xh).map(|(g, xh)| a.r(a.mul_add(-xh, mean, *g) * r)));
        } else {
            // As Liger writes it: rstd * g less x times one factor for the row.
            let factor = a.r(a.r(a.r(a.dot(&g, x) / n as f64) * a.r(r * r)) * r);
            dx.extend(g.iter().zip(x).map(|(g, x)| a.mul_add(-x, factor, a.r(g * r))));
        }
    }
    write(&b.get("dx"), &dx);
    write(&b.get("dw"), &column_sums(a, &dw_terms, n));
}

fn layernorm_bwd(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let [x, w, dout, mean, rstd] = ["x", "w", "dout", "mean", "rstd"].map(|name| read(&b.get(name)));
    let n = w.len();
    let (mut dx, mut dw_terms) = (Vec::new(), Vec::new());
    for (row, r) in rstd.iter().enumerate() {
        let (x, dout) = (&x[row * n..(row + 1) * n], &dout[row * n..(row + 1) * n]);
        let g: Vec<f64> = dout.iter().zip(&w).map(|(d, w)| way.r(a.r(d * w))).collect();
        let hat = |way: Way| x.iter().map(|x| way.r(a.r(a.r(x - mean[row]) * r))).collect::<Vec<_>>();
        let (xh, for_dw) = (hat(way), way_of_dw(way, b));
        dw_terms.extend(dout.iter().zip(hat(for_dw)).map(|(d, xh)| for_dw.r(a.r(d * xh))));
        let terms: Vec<f64> = g.iter().zip(&xh).map(|(g, xh)| way.r(a.r(g * xh))).collect();
        let g_mean = way.r(a.r(a.sum(&g) / n as f64));
        let dot_mean = way.r(a.r(a.sum(&terms) / n as f64));
        dx.extend(g.iter().zip(&xh).map(|(g, xh)| match a.form % 2 {
            _ if way.rounds() => way.r(way.r(g - g_mean) - way.r(xh * dot_mean)) * r,
            0 => a.r(a.mul_add(-xh, dot_mean, a.r(g - g_mean)) * r),
            _ => a.r(a.r(g - a.mul_add(*xh, dot_mean, g_mean)) * r),
        }));
    }
    write(&b.get("dx"), &dx);
    write(&b.get("dw"), &column_sums(a, &dw_terms, n));
    if c.flag("bias") {
        write(&b.get("dbias"), &column_sums(a, &dout, n));
    }
}

#[test]
fn norms() {
    sweep(
        11,
        60,
        &[
            ("rmsnorm", rmsnorm),
            ("add-rmsnorm", add_rmsnorm),
            ("layernorm", layernorm),
            ("rmsnorm-bwd", rmsnorm_bwd),
            ("layernorm-bwd", layernorm_bwd),
        ],
    );
}

/// torch.compile's on a CPU was called wrong where a row has four elements that are not zero, and one of them no vector.
#[test]
fn running_means_of_longer_rows() {
    let (entry, mut verdicts) = (kmark_ops::find("layernorm").expect("an op"), Verdicts::default());
    let mut random = Random::new(11, 2501);
    for (seed, n) in (0..24).map(|i| (i, [1000, 1009, 4001][i as usize % 3])) {
        let axes: IndexMap<String, u64> = [("m".to_string(), 17), ("n".to_string(), n)].into_iter().collect();
        let case = entry.op.case(DType::F32, &axes, &IndexMap::new(), seed).expect("a valid case");
        let mut acc = Acc::any(&mut random, &case);
        acc.form = 1;
        let run = move |c: &Case, b: &Buffers| layernorm(&acc, Way::NONE, c, b);
        verdicts.add(entry, &case, &format!("{acc:?}"), Grade::Tight, run);
    }
    verdicts.close();
}
