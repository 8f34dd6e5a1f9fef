//! Every kernel and oracle: their logic on small cases, on the stand-in.

use crate::cuda::{on_standin, standin, until_calm};
use crate::{kmark, text};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::Path;
use std::process::Output;

/// A suite of cases from `smoke`, small ones, because a GPU of fibers is slow: all dtypes of every op, and every word of an
/// attribute that a case has which costs less than `words_below`, in few cases. An op that is not in it fails by name.
pub fn from_smoke(name: &str, words_below: u64) -> String {
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

/// With kernels that are hardly optimised: each runs for milliseconds.
fn verified(args: &[&str]) -> Output {
    until_calm(None, || {
        on_standin(standin(), args).env("KMARK_STANDIN_FLAGS", "-O0").output().expect("the binary runs")
    })
}

#[test]
fn every_oracle_and_kernel_computes_its_op() {
    let suite = from_smoke("every-op", 1_000_000);
    // The oracles first, because kernels are held against them. Each is compiled once and runs for milliseconds.
    for oracle in [&["--oracle"][..], &[]] {
        let args = [&["verify", &suite, "--device", "cuda", "--quiet", "--json"], oracle].concat();
        let out = verified(&args);
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
    }
}

/// Hopper's own, on a stand-in that is one: clusters, copies of boxes, products of warpgroups, all by the PTX that they are
/// written in.
#[test]
fn every_kernel_of_hopper_computes_its_op() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let suite = here.join("tests/it/hopper.toml").display().to_string();
    for entry in kmark_ops::OPS {
        let folder = here.join("../kmark-ops/src").join(entry.op.name.replace('-', "_"));
        // What is no file of the op's own (copies of the driver) is nobody's kernel.
        let source = |name: &str| std::fs::read_to_string(folder.join(format!("{name}.cu"))).unwrap_or_default();
        let names = entry.cuda.iter().map(|i| i.name());
        let names: Vec<&str> = names.filter(|n| source(n).contains("\n// kmark: arch sm_90a\n")).collect();
        if names.is_empty() {
            continue;
        }
        let filter = format!("{}/*", entry.op.name);
        let args =
            ["verify", &suite, "--filter", &filter, "--device", "cuda", "--deadline", "300s", "--quiet", "--json"];
        let impls = names.iter().flat_map(|name| ["--impl", *name]);
        let args: Vec<&str> = args.into_iter().chain(impls).collect();
        let out = until_calm(None, || {
            let mut command = on_standin(standin(), &args);
            command.env("KMARK_STANDIN_ARCH", "90").env("KMARK_STANDIN_FLAGS", "-O0");
            command.env("KMARK_STANDIN_MEMORY", "268435456").output().expect("the binary runs")
        });
        assert_eq!(out.status.code(), Some(0), "{}{}", text(&out.stdout), text(&out.stderr));
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
        for name in names {
            let ran = rows.iter().any(|row| row["impl"] == name && row["status"] == "ok");
            assert!(ran, "hopper.toml has no case of {} that {name} takes", entry.op.name);
        }
    }
}

/// Rows that start one element behind an aligned address and are whole vectors long: their first vector is unlike the others.
#[test]
fn rows_behind_an_aligned_address_are_turned() {
    let bf16 = ["rmsnorm", "softmax-bwd", "rmsnorm-bwd", "layernorm-bwd", "quant-fp8", "--dtype", "bf16"];
    let f64 = ["add-rmsnorm", "rmsnorm-bwd", "--dtype", "f64"];
    let heads = ["rope", "--dtype", "bf16", "--set", "style=neox,interleaved", "--set", "form=inplace,out"];
    let some = [&heads[..], &["--set", "rotary=32"]].concat();
    let (rows, all) = ("140x1536", "2x33x9x3x64");
    for (what, sizes) in [(&bf16[..], rows), (&f64[..], rows), (&heads[..], all), (&some[..], "1x97x7x2x80")] {
        verify(&[what, &["--set", "memory=unaligned", "--configs", sizes]].concat());
    }
}

/// Rows that vectors do not divide: read by vectors of memory, with ends of their own, or short, with an element to a lane.
#[test]
fn ends_of_odd_rows_are_their_own() {
    let cut = ["softmax-bwd", "softmax-fwd-bwd", "--dtype", "f32,f64", "--set", "memory=dense,unaligned"];
    let ends =
        ["swiglu", "swiglu-bwd", "rmsnorm-bwd", "layernorm-bwd", "--dtype", "bf16,f32", "--set", "memory=strided"];
    let short = ["cross-entropy-fwd-bwd", "--dtype", "bf16,f64", "--set", "memory=dense,strided,unaligned"];
    for (what, sizes) in [(&cut[..], "3x2051,3x4097"), (&ends[..], "33x129"), (&short[..], "37x1,5x2,33x9,70x32")] {
        verify(&[what, &["--configs", sizes]].concat());
    }
}

/// Our kernels on the stand-in.
fn verify(cases: &[&str]) {
    let out = verified(&[&["verify"], cases, &["--impl", "cuda/*", "--device", "cuda", "--quiet", "--json"]].concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
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
    let out = verified(&["verify", &suite, "--device", "cuda", "--mutants", "--deadline", "300s"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stdout));
}
