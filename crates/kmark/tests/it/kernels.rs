//! Users' kernel files on the stand-in: verified and timed beside ours, and what is wrong with them said.

use crate::cuda::{cuda, run_rmsnorm, run_rmsnorm_for};
use crate::{is_hidden, kmark, text, until};
use std::path::{Path, PathBuf};
use std::process::Output;

pub const GOOD: &str = include_str!("../../../../examples/rmsnorm.cu");

pub fn with_file(name: &str, source: &str, extra: &[&str]) -> (Vec<serde_json::Value>, Output) {
    let dir = tempfile::tempdir().unwrap();
    let (file, choice) = name.split_at(name.find('#').unwrap_or(name.len()));
    let path = dir.path().join(file);
    std::fs::write(&path, source).unwrap();
    let word = format!("{}:mine{choice}", path.display());
    run_rmsnorm(&[&["--impl", &word, "--impl", "cuda/*"][..], extra].concat())
}

/// The user's kernel gets `status`, ours beside it is `ok`.
fn becomes(source: &str, status: &str, code: i32, says: &str, extra: &[&str]) {
    let (records, result) = with_file("mine.cu", source, extra);
    assert_eq!(result.status.code(), Some(code), "{}", text(&result.stderr));
    for r in records {
        let mine = r["impl"].as_str().unwrap().contains("mine.cu");
        assert_eq!(r["status"], if mine { status } else { "ok" }, "{r}");
        assert!(!mine || r["message"].as_str().unwrap().contains(says), "{r}");
    }
}

#[test]
fn a_users_kernel_is_verified_and_timed_beside_ours() {
    assert!(GOOD.lines().count() < 40);
    becomes(GOOD, "ok", 0, "", &[]);
}

/// Values, tensor maps, clusters and launch attributes reach the launch and the code. The stand-in marks maps that it encodes.
#[test]
fn values_maps_and_clusters_reach_a_users_kernel() {
    let lines = "// kmark: let WIDE = n>32?256:32\n// kmark: map in = x box=8,WIDE/32\n\
                 // kmark: kernel mine grid=m*2 block=WIDE cluster=2 with=overlap";
    let source = GOOD
        .replace("// kmark: kernel mine grid=m block=256", lines)
        .replace(
            "const __grid_constant__ Args a)",
            "const __grid_constant__ Args a, const __grid_constant__ Maps maps)",
        )
        .replace(
            "i64 row = blockIdx.x;",
            "i64 row = blockIdx.x / 2; if (((const char*)maps.in.words)[8] != 'T' || blockDim.x != WIDE) return;",
        );
    let (records, result) = with_file("mine.cu", &source, &[]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    let mine: Vec<_> = records.iter().filter(|r| r["impl"].as_str().unwrap().contains("mine.cu")).collect();
    assert_eq!(mine[0]["status"], "unsupported", "{}", mine[0]);
    let says = mine[0]["message"].as_str().unwrap();
    assert!(says.contains("map in: rows of x are apart 34 bytes, not at multiples of 16"), "{says}");
    assert_eq!(mine[1]["status"], "ok", "{}", mine[1]);
}

#[test]
fn a_wrong_kernel_is_rejected_with_place_and_size() {
    becomes(&GOOD.replace("+ acc_t(EPS)", "+ acc_t(0.5)"), "wrong", 5, "elements of y are wrong; y[", &[]);
}

#[test]
fn quiet_commands_say_what_fails_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("mine.cu"), dir.path().join("run"));
    std::fs::write(&file, GOOD.replace("+ acc_t(EPS)", "+ acc_t(0.5)")).unwrap();
    let (file, out) = (file.to_str().unwrap(), out.to_str().unwrap());
    let cases = ["rmsnorm", "--device", "cuda", "--dtype", "f32", "--configs", "4x32", "--impl", file, "--quiet"];
    for command in [&["verify"][..], &["run", "--no-roofs", "--budget", "1ms", "--out", out]] {
        let result = cuda(&[command, &cases].concat());
        assert_eq!(result.status.code(), Some(5), "{}", text(&result.stderr));
        assert_eq!(text(&result.stdout), "");
        let says = text(&result.stderr);
        assert!(says.starts_with("wrong: rmsnorm/f32/m4-n32 ") && says.contains("elements of y are wrong"), "{says}");
        assert_eq!(says.lines().count(), 1, "{says}");
    }
}

#[test]
fn rows_that_do_not_add_up_are_shown_with_their_sum() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("two.cu");
    let source = "// kmark: kernel two grid=m block=64\n\
        KERNEL two(const __grid_constant__ Args a) { a.y.at(blockIdx.x, threadIdx.x) = 2.0f / 64.0f; }\n";
    std::fs::write(&path, source).unwrap();
    let select = ["softmax", "--dtype", "f32", "--configs", "16x64", "--impl", path.to_str().unwrap()];
    let result = cuda(&[&["verify", "--device", "cuda", "--json", "--quiet"], &select[..]].concat());
    assert_eq!(result.status.code(), Some(5), "{}", text(&result.stderr));
    let says = "y: 16 rows do not add up to 1; row 0 adds up to 2.000000e0, ";
    assert!(text(&result.stdout).contains(says), "{}", text(&result.stdout));
}

