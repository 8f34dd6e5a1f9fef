//! Attention done wrong, in the ways that the ops that attend share: mostly a geometry with one twist, computed in f64
//! and rounded.

mod softmax;

pub use softmax::{maximum_of_the_row_before, no_maximum, query_in_half};

use super::{Mutant, after, edited, read, write};
use crate::cpu::attention::ints;
use crate::truth::attention::{Attends, Geometry, no_integers};
use kmark_core::case::Case;
use kmark_device::Launch;
use kmark_device::buffer::Buffers;
use std::ops::Range;

/// Replaces the outputs by those of a geometry that `twist` has changed; `logit` bends each logit.
pub fn twisted<A: Attends>(
    right: Box<dyn Launch>,
    c: &Case,
    b: &Buffers,
    twist: fn(&Case, &mut Geometry),
    logit: fn(f64) -> f64,
) -> Box<dyn Launch> {
    let (c, b) = (c.clone(), b.clone());
    after(right, move || {
        let mut geo = A::geometry(&c, &|name| ints(&b, name));
        twist(&c, &mut geo);
        let (q, k, v) = (read(&b.get(A::Q)), read(&b.get(A::K)), read(&b.get(A::V)));
        let v_width = b.get(A::V).spec().row_len();
        let mut o = read(&b.get("o"));
        let mut lse = c.flag("lse").then(|| read(&b.get("lse")));
        for s in 0..geo.seqs.len() {
            for i in 0..geo.seqs[s].queries {
                for head in 0..geo.hq {
                    let row = (geo.q_row)(s, i, head);
                    let row_of = |j| (geo.k_row)(s, j, head / geo.group());
                    let rows: Vec<usize> = (geo.visible)(s, i).map(row_of).collect();
                    let q = &q[row * geo.dk..(row + 1) * geo.dk];
                    let dot = |r: &usize| q.iter().zip(&k[r * geo.dk..]).map(|(q, k)| q * k).sum::<f64>();
                    let logits: Vec<f64> = rows.iter().map(|r| logit(geo.scale * dot(r))).collect();
                    let highest = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
                    let p: Vec<f64> = logits.iter().map(|s| (s - highest).exp()).collect();
                    let total: f64 = p.iter().sum();
                    for d in 0..geo.dv {
                        let sum: f64 = rows.iter().zip(&p).map(|(r, p)| p * v[r * v_width + d]).sum();
                        o[row * geo.dv + d] = if rows.is_empty() { 0.0 } else { sum / total };
                    }
                    if let Some(lse) = &mut lse {
                        lse[(geo.lse_at)(s, i, head)] = highest + total.ln();
                    }
                }
            }
        }
        write(&b.get("o"), &o);
        if let Some(lse) = lse {
            write(&b.get("lse"), &lse);
        }
    })
}

/// Changes which keys a query sees; `change` gets the keys of the sequence and the right range.
pub fn sees(geo: &mut Geometry, change: fn(usize, Range<usize>) -> Range<usize>) {
    let seqs = geo.seqs.clone();
    let right = std::mem::replace(&mut geo.visible, Box::new(|_, _| 0..0));
    geo.visible = Box::new(move |s, i| change(seqs[s].keys, right(s, i)));
}

/// Whether `twist` shows: enough rows of enough elements change what they see. One narrow row may, by chance, hardly
/// look at the key that it loses.
pub fn shows<A: Attends>(c: &Case, twist: fn(&Case, &mut Geometry)) -> bool {
    let right = A::geometry(c, &no_integers);
    let mut wrong = A::geometry(c, &no_integers);
    twist(c, &mut wrong);
    let places = (0..right.seqs.len()).flat_map(|s| (0..right.seqs[s].queries).map(move |i| (s, i)));
    let changed = places.filter(|(s, i)| (right.visible)(*s, *i) != (wrong.visible)(*s, *i)).count();
    changed * right.hq >= 4 && right.dk >= 24
}

