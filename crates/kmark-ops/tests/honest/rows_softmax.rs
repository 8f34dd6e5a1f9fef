//! Softmax and its backward as libraries compute them: in passes or with a running maximum, exponentials to base 2, the sum
//! of y * dy in any order; torch's and Liger's ways of rounding in the backward.

use crate::kit::{read, write};
use crate::rows::{Acc, Way, sweep};
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;

fn softmax(a: &Acc, _: Way, c: &Case, b: &Buffers) {
    let y: Vec<f64> = read(&b.get("x")).chunks(c.axis("n")).flat_map(|x| a.softmax(x).0).collect();
    write(&b.get("y"), &y);
}

/// Added two by two, each sum rounded on the way.
fn rounded_tree(way: Way, terms: &[f64]) -> f64 {
    match terms {
        [] => 0.0,
        [one] => *one,
        _ => {
            let (a, b) = terms.split_at(terms.len() / 2);
            way.r(rounded_tree(way, a) + rounded_tree(way, b))
        }
    }
}

fn gradient(a: &Acc, way: Way, y: &[f64], dy: &[f64]) -> Vec<f64> {
    if !way.rounds() {
        let dot = a.dot(y, dy);
        let one = |(y, dy): (&f64, &f64)| match a.form % 3 {
            0 => a.mul_add(-y, dot, a.r(y * dy)),
            _ => a.r(y * a.r(dy - dot)),
        };
        return y.iter().zip(dy).map(one).collect();
    }
    let terms: Vec<f64> = y.iter().zip(dy).map(|(y, dy)| way.r(y * dy)).collect();
    match a.form % 3 {
        // torch: the products are kept, their sum is not rounded.
        0 => {
            let dot = a.sum(&terms);
            terms.iter().zip(y).map(|(term, y)| a.mul_add(-y, dot, *term)).collect()
        }
        1 => {
            let dot = rounded_tree(way, &terms);
            y.iter().zip(dy).map(|(y, dy)| a.r(y * way.r(dy - dot))).collect()
        }
        _ => {
            let dot = way.r(a.sum(&terms));
            y.iter().zip(dy).map(|(y, dy)| a.r(y * way.r(dy - dot))).collect()
        }
    }
}

fn softmax_bwd(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (n, y, dy) = (c.axis("n"), read(&b.get("y")), read(&b.get("dy")));
    let dx: Vec<f64> = y.chunks(n).zip(dy.chunks(n)).flat_map(|(y, dy)| gradient(a, way, y, dy)).collect();
    write(&b.get("dx"), &dx);
}

fn softmax_fwd_bwd(a: &Acc, way: Way, c: &Case, b: &Buffers) {
    let (n, x, dy) = (c.axis("n"), read(&b.get("x")), read(&b.get("dy")));
    let row = |(x, dy): (&[f64], &[f64])| {
        let y: Vec<f64> = a.softmax(x).0.iter().map(|p| way.r(*p)).collect();
        gradient(a, way, &y, dy)
    };
    let dx: Vec<f64> = x.chunks(n).zip(dy.chunks(n)).flat_map(row).collect();
    write(&b.get("dx"), &dx);
}

#[test]
fn softmaxes() {
    sweep(12, 90, &[("softmax", softmax), ("softmax-bwd", softmax_bwd), ("softmax-fwd-bwd", softmax_fwd_bwd)]);
}
