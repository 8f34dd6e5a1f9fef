//! Floor 2 of Kernelmark: one folder per op with its contract, oracle, cost, implementations and mutants. Ops never
//! import ops; what they share on the CPU is in `cpu`, on a GPU in `cuda` and `device/`, on the side of truth in `truth`.

// Unit tests need no registry, and a static is built whether it is used or not: without it they build in seconds.
#![cfg_attr(test, allow(dead_code))]

mod contract;
mod cpu;
pub mod cuda;
mod entry;
mod mutant;
pub mod mutants;
mod plain;
mod truth;
mod vendor;
mod words;

mod add_rmsnorm;
mod attention;
mod attention_bwd;
mod attention_decode;
mod attention_varlen;
mod cross_entropy;
mod cross_entropy_bwd;
mod cross_entropy_fwd_bwd;
mod gelu;
mod gemm;
mod grouped_gemm;
mod layernorm;
mod layernorm_bwd;
mod mla_decode;
mod nsa;
mod quant_fp8;
mod rmsnorm;
mod rmsnorm_bwd;
mod rope;
/// The op that CONTRIBUTING adds: built for its test only.
#[cfg(test)]
mod scale;
mod softmax;
mod softmax_bwd;
mod softmax_fwd_bwd;
mod stream;
mod swiglu;
mod swiglu_bwd;

pub use entry::Entry;

use cuda::Source;
use kmark_device::cuda::jit::Headers;
use std::sync::{Mutex, OnceLock};

#[cfg(test)]
pub static OPS: &[&Entry] = &[];

/// The only registry, family by family.
#[cfg(not(test))]
pub static OPS: &[&Entry] = &[
    &rmsnorm::ENTRY,
    &rmsnorm_bwd::ENTRY,
    &add_rmsnorm::ENTRY,
    &layernorm::ENTRY,
    &layernorm_bwd::ENTRY,
    &softmax::ENTRY,
    &softmax_bwd::ENTRY,
    &softmax_fwd_bwd::ENTRY,
    &cross_entropy::ENTRY,
    &cross_entropy_bwd::ENTRY,
    &cross_entropy_fwd_bwd::ENTRY,
    &gelu::ENTRY,
    &swiglu::ENTRY,
    &swiglu_bwd::ENTRY,
    &rope::ENTRY,
    &quant_fp8::ENTRY,
    &gemm::ENTRY,
    &grouped_gemm::ENTRY,
    &attention::ENTRY,
    &attention_bwd::ENTRY,
    &attention_varlen::ENTRY,
    &attention_decode::ENTRY,
    &mla_decode::ENTRY,
    &nsa::ENTRY,
    &stream::ENTRY,
];

/// An op of ours, or one of a user's that was learnt.
pub fn find(op: &str) -> Option<&'static Entry> {
    OPS.iter().find(|e| e.op.name == op).copied().or_else(|| own(op))
}

/// A user's op has no impls in this program; kernels in files and Python functions compute it.
fn own(name: &str) -> Option<&'static Entry> {
    static ENTRIES: Mutex<Vec<&'static Entry>> = Mutex::new(Vec::new());
    let (_, op) = kmark_core::own::find(name)?;
    let mut entries = ENTRIES.lock().expect("nobody panics while looking");
    let known = entries.iter().find(|e| e.op.name == name).copied();
    Some(known.unwrap_or_else(|| {
        let entry = Entry { op, oracle: Source("", ""), cpu: &[], cuda: &[], mutants: &[] };
        entries.push(Box::leak(Box::new(entry)));
        entries[entries.len() - 1]
    }))
}

/// Our ops, then those of users.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    OPS.iter().copied().chain(kmark_core::own::known().into_iter().filter_map(|own| find(&own.name)))
}

/// Everything that is compiled on a GPU may include: what kernels may, and the oracle of every op by its name.
pub fn headers() -> Headers {
    static ALL: OnceLock<Vec<(&str, &str)>> = OnceLock::new();
    ALL.get_or_init(|| cuda::headers().iter().copied().chain(OPS.iter().map(|e| e.oracle.header(e.op))).collect())
}

#[cfg(test)]
mod tests {
    use super::scale::ENTRY;
    use kmark_core::case::DEFAULT_SEED;
    use kmark_core::dtype::DType;
    use kmark_core::tally::Grade;
    use kmark_device::cpu::Cpu;
    use kmark_device::workload::verify;

    /// What a newcomer is told to write is what stands here, and it works.
    #[test]
    fn the_op_of_contributing_is_an_op() {
        let device = Cpu::new("test");
        for dtype in [DType::F32, DType::Bf16] {
            let axes = [("m".to_string(), 17), ("n".to_string(), 65)].into();
            let attrs = [("memory".to_string(), "strided".to_string())].into();
            let case = ENTRY.op.case(dtype, &axes, &attrs, DEFAULT_SEED).unwrap();
            for imp in ENTRY.cpu {
                let right = verify(&device, ENTRY.op, *imp, &case).unwrap();
                assert_eq!(right.grade, Some(Grade::Tight), "{}: {right:?}", imp.name());
            }
            for mutant in crate::mutants::of(&ENTRY, "cpu") {
                assert!(!verify(&device, ENTRY.op, &mutant, &case).unwrap().ok());
            }
        }
        let told = include_str!("../../../CONTRIBUTING.md");
        let files = [
            include_str!("scale/mod.rs"),
            include_str!("scale/plain.rs"),
            include_str!("scale/cpu.rs"),
            include_str!("scale/cuda/00_oracle.cu"),
        ];
        files.iter().for_each(|file| assert!(told.contains(file), "CONTRIBUTING.md does not have\n{file}"));
    }
}
