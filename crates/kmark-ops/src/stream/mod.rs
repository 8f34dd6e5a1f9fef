//! Memory traffic and nothing else: what the machine's roofs are measured with.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[
        &naive(&plain::RIGHT, text!("plain.rs", "mod.rs")),
        &CpuImpl { about: "streaming stores, all cores", ..vectorised(cpu::bind, text!("cpu.rs")) },
    ],
    oracle: oracle!("stream"),
    cuda: kernels!("stream", "01_plain", "02_wide", "03_short"),
    mutants: &[plain::MUTANTS],
};

/// Elements to each sum of kind `read`: enough that the sums are no traffic, few enough that one lost vector shows.
const CHUNK: usize = 1 << 16;

const OP: Op = Op {
    name: "stream",
    about: "copy: y = x; read: one sum of x per 65536 elements; write: y = s; triad: y = a + s * b",
    axes: &[Axis { name: "n", about: "elements", tries: &[] }],
    attrs: &[one_of("kind", &["copy", "read", "write", "triad"], "pattern of traffic")],
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
    let (n, u, kind) = (c.axis("n"), c.acc().unit(), c.attr("kind"));
    by_blocks(n, CHUNK, |at| {
        let (take, mut out) = (|name| inputs.take(name, at.start, at.len()), truth::Out::default());
        match kind {
            "copy" => take("x").iter().for_each(|x| out.put(*x, 0.0, 0.0)),
            "write" => vec![inputs.all("s")[0]; at.len()].iter().for_each(|s| out.put(*s, 0.0, 0.0)),
            "read" => {
                let x = take("x");
                let size: f64 = x.iter().map(|v| v.abs()).sum();
                out.put(truth::sum(x.iter().copied()), size * sum_slack(c.acc(), x.len()), 0.0);
            }
            _ => {
                let s = inputs.all("s")[0];
                for (a, b) in take("a").iter().zip(take("b")) {
                    // The product is rounded unless it is fused, then the sum.
                    out.put(a + s * b, u * ((s * b).abs() + (a + s * b).abs()), 0.0);
                }
            }
        }
        let (tensor, start) = if kind == "read" { ("sums", at.start / CHUNK) } else { ("y", at.start) };
        out.flush(sink, tensor, start, false);
    });
}
