//! Attention in f64: which rows of q meet which rows of k and v, and what comes of it. The ops that attend differ only
//! in that geometry (dense, ragged, paged, selected blocks) and in the names of their tensors.

pub mod backward;
pub mod dense;
pub mod paged;
mod rounding;

use rounding::Column;

use super::product::dot;
use super::{Out, Rounding, ragged, sum};
use crate::words::{NORMAL, count, one_of, size, yes_no};
use kmark_core::case::Case;
use kmark_core::cost::Cost;
use kmark_core::dtype::DType;
use kmark_core::fill::{Fill, row_scale, slot};
use kmark_core::gate::{Sink, sum_slack};
use kmark_core::inputs::values;
use kmark_core::op::{Attr, AttrKind};
use kmark_core::tensor::{TensorSpec, View};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that attend to few keys have large outputs, those with many small ones: errors are judged apart.
pub const REGIONS: &[&str] = &["few keys", "many keys"];
const FEW_KEYS: usize = 64;

/// Row of a tensor for (sequence, position, head).
pub type RowOf = Box<dyn Fn(usize, usize, usize) -> usize + Send + Sync>;
/// Keys that (sequence, query position) sees.
pub type Visible = Box<dyn Fn(usize, usize) -> Range<usize> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seq {
    pub queries: usize,
    pub keys: usize,
}

/// The problem as sequences, each with its queries, its keys and `hq` query heads over `hkv` key heads.
pub struct Geometry {
    /// The names of q, k and v. The outputs are `o` and, on request, `lse`.
    pub tensors: [&'static str; 3],
    pub seqs: Vec<Seq>,
    pub hq: usize,
    pub hkv: usize,
    /// Width of a row of k, and how much of a row of v is used.
    pub dk: usize,
    pub dv: usize,
    pub scale: f64,
    pub visible: Visible,
    /// Row of q and of o.
    pub q_row: RowOf,
    /// Element of lse.
    pub lse_at: RowOf,
    /// Row of k and of v.
    pub k_row: RowOf,
}

/// An integer tensor of the case by name.
pub type Ints<'a> = &'a dyn Fn(&str) -> Vec<i64>;

/// For a case without integer tensors, or a question that does not depend on them.
pub fn no_integers(_: &str) -> Vec<i64> {
    Vec::new()
}

/// The geometry of a case.
pub type MakeGeometry = fn(&Case, Ints) -> Geometry;

/// An op that attends. What is large takes its geometry as a [`MakeGeometry`], so that it is built once for all ops.
pub trait Attends: Sized + 'static {
    fn geometry(c: &Case, ints: Ints) -> Geometry;
}

/// The usual mask. Positions are aligned at the end: the last query sees the last key. A window of `w` keeps the `w`
/// newest keys, and without causality as many on the other side.
pub fn masked(seqs: &[Seq], causal: bool, window: usize) -> Visible {
    let seqs = seqs.to_vec();
    Box::new(move |s, i| {
        let Seq { queries, keys } = seqs[s];
        let end = keys as isize;
        let at = i as isize + end - queries as isize;
        let w = window as isize;
        let high = match (causal, window) {
            (true, _) => at + 1,
            (false, 0) => end,
            _ => at + w,
        };
        let low = if window > 0 { at + 1 - w } else { 0 };
        let (low, high) = (low.clamp(0, end), high.clamp(0, end));
        low as usize..high.max(low) as usize
    })
}

impl Geometry {
    pub fn group(&self) -> usize {
        self.hq / self.hkv
    }

