//! Attention over ragged sequences that lie end to end, each with a prefix of keys that are cached already: prefill.

use crate::contract::*;
use crate::cpu::attention::{naive, tiled};
use crate::mutants::Mutant;
use crate::mutants::attention::{self as wrong, finds, twisted};
use crate::truth::attention::{self, Attends, Geometry, Ints, Seq, fill_keys, fill_queries, kind, masked};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive::<AttentionVarlen>(), &tiled::<AttentionVarlen>()],
    oracle: oracle!("attention_varlen"),
    cuda: &[
        &kernel!("attention_varlen", "01_flash"),
        &kernel!("attention_varlen", "01_fma"),
        &kernel!("attention_varlen", "02_wgmma"),
    ],
    mutants: &[
        wrong::sink_dropped::<AttentionVarlen>(),
        wrong::last_key_lost::<AttentionVarlen>(),
        wrong::scale_missing::<AttentionVarlen>(),
        wrong::large_logits_clipped::<AttentionVarlen>(),
        wrong::no_maximum::<AttentionVarlen>(),
        wrong::maximum_of_the_row_before::<AttentionVarlen>(),
        wrong::lse_in_base_2(),
        wrong::diagonal_missing::<AttentionVarlen>(),
        wrong::window_ignored::<AttentionVarlen>(),
        wrong::key_heads_interleaved::<AttentionVarlen>(),
        PREFIX_MASKED,
        NEIGHBOUR_SEQUENCE,
    ],
    loose: &[wrong::query_in_half::<AttentionVarlen>()],
};

const PREFIX_MASKED: Mutant = Mutant::plain(
    "prefix-masked",
    "the causal mask is aligned at the start: query i sees i + 1 keys, whatever the prefix",
    |c, t| twisted::<AttentionVarlen>(c, t, align_at_start),
)
.on(|c| wrong::shows(AttentionVarlen::geometry, c, align_at_start));

fn align_at_start(c: &Case, geo: &mut Geometry) {
    if c.flag("causal") {
        let seqs = geo.seqs.clone();
        geo.visible = Box::new(move |s, i| 0..(i + 1).min(seqs[s].keys));
    }
}

const NEIGHBOUR_SEQUENCE: Mutant =
    Mutant::plain("neighbour-sequence", "the second sequence reads the keys of the first", |c, t| {
        twisted::<AttentionVarlen>(c, t, |_, geo| {
            let first = geo.seqs[0].keys;
            finds(geo, move |row, s, j, head| if s == 1 { row(0, j % first, head) } else { row(s, j, head) });
        })
    })
    .on(|c| c.axis("b") > 1 && c.axis("d") >= 8);

struct AttentionVarlen;

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

/// Where each sequence starts, and the end of the last.
fn starts(lengths: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut starts = vec![0];
    for len in lengths {
        starts.push(starts[starts.len() - 1] + len);
    }
    starts
}

impl Attends for AttentionVarlen {
    /// The starts are those of the case; kernels find them in `cu_q` and `cu_k`.
    fn geometry(c: &Case, _: Ints) -> Geometry {
        let [hq, hkv, d] = ["hq", "hkv", "d"].map(|a| c.axis(a));
        let seqs = seqs(c);
        let cu_q = starts(seqs.iter().map(|s| s.queries));
        let cu_k = starts(seqs.iter().map(|s| s.keys));
        let q_row = move |s: usize, i: usize, head: usize| (cu_q[s] + i) * hq + head;
        Geometry {
            tensors: ["q", "k", "v"],
            visible: masked(&seqs, c.flag("causal"), c.count("window")),
            seqs,
            hq,
            hkv,
            dk: d,
            dv: d,
            scale: c.scale(1.0 / (d as f64).sqrt()),
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
        Attr {
            name: "prefix",
            kind: AttrKind::Count(&[0, 1, 40, 130]),
            default: "0",
            about: "cached tokens of the longest",
        },
        attention::LENGTHS,
        Attr { name: "causal", kind: YES_NO, default: "yes", about: "whether a query sees no later key" },
        attention::WINDOW,
        attention::SCALE,
        attention::LSE,
        MEMORY,
    ],
    default_configs: &["4x512x16x16x128", "2x2048x32x8x128"],
    check: |c| attention::check(c, "tokens", c.axis("b") * c.axis("s")),
    distinct_rows: Some(|c| c.axis("s") + c.axis("hq") - 1),
    tensors,
    cost: |c, _| {
        attention::cost(c, &AttentionVarlen::geometry(c, &attention::no_integers), 2 * (c.axis("b") as u64 + 1))
    },
    derive,
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(AttentionVarlen::geometry, c, inputs, sink),
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let [b, hq, hkv, d] = ["b", "hq", "hkv", "d"].map(|a| c.axis(a));
    let (seqs, memory) = (seqs(c), c.attr("memory"));
    let tokens: usize = seqs.iter().map(|s| s.queries).sum();
    let keys: usize = seqs.iter().map(|s| s.keys).sum();
    let normal = Fill::Normal { mean: 0.0, std: 1.0 };
    let mut t = vec![
        TensorSpec::input("q", c.dtype, &[tokens, hq, d], Fill::Derived).laid_out(memory),
        TensorSpec::input("k", c.dtype, &[keys, hkv, d], Fill::Derived).laid_out(memory),
        TensorSpec::input("v", c.dtype, &[keys, hkv, d], normal).laid_out(memory),
        TensorSpec::input("cu_q", DType::I32, &[b + 1], Fill::Derived),
        TensorSpec::input("cu_k", DType::I32, &[b + 1], Fill::Derived),
    ];
    t.extend(attention::outputs(c, &[tokens, hq, d], &[tokens, hq]));
    t
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (hq, hkv, seqs) = (c.axis("hq"), c.axis("hkv"), seqs(c));
    let cu_k = starts(seqs.iter().map(|s| s.keys));
    let cu_q = || starts(seqs.iter().map(|s| s.queries));
    let copy =
        |from: &[usize], out: &mut [f64]| out.iter_mut().zip(&from[rows.clone()]).for_each(|(o, v)| *o = *v as f64);
    match tensor {
        "cu_q" => copy(&cu_q(), out),
        "cu_k" => copy(&cu_k, out),
        "q" => fill_queries(inputs.spec("q"), c.seed, rows, out, |row| row / hq + row % hq),
        _ => {
            let scale = AttentionVarlen::geometry(c, &attention::no_integers).scale;
            fill_keys(inputs.spec("k"), c.seed, scale, rows, out, |row| {
                let token = row / hkv;
                let s = cu_k.partition_point(|start| *start <= token) - 1;
                kind(token - cu_k[s], seqs[s].keys)
            })
        }
    }
}
