//! Attention over ragged sequences that lie end to end, each with a prefix of keys that are cached already: prefill.
//!
//! `02_wgmma` under Nsight Compute (H200, 18 November 2026; 4 ragged sequences of up to 4096, 32 heads over 8 of 128, bf16):
//! the tensor pipe is busy 78 % of the time, memory 10 %, L2 hits are 91 %.

use crate::contract::*;
use crate::cpu::attention::OnCpu;
use crate::mutant::attention::{Wrong, finds, shows};
use crate::plain::attention::How;
use crate::truth::attention::{self, Attends, Geometry, Ints, Seq, fill_keys, fill_queries, kind, masked};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: Varlen::IMPLS,
    oracle: oracle!("attention_varlen"),
    cuda: kernels!("attention_varlen", "01_flash", "01_fma", "02_wgmma"),
    mutants: &[Varlen::KEYS, Varlen::SOFTMAX, Varlen::MASKS, Varlen::HEADS, MUTANTS],
};

const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "prefix-masked",
        "the causal mask is aligned at the start: query i sees i + 1 keys, whatever the prefix",
    )
    .plain(&How { twist: align_at_start, ..Varlen::RIGHT })
    .on(|c| shows::<Varlen>(c, align_at_start)),
    Mutant::new("neighbour-sequence", "the second sequence reads the keys of the first")
        .plain(&How { twist: read_first_sequence, ..Varlen::RIGHT })
        .on(|c| c.axis("b") > 1 && c.axis("d") >= 8),
];

fn align_at_start(c: &Case, geo: &mut Geometry) {
    if c.flag("causal") {
        let seqs = geo.seqs.clone();
        geo.visible = Box::new(move |s, i| 0..(i + 1).min(seqs[s].keys));
    }
}

fn read_first_sequence(_: &Case, geo: &mut Geometry) {
    let first = geo.seqs[0].keys;
    finds(geo, move |row, s, j, head| if s == 1 { row(0, j % first, head) } else { row(s, j, head) });
}

struct Varlen;

/// New tokens and all tokens of each sequence.
fn seqs(c: &Case) -> Vec<Seq> {
    let new = attention::lengths(c, c.axis("b"), c.axis("s"));
    // Another draw than that of the new tokens: the first prefix is none in particular.
    let prefixes = match c.attr("lengths") {
        "ragged" => truth::ragged(c.axis("b") + 3, c.count("prefix"))[3..].to_vec(),
        _ => vec![c.count("prefix"); c.axis("b")],
    };
    new.into_iter().zip(prefixes).map(|(new, prefix)| Seq { queries: new, keys: prefix + new }).collect()
}

/// Where queries and keys of each sequence start, and the ends of the last.
fn starts(seqs: &[Seq]) -> [Vec<usize>; 2] {
    [|s: &Seq| s.queries, |s: &Seq| s.keys].map(|len| truth::starts(seqs.iter().map(len)))
}

impl Attends for Varlen {
    /// The starts are those of the case; kernels find them in `cu_q` and `cu_k`.
    fn geometry(c: &Case, _: Ints) -> Geometry {
        let [hq, hkv, d] = ["hq", "hkv", "d"].map(|a| c.axis(a));
        let seqs = seqs(c);
        let [cu_q, cu_k] = starts(&seqs);
        let q_row = move |s: usize, i: usize, head: usize| (cu_q[s] + i) * hq + head;
        Geometry {
            tensors: ["q", "k", "v"],
            visible: masked(&seqs, c.flag("causal"), c.count("window")),
            seqs,
            hq,
            hkv,
            dk: d,
            dv: d,
            scale: attention::scale(c),
            q_row: Box::new(q_row.clone()),
            lse_at: Box::new(q_row),
            k_row: Box::new(move |s, j, head| (cu_k[s] + j) * hkv + head),
        }
    }
}

const OP: Op = Op {
    name: "attention-varlen",
    about: "attention over sequences end to end (cu_q, cu_k): new tokens see a cached prefix and, causally, themselves",
    axes: &[
        Axis { name: "b", about: "sequences", tries: &[1, 2, 3, 5] },
        Axis { name: "s", about: "new tokens of the longest", tries: &[1, 2, 17, 70] },
        Axis { name: "hq", about: "query heads", tries: &[1, 2, 4] },
        Axis { name: "hkv", about: "key heads", tries: &[1, 2] },
        Axis { name: "d", about: "head size", tries: &[1, 8, 24, 64, 64] },
    ],
    attrs: &[
        count("prefix", "0", &[0, 1, 40, 130], "cached tokens of the longest"),
        attention::LENGTHS,
        Attr { default: "yes", ..attention::dense::CAUSAL },
        attention::WINDOW,
        attention::SCALE,
        attention::LSE,
        MEMORY,
    ],
    default_configs: &["4x512x16x16x128", "2x2048x32x8x128"],
    check: |c| attention::check(c, "tokens", c.axis("b") * c.axis("s")),
    distinct_rows: Some(|c| c.axis("s") + c.axis("hq") - 1),
    tensors,
    cost: |c, _| attention::cost(c, &Varlen::geometry(c, &attention::no_integers), 2 * (c.axis("b") as u64 + 1)),
    derive,
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(Varlen::geometry, c, inputs, sink),
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let [b, hq, hkv, d] = ["b", "hq", "hkv", "d"].map(|a| c.axis(a));
    let [tokens, keys] = starts(&seqs(c)).map(|starts| starts[b]);
    let mut t = attention::inputs(c, &[tokens, hq, d], &[keys, hkv, d]);
    t.extend(["cu_q", "cu_k"].map(|name| TensorSpec::input(name, DType::I32, &[b + 1], Fill::Derived)));
    t.extend(attention::outputs(c, &[tokens, hq, d], &[tokens, hq]));
    t
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (hq, hkv, seqs) = (c.axis("hq"), c.axis("hkv"), seqs(c));
    let ([cu_q, cu_k], spec) = (starts(&seqs), inputs.spec(tensor));
    match tensor {
        "cu_q" => rows.zip(out).for_each(|(s, out)| *out = cu_q[s] as f64),
        "cu_k" => rows.zip(out).for_each(|(s, out)| *out = cu_k[s] as f64),
        "q" => fill_queries(spec, c.seed, rows, out, |row| row / hq + row % hq),
        _ => fill_keys(spec, (c.seed, attention::scale(c)), rows, out, |row| {
            let token = row / hkv;
            let s = cu_k.partition_point(|start| *start <= token) - 1;
            kind(token - cu_k[s], seqs[s].keys)
        }),
    }
}
