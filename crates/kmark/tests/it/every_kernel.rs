//! Every kernel and oracle: their logic on small cases, on the stand-in; and by the real compiler for every architecture.

use crate::cuda::{cuda, on_standin, standin, until_calm};
use crate::{kmark, text};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A suite of cases from `smoke`, small ones, because a GPU of fibers is slow: all dtypes of every op, and every word of an
/// attribute that a case has which costs less than `words_below`, in few cases. An op that is not in it fails by name.
fn from_smoke(name: &str, words_below: u64) -> String {
    let listed = text(&kmark(&["list", "cases", "smoke", "--json"]).output().unwrap().stdout);
    let mut cases: Vec<serde_json::Value> = serde_json::from_str(&listed).unwrap();
    let work =
        |c: &serde_json::Value| -> u64 { c["cost"].as_object().unwrap().values().flat_map(|v| v.as_u64()).sum() };
    let shows = |c: &serde_json::Value| -> HashSet<String> {
        let words = c["attrs"].as_object().unwrap().iter().filter(|_| work(c) < words_below);
        let words = words.map(|(k, v)| format!("{} {k} {v}", c["op"]));
        words.chain([format!("{} {}", c["op"], c["dtype"])]).collect()
    };
    cases.retain(|c| {
        (10_000..10_000_000).contains(&work(c)) && ["f32", "bf16", "f8e4m3"].iter().any(|d| c["dtype"] == *d)
    });
    let mut left: HashSet<String> = cases.iter().flat_map(shows).collect();
    let mut suite = String::new();
    while !left.is_empty() {
        // Who shows most of what is left, and is the cheapest of those.
        let key = |c: &&serde_json::Value| (shows(c).intersection(&left).count(), Reverse(work(c)));
        let case = cases.iter().max_by_key(key).expect("what is left is of a case");
        let shown = shows(case);
        left.retain(|word| !shown.contains(word));
        suite += &format!("[[cases]]\nop = {}\ndtype = {}\n", case["op"], case["dtype"]);
        let sizes = case["axes"].as_object().unwrap().iter().chain(case["attrs"].as_object().unwrap());
        sizes.for_each(|(key, value)| suite += &format!("{key} = {value}\n"));
    }
    for entry in kmark_ops::OPS {
        let found = suite.contains(&format!("op = \"{}\"", entry.op.name));
        assert!(found, "no case of {} in suites/smoke.toml is small enough for the stand-in", entry.op.name);
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.toml", std::process::id()));
    std::fs::write(&path, suite).unwrap();
    path.display().to_string()
}

#[test]
fn every_oracle_and_kernel_computes_its_op() {
    let suite = from_smoke("every-op", 1_000_000);
    // The oracles first, because kernels are held against them. Each is compiled once and runs for milliseconds.
    for oracle in [&["--oracle"][..], &[]] {
        let args = [&["verify", &suite, "--device", "cuda", "--quiet", "--json"], oracle].concat();
        let out = until_calm(None, || {
            on_standin(standin(), &args).env("KMARK_STANDIN_FLAGS", "-O0").output().expect("the binary runs")
        });
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    }
}

/// Of some ops; the gate is one for all, and a real GPU is asked about all of `smoke`.
#[test]
fn the_gate_on_the_card_rejects_mutants() {
    let dir = tempfile::tempdir().unwrap();
    let suite = dir.path().join("some.toml");
    let cases = "[[cases]]\nop = [\"rmsnorm-bwd\", \"softmax\", \"cross-entropy-bwd\"]\ndtype = \"f32\"\nm = 17\nn = 129\n\
                 [[cases]]\nop = \"gemm\"\ndtype = \"bf16\"\nconfigs = [\"33x70x65\"]\n\
                 [[cases]]\nop = \"attention-decode\"\ndtype = \"f32\"\npage = 16\nconfigs = [\"3x70x4x2x24\"]\n";
    std::fs::write(&suite, cases).unwrap();
    let suite = suite.display().to_string();
    let out = cuda(&["verify", &suite, "--device", "cuda", "--mutants", "--deadline", "300s"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
}

/// The real compiler, from the Python environment that `./check` makes: no GPU, no toolkit.
fn nvrtc() -> PathBuf {
    let python = std::env::var_os("KMARK_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/numpy-env/bin/python"));
    let find = "import nvidia, pathlib; print(next(pathlib.Path(list(nvidia.__path__)[0]).glob('*/lib/libnvrtc.so.*')).parent)";
    let found = std::process::Command::new(&python).args(["-c", find]).output();
    match found {
        Ok(out) if out.status.success() => PathBuf::from(text(&out.stdout).trim()),
        _ => panic!("{} has no nvidia-cuda-nvrtc; ./check installs it, or set KMARK_PYTHON", python.display()),
    }
}

const HOPPER_FORMS: &str = r#"
[[cases]]
op = "gemm"
dtype = "bf16"
layout = ["nt", "nn", "tn", "tt"]
configs = ["4096x4096x4096"]
[[cases]]
op = "gemm"
dtype = "f16"
layout = "nt"
bias = "yes"
configs = ["4096x576x7168", "2048x2112x7168", "100x7168x4096", "16x4096x4096"]
[[cases]]
op = "gemm"
dtype = "f8e4m3"
layout = "nt"
scale = ["tensor", "block"]
configs = ["4096x4096x4096", "48x4096x4096"]
[[cases]]
op = "grouped-gemm"
dtype = ["bf16", "f8e4m3"]
form = ["contiguous", "masked"]
configs = ["4x1024x4096x2048", "5x200x576x512"]
[[cases]]
op = "attention"
dtype = "bf16"
causal = ["no", "yes"]
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention"
dtype = "f16"
lse = "yes"
configs = ["2x16x16x4096x4096x64", "1x2x2x50x100x256"]
[[cases]]
op = "attention"
dtype = "bf16"
causal = "yes"
window = 100
configs = ["2x16x16x4096x4096x128", "2x16x16x4096x4096x64"]
[[cases]]
op = "attention-bwd"
dtype = "f16"
layout = "bshd"
configs = ["2x16x16x4096x4096x128", "2x16x16x4096x4096x64"]
[[cases]]
op = "attention-bwd"
dtype = "bf16"
causal = "yes"
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention-varlen"
dtype = "bf16"
lengths = "ragged"
configs = ["4x1000x8x2x128"]
[[cases]]
op = "attention-decode"
dtype = "bf16"
configs = ["64x4096x32x8x128"]
[[cases]]
op = "mla-decode"
dtype = "bf16"
configs = ["64x4096x128", "4x200x16"]
[[cases]]
op = ["cross-entropy", "cross-entropy-fwd-bwd"]
dtype = "bf16"
configs = ["16x131072", "4096x131072", "4096x32001"]
"#;

/// Without errors or warnings, and for Ampere and Hopper without spills: every kernel; oracles in one dtype, and for the
/// other architectures fewer dtypes, hardly optimised. Kernels for Hopper alone in the forms that they take there:
/// no product is serialised.
/// (Every case of `smoke` was compiled for Hopper by the run in `evidence/`, whose test looks at spills.)
#[test]
fn every_kernel_compiles_for_every_architecture() {
    let folder = nvrtc();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let forms = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forms.toml");
    std::fs::write(&forms, HOPPER_FORMS).unwrap();
    let every_dtype = &from_smoke("every-dtype", 0);
    let [forms, example] =
        [forms.to_str().unwrap(), concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gemm_wgmma.cu")];
    let for_hopper =
        ["--impl", "cuda/02*", "--impl", "cuda/03*", "--impl", "cuda/04*", "--arch", "sm_90a", "--no-oracles"];
    for args in [
        &["build", every_dtype, "--arch", "sm_90a", "--no-oracles"][..],
        &["build", every_dtype, "--arch", "sm_90a", "--no-kernels", "--dtype", "bf16", "--quick"],
        &[&["build", forms][..], &for_hopper].concat(),
        &[
            "build",
            "gemm",
            "--set",
            "layout=nt",
            "--dtype",
            "bf16",
            "--arch",
            "sm_90a",
            "--no-oracles",
            "--impl",
            example,
        ],
        &["build", every_dtype, "--arch", "sm_80", "--no-oracles"],
        &["build", every_dtype, "--arch", "sm_100a", "--no-oracles", "--dtype", "bf16,f8e4m3", "--quick"],
        &["build", every_dtype, "--arch", "sm_86,sm_89,sm_120a", "--no-oracles", "--dtype", "f8e4m3", "--quick"],
    ] {
        let out = kmark(args).env("KMARK_CUDA_PATH", &folder).env("KMARK_CACHE", &cache).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "{}{}", text(&out.stdout), text(&out.stderr));
    }
}