#[test]
fn a_kernel_that_does_not_compile_shows_its_own_lines() {
    let broken = GOOD.replace("a.x.at(row, c)", "a.xx.at(row, c)");
    becomes(&broken, "build-failed", 6, "mine.cu:", &[]);
    let (records, _) = with_file("mine.cu", &broken, &[]);
    let line = broken.lines().position(|l| l.contains("a.xx")).unwrap() + 1;
    let message = records.iter().find_map(|r| r["message"].as_str().filter(|m| !m.is_empty())).unwrap();
    assert!(message.contains(&format!("mine.cu:{line}")), "{message}");
}

#[test]
fn a_kernel_that_faults_or_oversteps_or_never_ends_is_recorded_as_that() {
    let put = "a.y.at(row, c) =";
    assert!(GOOD.contains(put));
    becomes(&GOOD.replace(put, "a.y.ptr[1ll << 40] ="), "crashed", 6, "illegal memory access", &[]);
    becomes(
        &GOOD.replace(put, "if (row == 0 && c == 0) a.y.row(a.y.rows)[0] = a.y.at(0, 0);\n        a.y.at(row, c) ="),
        "wrong",
        5,
        "past the end of y",
        &[],
    );
    let forever = GOOD.replace(put, "while (a.m > 0) __nanosleep(1000);\n        a.y.at(row, c) =");
    becomes(&forever, "hung", 6, "no answer after", &["--deadline", "20s", "--filter", "*m5-n17*"]);
}

