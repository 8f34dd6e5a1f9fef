//! Backward of LayerNorm: the gradients of the input, the weight and the bias, from the saved mean and rstd.

mod cpu;
pub(crate) mod mutants;

use crate::contract::*;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: cpu::IMPLS,
    oracle: oracle!("layernorm_bwd"),
    cuda: &[&kernel!("layernorm_bwd", "01_rows")],
    mutants: mutants::MUTANTS,
    loose: mutants::LOOSE,
};

const OP: Op = Op {
    name: "layernorm-bwd",
    about: "dx = (g - mean(g) - xh * mean(xh * g)) * rstd per row, dw = sum over rows of dout * xh, dbias = sum of dout",
    axes: MATRIX,
    attrs: &[
        Attr { name: "w", kind: WEIGHT_DTYPES, default: "same", about: "dtype of the weight and the gradients of it" },
        Attr { name: "eps", kind: AttrKind::Positive, default: "1e-6", about: "added to the variance" },
        Attr { name: "bias", kind: YES_NO, default: "no", about: "whether dbias is an output" },
        MEMORY,
    ],
    tensors,
    cost,
    derive,
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, w) = (c.axis("m"), c.axis("n"), c.attr_dtype("w"));
    let mut t = vec![
        TensorSpec::input("x", c.dtype, &[m, n], Fill::norm_rows(0.5, c.dtype)).laid_out(c.attr("memory")),
        TensorSpec::input("w", w, &[n], Fill::Normal { mean: 1.0, std: 0.25 }),
        TensorSpec::input("dout", c.dtype, &[m, n], Fill::Normal { mean: 0.0, std: 1.0 }).laid_out(c.attr("memory")),
        TensorSpec::input("mean", c.acc(), &[m], Fill::Derived),
        TensorSpec::input("rstd", c.acc(), &[m], Fill::Derived),
        TensorSpec::output("dx", c.dtype, &[m, n]).laid_out(c.attr("memory")),
        TensorSpec::output("dw", w, &[n]),
    ];
    if c.flag("bias") {
        t.push(TensorSpec::output("dbias", w, &[n]));
    }
    t
}

fn cost(c: &Case, tensors: &[TensorSpec]) -> Cost {
    // xh in two, g, two means in three, two differences, product and scale in four, dw in two, dbias in one.
    let each = if c.flag("bias") { 13 } else { 12 };
    Cost::of(tensors, each * rows_by_columns(c))
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let (n, eps) = (c.axis("n"), c.number("eps"));
    for (row, v) in rows.zip(out) {
        let x = inputs.take("x", row * n, n);
        let mean = truth::sum(x.iter().copied()) / n as f64;
        let variance = || truth::sum(x.iter().map(|v| (v - mean).powi(2))) / n as f64;
        *v = if tensor == "mean" { mean } else { 1.0 / (variance() + eps).sqrt() };
    }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (m, n, w_dtype) = (c.axis("m"), c.axis("n"), c.attr_dtype("w"));
    let (w, mean, rstd) = (inputs.all("w"), inputs.all("mean"), inputs.all("rstd"));
    let k = sum_slack(c.acc(), n);
    let (region, rounding) = (Region::One(0), truth::Rounding::to(c.dtype));
    let [dw, dbias] = truth::by_rows_summed(m, n, |rows, [dw, dbias]| {
        let (mut dx, mut slack, mut loose) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows.clone() {
            let r = rstd[row];
            let mut xh = inputs.take("x", row * n, n);
            xh.iter_mut().for_each(|x| *x = (*x - mean[row]) * r);
            let dout = inputs.take("dout", row * n, n);
            // Sums of g and of xh * g, of their magnitudes, and of the squares of what rounding them costs.
            let (mut g_sum, mut g_size, mut g_off2) = (truth::Sum::default(), 0.0, 0.0);
            let (mut dot_sum, mut dot_size, mut dot_off2) = (truth::Sum::default(), 0.0, 0.0);
            for i in 0..n {
                let g = dout[i] * w[i];
                g_sum.add(g);
                g_size += g.abs() / n as f64;
                g_off2 += rounding.square(g);
                dot_sum.add(g * xh[i]);
                dot_size += (g * xh[i]).abs() / n as f64;
                dot_off2 += rounding.square(g * xh[i]);
                let loose2 = rounding.square(xh[i]) * dout[i].powi(2) + rounding.square(dout[i] * xh[i]);
                dw.add(i, dout[i] * xh[i], loose2);
                dbias.add(i, dout[i], 0.0);
            }
            let (g_mean, dot_mean) = (g_sum.total() / n as f64, dot_sum.total() / n as f64);
            // Rounded on the way: the means themselves, and g, xh and their product in each of the terms.
            let g_mean_off = rounding.of(g_mean) + truth::SURE * g_off2.sqrt() / n as f64;
            let dot_mean_off = rounding.of(dot_mean) + truth::SURE * (3.0 * dot_off2).sqrt() / n as f64;
            for i in 0..n {
                let g = dout[i] * w[i];
                let rest = g - g_mean - xh[i] * dot_mean;
                dx.push(rest * r);
                slack.push(k * (g.abs() + g_size + xh[i].abs() * dot_size) * r);
                let differences = rounding.of(g) + rounding.of(g - g_mean) + rounding.of(rest);
                let means = 2.0 * rounding.of(xh[i] * dot_mean) + xh[i].abs() * dot_mean_off + g_mean_off;
                loose.push(r * (differences + means) + rounding.of(rest * r));
            }
        }
        let (start, loose) = (rows.start * n, rounding.loose(&loose));
        sink.put(Block { tensor: "dx", start, expect: &dx, slack: &slack, loose, region });
    });
    let (k, halves) = (sum_slack(c.acc(), m), c.dtype.size() == 2 && w_dtype.size() == 2);
    dw.put("dw", k, halves, sink);
    if c.flag("bias") {
        dbias.put("dbias", k, false, sink);
    }
}
