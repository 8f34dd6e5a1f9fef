//! Rotary position embedding (Su et al. 2021): pairs of each head's dimensions are turned by an angle that grows with
//! the position.

mod cpu;
mod plain;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("rope"),
    cuda: kernels!("rope", "01_heads"),
    mutants: &[plain::MUTANTS],
};

/// Dimensions of a head that are rotated.
fn rotated(c: &Case) -> usize {
    match c.count("rotary") {
        0 => c.axis("d"),
        r => r,
    }
}

fn in_place(c: &Case) -> bool {
    c.attr("form") == "inplace"
}

/// What is rotated: input, output (in place the same), heads.
fn operands(c: &Case) -> Vec<(&'static str, &'static str, usize)> {
    let name = |input, output| if in_place(c) { (input, input) } else { (input, output) };
    let mut all = vec![(name("q", "q_out"), c.axis("hq"))];
    if c.flag("k") {
        all.push((name("k", "k_out"), c.axis("hk")));
    }
    all.into_iter().map(|((input, output), heads)| (input, output, heads)).collect()
}

/// Where the two members of pair `i` of `r` dimensions stand.
#[inline(always)]
fn pair(neox: bool, r: usize, i: usize) -> (usize, usize) {
    if neox { (i, i + r / 2) } else { (2 * i, 2 * i + 1) }
}

const OP: Op = Op {
    name: "rope",
    about: "pairs of dimensions of q and k turned by the angle of their position: x1 cos - x2 sin, x2 cos + x1 sin",
    axes: &[
        Axis { name: "b", about: "sequences", tries: &[1, 2, 3] },
        Axis { name: "s", about: "positions", tries: &[1, 2, 7, 33] },
        Axis { name: "hq", about: "heads of q", tries: &[1, 2, 4, 9] },
        Axis { name: "hk", about: "heads of k", tries: &[1, 2, 3] },
        Axis { name: "d", about: "dimensions of a head", tries: &[2, 4, 8, 64, 6, 128] },
    ],
    attrs: &[
        one_of("style", &["neox", "interleaved"], "pairs (i, i + r/2) or (2i, 2i + 1) of r rotated dimensions"),
        one_of("form", &["inplace", "out"], "whether q and k are overwritten or q_out and k_out written"),
        one_of("k", &["yes", "no"], "whether k is rotated too"),
        count("rotary", "0", &[0, 0, 2, 4, 8], "how many dimensions, the first, are rotated; 0: all"),
        positive("base", "10000", "base of the frequencies"),
        MEMORY,
    ],
    default_configs: &["1x4096x32x8x128", "1x16384x32x8x128"],
    check,
    tensors,
    cost,
    derive,
    oracle,
    ..Op::NEW
};

fn check(c: &Case) -> Result<(), String> {
    let (d, r) = (c.axis("d"), rotated(c));
    if r > d {
        return Err(format!("rotary = {r} is more than the {d} dimensions of a head"));
    }
    if !r.is_multiple_of(2) {
        return Err(format!("{r} dimensions cannot be rotated in pairs; d, or rotary if set, must be even"));
    }
    Ok(())
}

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (b, s, d, half) = (c.axis("b"), c.axis("s"), c.axis("d"), rotated(c) / 2);
    let new = if in_place(c) { TensorSpec::inout } else { TensorSpec::input };
    let all = operands(c);
    let memory = c.attr("memory");
    let mut t: Vec<_> =
        all.iter().map(|(input, _, h)| new(input, c.dtype, &[b, s, *h, d], NORMAL).laid_out(memory)).collect();
    t.extend(["cos", "sin"].map(|name| TensorSpec::input(name, c.acc(), &[s, half], Fill::Derived)));
    if !in_place(c) {
        t.extend(all.iter().map(|(_, out, h)| TensorSpec::output(out, c.dtype, &[b, s, *h, d]).laid_out(memory)));
    }
    t
}

fn cost(c: &Case, _: &[TensorSpec]) -> Cost {
    let (s, r) = (c.axis("s"), rotated(c));
    let heads: usize = operands(c).iter().map(|(_, _, h)| c.axis("b") * s * h).sum();
    // In place, what is not rotated need not be touched.
    let moved = (heads * if in_place(c) { r } else { c.axis("d") } * c.dtype.size()) as u64;
    let tables = (s * r * c.acc().size()) as u64;
    // Two products and a sum.
    Cost { bytes_read: moved + tables, bytes_written: moved, flops: 3 * (heads * r) as u64 }
}

fn derive(c: &Case, tensor: &str, _: &View, rows: Range<usize>, out: &mut [f64]) {
    let (r, base) = (rotated(c), c.number("base"));
    for (position, row) in rows.zip(out.chunks_mut(r / 2)) {
        for (i, v) in row.iter_mut().enumerate() {
            let angle = position as f64 * base.powf(-2.0 * i as f64 / r as f64);
            *v = if tensor == "cos" { angle.cos() } else { angle.sin() };
        }
    }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (b, s, d, r) = (c.axis("b"), c.axis("s"), c.axis("d"), rotated(c));
    let (neox, u) = (c.attr("style") == "neox", c.acc().unit());
    let (cos, sin) = (inputs.all("cos"), inputs.all("sin"));
    let rounding = truth::Rounding::to(c.dtype);
    for (input, output, heads) in operands(c) {
        by_rows(b * s * heads, d, |rows| {
            let mut out = truth::Out::default();
            for row in rows.clone() {
                // Dimensions that are not rotated are copied, exactly.
                let x = inputs.take(input, row * d, d);
                let mut y: Vec<_> = x.iter().map(|x| (*x, 0.0, 0.0)).collect();
                let angles = row / heads % s * (r / 2);
                for i in 0..r / 2 {
                    let (first, second) = pair(neox, r, i);
                    let (x1, x2, cos, sin) = (x[first], x[second], cos[angles + i], sin[angles + i]);
                    // Two products and their sum, each rounded. On the way: cosine and sine, and the products.
                    let slack = |a: f64, b: f64| 2.0 * u * (a.abs() + b.abs());
                    let loose = |x: f64, by: f64| rounding.of(by) * x.abs() + rounding.of(x * by);
                    y[first] = (x1 * cos - x2 * sin, slack(x1 * cos, x2 * sin), loose(x1, cos) + loose(x2, sin));
                    y[second] = (x2 * cos + x1 * sin, slack(x2 * cos, x1 * sin), loose(x2, cos) + loose(x1, sin));
                }
                y.into_iter().for_each(|(value, slack, loose)| out.put(value, slack, loose));
            }
            out.flush(sink, output, rows.start * d, c.dtype.size() == 2);
        });
    }
}
