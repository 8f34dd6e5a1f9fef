//! Which Python this program belongs to, where it was installed into one.

use std::path::{Path, PathBuf};

/// The interpreter of the environment that this program was installed into, or of the Python that has its package.
pub fn own() -> Option<PathBuf> {
    let exe = std::env::current_exe().and_then(|e| e.canonicalize()).ok()?;
    let bin = exe.parent()?;
    let package = installed(bin).into_iter().find(|d| d.join("registry.py").is_file())?;
    // …/lib/python3.12/site-packages/kmark
    let version = package.ancestors().nth(2)?.file_name()?;
    let beside = [bin.join(version), bin.join("python3"), bin.join("python")].into_iter().find(|p| p.is_file());
    beside.or_else(|| on_path(Path::new(version)))
}

/// A program that is named without a folder, where the shell would find it.
pub fn on_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// Where an environment keeps packages, seen from its `bin`.
pub fn installed(bin: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64", "local/lib"] {
        let Ok(versions) = std::fs::read_dir(bin.join("..").join(lib)) else { continue };
        for version in versions.flatten().map(|v| v.path()).filter(|p| p.to_string_lossy().contains("python3")) {
            found.extend(["site-packages", "dist-packages"].map(|packages| version.join(packages).join("kmark")));
        }
    }
    found
}
