//! Native sparse attention, its selected branch: each token and key head attends to a list of blocks of keys.
//!
//! On a GPU, `01_warp_per_list` takes any case; `02_shared_blocks` is for 16-bit rows on Hopper, blocks of whole 16 keys and heads of
//! up to 128. On an H200 (evidence/h200/attention) it is 1.7 times as fast as FLA's kernel in suite `nsa` (0.98 to 2.6, the more the more
//! there is to do), and 1.7 to 2.2 times over 2048 and 8192 tokens in bf16. Under Nsight Compute (18 November 2026; 8192 tokens, 16 heads
//! over one of 128, 16 blocks of 64 keys, bf16) its tensor pipe is busy 30 % of the time, memory 3 %, and L2 hits are 96 %. By
//! estimate (those counters were not read) shared memory is what limits it: a warp reads each key there for 16 rows only.

use crate::contract::*;
use crate::cpu::attention::OnCpu;
use crate::mutant::attention::{Wrong, finds, sees};
use crate::plain::attention::How;
use crate::truth::Scatter;
use crate::truth::attention::{self, Attends, Geometry, Ints, Seq, fill_keys, fill_queries, kind};
use kmark_core::fill::philox;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: Nsa::IMPLS,
    oracle: oracle!("nsa"),
    cuda: kernels!("nsa", "01_warp_per_list", "02_shared_blocks"),
    mutants: &[Nsa::SOFTMAX, MUTANTS],
};

struct Nsa;

const MUTANTS: &[Mutant] = &[
    Mutant {
        applies: |c| c.axis("s") > 1 && c.count("block") * c.count("selected") > 1 && c.axis("d") >= 8,
        ..Nsa::SCALE_MISSING
    },
    Mutant::new("diagonal-missing", "a token does not see its own key")
        .plain(&How { twist: |_, geo| sees(geo, |_, r| 0..r.end.saturating_sub(1)), ..Nsa::RIGHT })
        .on(|c| c.flag("causal") && c.axis("s") > 1 && c.axis("d") >= 24),
    Mutant::new("newest-block-whole", "the newest block is not masked: a token sees keys after its own")
        .plain(&How { twist: see_newest_block, ..Nsa::RIGHT })
        .on(|c| c.flag("causal") && c.axis("s") > 1 && c.count("block") > 1 && c.axis("d") >= 24),
    Mutant::new("last-block-lost", "the last selected block is left out when there are several")
        .plain(&How { twist: drop_last_block, ..Nsa::RIGHT })
        .on(|c| c.count("selected") > 1 && c.axis("s") > 2 * c.count("block") && c.axis("d") >= 24),
    Mutant::new("blocks-of-head-0", "every key head takes the block list of the first")
        .plain(&How { twist: take_list_of_head_0, ..Nsa::RIGHT })
        // The lists must be able to differ: more blocks before a token than it may select.
        .on(|c| {
            let (blocks, selected) = (c.axis("s").div_ceil(c.count("block")), c.count("selected"));
            c.flag("causal") && c.axis("hkv") > 1 && selected > 1 && blocks > selected + 2 && c.axis("d") >= 24
        }),
    Mutant::new("empty-not-zero", "a token without blocks divides by zero")
        .of(|right, c, b| {
            let (s, hq, d) = (c.axis("s"), c.axis("hq"), c.axis("d"));
            edited(right, b, "o", move |o| {
                let rows = o.chunks_mut(d).enumerate();
                rows.filter(|(row, _)| is_empty(row / hq % s)).for_each(|(_, o)| o.fill(f64::NAN));
            })
        })
        .on(|c| c.flag("empty") && c.axis("s") > 7),
];

fn see_newest_block(c: &Case, geo: &mut Geometry) {
    let (block, s, hkv) = (c.count("block"), c.axis("s"), c.axis("hkv"));
    let seqs = geo.seqs.clone();
    geo.visible = Box::new(move |n, _| {
        let token = n / hkv % s;
        let room = s - token / block * block;
        // Up to the end of the block that the token lies in.
        let more = (block.min(room)) - (token % block + 1);
        0..if seqs[n].keys == 0 { 0 } else { seqs[n].keys + more }
    });
}