    /// Sequence, position and head of every row of q.
    pub fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let places = self.seqs.iter().enumerate().flat_map(|(s, seq)| (0..seq.queries).map(move |i| (s, i)));
        places.flat_map(|(s, i)| (0..self.hq).map(move |head| (s, i, head)))
    }

    /// Pairs of a query head's row and a key.
    pub fn pairs(&self) -> u64 {
        let of = |s: usize| (0..self.seqs[s].queries).map(|i| (self.visible)(s, i).len() as u64).sum::<u64>();
        self.over_sequences(of) * self.hq as u64
    }

    /// The sum of what depends on a sequence's lengths alone. Equal neighbours are counted once.
    fn over_sequences(&self, of: impl Fn(usize) -> u64) -> u64 {
        let mut first = 0;
        let runs = self.seqs.chunk_by(|a, b| a == b).map(|run| {
            first += run.len();
            of(first - run.len()) * run.len() as u64
        });
        runs.sum()
    }

    /// Keys of a sequence that some query sees. Masks move by one key from query to query, so they form one range.
    fn seen(&self, s: usize) -> usize {
        let ranges = (0..self.seqs[s].queries).map(|i| (self.visible)(s, i)).filter(|r| !r.is_empty());
        let hull = ranges.fold(None, |hull: Option<Range<usize>>, r| match hull {
            None => Some(r),
            Some(h) => Some(h.start.min(r.start)..h.end.max(r.end)),
        });
        hull.map_or(0, |h| h.len())
    }

    /// Key rows that some query sees, over all sequences and key heads.
    pub fn rows_seen(&self) -> u64 {
        self.over_sequences(|s| self.seen(s) as u64) * self.hkv as u64
    }

    /// Calls `f` for every sequence and key head, in parallel.
    pub fn each_head(&self, f: impl Fn(usize, usize) + Sync) {
        (0..self.seqs.len() * self.hkv).into_par_iter().for_each(|n| f(n / self.hkv, n % self.hkv));
    }
}

/// Rows of one sequence and head in f64.
pub struct Rows {
    data: Vec<f64>,
    pub width: usize,
    /// The largest norm of a row.
    pub longest: f64,
}

impl Rows {
    pub fn row(&self, j: usize) -> &[f64] {
        &self.data[j * self.width..(j + 1) * self.width]
    }

    /// The first `width` elements of the rows that `row` names.
    pub fn gather(inputs: &View, name: &str, width: usize, count: usize, row: impl Fn(usize) -> usize) -> Rows {
        let mut data = vec![0.0; count * width];
        let row_len = inputs.spec(name).row_len();
        for (j, out) in data.chunks_mut(width).enumerate() {
            inputs.read(name, row(j) * row_len, out);
        }
        let longest = data.chunks(width).map(norm).fold(0.0, f64::max);
        Rows { data, width, longest }
    }
}

pub fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// Softmax weights of one query over its keys.
pub struct Weights {
    pub p: Vec<f64>,
    pub lse: f64,
    /// How far a kernel's exponents may be off, absolute: the rounding of the products, and of the scaled logits.
    pub off: f64,
    /// The typical size of an element of a loud key, and how far the logits spread with it.
    key_rms: f64,
    spread: f64,
}

/// `None` if there are no keys.
pub fn weigh(q: &[f64], k: &Rows, keys: Range<usize>, scale: f64, acc: DType) -> Option<Weights> {
    if keys.is_empty() {
        return None;
    }
    let logits: Vec<f64> = keys.map(|j| scale * dot(q, k.row(j))).collect();
    let max = logits.iter().fold(f64::NEG_INFINITY, |m, s| m.max(*s));
    let largest = logits.iter().fold(0.0, |m: f64, s| m.max(s.abs()));
    let off = sum_slack(acc, q.len()) * scale * norm(q) * k.longest + 4.0 * acc.unit() * largest;
    let mut p: Vec<f64> = logits.iter().map(|s| (s - max).exp()).collect();
    let total = sum(p.iter().copied());
    p.iter_mut().for_each(|p| *p /= total);
    let key_rms = k.longest / (q.len() as f64).sqrt();
    Some(Weights { p, lse: max + total.ln(), off, key_rms, spread: scale * norm(q) * key_rms })
}

/// One row of the output. `q` is the query where values are the first columns of the keys, and empty elsewhere.
fn attend(w: &Weights, v: &Rows, keys: Range<usize>, c: &Case, q: &[f64], scale: f64) -> Out {
    let zeros = || vec![0.0; v.width];
    let (mut o, mut pv2, mut p2v2, mut p2v) = (zeros(), zeros(), zeros(), zeros());
    for (p, j) in w.p.iter().zip(keys) {
        for (d, v) in v.row(j).iter().enumerate() {
            let term = p * v;
            o[d] += term;
            pv2[d] += term * v;
            p2v2[d] += term * term;
            p2v[d] += p * term;
        }
    }
    let p2 = w.p.iter().map(|p| p * p).sum();
    let (q_norm, rounding) = (norm(q).max(f64::MIN_POSITIVE), Rounding::to(c.dtype));
    // By Jensen, the mean of |v| under p is at most the root of the mean of its square. An error of the exponents moves
    // the output by its covariance with the values.
    let sums = sum_slack(c.acc(), w.p.len());
    let mut out = Out::default();
    for d in 0..v.width {
        let q = q.get(d).map_or(0.0, |q| q.abs());
        let x = Column {
            o: o[d],
            pv2: pv2[d],
            p2v2: p2v2[d],
            p2v: p2v[d],
            p2,
            keys: w.p.len() as f64,
            key_rms: w.key_rms,
            spread: w.spread,
            q_part: q / q_norm,
            q_scaled: scale * q,
        };
        let tight = x.weights(rounding) + sums * x.pv2.sqrt() + w.off * x.deviation();
        out.put_in(region(w.p.len()), o[d], tight, x.on_the_way(rounding));
    }
    out
}

