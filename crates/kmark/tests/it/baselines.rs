//! Environments of Python libraries: named, planned, packed, installed without a network, checked. What is packed here
//! is NumPy, from the package index.

use crate::{kmark, text};
use std::fs;
use std::path::Path;
use std::process::Output;

fn baselines(home: &Path, args: &[&str]) -> Output {
    kmark(&[&["baselines"], args].concat()).env("KMARK_HOME", home).output().expect("the binary runs")
}

/// One line on standard error, this exit code, nothing on standard output.
fn refused(home: &Path, args: &[&str], says: &str) {
    let out = baselines(home, args);
    let err = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{args:?}: {err}");
    assert_eq!(err.trim_end().lines().count(), 1, "{args:?}: {err}");
    assert!(err.starts_with("error: ") && err.contains(says), "{args:?}: {err}");
    assert!(out.stdout.is_empty(), "{args:?}");
}

fn worked(home: &Path, args: &[&str]) -> String {
    let out = baselines(home, args);
    assert_eq!(out.status.code(), Some(0), "{args:?}: {}", text(&out.stderr));
    text(&out.stdout)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// `3.12`, of the interpreter that everything here uses.
fn python_version() -> String {
    let python = std::env::var("KMARK_PYTHON").unwrap_or_else(|_| "python3".into());
    let ask = "import sys; print('%d.%d' % sys.version_info[:2])";
    let out = std::process::Command::new(python).args(["-c", ask]).output().expect("Python runs");
    text(&out.stdout).trim().to_string()
}

#[test]
fn names_and_plans() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    refused(home, &["install", "numpi"], "did you mean 'numpy'?");
    refused(home, &["install", "liger-kernel"], "did you mean 'liger'?");
    refused(home, &["check", "quak"], "did you mean 'quack'?");
    refused(home, &["bundle", "flashinfr", "--out", "x"], "did you mean 'flashinfer'?");
    refused(home, &["list", "--op", "rmsnrm"], "did you mean 'rmsnorm'?");
    refused(home, &["bundle", "numpy", "--out", "x", "--split", "60MB"], "write it like 60MiB");
    refused(home, &["bundle", "numpy", "--out", "x", "--split", "1"], "at least 64.0 KiB");
    refused(home, &["bundle", "numpy", "--out", "x", "--python-version", "3.9"], ">=3.11");
    let of_the_interpreter = format!("by a Python {} that has", python_version());
    refused(home, &["bundle", "flash-attn-2", "--out", "x"], &of_the_interpreter);
    refused(home, &["install", "numpy", "--python", "/no/python"], "/no/python is no interpreter");
    refused(home, &["install", "numpy", "--python", "/bin/true"], "is no interpreter");
    refused(home, &["install", "numpy", "--from", home.to_str().unwrap()], "no bundle.json");

    let plan = worked(home, &["install", "numpy", "torch", "--dry-run", "--with-torch"]);
    assert!(plan.starts_with("numpy makes ") && plan.contains("  numpy 2."), "{plan}");
    assert!(plan.contains("  torch 2.11.0") && plan.contains("  triton "), "{plan}");
    let plan = worked(home, &["install", "flash-attn-2", "--dry-run", "--with-torch"]);
    assert!(plan.contains("built from source with nvcc"), "{plan}");

    let list = worked(home, &["list"]);
    assert!(list.contains("flash-attn-4") && list.contains("no  "), "{list}");
    let json: serde_json::Value = serde_json::from_str(&worked(home, &["list", "--json"])).unwrap();
    let liger = json.as_array().unwrap().iter().find(|r| r["family"] == "liger").unwrap();
    assert_eq!((&liger["environment"], &liger["installed"]), (&"quack".into(), &false.into()));
    assert_eq!(liger["install"], "kmark baselines install quack");

    let out = baselines(home, &["check"]);
    assert!(out.status.success() && text(&out.stderr).contains("no environment is installed"));
    let out = baselines(home, &["check", "numpy"]);
    assert_eq!(out.status.code(), Some(6));
    assert!(text(&out.stdout).contains("`kmark baselines install numpy`"), "{}", text(&out.stdout));
    // Nothing of all this left anything behind.
    assert!(names(home).is_empty(), "{:?}", names(home));
}

