//! Memory traffic and nothing else: what the machine's roofs are measured with.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("stream"),
    cuda: &[&kernel!("stream", "01_plain"), &kernel!("stream", "02_wide"), &kernel!("stream", "03_short")],
    mutants: plain::MUTANTS,
    loose: &[],
};

/// Elements to each sum of kind `read`: enough that the sums are no traffic, few enough that one lost vector shows.
const CHUNK: usize = 1 << 16;

const OP: Op = Op {
    name: "stream",
    about: "copy: y = x; read: one sum of x per 65536 elements; write: y = s; triad: y = a + s * b",
    axes: &[Axis { name: "n", about: "elements", tries: &[] }],
    attrs: &[Attr {
        name: "kind",
        kind: AttrKind::OneOf(&["copy", "read", "write", "triad"]),
        default: "copy",
        about: "pattern of traffic",
    }],
    default_configs: &["16777216", "67108864"],
    tensors,
    cost,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let n = c.axis("n");
    // Off centre, so that an element lost from a sum shows.
    let input = |name, len| TensorSpec::input(name, c.dtype, &[len], Fill::Normal { mean: 1.5, std: 0.5 });
    let y = TensorSpec::output("y", c.dtype, &[n]);
    match c.attr("kind") {
        "copy" => vec![input("x", n), y],
        "read" => vec![input("x", n), TensorSpec::output("sums", c.acc(), &[n.div_ceil(CHUNK)])],
        "write" => vec![input("s", 1), y],
        _ => vec![input("a", n), input("b", n), input("s", 1), y],
    }
}

fn cost(c: &Case, tensors: &[TensorSpec]) -> Cost {
    let each = match c.attr("kind") {
        "copy" | "write" => 0,
        "read" => 1,
        _ => 2,
    };
    Cost::of(tensors, each * c.axis("n") as u64)
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, u, region) = (c.axis("n"), c.acc().unit(), Region::One(0));
    by_blocks(n, CHUNK, |at| {
        let take = |name| inputs.take(name, at.start, at.len());
        let put = |expect: &[f64], slack: &[f64]| {
            sink.put(Block { tensor: "y", start: at.start, expect, slack, loose: &[], region });
        };
        match c.attr("kind") {
            "copy" => put(&take("x"), &vec![0.0; at.len()]),
            "write" => put(&vec![inputs.all("s")[0]; at.len()], &vec![0.0; at.len()]),
            "read" => {
                let x = take("x");
                let size: f64 = x.iter().map(|v| v.abs()).sum();
                let (sum, slack) = ([truth::sum(x.iter().copied())], [size * sum_slack(c.acc(), x.len())]);
                let start = at.start / CHUNK;
                sink.put(Block { tensor: "sums", start, expect: &sum, slack: &slack, loose: &[], region });
            }
            _ => {
                let (a, b, s) = (take("a"), take("b"), inputs.all("s")[0]);
                let y: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a + s * b).collect();
                // The product is rounded unless it is fused, then the sum.
                let slack: Vec<f64> = y.iter().zip(&b).map(|(y, b)| u * ((s * b).abs() + y.abs())).collect();
                put(&y, &slack);
            }
        }
    });
}