fn region(keys: usize) -> u8 {
    u8::from(keys > FEW_KEYS)
}

/// Output `o` and, if the case has it, `lse`. A row without keys is 0 and minus infinity.
pub fn forward(geometry: MakeGeometry, c: &Case, inputs: &View, sink: &dyn Sink) {
    let geo = geometry(c, &|name| inputs.all(name).iter().map(|v| *v as i64).collect());
    let [q_name, k_name, v_name] = geo.tensors;
    geo.each_head(|s, kv_head| {
        let Seq { queries, keys } = geo.seqs[s];
        let k = Rows::gather(inputs, k_name, geo.dk, keys, |j| (geo.k_row)(s, j, kv_head));
        let v = Rows::gather(inputs, v_name, geo.dv, keys, |j| (geo.k_row)(s, j, kv_head));
        (0..geo.group() * queries).into_par_iter().for_each(|n| {
            let (head, i) = (kv_head * geo.group() + n / queries, n % queries);
            let (row, at) = ((geo.q_row)(s, i, head), (geo.lse_at)(s, i, head));
            let keys = (geo.visible)(s, i);
            let q = inputs.take(q_name, row * geo.dk, geo.dk);
            let weights = weigh(&q, &k, keys.clone(), geo.scale, c.acc());
            let shared = if k_name == v_name { q.as_slice() } else { &[] };
            let (mut o, mut lse) = (Out::default(), Out::default());
            match &weights {
                Some(w) => {
                    o = attend(w, &v, keys, c, shared, geo.scale);
                    let slack = w.off + sum_slack(c.acc(), w.p.len()) + 4.0 * c.acc().unit() * (1.0 + w.lse.abs());
                    lse.put_in(region(w.p.len()), w.lse, slack, 0.0);
                }
                None => {
                    (0..geo.dv).for_each(|_| o.put(0.0, 0.0, 0.0));
                    lse.put(f64::NEG_INFINITY, 0.0, 0.0);
                }
            }
            o.flush(sink, "o", row * geo.dv, c.dtype.size() == 2);
            if c.flag("lse") {
                lse.flush(sink, "lse", at, false);
            }
        });
    });
}

pub const WINDOW: Attr = count("window", "0", &[0, 0, 1, 20], "newest keys that a query sees; 0: all");
pub const SCALE: Attr =
    Attr { name: "scale", kind: AttrKind::Scale, default: "auto", about: "of the logits; auto: 1/sqrt(d)" };
pub const LSE: Attr = yes_no("lse", "whether lse is an output");
pub const LENGTHS: Attr =
    one_of("lengths", &["equal", "ragged"], "of the sequences: all full, or of any length, one of them empty");
pub const QUERIES: Attr = size("q", "1", &[1, 1, 2, 5], "query tokens of a sequence");
pub const PAGE: Attr = size("page", "64", &[1, 2, 16, 128], "tokens in a page");

/// Lengths of `count` sequences as attribute `lengths` says.
pub fn lengths(c: &Case, count: usize, longest: usize) -> Vec<usize> {
    if c.attr("lengths") == "ragged" { ragged(count, longest) } else { vec![longest; count] }
}

/// Key heads divide the query heads, and there are not more of `what` than a cost can walk over.
pub fn check(c: &Case, what: &str, count: usize) -> Result<(), String> {
    let (hq, hkv) = if c.axes.contains_key("hkv") { (c.axis("hq"), c.axis("hkv")) } else { (1, 1) };
    if !hq.is_multiple_of(hkv) {
        return Err(format!("{hq} query heads cannot share {hkv} key heads"));
    }
    if count > 1 << 26 { Err(format!("{count} {what} are more than any machine can hold")) } else { Ok(()) }
}

/// Of the logits, for heads of size `d`.
pub fn scale(c: &Case) -> f64 {
    c.scale(1.0 / (c.axis("d") as f64).sqrt())
}

