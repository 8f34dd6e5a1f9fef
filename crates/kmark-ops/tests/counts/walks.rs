//! One walk for each op that does not simply visit every element of its tensors, or that multiplies matrices. An op
//! that is not named here reads and writes each element once.

use crate::Visited;
use kmark_core::case::Case;
use kmark_core::tensor::View;

pub type Walk = fn(&Case, &View, &mut Visited);

pub const WALKS: &[(&str, Walk)] = &[
    ("rope", rope),
    ("gemm", gemm),
    ("grouped-gemm", grouped_gemm),
    ("attention", attention),
    ("attention-bwd", attention_bwd),
    ("attention-varlen", attention_varlen),
    ("attention-decode", attention_decode),
    ("mla-decode", mla_decode),
    ("nsa", nsa),
];

fn integers(inputs: &View, name: &str) -> Vec<i64> {
    inputs.all(name).iter().map(|v| *v as i64).collect()
}

/// In place the dimensions that are not rotated are left alone; else they are copied.
fn rope(c: &Case, _: &View, v: &mut Visited) {
    let d = c.axis("d");
    let rotated = if c.count("rotary") == 0 { d } else { c.count("rotary") };
    let in_place = c.attr("form") == "inplace";
    for (name, out, heads) in [("q", "q_out", "hq"), ("k", "k_out", "hk")] {
        if !v.has(name) {
            continue;
        }
        for row in 0..c.axis("b") * c.axis("s") * c.axis(heads) {
            for i in 0..d {
                let at = row * d + i..row * d + i + 1;
                if i < rotated || !in_place {
                    v.read(name, at.clone());
                    v.write(if in_place { name } else { out }, at);
                }
                if i < rotated {
                    v.flops(3); // two products and a sum
                }
            }
        }
    }
    v.whole("cos");
    v.whole("sin");
}

fn gemm(c: &Case, _: &View, v: &mut Visited) {
    let (m, n, k) = (c.axis("m"), c.axis("n"), c.axis("k"));
    let (a_turned, b_turned) = (c.attr("layout").starts_with('t'), c.attr("layout").ends_with('t'));
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                let a = if a_turned { l * m + i } else { i * k + l };
                let b = if b_turned { j * k + l } else { l * n + j };
                v.read("a", a..a + 1);
                v.read("b", b..b + 1);
                v.multiply_adds(1);
            }
            if v.has("bias") {
                v.read("bias", j..j + 1);
                v.flops(1);
            }
            v.write("d", i * n + j..i * n + j + 1);
        }
    }
    v.whole("a_scale");
    v.whole("b_scale");
}

/// Rows of no group are nobody's, and a group without rows needs no weights.
fn grouped_gemm(c: &Case, inputs: &View, v: &mut Visited) {
    let (m, n, k) = (c.axis("m"), c.axis("n"), c.axis("k"));
    let (n_blocks, k_blocks) = (n.div_ceil(128), k.div_ceil(128));
    let groups: Vec<Option<usize>> = if c.attr("form") == "masked" {
        let count = integers(inputs, "count");
        (0..c.axis("g") * m).map(|row| ((row % m) < count[row / m] as usize).then_some(row / m)).collect()
    } else {
        integers(inputs, "group").iter().map(|g| usize::try_from(*g).ok()).collect()
    };
    for (row, group) in groups.iter().enumerate() {
        let Some(g) = *group else { continue };
        v.read("a", row * k..(row + 1) * k);
        for column in 0..n {
            let b = (g * n + column) * k;
            v.read("b", b..b + k);
            v.multiply_adds(k);
            v.write("d", row * n + column..row * n + column + 1);
        }
        if v.has("a_scale") {
            v.read("a_scale", row * k_blocks..(row + 1) * k_blocks);
            v.read("b_scale", g * n_blocks * k_blocks..(g + 1) * n_blocks * k_blocks);
        }
    }
    v.whole("group");
    v.whole("count");
}

/// Whether a query at position `at` sees key `j`.
fn sees(at: i64, j: i64, causal: bool, window: i64) -> bool {
    (!causal || j <= at) && (window == 0 || (j > at - window && (causal || j < at + window)))
}

fn window(c: &Case) -> i64 {
    if c.attrs.contains_key("window") { c.count("window") as i64 } else { 0 }
}

/// The pairs of a query and a key that it sees, of dense attention: batch, query head, kv head, query, key.
fn pairs(c: &Case, mut visit: impl FnMut([usize; 5])) {
    let [b, hq, hkv, sq, sk] = ["b", "hq", "hkv", "sq", "sk"].map(|a| c.axis(a));
    for batch in 0..b {
        for head in 0..hq {
            for i in 0..sq {
                for j in 0..sk {
                    let at = i as i64 + sk as i64 - sq as i64;
                    if sees(at, j as i64, c.flag("causal"), window(c)) {
                        visit([batch, head, head / (hq / hkv), i, j]);
                    }
                }
            }
        }
    }
}

