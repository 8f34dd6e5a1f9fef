//! The rules of the house that Cargo cannot enforce: who may print, who may read files, who may know whom.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(dir: &str) -> Vec<(PathBuf, String)> {
    fn walk(dir: &Path, out: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                // Tests may do what they like.
                let code = text.split("#[cfg(test)]").next().unwrap_or("").to_string();
                out.push((path, code));
            }
        }
    }
    let mut out = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir), &mut out);
    assert!(!out.is_empty(), "{dir} has sources");
    out
}

fn nowhere(files: &[(PathBuf, String)], words: &[&str], rule: &str) {
    for (path, code) in files {
        for word in words {
            assert!(!code.contains(word), "{}: {word}: {rule}", path.display());
        }
    }
}

const CRATES: &[&str] = &[
    "kmark-core/src",
    "kmark-records/src",
    "kmark-device/src",
    "kmark-ops/src",
    "kmark-worker/src",
    "kmark/src",
    "kmark-py/src",
];

#[test]
fn words_devices_and_ops_open_no_files_and_print_nothing() {
    for dir in ["kmark-core/src", "kmark-device/src", "kmark-ops/src"] {
        // Libraries are loaded from files, compiled kernels are kept in a cache of ours, and an author's checkout may
        // stand in for what is built in.
        let exempt = ["cuda/library.rs", "cuda/nvrtc.rs", "cuda/jit.rs", "kmark-ops/src/cuda.rs"];
        let files: Vec<_> =
            sources(dir).into_iter().filter(|(path, _)| !exempt.iter().any(|e| path.ends_with(e))).collect();
        nowhere(&files, &["std::fs", "File::open"], "words, devices and ops read no files");
        nowhere(&sources(dir), &["println!", "print!(", "io::stdout", "io::stderr"], "only cmd prints");
    }
}

#[test]
fn only_cmd_prints() {
    let allowed = ["cmd", "faults.rs"]; // faults print on purpose, inside a worker
    let files: Vec<_> = sources("kmark/src")
        .into_iter()
        .chain(sources("kmark-worker/src"))
        .chain(sources("kmark-records/src"))
        .filter(|(p, _)| !allowed.iter().any(|a| p.components().any(|c| c.as_os_str() == *a)))
        .collect();
    nowhere(&files, &["println!", "eprint", "io::stdout", "io::stderr"], "only cmd prints");
}

#[test]
fn reports_read_no_files() {
    let outside = ["crate::store", "crate::merge", "std::fs", "File::open"];
    nowhere(&sources("kmark-records/src/report"), &outside, "a report is a function of records");
}

/// Every path that the `use` lines of a file name, braces taken apart: `use a::{b, c::d};` is a::b and a::c::d.
fn imports(code: &str) -> Vec<String> {
    fn expand(before: &str, tree: &str, out: &mut Vec<String>) {
        let (mut depth, mut start) = (0, 0);
        let mut parts = Vec::new();
        for (i, c) in tree.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    parts.push(&tree[start..i]);
                    start = i + 1;
                }
                _ => {}
            }
        }
        parts.push(&tree[start..]);
        for part in parts.iter().map(|p| p.trim()).filter(|p| !p.is_empty()) {
            match part.split_once('{') {
                Some((head, rest)) => expand(&format!("{before}{head}"), rest.trim_end_matches('}'), out),
                None => out.push(format!("{before}{part}")),
            }
        }
    }
    let mut out = Vec::new();
    for line in code.split("\nuse ").skip(1).map(|rest| rest.split(';').next().unwrap()) {
        expand("", &line.split_whitespace().collect::<Vec<_>>().join(" "), &mut out);
    }
    out
}

#[test]
fn imports_are_read_with_their_braces() {
    let code = "//! x\nuse crate::{Entry, gemm::cpu, truth};\nuse a::b;\nuse c::{d::{e, f}, g};\n";
    assert_eq!(
        imports(code),
        ["crate::Entry", "crate::gemm::cpu", "crate::truth", "a::b", "c::d::e", "c::d::f", "c::g"]
    );
}

