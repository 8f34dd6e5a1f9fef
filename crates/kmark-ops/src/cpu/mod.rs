//! What CPU implementations share: the table row, element types, vectorised row arithmetic, and the split of rows into
//! jobs for all cores.

pub mod attention;
mod elem;
mod f8;
mod jobs;
mod product;
mod rows;

pub use elem::{Elem, Real};
pub use f8::{E4m3, E5m2};
pub use jobs::{Jobs, each_job};
pub use product::{Scales, Side, round_rows};
pub use rows::{PIECE, Row, ahead, exp, exp_sum, max, max_exp_sum, put, rms_rstd, sigmoid, simd, sum, sum2};

use crate::plain::{Plain, plainly};
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_device::buffer::Buffers;
use kmark_device::{Device, Fault, Impl, Launch};

/// A CPU implementation: one row of an op's table.
pub struct CpuImpl {
    pub name: &'static str,
    pub about: &'static str,
    /// The source file it stands in, for its hash.
    pub source: &'static str,
    pub run: Run,
}

/// How it computes.
pub enum Run {
    Plain(Plain),
    /// Looks up buffers and sizes and returns what is timed.
    Bound(fn(&Case, &Buffers) -> Box<dyn Launch>),
}

/// The row of `cpu/naive` in an op's table. `source` is the file that `plain` stands in.
pub const fn naive(plain: Plain, source: &'static str) -> CpuImpl {
    CpuImpl { name: "cpu/naive", about: "plain loops in f64, one thread", source, run: Run::Plain(plain) }
}

impl CpuImpl {
    /// The row of `cpu/simd`, an op's fastest. `source` is the file that `bind` stands in.
    pub const fn simd(
        about: &'static str,
        source: &'static str,
        bind: fn(&Case, &Buffers) -> Box<dyn Launch>,
    ) -> CpuImpl {
        CpuImpl { name: "cpu/simd", about, source, run: Run::Bound(bind) }
    }
}

/// Every file of ours that CPU implementations of several ops stand on.
const SHARED: &[(&str, &str)] = &[
    ("attention.rs", include_str!("attention.rs")),
    ("elem.rs", include_str!("elem.rs")),
    ("f8.rs", include_str!("f8.rs")),
    ("jobs.rs", include_str!("jobs.rs")),
    ("mod.rs", include_str!("mod.rs")),
    ("product.rs", include_str!("product.rs")),
    ("rows.rs", include_str!("rows.rs")),
    ("plain", include_str!("../plain.rs")),
    ("plain attention", include_str!("../plain/attention.rs")),
    ("plain backward of norms", include_str!("../plain/norm_bwd.rs")),
    ("plain softmax", include_str!("../plain/softmax.rs")),
    ("truth", include_str!("../truth/mod.rs")),
    ("matmul", kmark_device::cpu::matmul::SOURCE),
    ("geometry", include_str!("../truth/attention.rs")),
    ("dense", include_str!("../truth/attention/dense.rs")),
    ("paged", include_str!("../truth/attention/paged.rs")),
    ("blocks of products", include_str!("../truth/product.rs")),
];

/// Crates whose code runs inside of launches.
const CRATES: &[&str] = &["gemm", "half", "libm", "pulp", "rayon"];

/// The lines of `Cargo.lock` that pin them and what belongs to them: `gemm-f32` is of `gemm`.
fn pinned(lock: &str) -> impl Iterator<Item = &str> {
    let ours =
        |name: &str| CRATES.iter().any(|c| name.strip_prefix(c).is_some_and(|r| r.is_empty() || r.starts_with('-')));
    lock.split("[[package]]").filter(move |package| {
        let name = package.lines().find_map(|l| l.strip_prefix("name = "));
        name.is_some_and(|n| ours(n.trim_matches('"')))
    })
}

/// Of an implementation's own text and of everything that it stands on.
fn hash(own: &[&str]) -> String {
    let shared = SHARED.iter().map(|(_, text)| *text);
    let mut h = blake3::Hasher::new();
    for part in own.iter().copied().chain(shared).chain(pinned(include_str!("../../../../Cargo.lock"))) {
        h.update(&(part.len() as u64).to_le_bytes());
        h.update(part.as_bytes());
    }
    h.finalize().to_hex()[..16].to_string()
}

/// Plain loops do some 200 million to a billion operations in a second; a case takes dozens of launches.
const NAIVE_FLOPS: u64 = 10_000_000_000;
/// And hold whole tensors.
const NAIVE_BYTES: u64 = 8 << 30;

