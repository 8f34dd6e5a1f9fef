//! Product of two matrices in every orientation, with scales for 8-bit operands and a bias on request.
//!
//! The rungs on a GPU: `01_fma` for f32 and f64, `01_mma` for any other case, `02_wgmma` and `04_fp8` on Hopper where rows of a and
//! b lie at multiples of 16 bytes, `05_small` there for small products, `06_parts` for long sums of few tiles, `03_skinny` for up
//! to 128 rows of a, `07_gemv` for up to 4. In TF32, `02_wgmma`, `05_small` and `06_parts` take layout nt, `01_mma` the others. On an
//! H200 (evidence/h200/products) the best of cuBLASLt, DeepGEMM and torch is as fast as they are in 16 bits: as a geometric mean over
//! 39 products from 512 rows on they have 0.995 of its speed (0.94 at 512x7168x2048 and 8192x8192x28672, 1.02 at 4096x4096x4096), over
//! 106 small and odd shapes in all layouts 1.01 (0.87 to 1.24: behind at 600x600x5000, 512x512x4096 and, with a or b across k,
//! 776x1544x2048), with 16 and 64 rows 1.02 and 0.99; where rows of d do not begin at multiples of 16 bytes they have 1.9 to 9 times
//! its speed (4100x4100x4104, 8192x50257x768). `06_parts` leads by 23 % at 128x576x7168. With one row `07_gemv` has 1.11 of
//! cuBLASLt's speed over 16 shapes (1.01 to 1.46), with 2 and 4 rows 0.98 to 1.06. In fp8 with one scale they have 1.02 of cuBLASLt's
//! speed (0.93 with 64 rows; 0.83 to 0.93 at 512x4096x7168 and odd shapes), with block scales 0.97 of DeepGEMM's (0.95 to 0.99). In
//! fp8, `03_skinny` leads by 5 to 22 % for up to 32 rows (one of eight cases: 3 % behind) and by 31 % at 64x576x7168; with 128 rows it
//! is 18 to 52 % behind. `01_fma` reaches 0.96 of cuBLASLt without TF32 over 22 shapes (0.89 to 1.08; 0.94 at 4096x4096x4096, behind
//! most at 128x4096x4096 and 1000x1000x1000); with TF32 the tensor cores have 1.02 to 1.45 of its speed.

mod cpu;
mod plain;

use crate::contract::*;
use crate::truth::product::{self, BLOCK, Operand, Scales, derive_scales, rms_share, slack};
use crate::vendor::cublaslt::CublasLt;

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[
        &naive(&plain::RIGHT, text!("plain.rs", "mod.rs")),
        &CpuImpl {
            about: "widened, multiplied by the gemm crate on all cores, rounded",
            ..vectorised(cpu::bind, text!("cpu.rs"))
        },
    ],
    oracle: oracle!("gemm"),
    cuda: kernels!("gemm", "01_fma", "01_mma", "02_wgmma", "03_skinny", "04_fp8", "05_small", "06_parts", "07_gemv"; &CublasLt),
    mutants: &[plain::MUTANTS],
};

const SIZES: &[u64] = &[1, 2, 7, 16, 33, 64, 130, 257];

const OP: Op = Op {
    name: "gemm",
    about: "d = scales * (a b) + bias; layout says how a and b are stored: n = a[m,k], b[k,n]; t = a[k,m], b[n,k]",
    axes: &[
        Axis { name: "m", about: "rows of a and d", tries: SIZES },
        Axis { name: "n", about: "columns of b and d", tries: SIZES },
        Axis { name: "k", about: "length of the sums", tries: &[1, 2, 5, 16, 64, 127, 128, 129, 300, 513] },
    ],
    attrs: &[
        one_of("layout", &["nn", "nt", "tn", "tt"], "a, then b: n as in the formula, t transposed in memory"),
        one_of(
            "scale",
            &["none", "tensor", "row", "block"],
            "f8 only: one scale each; one per row of a and column of b; per 128 of k (and 128 columns of b)",
        ),
        yes_no("bias", "whether bias[n] is added"),
        yes_no(
            "tf32",
            "f32 only: whether a and b have 11 significant bits (and all exponents), of which tensor cores lose none",
        ),
        dtype("out", "dtype of d and bias; f8: same is bf16"),
        MEMORY,
    ],
    dtypes: &[DType::F32, DType::F16, DType::Bf16, DType::F64, DType::F8e4m3, DType::F8e5m2],
    default_configs: &["1024x1024x1024", "4096x4096x4096"],
    check,
    tensors,
    cost: |c, tensors| Cost::of(tensors, rows_by_columns(c) * (2 * c.axis("k") as u64 + u64::from(c.flag("bias")))),
    derive: |c, tensor, inputs, rows, out| derive_scales(c, inputs.spec(tensor), rows, out),
    oracle,
    ..Op::NEW
};

