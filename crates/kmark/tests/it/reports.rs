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
fn families_stand_beside_each_other() {
    assert_eq!(report("families", &[]), "no op was timed with impls of two families\n");
    let dir = tempfile::tempdir().unwrap();
    let records = std::fs::read_to_string(format!("{RUN}/records.jsonl")).unwrap();
    let records = records.replace(r#""impl":"cpu/naive""#, r#""impl":"numpy""#);
    std::fs::write(dir.path().join("records.jsonl"), records).unwrap();
    std::fs::copy(format!("{RUN}/run.json"), dir.path().join("run.json")).unwrap();
    let two = |extra: &[&str]| report_of(dir.path().to_str().unwrap(), "families", extra);
    insta::assert_snapshot!(two(&[]));
    assert!(!two(&["--filter", "softmax"]).contains("rmsnorm"));
    // Latent decode of our own, beside two libraries: the run's baseline is one of them, and the fastest is now this, now that.
    let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../../evidence/h200/attention");
    let of = |extra: &[&str]| report_of(run, "families", &[&["--filter", "mla-decode"], extra].concat());
    let mean = |text: &str, family: &str| -> f64 {
        let line = text.lines().find(|l| l.contains(family)).unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace().find_map(|word| word.strip_suffix('×')).unwrap().parse().unwrap()
    };
    let (usual, fastest) = (of(&[]), of(&["--baseline", "fastest"]));
    assert_eq!(mean(&usual, " flashmla "), 1.0, "{usual}");
    for family in [" flashmla ", " flashinfer "] {
        assert!(mean(&fastest, family) < 1.0, "neither is always the fastest: {fastest}");
    }
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
    for part in
        ["class=\"roof\"", "class=\"hatch\"", ">wrong<", ">unsupported<", "prefers-color-scheme:dark", "@font-face"]
    {
        assert!(softmax.contains(part), "{part}");
    }
    let out = output(&["report", RUN, "--format", "svg"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--out DIR"));
}

#[test]
fn the_charts_of_the_readme_are_those_of_its_command() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains("kmark report evidence/h200/grades/first --format svg --out charts"));
    let drawn = charts(root.join("evidence/h200/grades/first").to_str().unwrap());
    for name in ["attention_comparison_NVIDIA_H200.svg", "roofline_NVIDIA_H200.svg"] {
        assert!(readme.contains(&format!("docs/charts/{name}")));
        let kept = std::fs::read_to_string(root.join("docs/charts").join(name)).unwrap();
        assert!(drawn[name] == kept, "docs/charts/{name} is another one: make it anew");
    }
}

#[test]
fn the_means_of_the_readme_are_those_of_its_command() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains("kmark report evidence/h200/memory --format families"));
    let means = report_of(root.join("evidence/h200/memory").to_str().unwrap(), "families", &[]);
    let mut op = "";
    let mut ours = std::collections::BTreeMap::new();
    for line in means.lines().take_while(|line| !line.is_empty()) {
        let mut words = line.split_whitespace().peekable();
        if !line.starts_with("   ") {
            op = words.next().unwrap();
        }
        if words.next() == Some("cuda") {
            ours.insert(op, words.find(|word| word.ends_with('×')).unwrap());
        }
    }
    for (label, ops) in [
        ("[rmsnorm, softmax](evidence/h200/memory)", &["rmsnorm", "softmax"][..]),
        ("layernorm, add-rmsnorm", &["layernorm", "add-rmsnorm"]),
        ("rmsnorm-bwd, layernorm-bwd", &["rmsnorm-bwd", "layernorm-bwd"]),
        ("softmax-bwd, both ways in one", &["softmax-bwd", "softmax-fwd-bwd"]),
        ("cross-entropy, backward, both", &["cross-entropy", "cross-entropy-bwd", "cross-entropy-fwd-bwd"]),
        ("GELU, SwiGLU, its backward", &["gelu", "swiglu", "swiglu-bwd"]),
        ("RoPE, fp8 quantisation", &["rope", "quant-fp8"]),
    ] {
        let row = readme.lines().find(|line| line.starts_with(&format!("| {label} |"))).expect(label);
        let said = row.split('|').nth(3).unwrap().trim();
        let found: Vec<&str> = ops.iter().map(|op| ours[op]).collect();
        assert_eq!(said, found.join(", "), "{label}");
    }
}

