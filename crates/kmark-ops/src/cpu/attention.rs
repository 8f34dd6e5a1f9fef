//! Attention on the CPU over any geometry: tiles of queries against tiles of keys with the softmax carried along, as flash
//! attention does it.

use super::*;
use crate::plain::attention::{How, SOURCE};
use crate::truth::attention::{Attends, Geometry, MakeGeometry, Seq};
use kmark_core::dtype::DType;
use kmark_device::cpu::matmul::{Into, Mat, matmul};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// The CPU's table of an op that attends.
pub trait OnCpu: Attends {
    const IMPLS: &'static [&'static dyn Impl] = &[
        &naive(&How::right(Self::geometry), SOURCE),
        &CpuImpl {
            about: "tiles of 64 queries and 128 keys, softmax carried along, all cores",
            ..vectorised(|c, b| bind(Self::geometry, c, b), include_str!("attention.rs"))
        },
    ];
}

impl<A: Attends> OnCpu for A {}

/// Queries and keys of a tile: the scores of a tile and the keys fit a core's own cache.
pub const QUERIES: usize = 64;
pub const KEYS: usize = 128;

/// A tensor and how its rows lie.
pub struct Rows<'a> {
    bytes: &'a [u8],
    dtype: DType,
    pitch: usize,
}

impl<'a> Rows<'a> {
    pub fn new(bytes: &'a [u8], buffer: &Buffer) -> Rows<'a> {
        Rows { bytes, dtype: buffer.spec().dtype, pitch: buffer.spec().pitch }
    }

    /// As much of a row as there is room for, in accumulators.
    pub fn load<A: Real>(&self, row: usize, wide: &mut [A]) {
        let size = self.dtype.size();
        widen(self.dtype, &self.bytes[row * self.pitch * size..][..wide.len() * size], wide);
    }
}

/// Rounds some elements into a row of a tensor.
pub fn store<A: Real>(out: &mut [u8], buffer: &Buffer, row: usize, values: &[A]) {
    let (dtype, pitch) = (buffer.spec().dtype, buffer.spec().pitch);
    narrow(dtype, values, &mut out[row * pitch * dtype.size()..][..values.len() * dtype.size()]);
}

/// Knows the geometry as a function, not as a type: it is large, and built for every accumulator.
fn bind(geometry: MakeGeometry, c: &Case, b: &Buffers) -> Box<dyn Launch> {
    let (c, b) = (c.clone(), b.clone());
    by_acc!(c.dtype, A => Box::new(move || launch::<A>(geometry, &c, &b)))
}

fn launch<A: Real>(geometry: MakeGeometry, c: &Case, b: &Buffers) {
    let geo = geometry(c, &|name| b.get(name).read::<i32>().iter().map(|v| *v as i64).collect());
    let ([q, k, v], o) = (geo.tensors.map(|name| b.get(name)), b.get("o"));
    let lse = c.flag("lse").then(|| b.get("lse"));
    let held = [q.read::<u8>(), k.read::<u8>(), v.read::<u8>()];
    let inputs = [Rows::new(&held[0], &q), Rows::new(&held[1], &k), Rows::new(&held[2], &v)];
    let (mut o_bytes, mut lse) = (o.write::<u8>(), lse.as_ref().map(|l| l.write::<A>()));
    let out = Mutex::new((&mut *o_bytes, lse.as_deref_mut()));
    tiles(&geo).into_par_iter().with_min_len(4).for_each_init(
        || Scratch::new(&geo),
        |scratch, tile| {
            simd(
                #[inline(always)]
                || attend::<A>(&geo, &tile, &inputs, scratch),
            );
            let (o_bytes, lse) = &mut *out.lock().expect("no tile panicked");
            for (r, (head, i)) in tile.rows(&geo).enumerate() {
                let values = &scratch.out[r * geo.dv..(r + 1) * geo.dv];
                store(o_bytes, &o, (geo.q_row)(tile.seq, i, head), values);
                if let Some(lse) = lse {
                    lse[(geo.lse_at)(tile.seq, i, head)] = scratch.lse(r);
                }
            }
        },
    );
}

/// Some queries of one sequence and the heads that share a key head: row `r` is query `r % queries` of head
/// `r / queries`.
struct Tile {
    seq: usize,
    kv_head: usize,
    rows: Range<usize>,
}

impl Tile {
    /// Head and query of each row.
    fn rows<'a>(&self, geo: &'a Geometry) -> impl Iterator<Item = (usize, usize)> + use<'a> {
        let (queries, first) = (geo.seqs[self.seq].queries, self.kv_head * geo.group());
        self.rows.clone().map(move |r| (first + r / queries, r % queries))
    }
}

