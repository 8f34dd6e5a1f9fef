//! Backward of RMSNorm: the gradients of the input and of the weight, from the saved rstd.

mod cpu;
mod mutants;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("rmsnorm_bwd"),
    cuda: &[&kernel!("rmsnorm_bwd", "01_rows")],
    mutants: mutants::MUTANTS,
    loose: mutants::LOOSE,
};

const OP: Op = Op {
    name: "rmsnorm-bwd",
    about: "dx = (g - xh * mean(xh * g)) * rstd per row, dw = sum over rows of dout * xh; xh = x * rstd, g = dout * w",
    axes: MATRIX,
    attrs: &[
        Attr { name: "w", kind: WEIGHT_DTYPES, default: "same", about: "dtype of the weight and its gradient" },
        Attr { name: "eps", kind: AttrKind::Positive, default: "1e-6", about: "added to the mean square" },
        MEMORY,
    ],
    tensors,
    // g, xh and their product summed; the product with the mean, difference and scale; dw's product and sum.
    cost: |c, tensors| Cost::of(tensors, 9 * rows_by_columns(c)),
    derive,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, w) = (c.axis("m"), c.axis("n"), c.attr_dtype("w"));
    vec![
        TensorSpec::input("x", c.dtype, &[m, n], Fill::norm_rows(0.0, c.dtype)).laid_out(c.attr("memory")),
        TensorSpec::input("w", w, &[n], Fill::Normal { mean: 1.0, std: 0.25 }),
        TensorSpec::input("dout", c.dtype, &[m, n], Fill::Normal { mean: 0.0, std: 1.0 }).laid_out(c.attr("memory")),
        TensorSpec::input("rstd", c.acc(), &[m], Fill::Derived),
        TensorSpec::output("dx", c.dtype, &[m, n]).laid_out(c.attr("memory")),
        TensorSpec::output("dw", w, &[n]),
    ]
}

fn derive(c: &Case, _: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (n, eps) = (c.axis("n"), c.number("eps"));
    for (row, r) in rows.zip(out) {
        let x = inputs.take("x", row * n, n);
        *r = 1.0 / (truth::sum(x.iter().map(|v| v * v)) / n as f64 + eps).sqrt();
    }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (m, n, w_dtype) = (c.axis("m"), c.axis("n"), c.attr_dtype("w"));
    let (w, rstd) = (inputs.all("w"), inputs.all("rstd"));
    let (region, rounding) = (Region::One(0), truth::Rounding::to(c.dtype));
    let [dw] = truth::by_rows_summed(m, n, |rows, [dw]| {
        let (mut dx, mut slack, mut loose) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows.clone() {
            let r = rstd[row];
            let (x, dout) = (inputs.take("x", row * n, n), inputs.take("dout", row * n, n));
            let k = sum_slack(c.acc(), truth::nonzero(&x));
            let (mut dot, mut size, mut off2) = (truth::Sum::default(), 0.0, 0.0);
            for i in 0..n {
                let (xh, term) = (x[i] * r, x[i] * r * dout[i] * w[i]);
                dot.add(term);
                size += term.abs() / n as f64;
                off2 += rounding.square(term);
                dw.add(i, dout[i] * xh, rounding.square(xh) * dout[i].powi(2) + rounding.square(dout[i] * xh));
            }
            let mean = dot.total() / n as f64;
            // Rounded on the way: the mean itself, and g, xh and their product in each of its terms.
            let mean_off = rounding.of(mean) + truth::SURE * (3.0 * off2).sqrt() / n as f64;
            for i in 0..n {
                let (g, xh) = (dout[i] * w[i], x[i] * r);
                let rest = g - xh * mean;
                dx.push(rest * r);
                slack.push(k * (g.abs() + xh.abs() * size) * r);
                let each = rounding.of(g) + rounding.of(rest) + 2.0 * rounding.of(xh * mean);
                loose.push(r * (each + xh.abs() * mean_off) + rounding.of(rest * r));
            }
        }
        let (start, loose) = (rows.start * n, rounding.loose(&loose));
        sink.put(Block { tensor: "dx", start, expect: &dx, slack: &slack, loose, region });
    });
    dw.put("dw", sum_slack(c.acc(), m), c.dtype.size() == 2 && w_dtype.size() == 2, sink);
}
