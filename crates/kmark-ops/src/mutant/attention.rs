//! Attention done wrong, in the ways that the ops that attend share: mostly a geometry with one twist.

use super::{Mutant, edited};
use crate::plain::attention::{How, Twist};
use crate::truth::attention::{Attends, Geometry, RowOf, no_integers};
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use std::f64::consts::LN_2;
use std::ops::Range;

/// What an op that attends can get wrong.
pub trait Wrong: Attends {
    const RIGHT: How = How::right(Self::geometry);

    /// Which keys a query meets, and with which logits.
    const KEYS: &'static [Mutant] = &[
        Mutant::new("sink-dropped", "the first key of a sequence is left out")
            .plain(&How { twist: drop_sink, ..Self::RIGHT })
            .on(|c| shows::<Self>(c, drop_sink)),
        Mutant::new("last-key-lost", "the last key of a sequence is left out: a partial tile is rounded down")
            .plain(&How { twist: drop_last, ..Self::RIGHT })
            .on(|c| shows::<Self>(c, drop_last)),
        Self::SCALE_MISSING,
        Mutant::new("large-logits-clipped", "logits are clipped at 3, so that a sink attracts less")
            .plain(&How { logit: |s| s.min(3.0), ..Self::RIGHT })
            .on(|c| on::<Self>(c, |geo| most_keys(geo) > 8 && geo.dk >= 64 && geo.rows().count() >= 4)),
    ];

    const SCALE_MISSING: Mutant = Mutant::new("scale-missing", "logits are not scaled")
        .plain(&How { twist: |_, geo| geo.scale = 1.0, ..Self::RIGHT })
        .on(|c| on::<Self>(c, |geo| most_keys(geo) > 1 && geo.dk >= 8));

    const SOFTMAX: &'static [Mutant] = &[
        Mutant::new("no-maximum", "exp of the logits themselves, which f32 cannot hold")
            .plain(&How { maximum: Some(|_, _| 0.0), ..Self::RIGHT })
            .on(overflows::<Self>),
        Mutant::new("maximum-of-the-row-before", "each row subtracts the maximum of the row before it")
            .plain(&How { maximum: Some(|_, before| if before.is_finite() { before } else { 0.0 }), ..Self::RIGHT })
            .on(overflows::<Self>),
        Mutant::new("lse-in-base-2", "lse is a logarithm to base 2")
            .of(|right, _, b| edited(right, b, "lse", |lse| lse.iter_mut().for_each(|v| *v /= LN_2)))
            .on(|c| c.flag("lse")),
    ];

    /// Where a case says what is masked.
    const MASKS: &'static [Mutant] = &[
        Mutant::new("diagonal-missing", "a query does not see the key of its own position, except in the last row")
            .plain(&How { twist: drop_diagonal, ..Self::RIGHT })
            .on(|c| shows::<Self>(c, drop_diagonal)),
        Mutant::new("window-ignored", "a query sees keys older than the window")
            .plain(&How { twist: ignore_window, ..Self::RIGHT })
            .on(|c| shows::<Self>(c, ignore_window)),
        // Weights that compete in a large query feel what is lost, and powers of two lose nothing.
        Mutant::loose("query-in-half", "q times the scale is rounded to 16 bits before the product")
            .plain(&How { rounds: true, ..Self::RIGHT })
            .on(|c| {
                let geo = Self::geometry(c, &no_integers);
                let rows = geo.rows().filter(|(s, i, _)| (geo.visible)(*s, *i).len() >= 16).count();
                let exact = geo.scale.log2().fract() == 0.0;
                c.dtype.size() == 2 && !c.flag("lse") && !exact && rows >= 100 && geo.dk >= 24
            }),
    ];

    const HEADS: &'static [Mutant] =
        &[Mutant::new("key-heads-interleaved", "query head h takes key head h % hkv, not h / (hq / hkv)")
            .plain(&How { twist: interleave_heads, ..Self::RIGHT })
            .on(|c| on::<Self>(c, |geo| geo.hkv > 1 && geo.hq > geo.hkv && most_keys(geo) > 0))];

    /// Of a cache in pages.
    const PAGES: &'static [Mutant] = &[
        Mutant::new("one-key-too-many", "the slot behind the last key of a partial page is taken as a key")
            .plain(&How { twist: take_one_more, ..Self::RIGHT })
            .on(partial_pages::<Self>),
        Mutant::new("whole-last-page", "the last page is taken whole, whatever the length")
            .plain(&How { twist: take_whole_page, ..Self::RIGHT })
            .on(partial_pages::<Self>),
        Mutant::new("wrong-page", "the first page of the second sequence is that of the first")
            .plain(&How { twist: take_first_page, ..Self::RIGHT })
            .on(|c| on::<Self>(c, |geo| geo.seqs.len() > 1 && geo.dk >= 24 && geo.dv >= 8)),
        Mutant::new("not-causal", "an earlier query token sees the keys of later ones")
            .plain(&How { twist: see_all, ..Self::RIGHT })
            .on(|c| shows::<Self>(c, see_all)),
    ];
}