#[test]
fn charts_are_drawn_as_pixels_too() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["report", RUN, "--format", "png", "--dark", "--filter", "softmax", "--out", dir.path().to_str().unwrap()];
    let done = output(&args);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let file = std::fs::read(dir.path().join("softmax_comparison_Test_processor.png")).unwrap();
    assert!(file.starts_with(b"\x89PNG") && file[16..20] == 2400u32.to_be_bytes(), "twice as wide as on a screen");
    let out = output(&["report", RUN, "--format", "svg", "--dark", "--out", "x"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--format png"), "{}", text(&out.stderr));
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
    assert!(
        details[0]["behind"]["command"].as_str().unwrap().starts_with(again),
        "{}",
        details[0]["behind"]["command"]
    );
    assert_eq!(details[0]["samples_ns"].as_array().unwrap().len(), 60);
    let facts = data["runs"][0]["facts"].to_string();
    assert!(facts.contains(r#"["run","RUN"]"#) && !facts.contains("commit"), "{facts}");
    let pictures: Vec<String> = serde_json::from_str(inside(&page, "pictures")).unwrap();
    assert_eq!(pictures.len(), data["charts"].as_array().unwrap().len());
    let bare = page.len() - ["data", "details", "pictures"].map(|id| inside(&page, id).len()).iter().sum::<usize>();
    assert!(bare < 1 << 20, "{bare} bytes without data");
}

/// Where there is a Chromium, as in CI: the page shows its rows, sorts them, opens one, and complains of nothing.
#[test]
fn a_browser_shows_sorts_and_opens_rows() {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let Some(browser) = std::env::split_paths(&paths).map(|dir| dir.join("chromium")).find(|path| path.exists()) else {
        assert!(std::env::var_os("KMARK_TEST_ALL").is_none(), "Chromium is not installed");
        eprintln!("skipped: there is no chromium");
        return;
    };
    let click = "<script>document.querySelectorAll('#head button')[3].click();document.querySelector('button.open').click()</script>";
    let page = report("html", &[]).replace("</body>", &format!("{click}</body>"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("page.html");
    std::fs::write(&file, page).unwrap();
    let out = std::process::Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", dir.path().join("user").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let shown = text(&out.stdout);
    let (shown, _) = shown.split_once("<script type=\"application/json\"").expect("the page was loaded");
    for part in
        ["13 rows", "aria-sort=\"ascending\"", "aria-expanded=\"true\"", "id=\"more-", "Run it again", "<circle"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let log = String::from_utf8_lossy(&out.stderr);
    assert!(!log.contains(":CONSOLE"), "{log}");
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
    let compared = output(&["compare", run, run]);
    assert!(compared.status.code().is_some() && !compared.stdout.contains(&0x1b), "{}", text(&compared.stdout));
    for (bad, says) in [("NaN", "expected value"), ("1e999", "out of range")] {
        let broken = records.replacen("4169286.6", bad, 1);
        std::fs::write(dir.path().join("records.jsonl"), broken).unwrap();
        let out = output(&["report", run, "--format", "html"]);
        let line = text(&out.stderr);
        assert!(out.status.code() == Some(2) && line.contains("records.jsonl:1:") && line.contains(says), "{line}");
    }
}

/// A run whose words and numbers are as bad as they can be.
fn extreme(dir: &std::path::Path) {
    let evil = "=1+1 </script><script>alert(1)</script>|\u{1b}[31m\n# x";
    let of = |file: &str| std::fs::read_to_string(format!("{RUN}/{file}")).unwrap();
    let mut run: serde_json::Value = serde_json::from_str(&of("run.json")).unwrap();
    for name in ["host", "no_roofs"] {
        run[name] = evil.into();
    }
    run["git"] = serde_json::json!({"commit": evil, "dirty": true});
    (run["selection"], run["tags"]) = (vec![evil].into(), vec![evil].into());
    (run["device"]["name"], run["environment"][evil]) = (evil.into(), evil.into());
    (run["roofs"]["copy"], run["roofs"]["read"]) = (1e-300.into(), 1e300.into());
    run["roofs"]["matrix"] = serde_json::json!({"bf16": 1e300});
    std::fs::write(dir.join("run.json"), run.to_string()).unwrap();
    let mut lines = String::new();
    for (i, line) in of("records.jsonl").lines().enumerate() {
        let mut r: serde_json::Value = serde_json::from_str(line).unwrap();
        let most = if i % 2 == 0 { 0 } else { u64::MAX };
        r["cost"] = serde_json::json!({"bytes_read": most, "bytes_written": most, "flops": most});
        r["axes"]["m"] = u64::MAX.into();
        for (j, v) in r["samples_ns"].as_array_mut().unwrap().iter_mut().enumerate() {
            *v = [1e300, 5e-324, 1.7e308, 1.0][(i + j) % 4].into();
        }
        r["clock_mhz"].as_array_mut().unwrap().iter_mut().for_each(|v| *v = 1e300.into());
        lines += &format!("{r}\n");
    }
    std::fs::write(dir.join("records.jsonl"), lines).unwrap();
}

#[test]
fn extreme_words_and_numbers_break_no_format() {
    let dir = tempfile::tempdir().unwrap();
    extreme(dir.path());
    let run = dir.path().to_str().unwrap();
    for format in ["table", "csv", "jsonl", "json", "markdown", "html"] {
        let shown = report_of(run, format, &[]);
        // The JSON of programs is no page; of ours, one script has no attributes.
        let ours = match format {
            "html" => Some(1),
            "markdown" => Some(0),
            _ => None,
        };
        assert!(ours.is_none_or(|n| shown.matches("<script>").count() == n), "{format}");
        assert!(format != "table" || !shown.contains('\u{1b}'), "{format}");
    }
    let why: serde_json::Value = serde_json::from_str(&report_of(run, "json", &[])).unwrap();
    assert!(why[0]["no_roofs"].as_str().unwrap().starts_with("=1+1"));
    let page: serde_json::Value = serde_json::from_str(inside(&report_of(run, "html", &[]), "data")).unwrap();
    let facts: Vec<&str> =
        page["runs"][0]["facts"].as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap()).collect();
    assert!(["host", "commit", "tags", "no roofs"].iter().all(|name| facts.contains(name)), "{facts:?}");
    for format in ["svg", "png"] {
        let out = dir.path().join(format);
        let done = output(&["report", run, "--format", format, "--out", out.to_str().unwrap(), "--filter", "softmax"]);
        assert!(done.status.success(), "{format}: {}", text(&done.stderr));
        assert!(std::fs::read_dir(out).unwrap().count() > 2, "{format}");
    }
    assert!(output(&["compare", run, run]).status.code().is_some_and(|code| code < 5));
    assert!(output(&["history", run]).status.success());
}