/// q, k and v, the last two of one shape.
pub fn inputs(c: &Case, queries: &[usize], keys: &[usize]) -> Vec<TensorSpec> {
    let input = |name, shape, fill| TensorSpec::input(name, c.dtype, shape, fill).laid_out(c.attr("memory"));
    vec![input("q", queries, Fill::Derived), input("k", keys, Fill::Derived), input("v", keys, NORMAL)]
}

/// Output `o` and, if the case has it, `lse`.
pub fn outputs(c: &Case, o: &[usize], lse: &[usize]) -> Vec<TensorSpec> {
    let mut t = vec![TensorSpec::output("o", c.dtype, o).laid_out(c.attr("memory"))];
    if c.flag("lse") {
        t.push(TensorSpec::output("lse", c.acc(), lse));
    }
    t
}

/// Two products per visible pair; q and o whole, of k and v the rows that somebody sees, and `integers` indices.
pub fn cost(c: &Case, geo: &Geometry, integers: u64) -> Cost {
    let (e, dk, dv) = (c.dtype.size() as u64, geo.dk as u64, geo.dv as u64);
    let queries = geo.seqs.iter().map(|s| s.queries as u64).sum::<u64>() * geo.hq as u64;
    let lse = if c.flag("lse") { queries * c.acc().size() as u64 } else { 0 };
    Cost {
        bytes_read: (queries * dk + geo.rows_seen() * (dk + dv)) * e + 4 * integers,
        bytes_written: queries * dv * e + lse,
        flops: 2 * geo.pairs() * (dk + dv),
    }
}

/// What a row of k or v is filled with.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Plain,
    /// Attracts every query: the first key of a sequence, as in real models, its last one, and some between, so that a
    /// key that is lost or taken twice at any place shows.
    Loud,
    /// In no sequence: behind the last key of a page, or in a page that nobody has. Reading it shows.
    Unused,
}

pub fn kind(position: usize, len: usize) -> Kind {
    match position {
        p if p >= len => Kind::Unused,
        p if p == 0 || p + 1 == len || p % 37 == 5 => Kind::Loud,
        _ => Kind::Plain,
    }
}

/// Mean of queries and loud keys: their product is a logit of about 4, whatever width and scale.
const QUERY_MEAN: f64 = 0.25;
fn loud_mean(width: usize, scale: f64) -> f64 {
    (4.0 / (QUERY_MEAN * width as f64 * scale)).min(1.5)
}

/// Rows of normal values around `mean`, each of which `change` then has, with its number.
fn fill_rows(
    spec: &TensorSpec,
    (seed, mean): (u64, f64),
    rows: Range<usize>,
    out: &mut [f64],
    change: impl Fn(usize, &mut [f64]),
) {
    let normal = TensorSpec { fill: Fill::Normal { mean, std: 1.0 }, ..spec.clone() };
    values(&normal, seed, rows.start * spec.row_len(), out);
    rows.zip(out.chunks_mut(spec.row_len())).for_each(|(row, values)| change(row, values));
}

/// Rows of q, scaled like [`Fill::Rows`] by what `place` makes of the row.
pub fn fill_queries(spec: &TensorSpec, seed: u64, rows: Range<usize>, out: &mut [f64], place: impl Fn(usize) -> usize) {
    fill_rows(spec, (seed, QUERY_MEAN), rows, out, |row, values| {
        values.iter_mut().for_each(|v| *v *= row_scale(slot(place(row) as u64, seed)));
    });
}

/// Rows of k.
pub fn fill_keys(
    spec: &TensorSpec,
    (seed, scale): (u64, f64),
    rows: Range<usize>,
    out: &mut [f64],
    kind: impl Fn(usize) -> Kind,
) {
    let loud = loud_mean(spec.row_len(), scale);
    fill_rows(spec, (seed, 0.0), rows, out, |row, values| match kind(row) {
        Kind::Plain => {}
        Kind::Loud => values.iter_mut().for_each(|v| *v += loud),
        Kind::Unused => values.iter_mut().for_each(|v| *v += 4.0 * loud),
    });
}

/// Rows of v: unused ones are large.
pub fn fill_values(spec: &TensorSpec, seed: u64, rows: Range<usize>, out: &mut [f64], kind: impl Fn(usize) -> Kind) {
    fill_rows(spec, (seed, 0.0), rows, out, |row, values| {
        if kind(row) == Kind::Unused {
            values.iter_mut().for_each(|v| *v *= 100.0);
        }
    });
}