fn drop_last_block(c: &Case, geo: &mut Geometry) {
    let block = c.count("block");
    sees(geo, move |keys, _| 0..if keys > block { (keys - 1) / block * block } else { keys });
}

fn take_list_of_head_0(c: &Case, geo: &mut Geometry) {
    let hkv = c.axis("hkv");
    // Rows of a token's heads are adjacent.
    finds(geo, move |row, n, j, _| row(n / hkv * hkv, j, 0) + n % hkv);
}

/// Whether token `t` has no block in its list, if some have none.
fn is_empty(t: usize) -> bool {
    t % 32 == 7
}

/// How many blocks token `t` has in its list.
fn blocks_of(c: &Case, t: usize) -> usize {
    if c.flag("empty") && is_empty(t) {
        return 0;
    }
    let reach = if c.flag("causal") { t + 1 } else { c.axis("s") };
    reach.div_ceil(c.count("block")).min(c.count("selected"))
}

/// Its own block, and others without repetition from those it may see, in order. (The suite that this op comes from
/// never selects a token's own block, so that its mask is hardly tested.)
fn list(c: &Case, row: usize, out: &mut [f64]) {
    let (s, block) = (c.axis("s"), c.count("block"));
    let t = row / c.axis("hkv") % s;
    let (own, count) = (t / block, blocks_of(c, t));
    let others = if c.flag("causal") { own } else { s.div_ceil(block) - 1 };
    let [a, b, ..] = philox(c.seed, row as u64);
    let scatter = Scatter::new((a as u64) << 32 | b as u64, others);
    let mut blocks: Vec<usize> = (1..count).map(|i| scatter.at(i - 1)).map(|b| b + usize::from(b >= own)).collect();
    if count > 0 {
        blocks.push(own);
    }
    blocks.sort_unstable();
    out.fill(s as f64);
    out.iter_mut().zip(blocks).for_each(|(o, b)| *o = b as f64);
}

impl Attends for Nsa {
    /// Every token and key head is a sequence of its own, of the keys in its blocks.
    fn geometry(c: &Case, ints: Ints) -> Geometry {
        let [b, s, hq, hkv, d] = ["b", "s", "hq", "hkv", "d"].map(|a| c.axis(a));
        let (block, selected, group) = (c.count("block"), c.count("selected"), hq / hkv);
        let keys = |t: usize| match blocks_of(c, t) {
            0 => 0,
            // All but the newest are whole; that one ends with the token, or, without a mask, with its block.
            n if c.flag("causal") => (n - 1) * block + t % block + 1,
            n => n * block,
        };
        let mut seqs: Vec<Seq> = (0..b * s * hkv).map(|n| Seq { queries: 1, keys: keys(n / hkv % s) }).collect();
        let lists = ints("blocks");
        if !c.flag("causal") && !s.is_multiple_of(block) && !lists.is_empty() {
            // The last block of the sequence is short; only lists that name it are.
            let short = s.div_ceil(block) - 1;
            for (seq, list) in seqs.iter_mut().zip(lists.chunks(selected)) {
                if list.contains(&(short as i64)) {
                    seq.keys -= block - s % block;
                }
            }
        }
        let q_row = move |n: usize, _: usize, g: usize| n / hkv * hq + n % hkv * group + g;
        let ends: Vec<usize> = seqs.iter().map(|s| s.keys).collect();
        Geometry {
            tensors: ["q", "k", "v"],
            visible: Box::new(move |n, _| 0..ends[n]),
            seqs,
            hq: group,
            hkv: 1,
            dk: d,
            dv: d,
            scale: attention::scale(c),
            q_row: Box::new(q_row),
            lse_at: Box::new(q_row),
            k_row: Box::new(move |n, j, _| {
                let key = lists[n * selected + j / block] as usize * block + j % block;
                (n / hkv / s * s + key) * hkv + n % hkv
            }),
        }
    }
}

