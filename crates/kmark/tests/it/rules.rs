//! The rules of the house that Cargo cannot enforce: who may print, who may read files, who may know whom.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, out: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                // Tests may do what they like.
                let code = text.split("#[cfg(test)]").next().unwrap_or("").to_string();
                out.push((path, code));
            }
        }
    }
    let mut out = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir), &mut out);
    assert!(!out.is_empty(), "{dir} has sources");
    out
}

fn nowhere(files: &[(PathBuf, String)], words: &[&str], rule: &str) {
    for (path, code) in files {
        for word in words {
            assert!(!code.contains(word), "{}: {word}: {rule}", path.display());
        }
    }
}

#[test]
fn lower_floors_open_no_files_and_print_nothing() {
    for dir in ["kmark-core/src", "kmark-device/src", "kmark-ops/src"] {
        // Libraries are loaded from files, compiled kernels are kept in a cache of ours, and an author's checkout may
        // stand in for what is built in.
        let exempt = ["cuda/library.rs", "cuda/nvrtc.rs", "cuda/jit.rs", "kmark-ops/src/cuda.rs"];
        let files: Vec<_> =
            sources(dir).into_iter().filter(|(path, _)| !exempt.iter().any(|e| path.ends_with(e))).collect();
        nowhere(&files, &["std::fs", "File::open"], "nothing below floor 3 reads files");
        nowhere(&sources(dir), &["println!", "print!(", "io::stdout", "io::stderr"], "only cmd and report print");
    }
}

#[test]
fn only_cmd_prints() {
    let allowed = ["cmd", "faults.rs"]; // faults print on purpose, inside a worker
    let files: Vec<_> = sources("kmark/src")
        .into_iter()
        .filter(|(p, _)| !allowed.iter().any(|a| p.components().any(|c| c.as_os_str() == *a)))
        .collect();
    nowhere(&files, &["println!", "eprint", "io::stdout", "io::stderr"], "only cmd prints");
}

#[test]
fn reports_read_records_only() {
    let outside =
        ["crate::host", "crate::bench", "crate::store", "crate::plan", "crate::worker", "kmark_device", "kmark_ops"];
    nowhere(&sources("kmark/src/report"), &outside, "a report is a function of records");
}

#[test]
fn ops_never_import_ops() {
    let files = sources("kmark-ops/src");
    let folders: Vec<String> = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../kmark-ops/src"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| {
            p.is_dir() && !["cpu", "device", "mutants", "truth", "vendor"].iter().any(|shared| p.ends_with(shared))
        })
        .map(|p| p.file_name().unwrap().to_str().unwrap().to_string())
        .collect();
    for (path, code) in files.iter().filter(|(p, _)| !p.ends_with("kmark-ops/src/lib.rs")) {
        for folder in &folders {
            assert!(!code.contains(&format!("crate::{folder}::")), "{}: imports op {folder}", path.display());
        }
    }
}

#[test]
fn unsafe_stands_where_foreign_code_is_called_and_says_why() {
    for (path, code) in sources("kmark-device/src").into_iter().chain(sources("kmark-py/src")) {
        let lines: Vec<&str> = code.lines().collect();
        for (i, line) in lines.iter().enumerate().filter(|(_, l)| l.contains("unsafe {")) {
            let reason = lines[..i].iter().rev().take(3).any(|l| l.contains("SAFETY:"));
            assert!(reason, "{}:{}: {line}", path.display(), i + 1);
        }
    }
    for dir in ["kmark-core/src", "kmark-ops/src", "kmark/src"] {
        nowhere(&sources(dir), &["unsafe {", "unsafe fn"], "unsafe stands in kmark-device and kmark-py only");
    }
}

#[test]
fn files_stay_readable() {
    for dir in ["kmark-core/src", "kmark-device/src", "kmark-ops/src", "kmark/src", "kmark-py/src"] {
        for (path, code) in sources(dir) {
            assert!(code.lines().count() <= 600, "{} is too long to hold in the head", path.display());
            assert!(code.starts_with("//!"), "{} does not say what it may know", path.display());
        }
    }
    let main = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    assert!(main.lines().count() < 80, "lib.rs reads as the design");
}