impl Impl for CpuImpl {
    fn name(&self) -> &str {
        self.name
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        self.about.into()
    }
    fn hash(&self) -> String {
        hash(&[self.name, self.source])
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        let cost = op.cost(case);
        let multiplies_matrices = cost.flops > 32 * cost.bytes();
        if self.name == "cpu/naive" && multiplies_matrices && cost.flops > NAIVE_FLOPS {
            let giga = cost.flops / 1_000_000_000;
            return Err(format!("{giga} GFLOP would take plain loops minutes for each launch"));
        }
        let wide = 8 * op.tensors(case).iter().map(|t| t.elems() as u64).sum::<u64>();
        if matches!(self.run, Run::Plain(_)) && wide > NAIVE_BYTES {
            return Err(format!("plain loops would hold {} GiB of tensors in f64", wide >> 30));
        }
        Ok(())
    }
    fn bind(&self, _: &dyn Device, _: &'static Op, case: &Case, buffers: &Buffers) -> Result<Box<dyn Launch>, Fault> {
        Ok(match self.run {
            Run::Plain(plain) => plainly(case, buffers, plain),
            Run::Bound(bind) => bind(case, buffers),
        })
    }
}

/// Runs `$body` with `$T` standing for the Rust type of a float dtype that accumulates in f32.
macro_rules! by_short_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kmark_core::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            kmark_core::dtype::DType::F16 => {
                type $T = half::f16;
                $body
            }
            kmark_core::dtype::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            other => panic!("no CPU implementation for {other}: the case should have been refused"),
        }
    };
}
pub(crate) use by_short_float;

/// Runs `$body` with `$T` standing for the Rust type of a float dtype.
macro_rules! by_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kmark_core::dtype::DType::F64 => {
                type $T = f64;
                $body
            }
            other => $crate::cpu::by_short_float!(other, $T => $body),
        }
    };
}
pub(crate) use by_float;

/// Runs `$body` with `$T` standing for the Rust type of an 8-bit float dtype.
macro_rules! by_f8 {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            kmark_core::dtype::DType::F8e4m3 => {
                type $T = $crate::cpu::E4m3;
                $body
            }
            kmark_core::dtype::DType::F8e5m2 => {
                type $T = $crate::cpu::E5m2;
                $body
            }
            other => panic!("no CPU implementation for {other}: the case should have been refused"),
        }
    };
}
pub(crate) use by_f8;

/// Runs `$body` with `$T` standing for the Rust type of any float dtype. Apart from `by_float`, because most ops know
/// no 8-bit floats and need no code for them.
macro_rules! by_any_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            1 => $crate::cpu::by_f8!($dtype, $T => $body),
            _ => $crate::cpu::by_float!($dtype, $T => $body),
        }
    };
}
pub(crate) use by_any_float;

/// A weight vector of any float dtype, widened to the accumulator of the activations.
pub fn widen_weight<A: Real>(buffer: &kmark_device::buffer::Buffer) -> Vec<A> {
    by_float!(buffer.spec().dtype, W => {
        let w = buffer.read::<W>();
        w.iter().map(|v| A::from_f64(v.up().to_f64())).collect()
    })
}

/// Rounds the gradient of a weight to the weight's dtype.
pub fn store_weight<A: Real>(buffer: &kmark_device::buffer::Buffer, values: &[A]) {
    let wide: Vec<f64> = values.iter().map(|v| v.to_f64()).collect();
    // From f64, because a second rounding on the way (f64 to f32 to f16) is not what the contract says.
    buffer.spec().dtype.encode(&wide, &mut buffer.write::<u8>());
}

/// Adds up the partial sums that jobs return, in the order of the jobs.
pub fn add_up<A: Real>(partials: Vec<Vec<A>>) -> Vec<A> {
    let mut partials = partials.into_iter();
    let mut total = partials.next().expect("there is at least one job");
    for partial in partials {
        for (t, p) in total.iter_mut().zip(&partial) {
            *t += *p;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_this_folder_is_in_the_hash() {
        let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = |folder: &str| std::fs::read_dir(src.join(folder)).unwrap();
        for file in files("cpu").chain(files("plain")) {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(SHARED.iter().any(|(_, shared)| *shared == text), "{} is not", path.display());
        }
        assert_ne!(hash(&["a"]), hash(&["b"]));
        assert_ne!(hash(&["ab", ""]), hash(&["a", "b"]));
    }

    #[test]
    fn the_crates_inside_of_launches_are_pinned_by_the_hash() {
        let lock = include_str!("../../../../Cargo.lock");
        let names: Vec<&str> = pinned(lock).filter_map(|p| p.lines().find_map(|l| l.strip_prefix("name = "))).collect();
        for wanted in ["\"gemm-common\"", "\"gemm-f32\"", "\"half\"", "\"libm\"", "\"pulp\"", "\"rayon-core\""] {
            assert!(names.contains(&wanted), "{wanted}: {names:?}");
        }
        assert!(pinned(lock).all(|p| p.contains("version = ") && p.contains("checksum = ")));
        assert!(!names.contains(&"\"serde\""));
    }
}
