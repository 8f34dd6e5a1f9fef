//! Reports of a fixed run, as snapshots.

use crate::{output, text};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

fn report(format: &str, extra: &[&str]) -> String {
    report_of(RUN, format, extra)
}

fn report_of(run: &str, format: &str, extra: &[&str]) -> String {
    let args = [&["report", run, "--format", format], extra].concat();
    let out = output(&args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    text(&out.stdout).replace(run, "RUN")
}

#[test]
fn table() {
    insta::assert_snapshot!(report("table", &[]));
}

#[test]
fn markdown() {
    insta::assert_snapshot!(report("markdown", &[]));
}

#[test]
fn csv() {
    insta::assert_snapshot!(report("csv", &[]));
}

#[test]
fn json() {
    insta::assert_snapshot!(report("json", &["--baseline", "cpu/simd"]));
}

#[test]
fn the_baseline_of_a_run_is_that_of_its_reports() {
    let dir = tempfile::tempdir().unwrap();
    let run = std::fs::read_to_string(format!("{RUN}/run.json")).unwrap();
    let named = run.replace(r#""verify": true"#, r#""verify": true, "baseline": "cpu/simd""#);
    assert_ne!(run, named);
    std::fs::write(dir.path().join("run.json"), named).unwrap();
    std::fs::copy(format!("{RUN}/records.jsonl"), dir.path().join("records.jsonl")).unwrap();
    let of = |extra: &[&str]| report_of(dir.path().to_str().unwrap(), "csv", extra);
    assert_eq!(of(&[]), report("csv", &["--baseline", "cpu/simd"]));
    assert_ne!(of(&["--baseline", "cpu/naive"]), of(&[]));
}

#[test]
fn an_impossible_row_is_shown_with_its_time_and_compared_with_nobody() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(format!("{RUN}/run.json"), dir.path().join("run.json")).unwrap();
    let records = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let record = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    let mut lines: Vec<_> = records.lines().map(record).collect();
    assert_eq!(lines[1]["impl"], "cpu/simd");
    lines[1]["status"] = "impossible".into();
    lines[1]["message"] = "takes too little".into();
    let changed: String = lines.iter().map(|l| format!("{l}\n")).collect();
    std::fs::write(dir.path().join("records.jsonl"), changed).unwrap();
    let of = |format: &str| report_of(dir.path().to_str().unwrap(), format, &[]);
    let csv = of("csv");
    let mut rows = csv.lines().filter(|l| l.contains("rmsnorm/bf16/m1024-n4096/w-f32"));
    let (naive, simd) = (rows.next().unwrap(), rows.next().unwrap());
    assert!(simd.contains(",impossible,") && !simd.contains("faster") && !simd.contains("slower"), "{simd}");
    assert!(!naive.contains("cpu/simd"), "nobody is compared with it: {naive}");
    assert!(of("table").contains("impossible: rmsnorm/bf16/m1024-n4096/w-f32 cpu/simd: takes too little"));
}

#[test]
fn rows_and_columns_are_chosen_sorted_and_given_a_unit() {
    let asked = ["--columns", "m,impl,time_ns,speedup", "--filter", "softmax*", "--filter", "rmsnorm", "--unit", "us"];
    let csv = report("csv", &[&asked[..], &["--sort", "-time_ns"]].concat());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "m,impl,time_us,speedup");
    assert_eq!(lines[1], "8192,cpu/naive,33939.2675,");
    assert!(lines.last().unwrap().ends_with(",,"), "what has no time comes last: {csv}");
    let naive = report("csv", &["--columns", "impl,baseline", "--filter", "cpu/simd"]);
    assert!(
        naive.contains("cpu/simd,cpu/naive") && !naive.contains("\ncpu/naive"),
        "a baseline counts unseen: {naive}"
    );
    let lines = report("jsonl", &asked);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["m"], &first["impl"]), (&1024.into(), &"cpu/naive".into()));
    assert!(report("table", &asked).contains("33939 µs"));
    for (wrong, says) in [
        (["--filter", "gemm"], "no row is like --filter gemm"),
        (["--sort", "time_n"], "unknown column 'time_n'; did you mean 'time_ns'?"),
        (["--columns", "time_ns,x"], "unknown column 'x'"),
        (["--unit", "h"], "invalid value 'h'"),
    ] {
        let out = output(&[&["report", RUN], &wrong[..]].concat());
        let (code, line) = (out.status.code(), text(&out.stderr));
        assert!(code == Some(2) && line.contains(says) && line.lines().count() == 1, "{wrong:?}: {code:?} {line}");
    }
}

