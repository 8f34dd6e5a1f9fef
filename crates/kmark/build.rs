//! Puts every `suites/*.toml` into the binary, so that adding a suite is adding a file.

use std::fmt::Write;
use std::path::Path;

fn main() {
    let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let suites = Path::new(&root).join("../../suites");
    println!("cargo:rerun-if-changed={}", suites.display());
    let mut files: Vec<_> = std::fs::read_dir(&suites)
        .expect("the repository has a folder of suites")
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
    std::fs::write(Path::new(&out).join("suites.rs"), table).expect("cargo's folder is writable");
}