fn check(c: &Case) -> Result<(), String> {
    if c.attr("scale") != "none" && c.dtype.size() != 1 {
        return Err(format!("scale = {} needs an 8-bit dtype, not {}", c.attr("scale"), c.dtype));
    }
    if c.flag("tf32") && c.dtype != DType::F32 {
        return Err(format!("tf32 = yes needs f32, not {}", c.dtype));
    }
    if c.attr("out") != "same" && c.dtype == DType::F64 {
        return Err(format!("out = {} is not for f64, whose product is f64", c.attr("out")));
    }
    Ok(())
}

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (m, n, k) = (c.axis("m"), c.axis("n"), c.axis("k"));
    // So large and so small that f16 can hold neither.
    let fill = |std| if c.flag("tf32") { Fill::Tf32 { std } } else { NORMAL };
    let matrix = |name, along: bool, count: usize, std| {
        let shape = if along { [count, k] } else { [k, count] };
        TensorSpec::input(name, c.dtype, &shape, fill(std)).laid_out(c.attr("memory"))
    };
    let mut t = vec![matrix("a", !across(c).0, m, 1048576.0), matrix("b", !across(c).1, n, 1.0 / 1048576.0)];
    if c.attr("scale") != "none" {
        let blocks = k.div_ceil(BLOCK);
        let (a, b) = match c.attr("scale") {
            "tensor" => (vec![1], vec![1]),
            "row" => (vec![m], vec![n]),
            _ => (vec![m, blocks], vec![n.div_ceil(BLOCK), blocks]),
        };
        t.push(TensorSpec::input("a_scale", DType::F32, &a, Fill::Derived));
        t.push(TensorSpec::input("b_scale", DType::F32, &b, Fill::Derived));
    }
    if c.flag("bias") {
        t.push(TensorSpec::input("bias", out_dtype(c), &[n], NORMAL));
    }
    let d = TensorSpec::output("d", out_dtype(c), &[m, n]).laid_out(c.attr("memory"));
    t.push(d.with_rms_share(rms_share(c.dtype, out_dtype(c), c.flag("tf32"))));
    t
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let (m, n, k) = (c.axis("m"), c.axis("n"), c.axis("k"));
    let (a, b) = operands(c, inputs);
    let bias = c.flag("bias").then(|| inputs.all("bias"));
    let off = slack(c.dtype, out_dtype(c), k, c.attr("scale") == "block", c.flag("tf32"));
    product::put(sink, (&a, 0..m), (&b, 0..n), off, bias.as_deref(), |row, column| row * n + column);
}

fn out_dtype(c: &Case) -> DType {
    if c.dtype.size() == 1 && c.attr("out") == "same" { DType::Bf16 } else { c.attr_dtype("out") }
}

/// Whether the rows of a and of b in memory run across the vectors that are multiplied.
fn across(c: &Case) -> (bool, bool) {
    let layout = c.attr("layout").as_bytes();
    (layout[0] == b't', layout[1] == b'n')
}

/// How many vectors of a and of b share a row of scales, and how many scales a row has; none if nothing is scaled.
fn scale_spans(c: &Case) -> Option<[usize; 3]> {
    match c.attr("scale") {
        "none" => None,
        "tensor" => Some([c.axis("m"), c.axis("n"), 1]),
        "row" => Some([1, 1, 1]),
        _ => Some([1, BLOCK, c.axis("k").div_ceil(BLOCK)]),
    }
}

fn operands<'a>(c: &Case, inputs: &'a View<'a>) -> (Operand<'a>, Operand<'a>) {
    let spans = scale_spans(c);
    let scales = |name, which: usize| {
        spans.map(|s: [usize; 3]| Scales { values: inputs.all(name), width: s[2], span: s[which] })
    };
    let ((across_a, across_b), k) = (across(c), c.axis("k"));
    (
        Operand { inputs, name: "a", count: c.axis("m"), k, across: across_a, scales: scales("a_scale", 0) },
        Operand { inputs, name: "b", count: c.axis("n"), k, across: across_b, scales: scales("b_scale", 1) },
    )
}
