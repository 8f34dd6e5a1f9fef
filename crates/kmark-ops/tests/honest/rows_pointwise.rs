//! Activations, rotations, quantisation and streams as libraries compute them: erf and tanh of several makes, sigmoids by a
//! fast reciprocal, gradients in several forms, scales by a quotient or a product.

use crate::kit::{read, write};
use crate::rows::{Acc, Way, sweep};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_device::buffer::{Buffer, Buffers};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// erf within a unit or two; or, as torch's vector code, by a polynomial within 1.5e-7 (Abramowitz and Stegun 7.1.26).
fn erf(a: &Acc, v: f64, by_polynomial: bool) -> f64 {
    if !by_polynomial {
        return a.near(a.r(libm::erf(v)));
    }
    let t = a.r(1.0 / a.mul_add(a.r(0.3275911), v.abs(), 1.0));
    let factors = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
    let polynomial = factors.iter().fold(0.0, |sum, f| a.mul_add(sum, t, a.r(*f)));
    let e = a.r(a.r(-a.r(v * v)).exp());
    a.r(1.0 - a.r(a.r(polynomial * t) * e)).copysign(v)
}

/// tanh within a unit or two, or by a quotient with an exponential.
fn tanh(a: &Acc, z: f64) -> f64 {
    match a.form % 3 {
        0 => a.near(a.r(z.tanh())),
        _ => a.r(1.0 - a.r(2.0 * a.inverse(a.r(a.exp(a.r(2.0 * z), 0.0) + 1.0)))),
    }
}

