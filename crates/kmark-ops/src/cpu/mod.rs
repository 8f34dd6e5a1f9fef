//! What CPU implementations share: the table row, element types, vectorised row arithmetic, and the split of rows into
//! jobs for all cores.

mod ahead;
pub mod attention;
mod elem;
mod jobs;
mod product;
mod room;
mod rows;
mod rowwise;
mod short;
mod tensors;

pub use ahead::Ahead;
pub(crate) use elem::by_acc;
pub use elem::{Real, narrow, simd, wide_copy, widen};
pub use jobs::{Jobs, each_job};
pub use kmark_core::case::Case;
pub use kmark_device::Launch;
pub use kmark_device::buffer::{Buffer, Buffers};
pub use product::{Scales, Side, round_rows};
pub use room::Room;
pub use rows::{exp, max, max_of, rms_rstd, sigmoid, sum, sum2};
pub use rowwise::{Job, RowKernel, Rowwise, by_rows};
pub use tensors::{In, Out, PIECE, streams};

use crate::plain::{Plain, plainly};
use kmark_core::op::Op;
use kmark_device::{Device, Fault, Impl};

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
    Plain(&'static dyn Plain),
    Bound(Bind),
}

/// Looks up buffers and sizes and returns what is timed.
pub type Bind = fn(&Case, &Buffers) -> Box<dyn Launch>;

/// The row of `cpu/naive` in an op's table. `source` is the text that `plain` stands in.
pub const fn naive(plain: &'static dyn Plain, source: &'static str) -> CpuImpl {
    CpuImpl { name: "cpu/naive", about: "plain loops in f64, one thread", source, run: Run::Plain(plain) }
}

/// The row of `cpu/simd`, an op's fastest. `source` is the text that `bind` stands in.
pub const fn vectorised(bind: Bind, source: &'static str) -> CpuImpl {
    CpuImpl { name: "cpu/simd", about: "vectorised rows, all cores", source, run: Run::Bound(bind) }
}

/// The text of files beside the one that says so.
macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!($file)),+) };
}
pub(crate) use text;

/// Every file of ours that CPU implementations of several ops stand on.
const SHARED: &[&str] = &[
    include_str!("ahead.rs"),
    include_str!("attention.rs"),
    include_str!("elem.rs"),
    include_str!("jobs.rs"),
    include_str!("mod.rs"),
    include_str!("product.rs"),
    include_str!("room.rs"),
    include_str!("rows.rs"),
    include_str!("rowwise.rs"),
    include_str!("short.rs"),
    include_str!("tensors.rs"),
    include_str!("../plain.rs"),
    include_str!("../plain/attention.rs"),
    include_str!("../plain/norm_bwd.rs"),
    include_str!("../plain/softmax.rs"),
    include_str!("../truth/mod.rs"),
    kmark_device::cpu::matmul::SOURCE,
    include_str!("../truth/attention.rs"),
    include_str!("../truth/attention/dense.rs"),
    include_str!("../truth/attention/paged.rs"),
    include_str!("../truth/product.rs"),
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
    let mut h = blake3::Hasher::new();
    for part in own.iter().chain(SHARED).copied().chain(pinned(include_str!("../../../../Cargo.lock"))) {
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
            assert!(SHARED.contains(&text.as_str()), "{} is not", path.display());
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