impl<A: Attends> Wrong for A {}

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
pub fn shows<A: Attends>(c: &Case, twist: Twist) -> bool {
    let [right, mut wrong] = [(); 2].map(|()| A::geometry(c, &no_integers));
    twist(c, &mut wrong);
    let changed = right.rows().filter(|(s, i, _)| (right.visible)(*s, *i) != (wrong.visible)(*s, *i)).count();
    changed >= 4 && right.dk >= 24
}

fn on<A: Attends>(c: &Case, holds: fn(&Geometry) -> bool) -> bool {
    holds(&A::geometry(c, &no_integers))
}

/// Most keys that one query sees.
fn most_keys(geo: &Geometry) -> usize {
    geo.rows().map(|(s, i, _)| (geo.visible)(s, i).len()).max().unwrap_or(0)
}

/// Large queries meet loud keys with logits beyond 88 where rows are wide enough; f64 holds them.
fn overflows<A: Attends>(c: &Case) -> bool {
    c.dtype != DType::F64 && on::<A>(c, |geo| geo.dk >= 24)
}

fn partial_pages<A: Attends>(c: &Case) -> bool {
    let (geo, page) = (A::geometry(c, &no_integers), c.count("page"));
    // The key that is taken too many is as wide as a loud one is strong: narrow rows may not look at it.
    geo.dk >= 24 && geo.dv >= 8 && geo.seqs.iter().any(|s| !s.keys.is_multiple_of(page))
}

fn drop_sink(_: &Case, geo: &mut Geometry) {
    sees(geo, |_, r| r.start.max(1).min(r.end)..r.end);
}

fn drop_last(_: &Case, geo: &mut Geometry) {
    sees(geo, |keys, r| {
        let end = r.end.min(keys.saturating_sub(1));
        r.start.min(end)..end
    });
}

fn drop_diagonal(c: &Case, geo: &mut Geometry) {
    if c.flag("causal") {
        sees(geo, |keys, r| if r.end == keys { r } else { r.start..r.end.saturating_sub(1).max(r.start) });
    }
}

fn ignore_window(c: &Case, geo: &mut Geometry) {
    if c.count("window") > 0 {
        sees(geo, |_, r| 0..r.end);
    }
}

/// The plain loops divide the query head by the group: with as many key heads as query heads, they name it.
fn interleave_heads(_: &Case, geo: &mut Geometry) {
    let hkv = std::mem::replace(&mut geo.hkv, geo.hq);
    finds(geo, move |row, s, j, head| row(s, j, head % hkv));
}

fn take_one_more(c: &Case, geo: &mut Geometry) {
    let page = c.count("page");
    sees(geo, move |keys, r| if r.end == keys && !keys.is_multiple_of(page) { r.start..r.end + 1 } else { r });
}

fn take_whole_page(c: &Case, geo: &mut Geometry) {
    let page = c.count("page");
    sees(geo, move |keys, r| if r.end == keys { r.start..keys.next_multiple_of(page) } else { r });
}

fn take_first_page(c: &Case, geo: &mut Geometry) {
    let page = c.count("page");
    finds(geo, move |row, s, j, head| row(if s == 1 && j < page { 0 } else { s }, j, head));
}

fn see_all(_: &Case, geo: &mut Geometry) {
    sees(geo, |keys, _| 0..keys);
}