fn gelu(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let root = a.r(FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
    let one = |x: &f64| {
        let x = *x;
        let inner = if c.attr("approx") == "erf" {
            // The polynomial is one of f32.
            erf(a, a.r(x * a.r(FRAC_1_SQRT_2)), a.form.is_multiple_of(2) && c.dtype != DType::F64)
        } else {
            let cube = a.r(a.r(x * x) * x);
            tanh(a, a.r(root * a.mul_add(a.r(0.044715), cube, x)))
        };
        // The factor rounded on the way, or 1 + erf, or the product with x.
        match a.form % 4 {
            0 => a.r(way.r(a.r(0.5 * a.r(1.0 + inner))) * x),
            1 => a.r(0.5 * way.r(a.r(x * way.r(a.r(1.0 + inner))))),
            _ => a.r(a.r(0.5 * x) * way.r(a.r(1.0 + inner))),
        }
    };
    let y: Vec<f64> = read(&b.get("x")).iter().map(one).collect();
    write(&b.get("y"), &y);
}

fn sigmoid(a: &Acc, x: f64) -> f64 {
    a.inverse(a.r(1.0 + a.exp(-x, 0.0)))
}

/// Gate and up, element by element.
fn gated(c: &Case, b: &Buffers) -> Vec<(f64, f64)> {
    let (gate, up): (Vec<f64>, Vec<f64>) = if c.attr("form") == "packed" {
        let (x, n) = (read(&b.get("x")), c.axis("n"));
        let half = |at: usize| x.chunks(2 * n).flat_map(|row| &row[at * n..(at + 1) * n]).copied().collect();
        (half(0), half(1))
    } else {
        (read(&b.get("gate")), read(&b.get("up")))
    };
    gate.into_iter().zip(up).collect()
}

fn swiglu(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let one = |(gate, up): (f64, f64)| match a.form % 3 {
        // As Liger: gate * s is rounded before it meets up.
        0 => a.r(way.r(a.r(gate * sigmoid(a, gate))) * up),
        1 => a.r(way.r(a.r(gate * way.r(sigmoid(a, gate)))) * up),
        _ if way.rounds() => a.r(way.r(a.r(gate * sigmoid(a, gate))) * up),
        // gate / (1 + exp(-gate)).
        _ => a.r(a.near(a.r(gate / a.r(1.0 + a.exp(-gate, 0.0)))) * up),
    };
    let y: Vec<f64> = gated(c, b).into_iter().map(one).collect();
    write(&b.get("y"), &y);
}

fn swiglu_bwd(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let n = c.axis("n");
    let one = |((gate, up), dy): ((f64, f64), f64)| {
        let s = way.r(sigmoid(a, gate));
        let silu = way.r(a.r(gate * s));
        let dup = a.r(dy * silu);
        // s (1 + gate (1 - s)), or silu (1 - s) + s, as Liger writes it.
        let rest = way.r(a.r(1.0 - s));
        let slope = if a.form.is_multiple_of(2) {
            way.r(a.r(s * way.r(a.mul_add(gate, rest, 1.0))))
        } else {
            way.r(a.mul_add(silu, rest, s))
        };
        (a.r(slope * way.r(a.r(dy * up))), dup)
    };
    let (dgate, dup): (Vec<f64>, Vec<f64>) = gated(c, b).into_iter().zip(read(&b.get("dy"))).map(one).unzip();
    if c.attr("form") == "packed" {
        let dx: Vec<f64> = dgate.chunks(n).zip(dup.chunks(n)).flat_map(|(g, u)| [g, u].concat()).collect();
        return write(&b.get("dx"), &dx);
    }
    write(&b.get("dgate"), &dgate);
    write(&b.get("dup"), &dup);
}

fn rope(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (d, s) = (c.axis("d"), c.axis("s"));
    let (cos, sin) = (read(&b.get("cos")), read(&b.get("sin")));
    let half = cos.len() / s;
    for (name, heads) in [("q", c.axis("hq")), ("k", c.axis("hk"))] {
        let Some(input) = b.0.iter().find(|b| b.spec().name == name) else { continue };
        let mut x = read(input);
        for (row, x) in x.chunks_mut(d).enumerate() {
            let position = row / heads % s;
            for i in 0..half {
                let (first, second) = if c.attr("style") == "neox" { (i, i + half) } else { (2 * i, 2 * i + 1) };
                let at = position * half + i;
                let (cos, sin) = (way.r(cos[at]), way.r(sin[at]));
                let (x1, x2) = (x[first], x[second]);
                let product = |x: f64, by: f64| way.r(a.r(x * by));
                if way.rounds() {
                    x[first] = a.r(product(x1, cos) - product(x2, sin));
                    x[second] = a.r(product(x2, cos) + product(x1, sin));
                } else {
                    x[first] = a.mul_add(x1, cos, -a.r(x2 * sin));
                    x[second] = a.mul_add(x2, cos, a.r(x1 * sin));
                }
            }
        }
        let out: &Buffer = if c.attr("form") == "inplace" { input } else { &b.get(&format!("{name}_out")) };
        write(out, &x);
    }
}

fn quant_fp8(a: &Acc, _: Way, c: &Case, b: &Buffers) {
    let (m, n, x, scale) = (c.axis("m"), c.axis("n"), read(&b.get("x")), b.get("scale"));
    let (rows, columns) = match c.attr("granularity") {
        "row" => (1, n),
        "1x128" => (1, 128),
        _ => (128, 128),
    };
    let across = n.div_ceil(columns);
    let block = |i: usize| i / n / rows * across + i % n / columns;
    let mut amax = vec![0.0f64; scale.spec().elems()];
    (0..m * n).for_each(|i| amax[block(i)] = amax[block(i)].max(x[i].abs()));
    let largest = if c.attr("to") == "f8e4m3" { 448.0 } else { 57344.0 };
    let scales: Vec<f64> = amax
        .iter()
        .map(|amax| {
            let top = amax.max(a.r(c.number("clamp")));
            let scale = if a.form.is_multiple_of(2) { a.r(top / largest) } else { a.r(top * a.r(1.0 / largest)) };
            // By the exact quotient: a kernel that rounds it first may miss a power of two.
            if c.flag("pow2") { 2f64.powi((top / largest).log2().ceil() as i32) } else { scale }
        })
        .collect();
    let dtype = b.get("q").spec().dtype;
    let one = |i: usize| {
        let s = scales[block(i)];
        let q = match a.form % 3 {
            0 => a.r(x[i] / s),
            1 => a.r(x[i] * a.r(1.0 / s)),
            _ if c.flag("pow2") => x[i] / s,
            _ => a.r(x[i] * a.r(largest / amax[block(i)].max(a.r(c.number("clamp"))))),
        };
        dtype.round(q.clamp(-largest, largest))
    };
    let q: Vec<f64> = (0..m * n).map(one).collect();
    write(&b.get("q"), &q);
    write(&scale, &scales);
}

fn stream(a: &Acc, _: Way, c: &Case, b: &Buffers) {
    let one = |name: &str| read(&b.get(name));
    match c.attr("kind") {
        "copy" => write(&b.get("y"), &one("x")),
        "read" => write(&b.get("sums"), &one("x").chunks(1 << 16).map(|x| a.sum(x)).collect::<Vec<_>>()),
        "write" => write(&b.get("y"), &vec![one("s")[0]; c.axis("n")]),
        _ => {
            let (x, y, s) = (one("a"), one("b"), one("s")[0]);
            let out: Vec<f64> = x.iter().zip(&y).map(|(x, y)| a.mul_add(s, *y, *x)).collect();
            write(&b.get("y"), &out);
        }
    }
}

#[test]
fn activations() {
    sweep(14, 90, &[("gelu", gelu), ("swiglu", swiglu), ("swiglu-bwd", swiglu_bwd)]);
}

#[test]
fn the_rest() {
    sweep(15, 70, &[("rope", rope), ("quant-fp8", quant_fp8), ("stream", stream)]);
}
