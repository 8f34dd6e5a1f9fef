//! What `list`, `doctor`, `schema`, `completions` and the help print.

use crate::{kmark, output, text};
use kmark_core::op::AttrKind;
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

fn ids(suite: &str) -> Vec<String> {
    let list = json(&["list", "cases", suite, "--json"]);
    list.as_array().unwrap().iter().map(|c| c["case"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_word_for_a_suite_and_an_op_is_the_op_in_dtypes_that_the_suite_has_not() {
    assert!(ids("nsa").iter().all(|id| id.starts_with("nsa/f16/")), "the suite");
    let op = json(&["list", "cases", "nsa", "--dtype", "bf16", "--configs", "1x64x16x1x64", "--json"]);
    assert_eq!(op.as_array().unwrap().len(), 1, "{op}");
    assert_eq!(op[0]["case"], "nsa/bf16/b1-s64-hq16-hkv1-d64");
}

/// Case ids in any order.
fn holds(suite: &str, expected: Vec<String>) {
    let (mut found, mut expected) = (ids(suite), expected);
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{suite}");
}

#[test]
fn the_seeds_attention_and_matrix_suites_hold_exactly_their_shapes() {
    let mut l4 = Vec::new();
    for dtype in ["f16", "bf16"] {
        for (b, h, s) in [(1, 1, 128), (8, 4, 128), (32, 8, 128), (32, 8, 256)] {
            l4.push(format!("attention/{dtype}/b{b}-hq{h}-hkv{h}-sq{s}-sk{s}-d64"));
        }
    }
    holds("l4-attention", l4);
    let gemm = |n: u64| format!("gemm/f16/m{n}-n{n}-k{n}");
    let mha = |h: u64, s: u64| format!("attention/f16/b8-hq{h}-hkv{h}-sq{s}-sk{s}-d128/layout-bshd");
    let nsa = |s: u64| format!("nsa/f16/b2-s{s}-hq16-hkv1-d32/selected-1/scale-0.1");
    let tilelang =
        [gemm(1024), gemm(4096), gemm(8192), mha(32, 1024), mha(32, 4096), mha(128, 4096), nsa(1024), nsa(4096)];
    holds("tilelang", tilelang.to_vec());
    let small = "nsa/f16/b2-s512-hq16-hkv16-d64/selected-8/scale-0.1".to_string();
    holds("tilelang-test", vec![gemm(1024), mha(32, 1024), small]);
    let mut grid = Vec::new();
    for s in [256, 512, 1024, 2048] {
        for group in [1, 4, 16] {
            for block in ["", "/block-64"] {
                for selected in ["/selected-4", "/selected-8", ""] {
                    grid.push(format!("nsa/f16/b2-s{s}-hq16-hkv{}-d64{block}{selected}/scale-0.1", 16 / group));
                }
            }
        }
    }
    holds("nsa", grid);
}

#[test]
fn the_b200_suites_hold_exactly_their_points() {
    let mut prefill: Vec<String> = [(1, 4096), (2, 4096), (1, 8192)]
        .map(|(b, s)| format!("attention-varlen/bf16/b{b}-s{s}-hq32-hkv32-d128/causal-no"))
        .to_vec();
    for s in [2048, 4096] {
        for prefix in ["", "/prefix-2048", "/prefix-4096", "/prefix-8192"] {
            prefill.push(format!("attention-varlen/bf16/b2-s{s}-hq32-hkv4-d128{prefix}"));
        }
    }
    holds("b200-prefill", prefill);
    let decode = ["b128-l1024-hq4-hkv4", "b1-l2048-hq12-hkv12", "b1-l4096-hq12-hkv12"];
    holds("b200-decode", decode.map(|d| format!("attention-decode/bf16/{d}-d128")).to_vec());
    let mut points = vec![(64, 2048), (128, 1024), (128, 64), (128, 128), (64, 256), (64, 512), (4, 16384), (8, 16384)];
    points.extend([1, 2, 4, 8].iter().flat_map(|b| [(*b, 32768), (*b, 65536)]));
    points.extend([16, 32].iter().flat_map(|b| [(*b, 4096), (*b, 8192)]));
    points.extend([256, 512].iter().flat_map(|b| [(*b, 2048), (*b, 4096)]));
    points.extend([98304, 131072, 163840].map(|l| (1, l)));
    points.extend([(32, 3000), (16, 5000), (16, 7777), (8, 10000), (2, 50000)]);
    assert_eq!(points.len(), 32);
    let mla = |h: u64| points.iter().map(move |(b, l)| format!("mla-decode/bf16/b{b}-l{l}-h{h}"));
    holds("b200-mla", mla(128).chain(mla(64)).collect());
    let grouped = |dtype: &str, m: u64| format!("grouped-gemm/{dtype}/g1-m{m}-n2112-k7168");
    let mut all = vec!["grouped-gemm/f8e4m3/g2-m128-n512-k512".to_string()];
    all.extend([16, 24, 32].iter().flat_map(|m| [grouped("f8e4m3", *m), grouped("bf16", *m)]));
    holds("b200-grouped", all);
}

#[test]
fn trainscale_holds_exactly_its_shapes() {
    let mut all: Vec<String> = Vec::new();
    for m in [8192, 16384, 65536, 131072] {
        all.extend([4096, 8192].map(|n| format!("rmsnorm/f16/m{m}-n{n}")));
    }
    all.extend([4096, 16384].map(|m| format!("gelu/f16/m{m}-n4096")));
    all.push("swiglu/f16/m2048-n11008".into());
    all.extend([4096, 8192, 16384].map(|s| format!("rope/f16/b1-s{s}-hq32-hk32-d128/k-no")));
    all.extend([2048, 8192].map(|s| format!("attention/f16/b2-hq32-hkv32-sq{s}-sk{s}-d128/causal-yes")));
    all.extend([4096, 16384].map(|m| format!("cross-entropy/f16/m{m}-n128000")));
    for m in [4096, 16384] {
        all.extend(["", "/granularity-128x128"].map(|g| format!("quant-fp8/f32/m{m}-n4096{g}")));
    }
    holds("trainscale", all);
}

#[test]
fn seeds_holds_every_case_of_the_suites_it_names() {
    let seeds = ids("seeds");
    for suite in [
        "quack",
        "dsv3",
        "l4-attention",
        "tilelang",
        "tilelang-test",
        "nsa",
        "trainscale",
        "b200-prefill",
        "b200-decode",
        "b200-mla",
        "b200-grouped",
    ] {
        let missing: Vec<String> = ids(suite).into_iter().filter(|id| !seeds.contains(id)).collect();
        assert!(missing.is_empty(), "{suite}: {missing:?}");
    }
}

#[test]
fn smoke_covers_every_op_dtype_and_word() {
    let list = json(&["list", "cases", "smoke", "--json"]);
    for op in json(&["list", "ops", "--json"]).as_array().unwrap() {
        for dtype in op["dtypes"].as_array().unwrap() {
            let found = list.as_array().unwrap().iter().any(|c| c["op"] == op["op"] && c["dtype"] == *dtype);
            assert!(found, "{} {dtype}", op["op"]);
        }
    }
    for entry in kmark_ops::OPS {
        for attr in entry.op.attrs {
            let AttrKind::OneOf(words) = attr.kind else { continue };
            for word in words {
                let shows = |c: &Value| c["op"] == entry.op.name && c["attrs"][attr.name] == *word;
                let found = list.as_array().unwrap().iter().any(shows);
                assert!(found, "no case of {} in suites/smoke.toml has {}={word}", entry.op.name, attr.name);
            }
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
        "(torch, quack) run only if they are named",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    for command in ["run", "verify", "compare"] {
        let help = text(&output(&[command, "--help"]).stdout);
        assert!(["Examples:", "Exit codes:", "Variables:"].iter().all(|part| help.contains(part)), "{help}");
    }
    for command in ["report", "history", "merge", "submit", "status", "collect"] {
        let help = text(&output(&[command, "--help"]).stdout);
        assert!(["Examples:", "Exit codes:"].iter().all(|part| help.contains(part)), "{help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&output(&["completions", shell]).stdout).contains("kmark"));
    }
}

#[test]
fn the_schema_in_the_repository_is_the_program_s() {
    let kept = include_str!("../../../../schema.json");
    assert!(text(&output(&["schema"]).stdout) == kept, "run `kmark schema > schema.json`");
}

/// The commands of the README that need no GPU, as they stand there.
#[test]
fn the_readme_s_commands_work() {
    let readme = include_str!("../../../../README.md");
    let block = readme.split("```sh cpu\n").nth(1).expect("a block of them").split("```").next().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut ran = 0;
    for line in block.lines() {
        let words: Vec<&str> = line.split(" # ").next().unwrap().split_whitespace().collect();
        let out = kmark(&words[1..]).current_dir(dir.path()).output().unwrap();
        assert_eq!((words[0], out.status.code()), ("kmark", Some(0)), "{line}\n{}", text(&out.stderr));
        ran += 1;
    }
    assert!(ran >= 6);
}

/// CONTRIBUTING's suites are planned as they stand there; its formats are those of the code.
#[test]
fn recipes_for_suites_and_formats_hold() {
    let told = include_str!("../../../../CONTRIBUTING.md");
    let dir = tempfile::tempdir().unwrap();
    for (language, cases) in [("toml", 6), ("json", 4)] {
        let block = told.split(&format!("```{language}\n")).nth(1).expect("a suite").split("```").next().unwrap();
        let file = dir.path().join(format!("mine.{language}"));
        std::fs::write(&file, block).unwrap();
        let planned = json(&["list", "cases", file.to_str().unwrap(), "--json"]);
        assert_eq!(planned.as_array().unwrap().len(), cases, "{planned}");
    }
    let recipe = told.split("## To add a report format").nth(1).unwrap();
    let signature = recipe.split("`pub fn render").nth(1).unwrap().split('`').next().unwrap();
    let row = recipe.split("```rust\n").nth(1).unwrap().split("```").next().unwrap().replace("org", "csv");
    let code = |file: &str| std::fs::read_to_string(format!("../kmark-records/src/report/{file}.rs")).unwrap();
    assert!(code("csv").contains(&format!("pub fn render{signature}")), "{signature}");
    assert!(code("mod").contains(row.trim_end()), "{row}");
}

/// What can be typed is completed: a word of each kind.
#[test]
fn completions_know_the_words() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&output(&["completions", shell]).stdout);
        for word in ["attention-varlen", "dsv3", "f8e4m3", "cpu/simd", "cublaslt"] {
            assert!(script.contains(word), "{shell} does not know {word}");
        }
    }
    assert!(json(&["list", "dtypes", "--json"]).as_array().unwrap().len() >= 6);
    let of = json(&["list", "impls", "softmax", "--json"]);
    assert!(of.as_array().unwrap().iter().all(|i| i["op"] == "softmax"));
}

/// Sizes that a suite lists together stay together, and nothing is run to see the plan.
#[test]
fn cases_are_chosen_and_a_plan_is_shown_without_running_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    std::fs::write(&file, "[[cases]]\nop = \"gemm\"\ndtype = [\"f32\", \"bf16\"]\nconfigs = [\"1x2x3\", \"4x5x6\"]\n")
        .unwrap();
    let file = file.to_str().unwrap();
    let chosen = ["--set", "m=8", "--filter", "gemm", "--exclude", "*-k3"];
    let list = json(&[&["list", "cases", file, "--json", "--dtype", "f32"], &chosen[..]].concat());
    let ids: Vec<_> = list.as_array().unwrap().iter().map(|c| c["case"].as_str().unwrap()).collect();
    assert_eq!(ids, ["gemm/f32/m8-n5-k6"]);
    let args = [&["run", file, "--device", "cpu", "--budget", "3s", "--dry-run"], &chosen[..]].concat();
    let out = kmark(&args).current_dir(dir.path()).output().unwrap();
    let shown = text(&out.stdout);
    assert!(out.status.success() && shown.contains("gemm/bf16/m8-n5-k6  cpu/naive, cpu/simd"), "{shown}");
    assert!(shown.contains("2 cases, 4 rows on cpu: about 12 s of sampling, 3.00 s a row"), "{shown}");
    assert!(!dir.path().join("kmark-runs").exists());
    let out = output(&["verify", file, "--filter", "*-k7"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("no case is like --filter *-k7"), "{}", text(&out.stderr));
}

#[test]
fn suite_files_include_suites_and_files_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let case = |n: usize| format!("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nconfigs = \"{n}x8\"\n");
    file("parts/a.toml", &format!("suites = [\"../other.json\"]\n{}", case(1)));
    file("other.json", "{\"gemm\": [{\"M\": 4, \"N\": 4, \"K\": 4}]}");
    let top = file("top.toml", &format!("suites = [\"parts/a.toml\", \"./parts/a.toml\", \"roofline\"]\n{}", case(2)));
    let list = json(&["list", "cases", &top, "--json"]);
    let ids: Vec<&str> = list.as_array().unwrap().iter().map(|c| c["case"].as_str().unwrap()).collect();
    for id in ["gemm/f16/m4-n4-k4", "softmax/f32/m1-n8", "softmax/f32/m2-n8"] {
        assert_eq!(ids.iter().filter(|i| **i == id).count(), 1, "{id}: {ids:?}");
    }
    let roofline = json(&["list", "cases", "roofline", "--json"]).as_array().unwrap().len();
    assert_eq!(ids.len(), 3 + roofline);
    file("parts/loop.toml", "suites = [\"../loop.toml\"]");
    for (text, why) in [
        ("suites = [\"parts/loop.toml\"]", "suites include each other: "),
        ("suites = [\"nowhere.toml\"]", "nowhere.toml: No such file"),
        ("suites = [\"smoek\"]", "did you mean 'smoke'?"),
    ] {
        let done = output(&["list", "cases", &file("loop.toml", text)]);
        let line = crate::text(&done.stderr);
        assert!(done.status.code() == Some(2) && line.lines().count() == 1 && line.contains(why), "{line}");
    }
}
