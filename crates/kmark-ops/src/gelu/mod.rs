//! GELU (Hendrycks and Gimpel 2016), exact or with the tanh that stands for it.

mod cpu;
mod plain;

use crate::contract::*;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[&naive(&plain::RIGHT, text!("plain.rs", "mod.rs")), &vectorised(cpu::bind, text!("cpu.rs"))],
    oracle: oracle!("gelu"),
    cuda: kernels!("gelu", "01_vectors"),
    mutants: &[plain::MUTANTS],
};

/// Factor of the cube in the tanh form.
const CUBE: f64 = 0.044715;
/// sqrt(2 / pi), its other factor.
const ROOT: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;

/// 0.5 x (1 + erf(x / sqrt 2)), by erfc: the sum would cancel for negative x.
fn by_erf(x: f64) -> f64 {
    0.5 * x * libm::erfc(-x / SQRT_2)
}

/// 0.5 x (1 + tanh z), by a quotient of exponentials for the same reason.
fn by_tanh(x: f64) -> f64 {
    let z = ROOT * (x + CUBE * x * x * x);
    x / (1.0 + (-2.0 * z).exp())
}

const OP: Op = Op {
    name: "gelu",
    about: "y = 0.5 x (1 + erf(x / sqrt 2)); tanh: y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))",
    attrs: &[one_of("approx", &["erf", "tanh"], "which formula"), MEMORY],
    default_configs: &["4096x4096", "16384x4096"],
    tensors,
    // Scale, erf as one, sum, product with x / 2 as one. Or: three for x + c x^3 by Horner's rule, two scales, tanh as
    // one, sum, product.
    cost: |c, tensors| Cost::of(tensors, if c.attr("approx") == "erf" { 4 } else { 8 } * rows_by_columns(c)),
    oracle,
    ..Op::NEW
};

fn tensors(c: &Case) -> Vec<TensorSpec> {
    // Wide enough to visit the tails on both sides; in the large rows the exponential of z leaves f32.
    vec![matrix_in(c, "x", Fill::Rows { mean: 0.0, std: 2.0, shift: 0.0 }), matrix_out(c, "y")]
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (n, u) = (c.axis("n"), c.acc().unit());
    let f = if c.attr("approx") == "erf" { by_erf } else { by_tanh };
    let rounding = truth::Rounding::to(c.dtype);
    truth::by_row(c, inputs, sink, ["y"], |row, [y]| {
        for x in inputs.take("x", row * n, n) {
            let (value, size) = (f(x), x.abs());
            // erf or tanh off by four units (a polynomial of 1.5e-7, or a quotient within two units of a number up to 2)
            // and by one or two more for its rounded argument, then the sum with 1: about twelve units, times x / 2,
            // whether or not the sum cancels. Then the products.
            let slack = u * (6.0 * size + 3.0 * value.abs());
            // Rounded on the way: the factor of x, and a product.
            let factor = if x == 0.0 { 0.5 } else { value / x };
            y.put(value, slack, rounding.of(value) + rounding.of(factor) * size);
        }
    });
}