fn tiles(geo: &Geometry) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (seq, Seq { queries, .. }) in geo.seqs.iter().enumerate() {
        for kv_head in 0..geo.hkv {
            let rows = geo.group() * queries;
            tiles.extend((0..rows).step_by(QUERIES).map(|r| Tile { seq, kv_head, rows: r..rows.min(r + QUERIES) }));
        }
    }
    tiles
}

struct Scratch<A> {
    q: Vec<A>,
    k: Vec<A>,
    v: Vec<A>,
    scores: Vec<A>,
    out: Vec<A>,
    highest: Vec<A>,
    total: Vec<A>,
}

impl<A: Real> Scratch<A> {
    fn new(geo: &Geometry) -> Scratch<A> {
        let zeros = |len: usize| vec![A::ZERO; len];
        Scratch {
            q: zeros(QUERIES * geo.dk),
            k: zeros(KEYS * geo.dk),
            v: zeros(KEYS * geo.dv),
            scores: zeros(QUERIES * KEYS),
            out: zeros(QUERIES * geo.dv),
            highest: zeros(QUERIES),
            total: zeros(QUERIES),
        }
    }

    fn lse(&self, r: usize) -> A {
        if self.total[r] > A::ZERO { self.highest[r] + self.total[r].ln() } else { A::LOWEST }
    }
}

/// Leaves the finished rows in `scratch.out`.
#[inline(always)]
fn attend<A: Real>(geo: &Geometry, tile: &Tile, [q, k, v]: &[Rows; 3], x: &mut Scratch<A>) {
    let (dk, dv, rows) = (geo.dk, geo.dv, tile.rows.len());
    let scale = A::from_f64(geo.scale);
    let mut visible: [Range<usize>; QUERIES] = std::array::from_fn(|_| 0..0);
    for (r, (head, i)) in tile.rows(geo).enumerate() {
        visible[r] = (geo.visible)(tile.seq, i);
        q.load((geo.q_row)(tile.seq, i, head), &mut x.q[r * dk..(r + 1) * dk]);
    }
    x.q[..rows * dk].iter_mut().for_each(|q| *q = *q * scale);
    x.out[..rows * dv].fill(A::ZERO);
    x.highest.fill(A::LOWEST);
    x.total.fill(A::ZERO);
    let seen = visible[..rows].iter().filter(|r| !r.is_empty());
    let start = seen.clone().map(|r| r.start).min().unwrap_or(0);
    let end = seen.map(|r| r.end).max().unwrap_or(0);
    for first in (start..end).step_by(KEYS) {
        let n = KEYS.min(end - first);
        for j in 0..n {
            let row = (geo.k_row)(tile.seq, first + j, tile.kv_head);
            k.load(row, &mut x.k[j * dk..(j + 1) * dk]);
            v.load(row, &mut x.v[j * dv..(j + 1) * dv]);
        }
        let (queries, keys) = (Mat::new(&x.q, rows, dk, dk), Mat::new(&x.k, n, dk, dk));
        matmul(&mut x.scores, KEYS, queries, keys.transposed(), Into::Set, false);
        for (r, visible) in visible[..rows].iter().enumerate() {
            let scores = &mut x.scores[r * KEYS..r * KEYS + n];
            let inside = |j: usize| j.clamp(first, first + n) - first;
            let keep = inside(visible.start)..inside(visible.end).max(inside(visible.start));
            scores[..keep.start].fill(A::ZERO);
            scores[keep.end..].fill(A::ZERO);
            if keep.is_empty() {
                continue;
            }
            let scores = &mut scores[keep];
            let raised = x.highest[r].larger(max(scores));
            let old = exp(x.highest[r] - raised);
            scores.iter_mut().for_each(|s| *s = exp(*s - raised));
            x.total[r] = x.total[r] * old + sum(scores, |p| p);
            x.out[r * dv..(r + 1) * dv].iter_mut().for_each(|o| *o = *o * old);
            x.highest[r] = raised;
        }
        matmul(&mut x.out, dv, Mat::new(&x.scores, rows, n, KEYS), Mat::new(&x.v, n, dv, dv), Into::Add, false);
    }
    for r in 0..rows {
        let inverse = if x.total[r] > A::ZERO { A::ONE / x.total[r] } else { A::ZERO };
        x.out[r * dv..(r + 1) * dv].iter_mut().for_each(|o| *o = *o * inverse);
    }
}