/// Most keys that one query sees.
fn most_keys<A: Attends>(c: &Case) -> usize {
    let geo = A::geometry(c, &no_integers);
    let most = |s: usize| (0..geo.seqs[s].queries).map(|i| (geo.visible)(s, i).len()).max().unwrap_or(0);
    (0..geo.seqs.len()).map(most).max().unwrap_or(0)
}

fn drop_sink(_: &Case, geo: &mut Geometry) {
    sees(geo, |_, r| r.start.max(1).min(r.end)..r.end);
}

pub const fn sink_dropped<A: Attends>() -> Mutant {
    Mutant {
        name: "sink-dropped",
        about: "the first key of a sequence is left out",
        applies: |c| shows::<A>(c, drop_sink),
        spoil: |right, c, b| twisted::<A>(right, c, b, drop_sink, |s| s),
    }
}

fn drop_last(_: &Case, geo: &mut Geometry) {
    sees(geo, |keys, r| {
        let end = r.end.min(keys.saturating_sub(1));
        r.start.min(end)..end
    });
}

pub const fn last_key_lost<A: Attends>() -> Mutant {
    Mutant {
        name: "last-key-lost",
        about: "the last key of a sequence is left out: a partial tile is rounded down",
        applies: |c| shows::<A>(c, drop_last),
        spoil: |right, c, b| twisted::<A>(right, c, b, drop_last, |s| s),
    }
}

fn drop_diagonal(c: &Case, geo: &mut Geometry) {
    if c.flag("causal") {
        sees(geo, |keys, r| if r.end == keys { r } else { r.start..r.end.saturating_sub(1).max(r.start) });
    }
}

pub const fn diagonal_missing<A: Attends>() -> Mutant {
    Mutant {
        name: "diagonal-missing",
        about: "a query does not see the key of its own position, except in the last row",
        applies: |c| shows::<A>(c, drop_diagonal),
        spoil: |right, c, b| twisted::<A>(right, c, b, drop_diagonal, |s| s),
    }
}

fn ignore_window(c: &Case, geo: &mut Geometry) {
    if c.count("window") > 0 {
        sees(geo, |_, r| 0..r.end);
    }
}

pub const fn window_ignored<A: Attends>() -> Mutant {
    Mutant {
        name: "window-ignored",
        about: "a query sees keys older than the window",
        applies: |c| shows::<A>(c, ignore_window),
        spoil: |right, c, b| twisted::<A>(right, c, b, ignore_window, |s| s),
    }
}

pub const fn scale_missing<A: Attends>() -> Mutant {
    Mutant {
        name: "scale-missing",
        about: "logits are not scaled",
        applies: |c| most_keys::<A>(c) > 1 && A::geometry(c, &no_integers).dk >= 8,
        spoil: |right, c, b| twisted::<A>(right, c, b, |_, geo| geo.scale = 1.0, |s| s),
    }
}

pub const fn large_logits_clipped<A: Attends>() -> Mutant {
    Mutant {
        name: "large-logits-clipped",
        about: "logits are clipped at 3, so that a sink attracts less",
        applies: |c| {
            let geo = A::geometry(c, &no_integers);
            let rows = geo.hq * geo.seqs.iter().map(|s| s.queries).sum::<usize>();
            most_keys::<A>(c) > 8 && geo.dk >= 64 && rows >= 4
        },
        spoil: |right, c, b| twisted::<A>(right, c, b, |_, _| {}, |s| s.min(3.0)),
    }
}

pub const fn key_heads_interleaved<A: Attends>() -> Mutant {
    Mutant {
        name: "key-heads-interleaved",
        about: "query head h takes key head h % hkv, not h / (hq / hkv)",
        applies: |c| {
            let geo = A::geometry(c, &no_integers);
            geo.hkv > 1 && geo.hq > geo.hkv && most_keys::<A>(c) > 0
        },
        spoil: |right, c, b| {
            // The twisted loops divide the query head by the group: with as many key heads as query heads, they name it.
            let twist = |_: &Case, geo: &mut Geometry| {
                let hkv = std::mem::replace(&mut geo.hkv, geo.hq);
                let right = std::mem::replace(&mut geo.k_row, Box::new(|_, _, _| 0));
                geo.k_row = Box::new(move |s, j, head| right(s, j, head % hkv));
            };
            twisted::<A>(right, c, b, twist, |s| s)
        },
    }
}