/// The charts of a run, by file name.
fn charts(run: &str) -> std::collections::BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let out = output(&["report", run, "--format", "svg", "--out", dir.path().to_str().unwrap()]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let files = std::fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap());
    let read =
        |f: std::fs::DirEntry| (f.file_name().into_string().unwrap(), std::fs::read_to_string(f.path()).unwrap());
    let files: std::collections::BTreeMap<_, _> = files.map(read).collect();
    let named = text(&out.stdout);
    assert!(named.lines().all(|name| files.contains_key(name)) && named.lines().count() == files.len(), "{named}");
    files
}

#[test]
fn charts_show_roofs_and_failures() {
    let files = charts(RUN);
    let names: Vec<&str> = files.keys().map(|name| name.as_str()).collect();
    insta::assert_snapshot!(names.join("\n"));
    let softmax = &files["softmax_comparison_Test_processor.svg"];
    for part in ["class=\"roof\"", "class=\"hatch\"", ">wrong<", ">unsupported<", "prefers-color-scheme:dark"] {
        assert!(softmax.contains(part), "{part}");
    }
    let out = output(&["report", RUN, "--format", "svg"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--out DIR"));
}

/// What stands in the element of this id.
fn inside<'a>(page: &'a str, id: &str) -> &'a str {
    page.split_once(&format!("id=\"{id}\">")).unwrap().1.split_once("</script>").unwrap().0
}

#[test]
fn a_page_holds_everything_and_asks_for_nothing() {
    let page = report("html", &[]);
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains(" src="), "nothing is fetched");
    let data: serde_json::Value = serde_json::from_str(inside(&page, "data")).unwrap();
    let details: Vec<serde_json::Value> =
        inside(&page, "details").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(data["rows"].as_array().unwrap().len(), details.len());
    let again = "kmark run rmsnorm --device cpu --dtype bf16 --configs 1024x4096 --set w=f32 --set eps=1e-6 --set rstd=no \
                 --impl cpu/naive --seed 42";
    assert!(details[0]["command"].as_str().unwrap().starts_with(again), "{}", details[0]["command"]);
    assert_eq!(details[0]["samples_ns"].as_array().unwrap().len(), 60);
    let pictures: Vec<String> = serde_json::from_str(inside(&page, "pictures")).unwrap();
    assert_eq!(pictures.len(), data["charts"].as_array().unwrap().len());
    let bare = page.len() - ["data", "details", "pictures"].map(|id| inside(&page, id).len()).iter().sum::<usize>();
    assert!(bare < 1 << 20, "{bare} bytes without data");
}

#[test]
fn hostile_strings_stay_strings() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(format!("{RUN}/run.json"), dir.path().join("run.json")).unwrap();
    let records = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let mut lines: Vec<serde_json::Value> = records.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let evil = "=cmd|'/C calc'!A0 </script><script>alert(1)</script><img src=x onerror=alert(2)>]]>\u{1b}[31m";
    for line in &mut lines {
        line["impl"] = format!("{evil}{}", line["impl"]).into();
        line["op"] = format!("../{evil}").into();
        line["device"]["name"] = evil.into();
        if line["status"] == "wrong" {
            line["message"] = evil.repeat(5_000).into();
        }
    }
    let changed: String = lines.iter().map(|l| format!("{l}\n")).collect();
    std::fs::write(dir.path().join("records.jsonl"), changed).unwrap();
    let run = dir.path().to_str().unwrap();
    let page = report_of(run, "html", &[]);
    assert_eq!(page.matches("<script").count(), 4, "only our own");
    assert!(!page.contains("<img"));
    serde_json::from_str::<serde_json::Value>(inside(&page, "data")).unwrap();
    let pictures: Vec<String> = serde_json::from_str(inside(&page, "pictures")).unwrap();
    assert!(pictures.iter().all(|svg| !svg.contains("<script") && !svg.contains("<img")));
    assert!(charts(run).keys().all(|name| !name.contains('/') && name.len() < 255));
    assert!(!report_of(run, "table", &[]).contains('\u{1b}'), "a terminal obeys nothing");
    assert!(!report_of(run, "markdown", &[]).contains("<script"));
    let csv = report_of(run, "csv", &["--columns", "impl"]);
    assert!(csv.lines().skip(1).all(|l| l.trim_start_matches('"').starts_with("'=")), "{csv}");
    for (bad, says) in [("NaN", "expected value"), ("1e999", "out of range")] {
        let broken = records.replacen("4169286.6", bad, 1);
        std::fs::write(dir.path().join("records.jsonl"), broken).unwrap();
        let out = output(&["report", run, "--format", "html"]);
        let line = text(&out.stderr);
        assert!(out.status.code() == Some(2) && line.contains("records.jsonl:1:") && line.contains(says), "{line}");
    }
}
