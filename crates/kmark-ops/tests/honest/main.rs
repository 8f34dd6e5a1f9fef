//! The gate must let honest kernels pass that round where hardware or a library makes them round, and our CPU impls do
//! not. Variants of such kernels meet random cases; each must have the grade that its roundings deserve.
//! `KMARK_HONEST_ROUNDS=N` tries N times as many cases; `KMARK_HONEST_BOUND=derived` judges them by bounds that are derived
//! from the ops' NumPy formulas.

mod arith;
mod attention;
mod attention_backward;
mod attention_walks;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/derived.rs"]
mod derived;
mod kit;
mod products;
mod rows;
mod rows_classes;
mod rows_norms;
mod rows_pointwise;
mod rows_softmax;

/// Some of these kernels again, judged by derived bounds: in a process of its own, since the environment says so. A reference
/// that adds up before it divides knows nothing of running means (METHODOLOGY).
#[test]
fn honest_kernels_meet_derived_bounds() {
    let mut tests = std::process::Command::new(std::env::current_exe().unwrap());
    let out = tests
        .args(["rows_", "products_as", "--skip", "running_means"])
        .env("KMARK_HONEST_BOUND", "derived")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("6 passed"), "{said}{}", String::from_utf8_lossy(&out.stderr));
}