/// Whoever faults beside others is tried again alone; nobody is called right there who was not looked at.
#[test]
fn a_kernel_that_faults_once_stays_unverified() {
    let dir = tempfile::tempdir().unwrap();
    let once = dir.path().join("once");
    let fault = format!("if (mkdir(\"{}\", 0700) == 0) a.y.ptr[1ll << 40] = a.y.at(0, 0);", once.display());
    let source = GOOD
        .replace("i64 row = blockIdx.x;", &format!("i64 row = blockIdx.x; {fault}"))
        .replace("extern \"C\" __global__", "extern \"C\" int mkdir(const char*, u32);\nextern \"C\" __global__");
    let (records, result) = with_file("mine.cu", &source, &["--skip-verify"]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    assert!(once.exists() && records.iter().all(|r| r["status"] == "unverified"), "{records:?}");
}

/// A workspace has bands of its own, and what it holds at first is as the file says.
#[test]
fn a_kernel_that_writes_beside_its_workspace_is_wrong() {
    let with = |lines: &str, code: &str| {
        let lines = format!("// kmark: workspace {lines}\n// kmark: kernel mine grid=m block=256");
        let source = GOOD.replace("// kmark: kernel mine grid=m block=256", &lines);
        source.replace("    acc_t squares = 0;", &format!("    {code}\n    acc_t squares = 0;"))
    };
    becomes(
        &with("64", "if (threadIdx.x == 0) a.workspace[64] = 1;"),
        "wrong",
        5,
        "writes behind its workspace of 64 bytes",
        &[],
    );
    becomes(&with("64 zeroed", "if (a.workspace[63] != 0) return;"), "ok", 0, "", &[]);
}

/// Weights are packed outside of what is timed, again for all values that there are, and the contract says it. Who packs sees
/// nothing else.
#[test]
fn a_launch_at_bind_sees_the_tensors_it_names_and_makes_another_contract() {
    let lines =
        "// kmark: workspace n*4\n// kmark: kernel pack grid=1 block=64 bind=w\n// kmark: kernel mine grid=m block=256";
    let pack = "KERNEL pack(const __grid_constant__ Args a) {\n    for (i64 c = threadIdx.x; c < a.n; c += 64) \
                ((float*)a.workspace)[c] = 2 * (float)wide(a.w.ptr[c]);\n}\n";
    let source = GOOD
        .replace("// kmark: kernel mine grid=m block=256", lines)
        .replace("wide(a.w.ptr[c])", "((float*)a.workspace)[c] / 2");
    let source = format!("{source}\n{pack}");
    let (records, result) = with_file("mine.cu", &source, &[]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    for r in &records {
        let mine = r["impl"].as_str().unwrap().contains("mine.cu");
        assert_eq!(
            (&r["status"], &r["contract"]),
            (&"ok".into(), &if mine { "x,w -> y, w at bind" } else { "x,w -> y" }.into()),
            "{r}"
        );
    }
    let peeks = source.replace("2 * (float)wide(a.w.ptr[c])", "(float)up(a.x.ptr[c])");
    becomes(&peeks, "crashed", 6, "illegal memory access", &["--filter", "*m5-n17*"]);
    becomes(&source.replace("bind=w", "bind=y"), "unsupported", 0, "bind=: unknown input 'y'", &[]);
    becomes(&source.replace("bind=w", "bind=w,x"), "unsupported", 0, "bind=: x is no weight, it grows with m", &[]);
}

/// The stand-in takes 8 blocks of 256 threads to a multiprocessor.
#[test]
fn a_grid_knows_the_occupancy_of_its_kernel() {
    let store = "if (RSTD && threadIdx.x == 0) a.rstd.ptr[row] = r;";
    let source = GOOD
        .replace("grid=m block=256", "grid=min(m,occupancy) block=256")
        .replace("i64 row = blockIdx.x;", "for (i64 row = blockIdx.x; row < a.m; row += gridDim.x) {")
        .replace(store, &format!("{store}\n    }}"));
    let (records, result) = with_file("mine.cu", &source, &[]);
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    let mine = records.iter().filter(|r| r["impl"].as_str().unwrap().contains("mine.cu"));
    let grids: Vec<_> = mine.map(|r| (r["axes"]["m"].as_u64(), r["kernels"][0]["grid"][0].as_u64())).collect();
    assert_eq!(grids, [(Some(5), Some(5)), (Some(16), Some(8))], "{records:?}");
}

/// Whether it is one that cheats after PATIENCE launches (`cheats/rms.cuh`), and a busy machine left it fewer in every visit.
fn still_waits(record: &serde_json::Value) -> bool {
    let source = std::fs::read_to_string(record["impl"].as_str().unwrap()).unwrap_or_default();
    let few = || record["visits"].as_array().unwrap().iter().all(|v| v["samples"].as_u64().unwrap() < 12);
    record["status"] == "ok" && source.contains("PATIENCE") && few()
}

/// Every file of `tests/cheats` says in its first line how it ends.
#[test]
fn cheating_kernels_are_found_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cheats");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "cu"));
    assert!(files.len() >= 10);
    let ends = |file: &Path| {
        let source = std::fs::read_to_string(file).unwrap();
        let ending = source.strip_prefix("// Ends as ").and_then(|s| s.split(':').next()).expect("a first line");
        ending.to_string()
    };
    // Who waits before it cheats, or remembers, shows it in visits of many launches only.
    for (ending, code) in [("wrong", 5), ("inconsistent", 6)] {
        let mut args = vec!["--impl", "cuda/01_rows"];
        let here = files.iter().filter(|f| ends(f) == ending);
        here.for_each(|f| args.extend(["--impl", f.to_str().unwrap()]));
        let expected = |r: &serde_json::Value| if r["impl"] == "cuda/01_rows" { "ok" } else { ending };
        let mut budgets = ["300ms", "1s", "2s", "4s", "8s"].iter();
        let (records, result) = until(
            || run_rmsnorm_for(budgets.next().unwrap(), &args),
            |(found, _)| !found.iter().any(|r| is_hidden(r, expected(r)) || still_waits(r)),
        );
        assert_eq!(result.status.code(), Some(code), "{}", text(&result.stderr));
        assert_eq!(records.len(), args.len(), "two cases for each impl");
        for r in records {
            assert_eq!(r["status"], expected(&r), "{r}");
        }
    }
}

#[test]
fn bad_kernel_files_get_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.cu");
    for (source, words) in [
        ("__global__ void mine() {}", "no line `// kmark: kernel"),
        ("// kmark: kernal mine grid=1 block=1", "did you mean 'kernel'"),
        ("// kmark: kernel other grid=1 block=1", "unknown kernel 'mine'"),
        ("// kmark: kernel mine grid=1 block=1\n// kmark: let 1 = 2", "line 2: `1 = 2`: write it like let TILE"),
    ] {
        std::fs::write(&path, source).unwrap();
        let out = cuda(&["run", "rmsnorm", "--device", "cuda", "--impl", &format!("{}:mine", path.display())]);
        let err = text(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains(words) && err.trim().lines().count() == 1, "{err}");
    }
    let out = cuda(&["run", "rmsnorm", "--device", "cuda", "--impl", "./nowhere.cu"]);
    assert_eq!(out.status.code(), Some(2));
    let out = kmark(&["run", "rmsnorm", "--device", "cpu", "--impl", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
}

#[test]
fn signature_and_template_are_printed_and_the_template_runs() {
    let out = cuda(&["list", "ops", "rmsnorm", "--signature"]);
    assert!(text(&out.stdout).contains("Tensor<const x_t> x;"), "{}", text(&out.stdout));
    for entry in kmark_ops::OPS {
        assert_eq!(cuda(&["list", "ops", "--template", entry.op.name]).status.code(), Some(0));
    }
    let template = text(&cuda(&["list", "ops", "--template", "rmsnorm"]).stdout);
    becomes(&template, "wrong", 5, "elements of y are wrong", &[]);
}

/// What Hopper's attention does between its products: the gate's inputs have queries whose logits outgrow an older base, and rows
/// that see nothing at first.
#[test]
fn weights_of_hoppers_attention_need_no_maximum_in_every_block() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/attention_weights.cu");
    let cases = ["--configs", "1x2x1x70x150x32", "--set", "causal=no,yes", "--set", "lse=yes", "--dtype", "bf16,f16"];
    let file = file.to_str().unwrap();
    let result = cuda(&[&["verify", "attention", "--device", "cuda", "--impl", file][..], &cases].concat());
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    assert!(text(&result.stdout).contains("4 of 4 ok"), "{}", text(&result.stdout));
}
