//! Product of two matrices in every orientation, with scales for 8-bit operands and a bias on request.
//!
//! The rungs on a GPU: `01_fma` for f32 and f64, `01_mma` for any other case, `02_wgmma` and `04_fp8` on Hopper where rows of a and
//! b lie at multiples of 16 bytes, `05_small` there for small products, `06_parts` for long sums of few tiles (unmeasured),
//! `03_skinny` for up to 128 rows of a. In TF32, `02_wgmma`, `05_small` and `06_parts` take layout nt, `01_mma` the others. On an
//! H200 (evidence/h200/products) the better of cuBLASLt and DeepGEMM is ahead of them in 16 bits by 1 % as a geometric mean over 36
//! products from 512 rows on (0.95 to 1.05 of its speed: behind at 1000x1000x1000, 8192x28672x4096, 512x7168x2048, ahead by 2 to 5
//! % at 4096x4096x4096), by 1 % over 35 small and odd shapes (0.88 to 1.14: 512x1024x4096, 1000x2000x1000, 384x2048x2048 are the
//! slowest), by 20 % at 600x5000x5000 with a across k (before tiles of any multiple of eight columns, which are unmeasured there),
//! and behind by 1 % where up to 64 rows meet weights (0.96 to 1.11 of its speed) and by a factor of 1.9 to 9 where rows of d do
//! not begin at multiples of 16 bytes (4100x4100x4104, 8192x50257x768); by 1 to 3 % in large fp8 products with block scales, by 7
//! to 17 % in fp8 with one scale at 512x4096x7168 and odd shapes. In fp8, `03_skinny` leads by 5 to 22 % for up to 32 rows (one of
//! eight cases: 3 % behind) and by 31 % at 64x576x7168; with 64 rows and more weights it is 0 to 6 % behind with one scale, 14 to
//! 18 % with block scales; with 128 rows 18 to 52 %. `01_fma` reaches 0.90 of cuBLASLt without TF32 at 2048x2048x2048 and
//! 4096x4096x4096, 0.85 at 1000x1000x1000 and, no record kept, 0.82 at 3000x3000x3000 and 0.63 at 512x512x512 (before tiles of
//! 64x32); `02_wgmma` 1.02 to 1.19 of it with TF32 at five shapes and 0.72 with 64 rows (no record kept), which `05_small` takes
//! since, unmeasured. All rungs for Hopper are newer than these figures: copies are begun by an elected lane since.

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
    cuda: kernels!("gemm", "01_fma", "01_mma", "02_wgmma", "03_skinny", "04_fp8", "05_small", "06_parts"; &CublasLt),
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