#[test]
fn ops_never_import_ops() {
    let files = sources("kmark-ops/src");
    let ops: Vec<String> = kmark_ops::OPS.iter().map(|e| e.op.name.replace('-', "_")).collect();
    for (path, code) in files.iter().filter(|(p, _)| !p.ends_with("kmark-ops/src/lib.rs")) {
        for path_in_use in imports(code).iter().chain(std::slice::from_ref(code)) {
            for op in &ops {
                let other = format!("crate::{op}");
                let names =
                    path_in_use.match_indices(&other).any(|(i, _)| !path_in_use[i + other.len()..].starts_with('_'));
                assert!(!names, "{}: imports op {op}", path.display());
            }
        }
    }
}

#[test]
fn unsafe_stands_where_foreign_code_is_called_and_says_why() {
    for (path, code) in sources("kmark-device/src").into_iter().chain(sources("kmark-py/src")) {
        let lines: Vec<&str> = code.lines().collect();
        for (i, line) in lines.iter().enumerate().filter(|(_, l)| l.contains("unsafe {")) {
            let reason = lines[..i].iter().rev().take(3).any(|l| l.contains("SAFETY:"));
            assert!(reason, "{}:{}: {line}", path.display(), i + 1);
        }
    }
    for dir in ["kmark-core/src", "kmark-records/src", "kmark-ops/src", "kmark-worker/src", "kmark/src"] {
        nowhere(&sources(dir), &["unsafe {", "unsafe fn"], "unsafe stands in kmark-device and kmark-py only");
    }
}

#[test]
fn files_stay_readable() {
    for dir in CRATES {
        for (path, code) in sources(dir) {
            assert!(
                fs::read_to_string(&path).unwrap().lines().count() <= 450,
                "{} is too long to hold in the head",
                path.display()
            );
            assert!(code.starts_with("//!"), "{} does not say what it may know", path.display());
        }
    }
    let main = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    assert!(main.lines().count() < 80, "lib.rs reads as the design");
}

/// `./check` runs `it`, `slurm`, and by a pattern all that begin differently.
#[test]
fn every_test_program_is_run() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(crates).unwrap().map(|e| e.unwrap().path().join("tests")).filter(|p| p.is_dir());
    let entries = folders.flat_map(|tests| fs::read_dir(tests).unwrap().map(|e| e.unwrap().path()));
    let programs = entries.filter(|p| p.extension().is_some_and(|e| e == "rs") || p.join("main.rs").is_file());
    let names: Vec<String> = programs.map(|p| p.file_stem().unwrap().to_string_lossy().into_owned()).collect();
    let is_run = |name: &String| !name.starts_with(['i', 's']) || ["it", "slurm"].contains(&name.as_str());
    assert!(names.len() > 8 && names.iter().all(is_run), "{names:?}: rename it, or name it in ./check");
}

