//! `gemm` by cuBLASLt: the product of rows is the product of the transposed matrices in its column-major world, so b comes
//! first.

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cuda::{Cuda, Matmul, Matrix, Product, cublaslt};
use kmark_device::{Device, Fault, Impl, Launch, kind_of};

pub struct CublasLt;

impl Impl for CublasLt {
    fn name(&self) -> &str {
        "cublaslt"
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        "NVIDIA's library, the fastest of the algorithms that its heuristic offers".into()
    }
    fn hash(&self) -> String {
        let mut h = blake3::Hasher::new();
        h.update(include_bytes!("cublaslt.rs")).update(cublaslt::SOURCE.as_bytes());
        h.finalize().to_hex()[..16].to_string()
    }
    fn device(&self) -> &'static str {
        "cuda"
    }
    fn supports(&self, _: &'static Op, case: &Case) -> Result<(), String> {
        // Seen on an H200 with m = 33, n = 65, k = 129: the bias is added to a product rounded to bf16 before.
        if case.flag("bias") && ["m", "n", "k"].iter().any(|a| !case.axis(a).is_multiple_of(8)) {
            return Err("rounds twice when it adds a bias to sizes that are not multiples of 8".into());
        }
        // Seen there: whole f32 are written, behind the end of d.
        if case.dtype == DType::F32 && !matches!(case.attr("out"), "same" | "f32") {
            return Err("products of f32 are written as f32".into());
        }
        if case.dtype.size() != 1 {
            return Ok(());
        }
        if case.attr("layout") != "nt" {
            return Err(format!("8-bit products need layout nt, not {}", case.attr("layout")));
        }
        if case.dtype == DType::F8e5m2 {
            return Err("two operands of e5m2 are not supported".into());
        }
        if case.attr("scale") == "block" {
            return Err("block scales need a layout of its own there".into());
        }
        Ok(())
    }
    fn bind(
        &self,
        device: &dyn Device,
        _: &'static Op,
        case: &Case,
        buffers: &Buffers,
    ) -> Result<Box<dyn Launch>, Fault> {
        let cuda = kind_of::<Cuda>(device).ok_or_else(|| Fault::new(Status::Unsupported, "cuBLASLt needs a GPU"))?;
        let layout = case.attr("layout").as_bytes();
        let address = |name: &str| buffers.get(name).address();
        // A matrix of rows is the transposed matrix of columns.
        let matrix = |b: Buffer| {
            let (spec, at) = (b.spec(), address(b.spec().name));
            let alignment = 1u32 << at.trailing_zeros().min(8);
            Matrix {
                address: at,
                dtype: spec.dtype,
                rows: spec.row_len(),
                cols: spec.rows(),
                ld: spec.pitch,
                alignment,
            }
        };
        let scales = match case.attr("scale") {
            "none" => None,
            // b comes first there.
            kind => Some((address("b_scale"), address("a_scale"), kind == "row")),
        };
        let product = Product {
            a: matrix(buffers.get("b")),
            transpose_a: layout[1] == b't',
            b: matrix(buffers.get("a")),
            transpose_b: layout[0] == b't',
            d: matrix(buffers.get("d")),
            bias: case.flag("bias").then(|| address("bias")),
            scales,
            tf32: case.flag("tf32"),
        };
        Ok(Box::new(Matmul::new(cuda, product, buffers)?))
    }
}
