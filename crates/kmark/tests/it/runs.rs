//! Whole runs: what is written is valid, what is asked is done.

use crate::{kmark, output, records, small_suite, text, until, with_roofs};
use serde_json::Value;

/// What Python's jsonschema has against each of the values.
fn refused(which: &str, values: &[Value]) -> Vec<Option<String>> {
    let judge = "import json, sys, jsonschema\n\
        schema, values = json.load(sys.stdin)\n\
        validator = jsonschema.Draft202012Validator(schema)\n\
        validator.check_schema(schema)\n\
        json.dump([next((e.message for e in validator.iter_errors(v)), None) for v in values], sys.stdout)";
    let schema: Value = serde_json::from_slice(&output(&["schema", which]).stdout).unwrap();
    let mut command = assert_cmd::Command::new(crate::python::python());
    let out = command.args(["-c", judge]).write_stdin(serde_json::json!([schema, values]).to_string()).unwrap();
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn a_run_writes_what_the_schema_says() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let out = dir.path().join("out");
    let run = output(&["run", &suite, "--out", out.to_str().unwrap()]);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let table = text(&run.stdout);
    assert!(table.contains("rmsnorm/bf16/m5-n17") && table.contains("cpu/simd"), "{table}");
    assert!(!table.contains('\u{1b}') && !text(&run.stderr).contains('\u{1b}'), "no colours off a terminal");

    let whole: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let all = records(&out);
    assert_eq!(all.len(), 16);
    let written = [std::slice::from_ref(&whole), &all].concat();
    assert_eq!(refused("all", &written), vec![None; 17]);
    for r in &all {
        assert_eq!((&r["status"], &r["mode"]), (&"ok".into(), &"cold".into()));
        assert!(r["verify"]["checks"].as_u64().unwrap() >= 3, "twice before timing, once on new values: {r}");
        let visits: u64 = r["visits"].as_array().unwrap().iter().map(|v| v["samples"].as_u64().unwrap()).sum();
        assert_eq!(visits as usize, r["samples_ns"].as_array().unwrap().len());
    }
    // And the schema refuses what may not be.
    let with_status = |status: &str| {
        let mut lie = all[0].clone();
        lie["status"] = status.into();
        lie
    };
    let lies = [("ok", "nothing"), ("wrong", "a time on a failed record"), ("fine", "an unknown status")];
    let said = refused("record", &lies.map(|(status, _)| with_status(status)));
    for ((status, lie), said) in lies.iter().zip(said) {
        assert_eq!(said.is_some(), *status != "ok", "{lie}: {said:?}");
    }
}

#[test]
fn modes_and_flags_are_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let hot = dir.path().join("hot");
    let args = ["run", &suite, "--out", hot.to_str().unwrap(), "--cache", "hot", "--skip-verify", "--seed", "7"];
    let args =
        [&args[..], &["--rounds", "2", "--impl", "cpu/s*", "--dtype", "f32", "--warmup", "1ms", "--json"]].concat();
    let run = output(&args);
    assert!(run.status.success(), "{}", text(&run.stderr));
    let shown: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(shown[0]["rows"].as_array().unwrap().len(), 4);
    for r in records(&hot) {
        assert_eq!((&r["mode"], &r["status"], &r["impl"]), (&"hot".into(), &"unverified".into(), &"cpu/simd".into()));
        assert_eq!(r["seed"], 7);
        assert!(r["case"].as_str().unwrap().ends_with("/seed-7"));
    }
}

/// On a CPU only impls that share a process are told apart. A busy machine may hide a slow one, not in every try, or disturb
/// the same one, once; it may never make the slow one fast.
#[test]
fn the_same_impl_under_two_names_is_not_told_apart_and_a_fault_is_not_hidden() {
    let impls = ["fault/twin", "fault/brother", "fault/slow"].map(|name| ["--impl", name]).concat();
    let args = ["run", "rmsnorm", "--set", "m=64", "--set", "n=1024", "--baseline", "fault/twin", "--json"];
    let mut told_apart = 0;
    let run = || {
        let out = tempfile::tempdir().unwrap();
        let path = out.path().join("out");
        let more = ["--budget", "500ms", "--out", path.to_str().unwrap()];
        let run = kmark(&[&args[..], &impls, &more].concat()).env("KMARK_TEST_FAULTS", "8").output().unwrap();
        let shown: Value = serde_json::from_slice(&run.stdout).unwrap();
        let of = |name: &str| {
            let row = shown[0]["rows"].as_array().unwrap().iter().find(|r| r["impl"] == name).unwrap();
            row["against"]["verdict"].as_str().expect("a verdict").to_string()
        };
        assert!(["slower", "ambiguous"].contains(&of("fault/slow").as_str()), "{shown}");
        told_apart += usize::from(["slower", "faster"].contains(&of("fault/brother").as_str()));
        of("fault/slow") == "slower"
    };
    assert!(until(run, |found| *found), "eight times as long, and not seen in five runs");
    assert!(told_apart <= 1, "the same was told apart in {told_apart} runs");
}

#[test]
fn verify_passes_and_rejects_mutants() {
    let dir = tempfile::tempdir().unwrap();
    let suite = small_suite(dir.path());
    let good = output(&["verify", &suite]);
    assert!(good.status.success(), "{}", text(&good.stderr));
    assert!(text(&good.stdout).contains("16 of 16 ok"), "{}", text(&good.stdout));
    let mutants = output(&["verify", &suite, "--mutants"]);
    assert!(mutants.status.success(), "{}", text(&mutants.stdout));
    assert!(text(&mutants.stdout).contains("rejected"));
    let json: Value = serde_json::from_slice(&output(&["verify", &suite, "--json", "--quiet"]).stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 16);
}

