//! Multi-head latent attention, decoding, in its absorbed form: all heads share one cache row per token, whose first
//! part is the value too.

use crate::contract::*;
use crate::cpu::attention::{naive, tiled};
use crate::mutants::{Mutant, attention as wrong, attention::twisted};
use crate::truth::attention::{self, Attends, Geometry, Ints, Pages, fill_keys, fill_queries, masked};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive::<MlaDecode>(), &tiled::<MlaDecode>()],
    oracle: oracle!("mla_decode"),
    cuda: &[&kernel!("mla_decode", "01_split_kv"), &kernel!("mla_decode", "02_wgmma")],
    mutants: &[
        wrong::sink_dropped::<MlaDecode>(),
        wrong::last_key_lost::<MlaDecode>(),
        wrong::scale_missing::<MlaDecode>(),
        wrong::large_logits_clipped::<MlaDecode>(),
        wrong::no_maximum::<MlaDecode>(),
        wrong::maximum_of_the_row_before::<MlaDecode>(),
        wrong::lse_in_base_2(),
        wrong::one_key_too_many::<MlaDecode>(),
        wrong::whole_last_page::<MlaDecode>(),
        wrong::wrong_page::<MlaDecode>(),
        wrong::not_causal::<MlaDecode>(),
        SCALE_OF_THE_ROW,
    ],
    loose: &[],
};

const SCALE_OF_THE_ROW: Mutant = Mutant::plain(
    "scale-of-the-row",
    "logits are scaled by the root of the cache row's width, not of the head's own",
    |c, t| twisted::<MlaDecode>(c, t, |c, geo| geo.scale = 1.0 / (width(c) as f64).sqrt()),
)
.on(|c| c.axis("l") > 1 && width(c) >= 24 && width(c) != 192);

struct MlaDecode;

fn width(c: &Case) -> usize {
    c.count("rank") + c.count("rope")
}

impl Attends for MlaDecode {
    fn geometry(c: &Case, ints: Ints) -> Geometry {
        let (h, queries, pages) = (c.axis("h"), c.count("q"), Pages::of(c));
        let seqs = pages.seqs(queries);
        let q_row = move |s: usize, i: usize, head: usize| (s * queries + i) * h + head;
        Geometry {
            tensors: ["q", "cache", "cache"],
            visible: masked(&seqs, true, 0),
            seqs,
            hq: h,
            hkv: 1,
            dk: width(c),
            dv: c.count("rank"),
            scale: c.number("scale"),
            q_row: Box::new(q_row),
            lse_at: Box::new(q_row),
            k_row: pages.rows(ints("page_table"), 1),
        }
    }
}

const OP: Op = Op {
    name: "mla-decode",
    about: "absorbed MLA: o = softmax(scale * q c^T) c[:rank] over paged cache rows c of rank + rope, shared by all heads",
    axes: &[
        Axis { name: "b", about: "sequences", tries: &[1, 2, 3, 5] },
        Axis { name: "l", about: "cached tokens of the longest", tries: &[1, 2, 17, 130, 300] },
        Axis { name: "h", about: "query heads", tries: &[1, 2, 5, 16] },
    ],
    attrs: &[
        attention::QUERIES,
        attention::PAGE,
        Attr {
            name: "rank",
            kind: AttrKind::Size(&[1, 8, 64, 128]),
            default: "512",
            about: "width of the latent part, which is the value",
        },
        Attr { name: "rope", kind: AttrKind::Count(&[0, 8, 64]), default: "64", about: "width of the positional part" },
        attention::LENGTHS,
        Attr {
            name: "scale",
            kind: AttrKind::Positive,
            default: "0.07216878364870323",
            about: "of the logits; 1/sqrt(128 + 64), the head before absorption",
        },
        attention::LSE,
        MEMORY,
    ],
    default_configs: &["1x32768x128", "128x1024x128"],
    check: |c| attention::check(c, "query tokens", c.axis("b") * c.count("q")),
    distinct_rows: Some(|c| c.axis("b") * c.count("q") + c.axis("h") - 1),
    tensors,
    cost,
    derive,
    regions: attention::REGIONS,
    oracle: |c, inputs, sink| attention::forward(MlaDecode::geometry, c, inputs, sink),
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (b, h, pages, queries) = (c.axis("b"), c.axis("h"), Pages::of(c), c.count("q"));
    let memory = c.attr("memory");
    let mut t = vec![
        TensorSpec::input("q", c.dtype, &[b, queries, h, width(c)], Fill::Derived).laid_out(memory),
        TensorSpec::input("cache", c.dtype, &[pages.pool, pages.page, width(c)], Fill::Derived).laid_out(memory),
    ];
    t.extend(pages.tensors());
    t.extend(attention::outputs(c, &[b, queries, h, c.count("rank")], &[b, queries, h]));
    t
}

/// Keys and values are one row, read once.
fn cost(c: &Case, _: &[TensorSpec]) -> Cost {
    let geo = MlaDecode::geometry(c, &attention::no_integers);
    let mut cost = attention::cost(c, &geo, Pages::of(c).integers());
    cost.bytes_read -= geo.rows_seen() * geo.dv as u64 * c.dtype.size() as u64;
    cost
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (h, pages) = (c.axis("h"), Pages::of(c));
    let spec = inputs.spec(tensor);
    match tensor {
        "page_table" | "lengths" => pages.derive(tensor, c.seed, rows, out),
        "q" => fill_queries(spec, c.seed, rows, out, |row| row / h + row % h),
        _ => {
            let scatter = pages.scatter(c.seed);
            fill_keys(spec, c.seed, c.number("scale"), rows, out, |row| pages.kind(&scatter, row))
        }
    }
}