/// Where row `j` of a kv head begins.
fn kv_row(c: &Case, batch: usize, head: usize, j: usize) -> usize {
    let (hkv, sk) = (c.axis("hkv"), c.axis("sk"));
    let row = if c.attr("layout") == "bhsd" { (batch * hkv + head) * sk + j } else { (batch * sk + j) * hkv + head };
    row * c.axis("d")
}

fn attention(c: &Case, _: &View, v: &mut Visited) {
    let d = c.axis("d");
    pairs(c, |[batch, _, head, _, j]| {
        let row = kv_row(c, batch, head, j);
        v.read("k", row..row + d);
        v.read("v", row..row + d);
        v.multiply_adds(2 * d); // q k and p v
    });
    ["q", "o", "lse"].iter().for_each(|name| v.whole(name));
}

fn attention_bwd(c: &Case, _: &View, v: &mut Visited) {
    let d = c.axis("d");
    pairs(c, |[batch, _, head, _, j]| {
        let row = kv_row(c, batch, head, j);
        v.read("k", row..row + d);
        v.read("v", row..row + d);
        v.multiply_adds(5 * d); // q k, dout v, p dout, ds k, ds q
    });
    ["q", "o", "dout", "lse", "dq", "dk", "dv"].iter().for_each(|name| v.whole(name));
}

fn attention_varlen(c: &Case, inputs: &View, v: &mut Visited) {
    let [hq, hkv, d] = ["hq", "hkv", "d"].map(|a| c.axis(a));
    let (cu_q, cu_k) = (integers(inputs, "cu_q"), integers(inputs, "cu_k"));
    for (q, k) in cu_q.windows(2).zip(cu_k.windows(2)) {
        let (new, keys) = (q[1] - q[0], k[1] - k[0]);
        for i in 0..new {
            for j in (0..keys).filter(|j| sees(i + keys - new, *j, c.flag("causal"), window(c))) {
                for head in 0..hq {
                    let row = ((k[0] + j) as usize * hkv + head / (hq / hkv)) * d;
                    v.read("k", row..row + d);
                    v.read("v", row..row + d);
                    v.multiply_adds(2 * d);
                }
            }
        }
    }
    ["q", "cu_q", "cu_k", "o", "lse"].iter().for_each(|name| v.whole(name));
}

/// Pairs of a query token and a key that it sees in a paged cache; `visit` gets the key's row there. Of the page table
/// only entries of such keys are read.
fn paged(c: &Case, inputs: &View, v: &mut Visited, mut visit: impl FnMut(&mut Visited, usize)) {
    let (queries, page) = (c.count("q") as i64, c.count("page"));
    let (table, lengths) = (integers(inputs, "page_table"), integers(inputs, "lengths"));
    let columns = inputs.spec("page_table").row_len();
    for (sequence, length) in lengths.iter().enumerate() {
        for t in 0..queries {
            for j in (0..*length).filter(|j| sees(length - queries + t, *j, true, window(c))) {
                let entry = sequence * columns + j as usize / page;
                let row = table[entry] as usize * page + j as usize % page;
                v.read("page_table", entry..entry + 1);
                visit(v, row);
            }
        }
    }
}

fn attention_decode(c: &Case, inputs: &View, v: &mut Visited) {
    let [hq, hkv, d] = ["hq", "hkv", "d"].map(|a| c.axis(a));
    paged(c, inputs, v, |v, row| {
        for head in 0..hq {
            let at = (row * hkv + head / (hq / hkv)) * d;
            v.read("k_cache", at..at + d);
            v.read("v_cache", at..at + d);
            v.multiply_adds(2 * d);
        }
    });
    ["q", "lengths", "o", "lse"].iter().for_each(|name| v.whole(name));
}

/// Keys are whole rows of the cache, values their first `rank` columns: the same memory.
fn mla_decode(c: &Case, inputs: &View, v: &mut Visited) {
    let (rank, width) = (c.count("rank"), c.count("rank") + c.count("rope"));
    paged(c, inputs, v, |v, row| {
        v.read("cache", row * width..(row + 1) * width);
        v.multiply_adds(c.axis("h") * (width + rank));
    });
    ["q", "lengths", "o", "lse"].iter().for_each(|name| v.whole(name));
}

fn nsa(c: &Case, inputs: &View, v: &mut Visited) {
    let [b, s, hq, hkv, d] = ["b", "s", "hq", "hkv", "d"].map(|a| c.axis(a));
    let (block, selected) = (c.count("block"), c.count("selected"));
    let blocks = integers(inputs, "blocks");
    for batch in 0..b {
        for t in 0..s {
            for head in 0..hkv {
                let list = &blocks[((batch * s + t) * hkv + head) * selected..][..selected];
                for j in 0..s {
                    if list.contains(&((j / block) as i64)) && (!c.flag("causal") || j <= t) {
                        let row = ((batch * s + j) * hkv + head) * d;
                        v.read("k", row..row + d);
                        v.read("v", row..row + d);
                        v.multiply_adds(2 * d * (hq / hkv));
                    }
                }
            }
        }
    }
    ["q", "blocks", "o", "lse"].iter().for_each(|name| v.whole(name));
}
