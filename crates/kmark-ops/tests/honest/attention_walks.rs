//! Which row of q meets which rows of k and v, for every op that attends: written from the contracts, one list per query.

use crate::kit::read;
use kmark_core::case::Case;
use kmark_device::buffer::Buffers;

/// One query.
pub struct Job {
    /// Row of q and of o.
    pub row: usize,
    /// Rows of k and v that it sees.
    pub keys: Vec<usize>,
    /// Element of lse.
    pub lse: usize,
    /// Its head, of those that share a key head.
    pub head: usize,
}

/// All queries of a case, and the names and widths of its tensors.
pub struct Walk {
    pub jobs: Vec<Job>,
    pub names: [&'static str; 3],
    pub dk: usize,
    pub dv: usize,
    pub scale: f64,
}

/// Keys that query `i` of `queries` sees, of `keys`.
fn seen(i: usize, queries: usize, keys: usize, causal: bool, window: usize) -> impl Iterator<Item = usize> {
    let at = i as i64 + keys as i64 - queries as i64;
    let w = window as i64;
    (0..keys as i64)
        .filter(move |j| !causal || *j <= at)
        .filter(move |j| w == 0 || (*j > at - w && (causal || *j < at + w)))
        .map(|j| j as usize)
}

impl Walk {
    pub fn new(c: &Case, b: &Buffers) -> Walk {
        let width = |name: &str| b.get(name).spec().row_len();
        let auto = || 1.0 / (c.axis("d") as f64).sqrt();
        match c.op.as_str() {
            "attention" | "attention-bwd" => {
                Walk { jobs: dense(c), names: ["q", "k", "v"], dk: width("q"), dv: width("v"), scale: c.scale(auto()) }
            }
            "attention-varlen" => Walk {
                jobs: ragged(c, b),
                names: ["q", "k", "v"],
                dk: width("q"),
                dv: width("v"),
                scale: c.scale(auto()),
            },
            "attention-decode" => Walk {
                jobs: paged(c, b, c.axis("hq"), c.axis("hkv")),
                names: ["q", "k_cache", "v_cache"],
                dk: width("q"),
                dv: width("v_cache"),
                scale: c.scale(auto()),
            },
            "mla-decode" => Walk {
                jobs: paged(c, b, c.axis("h"), 1),
                names: ["q", "cache", "cache"],
                dk: width("q"),
                dv: c.count("rank"),
                scale: c.number("scale"),
            },
            "nsa" => Walk {
                jobs: lists(c, b),
                names: ["q", "k", "v"],
                dk: width("q"),
                dv: width("v"),
                scale: c.scale(auto()),
            },
            other => panic!("{other} does not attend"),
        }
    }
}

fn dense(c: &Case) -> Vec<Job> {
    let [batch, hq, hkv, sq, sk] = ["b", "hq", "hkv", "sq", "sk"].map(|a| c.axis(a));
    let row = |heads: usize, len: usize, b: usize, i: usize, h: usize| match c.attr("layout") {
        "bhsd" => (b * heads + h) * len + i,
        _ => (b * len + i) * heads + h,
    };
    let mut jobs = Vec::new();
    for (b, h) in (0..batch).flat_map(|b| (0..hq).map(move |h| (b, h))) {
        for i in 0..sq {
            let keys = seen(i, sq, sk, c.flag("causal"), c.count("window"));
            let keys = keys.map(|j| row(hkv, sk, b, j, h / (hq / hkv))).collect();
            jobs.push(Job { row: row(hq, sq, b, i, h), keys, lse: (b * hq + h) * sq + i, head: h % (hq / hkv) });
        }
    }
    jobs
}

fn ragged(c: &Case, b: &Buffers) -> Vec<Job> {
    let (hq, hkv) = (c.axis("hq"), c.axis("hkv"));
    let [cu_q, cu_k] = ["cu_q", "cu_k"].map(|name| read(&b.get(name)));
    let mut jobs = Vec::new();
    for s in 0..c.axis("b") {
        let (q0, k0) = (cu_q[s] as usize, cu_k[s] as usize);
        let (queries, keys) = (cu_q[s + 1] as usize - q0, cu_k[s + 1] as usize - k0);
        for (i, h) in (0..queries).flat_map(|i| (0..hq).map(move |h| (i, h))) {
            let row = (q0 + i) * hq + h;
            let seen = seen(i, queries, keys, c.flag("causal"), c.count("window"));
            let keys = seen.map(|j| (k0 + j) * hkv + h / (hq / hkv)).collect();
            jobs.push(Job { row, keys, lse: row, head: 0 });
        }
    }
    jobs
}

fn paged(c: &Case, b: &Buffers, hq: usize, hkv: usize) -> Vec<Job> {
    let [table, lengths] = ["page_table", "lengths"].map(|name| read(&b.get(name)));
    let (page, queries, columns) = (c.count("page"), c.count("q"), b.get("page_table").spec().row_len());
    let mut jobs = Vec::new();
    for (s, length) in lengths.iter().enumerate() {
        for (i, h) in (0..queries).flat_map(|i| (0..hq).map(move |h| (i, h))) {
            let row = (s * queries + i) * hq + h;
            let slot = |j: usize| table[s * columns + j / page] as usize * page + j % page;
            let seen = seen(i, queries, *length as usize, true, 0);
            let keys = seen.map(|j| slot(j) * hkv + h / (hq / hkv)).collect();
            jobs.push(Job { row, keys, lse: row, head: 0 });
        }
    }
    jobs
}

fn lists(c: &Case, b: &Buffers) -> Vec<Job> {
    let [s, hq, hkv] = ["s", "hq", "hkv"].map(|a| c.axis(a));
    let (block, selected, blocks) = (c.count("block"), c.count("selected"), read(&b.get("blocks")));
    let mut jobs = Vec::new();
    for row in 0..c.axis("b") * s * hq {
        let (token, h) = (row / hq, row % hq / (hq / hkv));
        let (batch, t) = (token / s, token % s);
        let list = blocks[(token * hkv + h) * selected..][..selected].iter().map(|v| *v as usize * block);
        let keys = list.flat_map(|first| first..first + block);
        let keys = keys.filter(|j| *j < s && (!c.flag("causal") || *j <= t));
        jobs.push(Job { row, keys: keys.map(|j| (batch * s + j) * hkv + h).collect(), lse: row, head: 0 });
    }
    jobs
}
