//! Attention of a few new tokens over a paged cache of keys and values: decoding.

use crate::contract::*;
use crate::cpu::attention::{naive, tiled};
use crate::mutants::attention as wrong;
use crate::truth::attention::{self, Attends, Geometry, Ints, Pages, fill_keys, fill_queries, fill_values, masked};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive::<AttentionDecode>(), &tiled::<AttentionDecode>()],
    oracle: oracle!("attention_decode"),
    cuda: &[&kernel!("attention_decode", "01_split_kv"), &kernel!("attention_decode", "02_equal_shares")],
    mutants: &[
        wrong::sink_dropped::<AttentionDecode>(),
        wrong::last_key_lost::<AttentionDecode>(),
        wrong::scale_missing::<AttentionDecode>(),
        wrong::large_logits_clipped::<AttentionDecode>(),
        wrong::no_maximum::<AttentionDecode>(),
        wrong::maximum_of_the_row_before::<AttentionDecode>(),
        wrong::lse_in_base_2(),
        wrong::key_heads_interleaved::<AttentionDecode>(),
        wrong::one_key_too_many::<AttentionDecode>(),
        wrong::whole_last_page::<AttentionDecode>(),
        wrong::wrong_page::<AttentionDecode>(),
        wrong::not_causal::<AttentionDecode>(),
    ],
    loose: &[],
};

struct AttentionDecode;

impl Attends for AttentionDecode {
    fn geometry(c: &Case, ints: Ints) -> Geometry {
        let [hq, hkv, d] = ["hq", "hkv", "d"].map(|a| c.axis(a));
        let (pages, queries) = (Pages::of(c), c.count("q"));
        let seqs = pages.seqs(queries);
        let q_row = move |s: usize, i: usize, head: usize| (s * queries + i) * hq + head;
        Geometry {
            tensors: ["q", "k_cache", "v_cache"],
            visible: masked(&seqs, true, 0),
            seqs,
            hq,
            hkv,
            dk: d,
            dv: d,
            scale: c.scale(1.0 / (d as f64).sqrt()),
            q_row: Box::new(q_row),
            lse_at: Box::new(q_row),
            k_row: pages.rows(ints("page_table"), hkv),
        }
    }
}

const OP: Op = Op {
    name: "attention-decode",
    about: "attention of the last q tokens of each sequence over a paged KV cache (page_table, lengths), causal among them",
    axes: &[
        Axis { name: "b", about: "sequences", tries: &[1, 2, 3, 5] },
        Axis { name: "l", about: "cached tokens of the longest", tries: &[1, 2, 17, 130, 300] },
        Axis { name: "hq", about: "query heads", tries: &[1, 2, 4, 8] },
        Axis { name: "hkv", about: "key heads", tries: &[1, 2] },
        Axis { name: "d", about: "head size", tries: &[1, 8, 24, 64, 64] },
    ],
    attrs: &[attention::QUERIES, attention::PAGE, attention::LENGTHS, attention::SCALE, attention::LSE, MEMORY],
    default_configs: &["32x1024x32x8x128", "128x1024x4x4x128"],
    check: |c| attention::check(c, "query tokens", c.axis("b") * c.count("q")),
    distinct_rows: Some(|c| c.axis("b") * c.count("q") + c.axis("hq") - 1),
    tensors,
    cost: |c, _| attention::cost(c, &AttentionDecode::geometry(c, &attention::no_integers), Pages::of(c).integers()),
    derive,
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(AttentionDecode::geometry, c, inputs, sink),
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let [b, hq, hkv, d] = ["b", "hq", "hkv", "d"].map(|a| c.axis(a));
    let (pages, queries) = (Pages::of(c), c.count("q"));
    let cache = [pages.pool, pages.page, hkv, d];
    let memory = c.attr("memory");
    let mut t = vec![
        TensorSpec::input("q", c.dtype, &[b, queries, hq, d], Fill::Derived).laid_out(memory),
        TensorSpec::input("k_cache", c.dtype, &cache, Fill::Derived).laid_out(memory),
        TensorSpec::input("v_cache", c.dtype, &cache, Fill::Derived).laid_out(memory),
    ];
    t.extend(pages.tensors());
    t.extend(attention::outputs(c, &[b, queries, hq, d], &[b, queries, hq]));
    t
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (hq, hkv, pages) = (c.axis("hq"), c.axis("hkv"), Pages::of(c));
    let spec = inputs.spec(tensor);
    match tensor {
        "page_table" | "lengths" => pages.derive(tensor, c.seed, rows, out),
        "q" => fill_queries(spec, c.seed, rows, out, |row| row / hq + row % hq),
        _ => {
            let scatter = pages.scatter(c.seed);
            let kind = |row: usize| pages.kind(&scatter, row / hkv);
            match tensor {
                "v_cache" => fill_values(spec, c.seed, rows, out, kind),
                _ => {
                    let scale = c.scale(1.0 / (c.axis("d") as f64).sqrt());
                    fill_keys(spec, c.seed, scale, rows, out, kind)
                }
            }
        }
    }
}
