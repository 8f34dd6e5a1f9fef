//! Quantisation to 8-bit floats: each block of x is scaled so that its largest magnitude becomes the format's.

mod cpu;
mod plain;

use crate::contract::*;
use std::sync::Mutex;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("quant_fp8"),
    cuda: kernels!("quant_fp8", "01_row", "02_group", "03_tile", "04_cluster"),
    mutants: &[plain::MUTANTS],
};

const OP: Op = Op {
    name: "quant-fp8",
    about: "scale = max(max|x|, clamp) / largest of the format, per block; q = x / scale rounded to the format",
    axes: &[
        Axis { name: "m", about: "rows", tries: &[1, 4, 12, 33, 130, 140] },
        Axis { name: "n", about: "row length", tries: &[1, 32, 127, 128, 129, 257, 385, 641, 1000] },
    ],
    attrs: &[
        one_of("to", &["f8e4m3", "f8e5m2"], "dtype of q; the largest values are 448 and 57344"),
        one_of(
            "granularity",
            &["row", "1x128", "128x128"],
            "what shares a scale: a row, 128 of a row, or 128 rows by 128 columns",
        ),
        yes_no("pow2", "whether scales are rounded up to powers of two"),
        positive("clamp", "1e-12", "a block's max|x| is at least this"),
        MEMORY,
    ],
    dtypes: &[DType::F32, DType::F16, DType::Bf16],
    default_configs: &["4096x4096", "16384x4096"],
    check,
    distinct_rows: Some(|c| c.axis("m").min(Blocks::new(c).down * Blocks::new(c).across)),
    tensors,
    cost: |c, tensors| Cost::of(tensors, 3 * rows_by_columns(c)),
    properties,
    oracle,
    ..Op::NEW
};

fn check(c: &Case) -> Result<(), String> {
    if !(1e-30..=1e30).contains(&c.number("clamp")) {
        return Err(format!("clamp = {} leaves the scale no room in f32; 1e-30 to 1e30", c.attr("clamp")));
    }
    Ok(())
}

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, blocks) = (c.axis("m"), c.axis("n"), Blocks::new(c));
    let scales = if c.attr("granularity") == "row" { vec![m] } else { vec![blocks.down, blocks.across] };
    // Whatever shares a scale may be all zero, or all equal: an exact tie for the maximum.
    let tiled = c.attr("granularity") == "128x128";
    let fill = if tiled { Fill::Tiles { std: 1.0 } } else { Fill::Rows { mean: 0.0, std: 1.0, shift: 0.0 } };
    vec![
        matrix_in(c, "x", fill),
        TensorSpec::output("q", to(c), &[m, n]),
        TensorSpec::output("scale", DType::F32, &scales),
    ]
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (m, n, blocks) = (c.axis("m"), c.axis("n"), Blocks::new(c));
    let max = largest(to(c));
    // Powers of two are exact, and so is the quotient. Otherwise scale, its inverse and the product round in f32.
    let off = if c.flag("pow2") { 0.0 } else { 4.0 * DType::F32.unit() };
    by_rows(blocks.down, blocks.rows * n, |downs| {
        for down in downs {
            let rows = down * blocks.rows..((down + 1) * blocks.rows).min(m);
            let x = inputs.take("x", rows.start * n, rows.len() * n);
            let scales: Vec<f64> = blocks.amax(&x).into_iter().map(|amax| scale(c, amax)).collect();
            let (mut q, mut stored) = (truth::Out::default(), truth::Out::default());
            for (i, x) in x.iter().enumerate() {
                let value = (x / scales[i % n / blocks.columns]).clamp(-max, max);
                q.put(value, off * value.abs(), 0.0);
            }
            scales.iter().for_each(|s| stored.put(*s, off * s, 0.0));
            q.flush(sink, "q", rows.start * n, false);
            stored.flush(sink, "scale", down * blocks.across, false);
        }
    });
}

