//! Attention done wrong, in the ways that the ops that attend share: mostly a geometry with one twist.

use super::{Mutant, edited};
use crate::plain::Tensors;
use crate::plain::attention::{How, RIGHT, plain, under};
use crate::truth::attention::{Attends, Geometry, MakeGeometry, RowOf, no_integers};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use std::ops::Range;

type Twist = fn(&Case, &mut Geometry);

/// The outputs of a geometry that `twist` has changed.
pub fn twisted<A: Attends>(c: &Case, t: &mut Tensors, twist: Twist) {
    wrong::<A>(c, t, &How { geometry: twist, ..RIGHT });
}

fn wrong<A: Attends>(c: &Case, t: &mut Tensors, how: &How) {
    plain(A::geometry, c, t, how);
}

/// Changes which keys a query sees; `change` gets the keys of the sequence and the right range.
pub fn sees(geo: &mut Geometry, change: impl Fn(usize, Range<usize>) -> Range<usize> + Send + Sync + 'static) {
    let seqs = geo.seqs.clone();
    let right = std::mem::replace(&mut geo.visible, Box::new(|_, _| 0..0));
    geo.visible = Box::new(move |s, i| change(seqs[s].keys, right(s, i)));
}

/// Changes where keys are found; `change` gets the right rows, and sequence, position and head of a key.
pub fn finds(geo: &mut Geometry, change: impl Fn(&RowOf, usize, usize, usize) -> usize + Send + Sync + 'static) {
    let right = std::mem::replace(&mut geo.k_row, Box::new(|_, _, _| 0));
    geo.k_row = Box::new(move |s, j, head| change(&right, s, j, head));
}

/// Whether `twist` shows: enough rows of enough elements change what they see. One narrow row may, by chance, hardly
/// look at the key that it loses.
pub fn shows(geometry: MakeGeometry, c: &Case, twist: Twist) -> bool {
    let [right, mut wrong] = [(); 2].map(|()| geometry(c, &no_integers));
    twist(c, &mut wrong);
    let changed = right.rows().filter(|(s, i, _)| (right.visible)(*s, *i) != (wrong.visible)(*s, *i)).count();
    changed >= 4 && right.dk >= 24
}

/// Most keys that one query sees.
fn most_keys(geo: &Geometry) -> usize {
    geo.rows().map(|(s, i, _)| (geo.visible)(s, i).len()).max().unwrap_or(0)
}

fn drop_sink(_: &Case, geo: &mut Geometry) {
    sees(geo, |_, r| r.start.max(1).min(r.end)..r.end);
}

pub const fn sink_dropped<A: Attends>() -> Mutant {
    Mutant::plain("sink-dropped", "the first key of a sequence is left out", |c, t| twisted::<A>(c, t, drop_sink))
        .on(|c| shows(A::geometry, c, drop_sink))
}

fn drop_last(_: &Case, geo: &mut Geometry) {
    sees(geo, |keys, r| {
        let end = r.end.min(keys.saturating_sub(1));
        r.start.min(end)..end
    });
}

pub const fn last_key_lost<A: Attends>() -> Mutant {
    Mutant::plain("last-key-lost", "the last key of a sequence is left out: a partial tile is rounded down", |c, t| {
        twisted::<A>(c, t, drop_last)
    })
    .on(|c| shows(A::geometry, c, drop_last))
}

fn drop_diagonal(c: &Case, geo: &mut Geometry) {
    if c.flag("causal") {
        sees(geo, |keys, r| if r.end == keys { r } else { r.start..r.end.saturating_sub(1).max(r.start) });
    }
}

pub const fn diagonal_missing<A: Attends>() -> Mutant {
    Mutant::plain(
        "diagonal-missing",
        "a query does not see the key of its own position, except in the last row",
        |c, t| twisted::<A>(c, t, drop_diagonal),
    )
    .on(|c| shows(A::geometry, c, drop_diagonal))
}

fn ignore_window(c: &Case, geo: &mut Geometry) {
    if c.count("window") > 0 {
        sees(geo, |_, r| 0..r.end);
    }
}

pub const fn window_ignored<A: Attends>() -> Mutant {
    Mutant::plain("window-ignored", "a query sees keys older than the window", |c, t| twisted::<A>(c, t, ignore_window))
        .on(|c| shows(A::geometry, c, ignore_window))
}

pub const fn scale_missing<A: Attends>() -> Mutant {
    Mutant::plain("scale-missing", "logits are not scaled", |c, t| twisted::<A>(c, t, |_, geo| geo.scale = 1.0)).on(
        |c| {
            let geo = A::geometry(c, &no_integers);
            most_keys(&geo) > 1 && geo.dk >= 8
        },
    )
}

pub const fn large_logits_clipped<A: Attends>() -> Mutant {
    Mutant::plain("large-logits-clipped", "logits are clipped at 3, so that a sink attracts less", |c, t| {
        wrong::<A>(c, t, &How { logit: |s| s.min(3.0), ..RIGHT })
    })
    .on(|c| {
        let geo = A::geometry(c, &no_integers);
        most_keys(&geo) > 8 && geo.dk >= 64 && geo.rows().count() >= 4
    })
}