/// A quick run of one case in a folder, with more arguments.
fn quick(dir: &std::path::Path, out: &str, more: &[&str]) -> assert_cmd::Command {
    let args = ["run", "softmax", "--device", "cpu", "--dtype", "f32", "--configs", "4x8", "--budget", "2ms"];
    let mut command = with_roofs(&[&args[..], &["--rounds", "2", "--out", out], more].concat());
    command.current_dir(dir);
    command
}

fn run_json(dir: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(dir.join("run.json")).unwrap()).unwrap()
}

#[test]
fn a_run_says_where_it_comes_from_and_where_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let names = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let done = std::process::Command::new("git").args(names).args(args).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    std::fs::write(dir.path().join("a"), "1").unwrap();
    git(&["add", "a"]);
    git(&["commit", "-qm", "a"]);
    let done = quick(dir.path(), "one", &["--tag", "x", "--tag", "y"]).output().unwrap();
    assert!(text(&done.stderr).starts_with("writing to one\n"), "{}", text(&done.stderr));
    let run = run_json(&dir.path().join("one"));
    assert!(run["git"]["commit"].as_str().unwrap().len() >= 40 && run["git"]["dirty"] == false, "{run}");
    assert!(run["tags"] == serde_json::json!(["x", "y"]) && run["host"].is_string() && run["roofs"].is_object());
    std::fs::write(dir.path().join("a"), "2").unwrap();
    let done = quick(dir.path(), "two", &["--no-host", "--no-roofs"]).env("LC_ALL", "C").output().unwrap();
    let run = run_json(&dir.path().join("two"));
    assert!(run["git"]["dirty"] == true && run["host"].is_null() && run["roofs"].is_null(), "{run}");
    let shown = text(&done.stdout);
    assert!(shown.contains("no roofs: --no-roofs") && shown.contains(" us"), "{shown}");
    assert!(done.stdout.is_ascii() && done.stderr.is_ascii(), "{shown}");
}

#[test]
fn roofs_that_cannot_be_measured_are_mentioned() {
    let dir = tempfile::tempdir().unwrap();
    let done = quick(dir.path(), "out", &["--impl", "cpu/*"]).env("KMARK_TEST_FAULTS", "roofs").output().unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let why = "fault/crash on stream/f32/n16777216: the worker aborted";
    assert!(text(&done.stdout).contains(&format!("no roofs: {why}")), "{}", text(&done.stdout));
    assert_eq!(run_json(&dir.path().join("out"))["no_roofs"], why);
}

#[test]
fn roofs_of_minutes_ago_are_taken_from_that_run() {
    let dir = tempfile::tempdir().unwrap();
    let done = |out: &str, more: &[&str]| quick(dir.path(), out, more).output().unwrap();
    assert!(done("first", &[]).status.success() && done("without", &["--no-roofs"]).status.success());
    let again = done("second", &["--roofs-from", "first"]);
    assert!(again.status.success(), "{}", text(&again.stderr));
    let [first, second] = ["first", "second"].map(|name| run_json(&dir.path().join(name)));
    assert!(second["roofs"] == first["roofs"] && second["phases"]["roofs_ns"] == 0, "{second}");
    assert_eq!(second["roofs_from"], first["started"]);
    assert!(text(&again.stdout).contains(&format!("roofs of the run of {}", first["started"].as_str().unwrap())));
    // Roofs that it does not have are measured.
    let product = "run gemm --device cpu --dtype f32 --configs 64x64x512 --impl cpu/simd --budget 5ms --out product --roofs-from first";
    let product: Vec<&str> = product.split(' ').collect();
    assert!(kmark(&product).current_dir(dir.path()).output().unwrap().status.success());
    let product = run_json(&dir.path().join("product"));
    assert!(product["roofs"]["copy"] == first["roofs"]["copy"] && first["roofs"]["matrix"]["f32"].is_null());
    assert!(product["roofs"]["matrix"]["f32"].as_f64().is_some_and(|rate| rate > 0.0), "{product}");
    for (done, why) in [
        (done("third", &["--roofs-from", "without"]), "it has no roofs of "),
        (done("third", &["--roofs-from", "nowhere"]), "is this the folder of a run?"),
    ] {
        let line = text(&done.stderr);
        assert!(done.status.code() == Some(2) && line.lines().count() == 1 && line.contains(why), "{line}");
    }
    assert!(!dir.path().join("third").exists());
}

#[test]
fn an_interrupted_run_says_how_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("kmark"))
        .args(["run", "softmax", "--device", "cpu", "--configs", "4x8,8x8", "--budget", "60s", "--no-roofs"])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (mut said, mut errors) = (String::new(), std::io::BufReader::new(child.stderr.take().unwrap()));
    while !said.contains("writing to") {
        assert!(std::io::BufRead::read_line(&mut errors, &mut said).unwrap() > 0, "{said}");
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(!child.wait().unwrap().success());
    std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
    assert!(said.contains("interrupted; the records so far are in kmark-runs/"), "{said}");
    assert!(said.trim_end().ends_with("--resume") && said.contains("--configs 4x8,8x8"), "{said}");
}
