//! The files are what they should be, and words find them.

use super::*;
use std::collections::HashMap;

#[test]
fn every_file_is_valid_and_nothing_is_there_twice() {
    let mut families = HashMap::new();
    for b in all() {
        assert!(!b.about.is_empty() && !b.families.is_empty(), "{}", b.name);
        assert!(!b.packages.is_empty() || !b.sources.is_empty(), "{}", b.name);
        assert!(b.runs_on("3.12") && !b.runs_on("3.9.18") && !b.runs_on("2.7"), "{}", b.name);
        for family in b.families.keys() {
            assert_eq!(families.insert(family.clone(), &b.name), None, "{family} is in two files");
            assert!(find(family).is_some_and(|f| f.name == b.name), "{family} is the name of another file");
        }
        let mut names: Vec<&str> = b.packages.iter().map(|p| p.name.as_str()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), b.packages.len(), "{}: a package is there twice", b.name);
        // With torch installed beside them, packages must be those that torch was pinned with.
        for p in &b.packages {
            let torch = find(TORCH).unwrap().packages.iter().find(|t| t.name == p.name);
            assert!(torch.is_none_or(|t| t.version == p.version), "{}: {} is not torch's", b.name, p.name);
        }
    }
    for family in ["torch-compile", "liger", "fla", "flash-attn-2", "flash-attn-3", "flash-attn-4", "sdpa-cudnn"] {
        assert!(families.contains_key(family), "{family}");
    }
}

#[test]
fn words_find_environments() {
    let names = |words: &[&str]| -> Result<Vec<&str>> {
        let words: Vec<String> = words.iter().map(|w| w.to_string()).collect();
        Ok(find_all(&words)?.iter().map(|b| b.name.as_str()).collect())
    };
    assert_eq!(names(&["liger", "numpy", "quack", "fla"]).unwrap(), ["quack", "numpy"]);
    let e = names(&["quak"]).unwrap_err();
    assert!(e.code == 2 && e.message.contains("did you mean 'quack'?"), "{e}");
    assert_eq!(install_hint("flash-attn-4"), "kmark baselines install quack");
}

#[test]
fn torch_is_the_pinned_one() {
    let quack = find("quack").unwrap();
    assert!(quack.takes("2.11.0+cu130", Some("13.0")) && quack.takes("2.11.0", Some("13.0")));
    assert!(!quack.takes("2.11.0+cu128", Some("12.8")) && !quack.takes("2.11.1", Some("13.0")));
    assert!(!quack.takes("2.11.0+cpu", None) && !quack.takes("", None));
    let exact = Baseline { torch: Some("2.11.0+cu130".into()), cuda: None, ..quack.clone() };
    assert!(exact.takes("2.11.0+cu130", Some("13.0")) && !exact.takes("2.11.0", Some("13.0")));
    let both = quack.closure(true);
    assert!(both.iter().filter(|p| p.name == "numpy").count() == 1 && both.iter().any(|p| p.name == "triton"));
}

#[test]
fn local_versions_are_versions() {
    let file = "about = \"a\"\npython = \">=3.11, <3.13\"\n[families]\nx = \"x\"\n\
                [[package]]\nname = \"deep-gemm\"\nversion = \"2.2.0+38f8ef7\"\nsha256 = [\"HASH\"]\n";
    let text: &'static str = file.replace("HASH", &"0a".repeat(32)).leak();
    let b = Baseline::parse("x", text).unwrap();
    assert_eq!(b.packages[0].version, "2.2.0+38f8ef7");
    assert!(b.runs_on("3.11") && !b.runs_on("3.13.0"));
}

#[test]
fn wrong_files_are_refused() {
    let head = "about = \"a\"\npython = \">=3.11, <3.13\"\n[families]\nx = \"x\"\n";
    let package = |rest: &str| format!("{head}[[package]]\nname = \"p\"\nversion = \"1\"\n{rest}\n");
    let hash = format!("sha256 = [\"{}\"]\n", "ab".repeat(32));
    for (text, says) in [
        (head.replace(">=3.11, <3.13", "3.12"), "write it like"),
        (package("sha256 = []"), "list of hashes"),
        (package("sha256 = [\"abc\"]"), "list of hashes"),
        (package(&format!("{hash}strip = \"a/\"")), "go with only"),
        (package(&format!("{hash}only = [\"a/*\"]\nwrite = {{ \"../b\" = \"\" }}")), "inside the environment"),
        (format!("{head}[env.y]\nA = \"b\""), "env.y is no family"),
        (format!("{head}extra = 1"), "x.toml"),
    ] {
        let e = Baseline::parse("x", text.clone().leak()).unwrap_err();
        assert!(e.message.contains(says), "{text}: {e}");
    }
}

#[test]
fn variables_know_the_gpu() {
    let text = "about = \"a\"\npython = \">=3.11, <3.13\"\n[families]\nx = \"x\"\ny = \"y\"\n\
                [env]\nARCH = \"{arch}\"\nLIST = \"{capability}\"\nSM = \"{sm}\"\nHOME_OF = \"/c\"\nL_PATH = \"{site}/lib\"\n\
                [env.y]\nY = \"1\"\n";
    let b = Baseline::parse("x", text).unwrap();
    let none = |_: &str| None;
    let pairs = |list: Vec<(String, String)>| -> Vec<String> { list.iter().map(|(k, v)| format!("{k}={v}")).collect() };
    assert_eq!(pairs(b.settings("x", None, None, none)), ["HOME_OF=/c"]);
    let hopper = ["ARCH=sm_90a", "LIST=9.0a", "SM=90", "HOME_OF=/c", "L_PATH=/s/lib", "Y=1"];
    assert_eq!(pairs(b.settings("y", Some("sm_90a"), Some("/s"), none)), hopper);
    assert_eq!(pairs(b.settings("x", Some("sm_100a"), None, none))[..2], ["ARCH=sm_100a", "LIST=10.0a"]);
    let set = |name: &str| ["HOME_OF", "L_PATH"].contains(&name).then(|| "/mine".to_string());
    assert_eq!(pairs(b.settings("x", None, Some("/s"), set)), ["L_PATH=/s/lib:/mine"]);
}