pub const fn key_heads_interleaved<A: Attends>() -> Mutant {
    Mutant::plain("key-heads-interleaved", "query head h takes key head h % hkv, not h / (hq / hkv)", |c, t| {
        // The plain loops divide the query head by the group: with as many key heads as query heads, they name it.
        twisted::<A>(c, t, |_, geo| {
            let hkv = std::mem::replace(&mut geo.hkv, geo.hq);
            finds(geo, move |row, s, j, head| row(s, j, head % hkv));
        })
    })
    .on(|c| {
        let geo = A::geometry(c, &no_integers);
        geo.hkv > 1 && geo.hq > geo.hkv && most_keys(&geo) > 0
    })
}

pub const fn lse_in_base_2() -> Mutant {
    Mutant::new("lse-in-base-2", "lse is a logarithm to base 2", |right, _, b| {
        edited(right, b, "lse", |lse| lse.iter_mut().for_each(|v| *v /= std::f64::consts::LN_2))
    })
    .on(|c| c.flag("lse"))
}

fn partial_pages<A: Attends>(c: &Case) -> bool {
    let (geo, page) = (A::geometry(c, &no_integers), c.count("page"));
    // The key that is taken too many is as wide as a loud one is strong: narrow rows may not look at it.
    geo.dk >= 24 && geo.dv >= 8 && geo.seqs.iter().any(|s| !s.keys.is_multiple_of(page))
}

fn take_one_more(c: &Case, geo: &mut Geometry) {
    let page = c.count("page");
    sees(geo, move |keys, r| if r.end == keys && !keys.is_multiple_of(page) { r.start..r.end + 1 } else { r });
}

pub const fn one_key_too_many<A: Attends>() -> Mutant {
    Mutant::plain("one-key-too-many", "the slot behind the last key of a partial page is taken as a key", |c, t| {
        twisted::<A>(c, t, take_one_more)
    })
    .on(partial_pages::<A>)
}

fn take_whole_page(c: &Case, geo: &mut Geometry) {
    let page = c.count("page");
    sees(geo, move |keys, r| if r.end == keys { r.start..keys.next_multiple_of(page) } else { r });
}

pub const fn whole_last_page<A: Attends>() -> Mutant {
    Mutant::plain("whole-last-page", "the last page is taken whole, whatever the length", |c, t| {
        twisted::<A>(c, t, take_whole_page)
    })
    .on(partial_pages::<A>)
}

pub const fn wrong_page<A: Attends>() -> Mutant {
    Mutant::plain("wrong-page", "the first page of the second sequence is that of the first", |c, t| {
        twisted::<A>(c, t, |c, geo| {
            let page = c.count("page");
            finds(geo, move |row, s, j, head| row(if s == 1 && j < page { 0 } else { s }, j, head));
        })
    })
    .on(|c| {
        let geo = A::geometry(c, &no_integers);
        geo.seqs.len() > 1 && geo.dk >= 24 && geo.dv >= 8
    })
}

fn see_all(_: &Case, geo: &mut Geometry) {
    sees(geo, |keys, _| 0..keys);
}

pub const fn not_causal<A: Attends>() -> Mutant {
    Mutant::plain("not-causal", "an earlier query token sees the keys of later ones", |c, t| {
        twisted::<A>(c, t, see_all)
    })
    .on(|c| shows(A::geometry, c, see_all))
}

/// Large queries meet loud keys with logits beyond 88 where rows are wide enough; f64 holds them.
fn overflows<A: Attends>(c: &Case) -> bool {
    c.dtype != DType::F64 && A::geometry(c, &no_integers).dk >= 24
}

pub const fn no_maximum<A: Attends>() -> Mutant {
    Mutant::plain("no-maximum", "exp of the logits themselves, which f32 cannot hold", |c, t| {
        under(A::geometry, c, t, |_, _| 0.0)
    })
    .on(overflows::<A>)
}

pub const fn maximum_of_the_row_before<A: Attends>() -> Mutant {
    Mutant::plain("maximum-of-the-row-before", "each row subtracts the maximum of the row before it", |c, t| {
        under(A::geometry, c, t, |_, before| if before.is_finite() { before } else { 0.0 })
    })
    .on(overflows::<A>)
}

/// Loose: weights that compete in a large query feel what is lost, and powers of two lose nothing.
pub const fn query_in_half<A: Attends>() -> Mutant {
    Mutant::plain("query-in-half", "q times the scale is rounded to 16 bits before the product", |c, t| {
        wrong::<A>(c, t, &How { rounds: true, ..RIGHT })
    })
    .on(|c| {
        let geo = A::geometry(c, &no_integers);
        let rows = geo.rows().filter(|(s, i, _)| (geo.visible)(*s, *i).len() >= 16).count();
        let exact = geo.scale.log2().fract() == 0.0;
        c.dtype.size() == 2 && !c.flag("lse") && !exact && rows >= 100 && geo.dk >= 24
    })
}