#[test]
fn packed_installed_without_a_network_checked_and_broken() {
    let temp = tempfile::tempdir().unwrap();
    let (home, bundle) = (&temp.path().join("home"), &temp.path().join("bundle"));
    let (from, version) = (bundle.to_str().unwrap(), &python_version());
    let pack = &["bundle", "numpy", "--out", from, "--split", "4MiB", "--level", "0", "--python-version", version];
    worked(home, pack);
    let files = names(bundle);
    assert!(files.contains(&"numpy.001".into()) && files.contains(&"bundle.json".into()), "{files:?}");
    assert!(bundle.join("numpy.000").metadata().unwrap().len() == 4 << 20);
    assert_eq!(names(temp.path()), ["bundle"]);
    refused(home, pack, "exists and is not an empty folder");

    // A part that was damaged on the way, or is missing, or belongs to another Python.
    let part = bundle.join("numpy.001");
    let good = fs::read(&part).unwrap();
    let mut bad = good.clone();
    bad[1000] ^= 1;
    fs::write(&part, &bad).unwrap();
    refused(home, &["install", "numpy", "--from", from], "numpy.001 is damaged");
    fs::write(&part, &good[..999]).unwrap();
    refused(home, &["install", "numpy", "--from", from], "has 999 bytes");
    fs::remove_file(&part).unwrap();
    refused(home, &["install", "numpy", "--from", from], "numpy.001 is missing");
    fs::write(&part, &good).unwrap();
    let manifest = fs::read_to_string(bundle.join("bundle.json")).unwrap();
    fs::write(bundle.join("bundle.json"), &manifest[..100]).unwrap();
    refused(home, &["install", "numpy", "--from", from], "bundle.json is broken");
    let other = manifest.replace(&format!("\"python\": \"{version}\""), "\"python\": \"3.1\"");
    fs::write(bundle.join("bundle.json"), other).unwrap();
    refused(home, &["install", "numpy", "--from", from], "is for Python 3.1,");
    fs::write(bundle.join("bundle.json"), manifest).unwrap();
    assert!(names(&home.join("baselines")).is_empty(), "{:?}", names(&home.join("baselines")));

    let offline = |args: &[&str]| {
        let mut command = kmark(&[&["baselines"], args].concat());
        command.env("KMARK_HOME", home).env("PIP_INDEX_URL", "http://127.0.0.1:1").output().unwrap()
    };
    let out = offline(&["install", "numpy", "--from", from]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert_eq!(names(&home.join("baselines")), ["numpy"]);
    refused(home, &["install", "numpy", "--from", from], "--force makes it anew");
    let receipt = worked(home, &["check"]);
    assert!(receipt.starts_with("numpy: ok\n") && receipt.contains("numpy 2."), "{receipt}");
    assert!(worked(home, &["list"]).contains("MiB"));

    // Somebody has been at it.
    let env = home.join("baselines/numpy");
    let lib = env.join("lib").join(format!("python{version}")).join("site-packages/numpy/__init__.py");
    fs::write(&lib, "raise ImportError('gone\\nwith the wind')").unwrap();
    let out = baselines(home, &["check", "numpy", "--json"]);
    assert_eq!(out.status.code(), Some(6));
    let json: serde_json::Value = serde_json::from_str(&text(&out.stdout)).unwrap();
    assert!(json[0]["families"]["numpy"].as_str().unwrap().contains("gone"), "{json}");
    assert_eq!((&json[0]["ok"], &json[0]["packages"][0]["ok"]), (&false.into(), &true.into()));
    fs::remove_file(env.join("receipt.json")).unwrap();
    assert_eq!(baselines(home, &["check"]).status.code(), Some(6));
    let out = offline(&["install", "numpy", "--from", from, "--force"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(worked(home, &["check", "numpy"]).starts_with("numpy: ok\n"));
    assert_eq!(names(&home.join("baselines")), ["numpy"]);
}

/// A copy of the program with our package near it, but without the compiled module.
#[test]
fn libraries_are_listed_before_the_python_part_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("kmark");
    std::fs::copy(assert_cmd::cargo::cargo_bin("kmark"), &program).unwrap();
    std::fs::create_dir(dir.path().join("python")).unwrap();
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/kmark");
    std::os::unix::fs::symlink(package, dir.path().join("python/kmark")).unwrap();
    let ask = |args: &[&str]| std::process::Command::new(&program).args(args).current_dir(dir.path()).output().unwrap();
    let list = ask(&["baselines", "list"]);
    assert!(list.status.success(), "{}", text(&list.stderr));
    assert!(text(&list.stdout).contains("rmsnorm"), "{}", text(&list.stdout));
    let run = ask(&["verify", "softmax", "--device", "cpu", "--dtype", "f32", "--configs", "2x2", "--impl", "numpy"]);
    assert!(text(&run.stderr).contains("the Python part is not built"), "{}", text(&run.stderr));
}