const OP: Op = Op {
    name: "nsa",
    about: "attention of each token to its list of key blocks per key head, causal in the newest; no blocks give 0",
    axes: &[
        Axis { name: "b", about: "batch", tries: &[1, 2] },
        Axis { name: "s", about: "tokens", tries: &[1, 2, 33, 100, 160, 160] },
        Axis { name: "hq", about: "query heads", tries: &[1, 2, 4, 16] },
        Axis { name: "hkv", about: "key heads", tries: &[1, 2, 2] },
        Axis { name: "d", about: "head size", tries: &[1, 8, 32, 64, 64] },
    ],
    attrs: &[
        size("block", "32", &[1, 8, 16, 32], "keys in a block"),
        size("selected", "16", &[1, 2, 4, 16], "blocks in a list at the most; unused places hold s"),
        Attr { default: "yes", ..yes_no("causal", "whether a token sees no later key") },
        attention::SCALE,
        yes_no("empty", "whether some tokens have no blocks"),
        attention::LSE,
        MEMORY,
    ],
    default_configs: &["1x2048x16x1x64", "2x4096x16x1x32"],
    check: |c| attention::check(c, "block lists", c.axis("b") * c.axis("s") * c.axis("hkv")),
    distinct_rows: Some(|c| c.axis("s") + c.axis("hq") - 1),
    tensors,
    cost,
    derive,
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(Nsa::geometry, c, inputs, sink),
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let [b, s, hq, hkv, d] = ["b", "s", "hq", "hkv", "d"].map(|a| c.axis(a));
    let mut t = attention::inputs(c, &[b, s, hq, d], &[b, s, hkv, d]);
    t.push(TensorSpec::input("blocks", DType::I32, &[b, s, hkv, c.count("selected")], Fill::Derived));
    t.extend(attention::outputs(c, &[b, s, hq, d], &[b, s, hq]));
    t
}

/// A token's list names its own block, so every key is compulsory, unless tokens have no list or the last block is
/// short: then it depends on the lists, and they are those of the case's own seed.
fn cost(c: &Case, _: &[TensorSpec]) -> Cost {
    // Which blocks are listed is a matter of the values; those that are timed count.
    let c = &Case { seed: OP.value_seed(c, 0), ..c.clone() };
    let [b, s, hkv, d] = ["b", "s", "hkv", "d"].map(|a| c.axis(a));
    let selected = c.count("selected");
    let lists_matter = c.flag("empty") || !(c.flag("causal") || s.is_multiple_of(c.count("block")));
    let lists = |_: &str| {
        let mut all = vec![0.0; if lists_matter { b * s * hkv * selected } else { 0 }];
        all.chunks_mut(selected).enumerate().for_each(|(row, out)| list(c, row, out));
        all.into_iter().map(|v| v as i64).collect::<Vec<i64>>()
    };
    let geo = Nsa::geometry(c, &lists);
    let mut seen = vec![!lists_matter; b * s * hkv];
    if lists_matter {
        for n in 0..geo.seqs.len() {
            (0..geo.seqs[n].keys).for_each(|j| seen[(geo.k_row)(n, j, 0)] = true);
        }
    }
    let rows = seen.iter().filter(|s| **s).count() as u64;
    let mut cost = attention::cost(c, &geo, (b * s * hkv * selected) as u64);
    cost.bytes_read -= 2 * (geo.rows_seen() - rows) * (d * c.dtype.size()) as u64;
    cost
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let [s, hq, hkv] = ["s", "hq", "hkv"].map(|a| c.axis(a));
    let spec = inputs.spec(tensor);
    match tensor {
        "blocks" => rows.zip(out.chunks_mut(c.count("selected"))).for_each(|(row, out)| list(c, row, out)),
        "q" => fill_queries(spec, c.seed, rows, out, |row| row / hq + row % hq),
        _ => fill_keys(spec, (c.seed, attention::scale(c)), rows, out, |row| kind(row / hkv % s, s)),
    }
}