pub const fn lse_in_base_2() -> Mutant {
    Mutant {
        name: "lse-in-base-2",
        about: "lse is a logarithm to base 2",
        applies: |c| c.flag("lse"),
        spoil: |right, _, b| edited(right, b, "lse", |lse| lse.iter_mut().for_each(|v| *v /= std::f64::consts::LN_2)),
    }
}

/// Whether a sequence ends inside a page.
fn ends_in_a_page(c: &Case, seq: usize) -> bool {
    !seq.is_multiple_of(c.count("page"))
}

fn partial_pages<A: Attends>(c: &Case) -> bool {
    let geo = A::geometry(c, &no_integers);
    // The key that is taken too many is as wide as a loud one is strong: narrow rows may not look at it.
    geo.dk >= 24 && geo.dv >= 8 && geo.seqs.iter().any(|s| s.keys > 0 && ends_in_a_page(c, s.keys))
}

fn take_one_more(c: &Case, geo: &mut Geometry) {
    let (page, seqs) = (c.count("page"), geo.seqs.clone());
    let right = std::mem::replace(&mut geo.visible, Box::new(|_, _| 0..0));
    geo.visible = Box::new(move |s, i| {
        let (r, keys) = (right(s, i), seqs[s].keys);
        if r.end == keys && !keys.is_multiple_of(page) { r.start..r.end + 1 } else { r }
    });
}

pub const fn one_key_too_many<A: Attends>() -> Mutant {
    Mutant {
        name: "one-key-too-many",
        about: "the slot behind the last key of a partial page is taken as a key",
        applies: partial_pages::<A>,
        spoil: |right, c, b| twisted::<A>(right, c, b, take_one_more, |s| s),
    }
}

fn take_whole_page(c: &Case, geo: &mut Geometry) {
    let (page, seqs) = (c.count("page"), geo.seqs.clone());
    let right = std::mem::replace(&mut geo.visible, Box::new(|_, _| 0..0));
    geo.visible = Box::new(move |s, i| {
        let (r, keys) = (right(s, i), seqs[s].keys);
        if r.end == keys { r.start..keys.next_multiple_of(page) } else { r }
    });
}

pub const fn whole_last_page<A: Attends>() -> Mutant {
    Mutant {
        name: "whole-last-page",
        about: "the last page is taken whole, whatever the length",
        applies: partial_pages::<A>,
        spoil: |right, c, b| twisted::<A>(right, c, b, take_whole_page, |s| s),
    }
}

pub const fn wrong_page<A: Attends>() -> Mutant {
    Mutant {
        name: "wrong-page",
        about: "the first page of the second sequence is that of the first",
        applies: |c| {
            let geo = A::geometry(c, &no_integers);
            geo.seqs.len() > 1 && geo.dk >= 24 && geo.dv >= 8
        },
        spoil: |right, c, b| {
            let twist = |c: &Case, geo: &mut Geometry| {
                let page = c.count("page");
                let row = std::mem::replace(&mut geo.k_row, Box::new(|_, _, _| 0));
                geo.k_row = Box::new(move |s, j, h| if s == 1 && j < page { row(0, j, h) } else { row(s, j, h) });
            };
            twisted::<A>(right, c, b, twist, |s| s)
        },
    }
}

fn see_all(_: &Case, geo: &mut Geometry) {
    sees(geo, |keys, _| 0..keys);
}

pub const fn not_causal<A: Attends>() -> Mutant {
    Mutant {
        name: "not-causal",
        about: "an earlier query token sees the keys of later ones",
        applies: |c| shows::<A>(c, see_all),
        spoil: |right, c, b| twisted::<A>(right, c, b, see_all, |s| s),
    }
}
