//! Puts every `suites/*.toml` and `baselines/*.toml` into the binary, so that adding one is adding a file.

use std::fmt::Write;
use std::path::Path;

fn main() {
    for folder in ["suites", "baselines"] {
        embed(folder);
    }
}

/// A table of names and texts, as `OUT_DIR/FOLDER.rs`.
fn embed(folder: &str) {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let from = Path::new(&root).join("../..").join(folder);
    println!("cargo:rerun-if-changed={}", from.display());
    let mut files: Vec<_> = std::fs::read_dir(&from)
        .expect("the repository has this folder")
        .map(|f| f.expect("readable folder").path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.file_stem().and_then(|s| s.to_str()).expect("a plain file name");
        let path = file.canonicalize().expect("the file is there");
        writeln!(table, "    ({name:?}, include_str!({:?})),", path.display().to_string()).expect("a string grows");
    }
    table.push(']');
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join(folder).with_extension("rs"), table).expect("cargo's folder is writable");
}
