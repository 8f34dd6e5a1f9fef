//! Lists the headers under `src/device`, which kernels may include: a file there needs no row anywhere.

use std::path::Path;

fn main() {
    let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("set by Cargo")).join("src/device");
    println!("cargo:rerun-if-changed={}", folder.display());
    let mut names = headers(&folder, "");
    names.sort();
    let row = |name: &String| format!("({name:?}, include_str!({:?})),\n", folder.join(name));
    let rows: String = names.iter().map(row).collect();
    let out = Path::new(&std::env::var("OUT_DIR").expect("set by Cargo")).join("headers.rs");
    std::fs::write(out, format!("&[\n{rows}]")).expect("the build folder is writable");
}

/// Names of the headers in a folder and those below it, which is called `at` from where the search began.
fn headers(folder: &Path, at: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there").map(|e| e.expect("it can be read"));
    let found = entries.flat_map(|entry| {
        let name = format!("{at}{}", entry.file_name().to_str().expect("names are text"));
        match entry.path().is_dir() {
            true => headers(&entry.path(), &format!("{name}/")),
            false => vec![name],
        }
    });
    found.filter(|name| name.ends_with(".cuh")).collect()
}
