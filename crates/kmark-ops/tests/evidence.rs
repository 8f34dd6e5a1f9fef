//! `evidence/` holds the records of our kernels on real GPUs. Every record must be what it says; a kernel that changed since,
//! or an op that is new, is named here until somebody with a GPU runs `evidence/renew`:
//!
//!     cargo test -p kmark-ops --test evidence -- --nocapture

use kmark_ops::cuda::{hash_with, kernel_file};
use std::collections::HashSet;
use std::path::Path;

#[test]
fn evidence_is_of_right_answers_without_spills_and_what_lacks_it_is_named() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../evidence");
    let (mut seen, mut choices) = (HashSet::new(), HashSet::new());
    for gpu in std::fs::read_dir(&folder).expect("evidence/ is there") {
        let gpu = gpu.expect("it can be read").path();
        let runs = ["products", "attention", "memory", "layouts", "graphs"]
            .map(|name| std::fs::read_dir(gpu.join(name)).into_iter().flatten().flatten());
        let records = runs.into_iter().flatten().map(|run| run.path().join("records.jsonl"));
        let paths = records.chain([gpu.join("smoke.jsonl")]);
        let lines = paths.filter_map(|path| Some((std::fs::read_to_string(&path).ok()?, path)));
        for (line, path) in
            lines.flat_map(|(text, path)| text.lines().map(|l| (l.to_string(), path.clone())).collect::<Vec<_>>())
        {
            let r: serde_json::Value = serde_json::from_str(&line).expect("records are JSON");
            let word = |key: &str| r[key].as_str().unwrap_or("").to_string();
            if !word("impl").starts_with("cuda/") {
                continue;
            }
            assert_eq!(
                (word("status").as_str(), r["device"]["kind"].as_str()),
                ("ok", Some("cuda")),
                "{path:?}: {line}"
            );
            assert_eq!(r["verify"]["grade"], "tight", "{path:?}: {line}");
            assert!(r["verify"]["elements"].as_u64().is_some_and(|n| n > 0), "{path:?}: {line}");
            for kernel in r["kernels"].as_array().into_iter().flatten() {
                // Where the compiler's log said nothing, the driver knows of local memory, which is where spills go.
                let told = if kernel["spilled_bytes"].is_null() { "local_bytes" } else { "spilled_bytes" };
                assert!(kernel[told] == 0, "a kernel spilled registers: {path:?}: {line}");
            }
            choices.insert(r["tuned"]["chosen"].as_str().unwrap_or("").to_string());
            seen.extend([(word("op"), word("impl"), word("impl_hash")), (word("op"), word("dtype"), String::new())]);
        }
    }
    assert!(seen.len() > 100, "there is evidence: {}", seen.len());
    for entry in kmark_ops::OPS {
        let op = entry.op.name.to_string();
        for kernel in entry.cuda.iter().filter(|k| kernel_file(**k).is_some()) {
            let hash_of = |choice: &String| (op.clone(), kernel.name().to_string(), hash_with(kernel.hash(), choice));
            if !choices.iter().any(|choice| seen.contains(&hash_of(choice))) {
                println!("{op} {}: newer than its evidence", kernel.name());
            }
        }
        for dtype in entry.op.dtypes {
            if !seen.contains(&(op.clone(), dtype.name().to_string(), String::new())) {
                println!("{op}: no evidence for {dtype}");
            }
        }
    }
}