/// Numbers of METHODOLOGY that come from the code: file, constant, its value there, and the words that say so.
const NUMBERS: &[(&str, &str, &str, &str)] = &[
    ("kmark-core/src/tally.rs", "RARE", "4e-6", "up to 4 elements in a million"),
    ("kmark-core/src/tally.rs", "FAR", "2.0", "between one and two times what is allowed, none further"),
    ("kmark-core/src/tally.rs", "PER_ROW", "2", "no more than two of them in one row"),
    ("kmark-core/src/fill.rs", "CYCLE", "16", "Rows come in cycles of sixteen kinds"),
    ("kmark-core/src/consistent.rs", "TRIES", "7", "seven launches in turn with seven controls"),
    ("kmark-device/src/measure/turn.rs", "LOOKS", "3", "three times over"),
    ("kmark-core/src/consistent.rs", "MARGIN", "1.15", "all slower by 15 %"),
    ("kmark-core/src/consistent.rs", "MOST_LEARNT", "4.0", "or four times the time"),
    ("kmark-core/src/cost.rs", "TRAFFIC_MARGIN", "1.01", "lies 1 % above its memory roof"),
    ("kmark-core/src/cost.rs", "MATRIX_MARGIN", "1.25", "a quarter above the matrix roof"),
    ("kmark-core/src/turns.rs", "MIN_ROUNDS", "3", "but not before the third"),
    ("kmark-core/src/verdict.rs", "LEAST", "0.002", "if two are compared; 0.2 %"),
    ("kmark-core/src/verdict.rs", "SAME_NEEDS", "0.05", "the rows could have shown 5 %"),
    ("kmark-records/src/report/against.rs", "APART_NS", "400.0", "counts only beyond 400 ns"),
    ("kmark-core/src/verdict.rs", "SAME_CLOCK", "0.05", "are more than 5 % apart"),
    ("kmark-core/src/verdict.rs", "CLOCK_EXPLAINS", "3.0", "only beyond a factor of three"),
    ("kmark-device/src/guard.rs", "BYTES", "4096", "guard bands of 4 KiB on both sides"),
    ("kmark-device/src/decoy.rs", "PIECE", "4096", "in pieces of 4 KiB"),
    ("kmark-device/src/cpu/mod.rs", "FORESEEN_NS", "12.0", "more than 12 ns for each of up to 4096 elements"),
    ("kmark-device/src/cpu/mod.rs", "MOST_FORESEEN", "4096", "more than 12 ns for each of up to 4096 elements"),
    ("kmark-device/src/measure/mod.rs", "WINDOW", "3", "two windows of three samples agree within 2 %"),
    ("kmark-device/src/measure/mod.rs", "STEADY", "0.02", "two windows of three samples agree within 2 %"),
    ("kmark-device/src/measure/mod.rs", "HOT_BATCH_NS", "100_000.0", "as many launches as fill 100 µs"),
    ("kmark-device/src/measure/stage.rs", "MORE_TIME", "0.2", "Comparing may add a fifth"),
    ("kmark-device/src/measure/turn.rs", "MORE_TIME_FOR_VALUES", "0.1", "new values a tenth"),
    ("kmark-device/src/measure/calibrate.rs", "KNOWN_OFF", "0.02", "must be measured within 2 %"),
    ("kmark-device/src/measure/calibrate.rs", "TIMERS_OFF", "0.005", "must agree within 0.5 %"),
    ("kmark-device/src/cuda/sample.rs", "KNOWN_NS", "20_000_000", "a kernel that spins for 20 ms"),
    ("kmark/src/possible.rs", "CPU_ROOF_MOVES", "2.0", "the margin is a factor of two"),
    ("kmark/src/bench.rs", "WARMUP_SHARE", "4", "or a quarter of the visit is spent"),
    ("kmark/src/roofs.rs", "FLOPS_PER_BYTE", "4", "more than 4 FLOP per byte"),
    ("kmark/src/bench.rs", "SMALL", "64 << 20", "cases of up to 64 MiB are put elsewhere"),
    ("kmark/src/roofs.rs", "HOST_BYTES", "64 << 20", "on 64 MiB tensors"),
    ("kmark/src/roofs.rs", "GPU_BYTES", "4 << 30", "on tensors of 4 GiB"),
];

#[test]
fn the_numbers_of_the_method_are_those_of_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let method = fs::read_to_string(root.join("../METHODOLOGY.md")).unwrap();
    for (file, name, value, words) in NUMBERS {
        let code = fs::read_to_string(root.join(file)).unwrap();
        let at = code.find(&format!("const {name}: ")).unwrap_or_else(|| panic!("{file} has no {name}"));
        let found = code[at..].split(['=', ';']).nth(1).unwrap().trim();
        assert_eq!(found, *value, "{file}: {name} has changed; METHODOLOGY.md says \"{words}\"");
        assert!(method.contains(words), "METHODOLOGY.md does not say \"{words}\" ({file}: {name} = {value})");
    }
}