/// The round trip: q times the scale that was stored with it is x, but for half a spacing of the format.
fn properties(c: &Case, inputs: &View, outputs: &View) -> Vec<String> {
    let (m, n, blocks) = (c.axis("m"), c.axis("n"), Blocks::new(c));
    let scales = outputs.all("scale");
    let bad = Mutex::new((0, None::<(usize, f64, f64)>));
    by_blocks(m, ((1 << 16) / n).max(1), |rows| {
        let at = rows.start * n;
        let (x, q) = (inputs.take("x", at, rows.len() * n), outputs.take("q", at, rows.len() * n));
        let broken = |i: &usize| {
            let s = scales[blocks.of(at + i)];
            let allowed = s * 0.5 * to(c).spacing(x[*i] / s) * (1.0 + 1e-6) + 8.0 * DType::F32.unit() * x[*i].abs();
            let off = (x[*i] - q[*i] * s).abs();
            off > allowed || !off.is_finite() || !allowed.is_finite()
        };
        let (count, first) = ((0..x.len()).filter(broken).count(), (0..x.len()).find(broken));
        if let Some(i) = first {
            let mut bad = bad.lock().expect("no panic while checking");
            let found = (at + i, q[i] * scales[blocks.of(at + i)], x[i]);
            let first = bad.1.filter(|(index, ..)| *index < found.0).unwrap_or(found);
            *bad = (bad.0 + count, Some(first));
        }
    });
    let (count, first) = bad.into_inner().expect("no panic while checking");
    let line = first.map(|(index, back, x)| {
        let place = outputs.spec("q").place(index);
        format!("{count} elements of q times their scale are not x; at {place} that gives {back:.6e} for {x:.6e}")
    });
    line.into_iter().collect()
}

fn to(c: &Case) -> DType {
    c.attr_dtype("to")
}

/// Largest finite value of the 8-bit format.
fn largest(format: DType) -> f64 {
    if format == DType::F8e4m3 { 448.0 } else { 57344.0 }
}

fn scale(c: &Case, amax: f64) -> f64 {
    let scale = amax.max(c.number("clamp")) / largest(to(c));
    if c.flag("pow2") { up_to_pow2(scale) } else { scale }
}

/// The smallest power of two that is not less, of a normal positive number; no logarithm, which rounds.
fn up_to_pow2(v: f64) -> f64 {
    let fraction = (1u64 << 52) - 1;
    let below = v.to_bits() & !fraction;
    f64::from_bits(if v.to_bits() == below { below } else { below + fraction + 1 })
}

/// How elements share scales.
struct Blocks {
    n: usize,
    /// Size of a block; a row may be one.
    rows: usize,
    columns: usize,
    /// How many there are in each direction.
    down: usize,
    across: usize,
}

impl Blocks {
    fn new(c: &Case) -> Blocks {
        let (m, n) = (c.axis("m"), c.axis("n"));
        let (rows, columns) = match c.attr("granularity") {
            "row" => (1, n),
            "1x128" => (1, 128),
            _ => (128, 128),
        };
        Blocks { n, rows, columns, down: m.div_ceil(rows), across: n.div_ceil(columns) }
    }
    /// The scale of element `index`.
    fn of(&self, index: usize) -> usize {
        index / self.n / self.rows * self.across + index % self.n / self.columns
    }
    /// Largest magnitude of each of the blocks beside each other that `x`, whole rows, is divided into.
    fn amax(&self, x: &[f64]) -> Vec<f64> {
        let mut amax = vec![0.0f64; self.across];
        for row in x.chunks(self.n) {
            for (part, amax) in row.chunks(self.columns).zip(&mut amax) {
                *amax = part.iter().fold(*amax, |m, x| m.max(x.abs()));
            }
        }
        amax
    }
}

#[cfg(test)]
mod tests {
    use super::up_to_pow2;

    #[test]
    fn powers_of_two_stay_and_what_is_between_goes_up() {
        assert_eq!(up_to_pow2(3.5 / 448.0), 2f64.powi(-7));
        assert_eq!(up_to_pow2(3.500_000_2 / 448.0), 2f64.powi(-6));
        assert_eq!(up_to_pow2(1.0), 1.0);
        assert_eq!(up_to_pow2(1.999), 2.0);
        assert_eq!(up_to_pow2(1e-12 / 448.0), 2f64.powi(-48));
    }
}
