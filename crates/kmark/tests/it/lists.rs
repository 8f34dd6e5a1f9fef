//! What `list`, `doctor`, `schema`, `completions` and the help print.

use crate::{output, text};
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&output(args).stdout).unwrap()
}

#[test]
fn every_list_has_a_table_and_json() {
    for what in ["ops", "impls", "suites", "devices"] {
        let out = output(&["list", what]);
        assert!(out.status.success());
        let lines = text(&out.stdout).lines().count();
        assert_eq!(json(&["list", what, "--json"]).as_array().unwrap().len(), lines - 1, "{what}");
    }
}

#[test]
fn the_seeds_suites_hold_exactly_their_shapes() {
    let cases = |suite: &str, op: &str| -> Vec<(u64, u64)> {
        let list = json(&["list", "cases", suite, "--json"]);
        let of_op = list.as_array().unwrap().iter().filter(|c| c["op"] == op).cloned().collect::<Vec<_>>();
        let mut shapes: Vec<_> =
            of_op.iter().map(|c| (c["axes"]["m"].as_u64().unwrap(), c["axes"]["n"].as_u64().unwrap())).collect();
        shapes.sort();
        shapes.dedup();
        shapes
    };
    let quack: Vec<(u64, u64)> = (13..=19).map(|e| (1 << e, 4096)).collect();
    for op in ["rmsnorm", "rmsnorm-bwd", "layernorm", "softmax-fwd-bwd", "cross-entropy-fwd-bwd"] {
        assert_eq!(cases("quack", op), quack, "{op}");
    }
    let grid = |ns: &[u64]| -> Vec<(u64, u64)> {
        [4096, 16384, 65536].iter().flat_map(|m| ns.iter().map(move |n| (*m, *n))).collect()
    };
    for op in ["rmsnorm", "rmsnorm-bwd", "add-rmsnorm", "layernorm", "softmax", "softmax-fwd-bwd"] {
        assert_eq!(cases("dsv3", op), grid(&[6144, 7168, 8192]), "{op}");
    }
    for op in ["cross-entropy", "cross-entropy-bwd", "cross-entropy-fwd-bwd"] {
        assert_eq!(cases("dsv3", op), grid(&[3072, 6144, 8192, 12288]), "{op}");
        let vocab: Vec<u64> = cases("vocab", op).iter().map(|c| c.1).collect();
        for n in [32000, 128256, 129280, 262144] {
            assert!(vocab.contains(&n), "{op} {n}");
        }
    }
}

/// A file in the form of other benchmarks, with our ops in it: listed, each case once, and verified.
#[test]
fn a_json_suite_is_a_suite() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.json");
    let file = path.to_str().unwrap();
    let rmsnorm = r#"{"m": 3, "n": 70, "dtype": "bfloat16", "rstd": true, "eps": 1e-6}"#;
    std::fs::write(&path, format!(r#"{{"rmsnorm": [{rmsnorm}, {rmsnorm}], "softmax": [{{"m": 2, "n": 5}}]}}"#))
        .unwrap();
    let list = json(&["list", "cases", file, "--json"]);
    let ids: Vec<_> = list.as_array().unwrap().iter().map(|c| c["case"].as_str().unwrap()).collect();
    assert_eq!(ids, ["rmsnorm/bf16/m3-n70/rstd-yes", "softmax/f16/m2-n5"]);
    let out = output(&["verify", file]);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[test]
fn a_suite_of_suites_holds_the_cases_of_all_each_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.toml");
    std::fs::write(&path, "suites = [\"quack\", \"dsv3\", \"quack\"]").unwrap();
    let both = json(&["list", "cases", "quack", "dsv3", "--json"]);
    assert_eq!(json(&["list", "cases", path.to_str().unwrap(), "--json"]), both);
}

#[test]
fn smoke_covers_every_op_and_dtype() {
    let list = json(&["list", "cases", "smoke", "--json"]);
    for op in json(&["list", "ops", "--json"]).as_array().unwrap() {
        for dtype in op["dtypes"].as_array().unwrap() {
            let found = list.as_array().unwrap().iter().any(|c| c["op"] == op["op"] && c["dtype"] == *dtype);
            assert!(found, "{} {dtype}", op["op"]);
        }
    }
}

#[test]
fn doctor_finds_the_cpu() {
    let out = output(&["doctor"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    for word in ["cpu", "memory available", "empty launch", "two timers"] {
        assert!(text(&out.stdout).contains(word), "{word}: {}", text(&out.stdout));
    }
    assert!(json(&["doctor", "--json"]).as_array().unwrap().len() > 8);
}

#[test]
fn help_names_every_promised_flag() {
    let help = text(&output(&["run", "--help"]).stdout);
    for flag in [
        "--device",
        "--impl",
        "--baseline",
        "--dtype",
        "--set",
        "--configs",
        "--cache",
        "--graph",
        "--e2e",
        "--budget",
        "--precision",
        "--rounds",
        "--warmup",
        "--seed",
        "--out",
        "--resume",
        "--skip-verify",
        "--json",
        "--quiet",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&output(&["completions", shell]).stdout).contains("kmark"));
    }
}

#[test]
fn the_schema_in_the_repository_is_the_program_s() {
    let kept = include_str!("../../../../schema.json");
    assert_eq!(text(&output(&["schema"]).stdout), kept, "run `kmark schema > schema.json`");
}
