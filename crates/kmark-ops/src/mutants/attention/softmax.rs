//! The softmax of attention done wrong, or rounded on the way: maxima that are missing or another row's, in f32 as kernels
//! compute it, and a query whose product with the scale is kept in 16 bits.

use super::{after, read, write};
use crate::cpu::attention::ints;
use crate::mutants::{Mutant, Spoiled, WORKS};
use crate::truth::attention::{Attends, Geometry, no_integers};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;

/// Which maximum a row subtracts: of its own logits and that of the row before.
type High = fn(f64, f64) -> f64;

/// Replaces rows of the output that f32 cannot hold under another maximum. If there are none, there was no mutant.
fn under<A: Attends>(mut right: Box<dyn Launch>, c: &Case, b: &Buffers, high: High) -> Box<dyn Launch> {
    let (c, b) = (c.clone(), b.clone());
    Box::new(Spoiled(move || {
        right.launch().expect(WORKS);
        let geo = A::geometry(&c, &|name| ints(&b, name));
        let (q, k, mut o) = (read(&b.get(A::Q)), read(&b.get(A::K)), read(&b.get("o")));
        let (mut before, mut spoiled) = (0.0, false);
        each_row(&geo, |row, keys| {
            let dot = |key: &usize| {
                q[row * geo.dk..].iter().zip(&k[key * geo.dk..][..geo.dk]).map(|(q, k)| q * k).sum::<f64>()
            };
            let logits: Vec<f64> = keys.iter().map(|key| geo.scale * dot(key)).collect();
            let own = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
            let taken = high(own, before);
            let total: f32 = logits.iter().map(|s| ((s - taken) as f32).exp()).sum();
            let held = total > 0.0 && total.is_finite();
            if !held && !logits.is_empty() {
                o[row * geo.dv..(row + 1) * geo.dv].fill(f64::NAN);
                spoiled = true;
            }
            before = own;
        });
        write(&b.get("o"), &o);
        spoiled
    }))
}

/// Calls `f` with each row of q and the rows of k that it sees.
fn each_row(geo: &Geometry, mut f: impl FnMut(usize, &[usize])) {
    for s in 0..geo.seqs.len() {
        for (i, head) in (0..geo.seqs[s].queries).flat_map(|i| (0..geo.hq).map(move |head| (i, head))) {
            let keys: Vec<usize> = (geo.visible)(s, i).map(|j| (geo.k_row)(s, j, head / geo.group())).collect();
            f((geo.q_row)(s, i, head), &keys);
        }
    }
}

/// Large queries meet loud keys with logits beyond 88 where rows are wide enough; f64 holds them.
fn overflows<A: Attends>(c: &Case) -> bool {
    c.dtype != DType::F64 && A::geometry(c, &no_integers).dk >= 24
}

pub const fn no_maximum<A: Attends>() -> Mutant {
    Mutant {
        name: "no-maximum",
        about: "exp of the logits themselves, which f32 cannot hold",
        applies: overflows::<A>,
        spoil: |right, c, b| under::<A>(right, c, b, |_, _| 0.0),
    }
}

pub const fn maximum_of_the_row_before<A: Attends>() -> Mutant {
    Mutant {
        name: "maximum-of-the-row-before",
        about: "each row subtracts the maximum of the row before it",
        applies: overflows::<A>,
        spoil: |right, c, b| under::<A>(right, c, b, |_, before| if before.is_finite() { before } else { 0.0 }),
    }
}

/// Loose: weights that compete in a large query feel what is lost, and powers of two lose nothing.
pub const fn query_in_half<A: Attends>() -> Mutant {
    Mutant {
        name: "query-in-half",
        about: "q times the scale is rounded to 16 bits before the product",
        applies: |c| {
            let geo = A::geometry(c, &no_integers);
            let sees = |s: usize| (0..geo.seqs[s].queries).filter(|i| (geo.visible)(s, *i).len() >= 16).count();
            let rows = geo.hq * (0..geo.seqs.len()).map(sees).sum::<usize>();
            let exact = geo.scale.log2().fract() == 0.0;
            c.dtype.size() == 2 && !c.flag("lse") && !exact && rows >= 100 && geo.dk >= 24
        },
        spoil: |right, c, b| {
            let (c, b) = (c.clone(), b.clone());
            after(right, move || {
                let geo = A::geometry(&c, &|name| ints(&b, name));
                let (q, k, v) = (read(&b.get(A::Q)), read(&b.get(A::K)), read(&b.get(A::V)));
                let v_width = b.get(A::V).spec().row_len();
                let mut o = read(&b.get("o"));
                each_row(&geo, |row, keys| {
                    let q: Vec<f64> =
                        q[row * geo.dk..(row + 1) * geo.dk].iter().map(|q| c.dtype.round(q * geo.scale)).collect();
                    let dot = |key: &usize| q.iter().zip(&k[key * geo.dk..]).map(|(q, k)| q * k).sum::<f64>();
                    let logits: Vec<f64> = keys.iter().map(dot).collect();
                    let high = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
                    let p: Vec<f64> = logits.iter().map(|s| (s - high).exp()).collect();
                    let total: f64 = p.iter().sum();
                    for d in 0..geo.dv {
                        let sum: f64 = keys.iter().zip(&p).map(|(key, p)| p * v[key * v_width + d]).sum();
                        o[row * geo.dv + d] = if keys.is_empty() { 0.0 } else { sum / total };
                    }
                });
                write(&b.get("o"), &o);
            })
        },
    }
}
