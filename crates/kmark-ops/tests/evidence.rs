//! Every CUDA kernel has been verified and timed on a real GPU as it stands: `evidence/` holds the records, and a kernel
//! whose hash is in none of them has changed since.

use kmark_ops::cuda::kernel_file;
use std::collections::HashSet;
use std::path::Path;

#[test]
fn every_kernel_has_evidence_of_its_present_text() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evidence");
    let mut seen = HashSet::new();
    for gpu in std::fs::read_dir(&folder).expect("evidence/ is there") {
        let path = gpu.expect("it can be read").path().join("smoke.jsonl");
        let Ok(lines) = std::fs::read_to_string(&path) else { continue };
        for line in lines.lines() {
            let r: serde_json::Value = serde_json::from_str(line).expect("records are JSON");
            let word = |key: &str| r[key].as_str().unwrap_or("").to_string();
            if word("status") == "ok" && r["device"]["kind"] == "cuda" {
                assert!(r["verify"]["elements"].as_u64().is_some_and(|n| n > 0), "{path:?}: {line}");
                for kernel in r["kernels"].as_array().into_iter().flatten() {
                    assert!(kernel["spilled_bytes"] == 0, "a kernel spilled registers: {path:?}: {line}");
                }
                seen.insert((word("op"), word("impl"), word("impl_hash"), word("dtype")));
            }
        }
    }
    let how = "run `kmark run smoke --device cuda` on a GPU and put its records there";
    for entry in kmark_ops::OPS {
        let op = entry.op.name;
        for kernel in entry.cuda.iter().filter(|k| kernel_file(**k).is_some()) {
            let found = seen.iter().any(|(o, i, hash, _)| o == op && i == kernel.name() && *hash == kernel.hash());
            assert!(found, "{op} {} is newer than its evidence; {how}", kernel.name());
        }
        for dtype in entry.op.dtypes {
            let found = seen.iter().any(|(o, _, _, d)| o == op && d == dtype.name());
            assert!(found, "{op} has no evidence for {dtype}; {how}");
        }
    }
}
