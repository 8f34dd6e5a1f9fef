//! Many records: a long run reported, a fleet's runs collected and merged, a page in a browser. They are copies of the
//! records of a small run, under other names and with as many samples as it takes.

use super::{KMARK, line, taken};
use serde_json::Value;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/run");

/// A run of so many records in `dir`, each with so many samples.
fn make(dir: &Path, records: usize, samples: usize) {
    std::fs::create_dir_all(dir).expect("writable");
    std::fs::copy(format!("{RUN}/run.json"), dir.join("run.json")).expect("writable");
    let text = std::fs::read_to_string(format!("{RUN}/records.jsonl")).expect("it is there");
    let mut kinds: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    for r in &mut kinds {
        let taken = r["samples_ns"].as_array().expect("a list").len();
        let visits = r["visits"].as_array().map_or(0, Vec::len);
        if taken > 0 {
            let each = samples / visits;
            let ns = |i: usize| 4.2e6 + ((i * 7919) % 1000) as f64 * 83.1;
            r["samples_ns"] = (0..each * visits).map(ns).collect();
            r["clock_mhz"] = (0..each * visits).map(|i| 1980.0 - (i % 7) as f64).collect();
            r["visits"].as_array_mut().expect("a list").iter_mut().for_each(|v| v["samples"] = each.into());
        }
    }
    let mut file = BufWriter::new(File::create(dir.join("records.jsonl")).expect("writable"));
    for i in 0..records {
        let r = &mut kinds[i % 13];
        (r["axes"]["m"], r["case"]) =
            ((1024 + i).into(), format!("{}/m{}", r["op"].as_str().unwrap(), 1024 + i).into());
        writeln!(file, "{r}").expect("writable");
    }
}

/// 40,000 records of 30 KB each.
pub fn many(dir: &Path) {
    let run = dir.join("many");
    make(&run, 40_000, 2_300);
    let bytes = std::fs::metadata(run.join("records.jsonl")).expect("it is there").len();
    for format in ["table", "markdown", "csv", "jsonl", "json"] {
        let took = taken(Command::new(KMARK).args(["report", "--format", format]).arg(&run));
        let what = format!("report --format {format}, 40,000 records, {:.1} GB", bytes as f64 / 1e9);
        line(&what, took.to_string(), "below 5 s, 200 MB");
    }
    let _ = std::fs::remove_dir_all(run);
}

/// 10,000 cases over 500 tasks that a line of shell has queued, and the records that they would have left.
pub fn fleet(dir: &Path) {
    let (bin, out) = (dir.join("bin"), dir.join("fleet"));
    std::fs::create_dir_all(&bin).expect("writable");
    let script = |name: &str, says: &str| {
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{says}\n")).expect("writable");
        Command::new("chmod").arg("+x").arg(bin.join(name)).status().expect("chmod runs");
    };
    script("sbatch", "echo 7");
    script("squeue", "exit 0");
    let sizes = |name: &str, from: usize| {
        format!("{name}={}", (from..from + 100).map(|n| n.to_string()).collect::<Vec<_>>().join(","))
    };
    let mut submit = Command::new(KMARK);
    submit.env("PATH", &bin).args(["submit", "softmax", "--dtype", "f32", "--set", &sizes("m", 1)]);
    submit.args(["--set", &sizes("n", 500), "--slurm", "--nodes", "500", "--out"]).arg(&out);
    line("10,000 cases planned over 500 tasks", taken(&mut submit).to_string(), "below 2 s, 500 MB");

    let one = dir.join("one");
    make(&one, 1, 2_300);
    let records = std::fs::read_to_string(one.join("records.jsonl")).expect("it is there");
    let mut record: Value = serde_json::from_str(records.lines().next().expect("a line")).expect("JSON");
    let told_run = std::fs::read_to_string(format!("{RUN}/run.json")).expect("it is there");
    let plan: Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("plan.json")).expect("it is there")).expect("JSON");
    let mut runs = Vec::new();
    for (task, cases) in plan.as_array().expect("a list").iter().enumerate() {
        let run = out.join(format!("shards/{}/1/run", task + 1));
        std::fs::create_dir_all(&run).expect("writable");
        std::fs::write(run.join("run.json"), told_run.replace("\"run\"", &format!("\"task\", \"{task}\"")))
            .expect("writable");
        let mut file = BufWriter::new(File::create(run.join("records.jsonl")).expect("writable"));
        for case in cases.as_array().expect("a list") {
            record["case"] = case["case"].clone();
            for name in case["impls"].as_object().expect("a map").keys() {
                record["impl"] = name.as_str().into();
                writeln!(file, "{record}").expect("writable");
            }
        }
        runs.push(run);
    }
    let collect = taken(Command::new(KMARK).env("PATH", &bin).arg("collect").arg(&out));
    line("collected: 20,000 records of 30 KB", collect.to_string(), "below 5 s, 500 MB");
    let merge = taken(Command::new(KMARK).arg("merge").args(&runs).arg("--out").arg(dir.join("merged")));
    line("merged: 500 runs", merge.to_string(), "below 5 s, 500 MB");
    let _ = std::fs::remove_dir_all(out);
    let _ = std::fs::remove_dir_all(dir.join("merged"));
}

/// Measures what a reader waits for, and leaves it in the title.
const WATCH: &str = "<script>addEventListener('load', () => {
  const loaded = performance.now(), times = [];
  for (const button of document.querySelectorAll('#head button')) {
    const start = performance.now();
    button.click();
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
  }
  const asked = performance.getEntriesByType('resource').length;
  document.title = ['kmark', loaded, Math.max(...times), asked, document.getElementById('count').textContent].join(';');
});</script>";

/// 10,000 records in Chromium, where there is one.
pub fn page(dir: &Path) {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("there is no chromium: the page was not tried");
        return;
    }
    let (run, file) = (dir.join("page"), dir.join("page.html"));
    make(&run, 10_000, 200);
    let arg = |path: &Path| path.to_str().expect("text").to_string();
    let made = taken(Command::new(KMARK).args(["report", &arg(&run), "--format", "html", "--out", &arg(&file)]));
    let page = std::fs::read_to_string(&file).expect("it was made");
    let size = page.len() as f64 / 1e6;
    line(&format!("page of 10,000 records made, {size:.0} MB"), made.to_string(), "");
    let open = page.replace("</body>", &format!("{WATCH}</body>"));
    std::fs::write(&file, open).expect("writable");
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]);
    let shown = browser
        .arg(format!("--user-data-dir={}", arg(&dir.join("user"))))
        .arg(format!("file://{}", arg(&file)))
        .output();
    let shown = shown.expect("it runs");
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    let complaints = said.lines().filter(|l| l.contains("CONSOLE")).count();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let title = text.split_once("<title>").and_then(|(_, t)| t.split_once("</title>")).map_or("", |(t, _)| t);
    let words: Vec<&str> = title.split(';').collect();
    let ["kmark", loaded, sorted, asked, rows] = words[..] else { panic!("the page did not load: {title} {said}") };
    let ms = |word: &str| word.parse::<f64>().map_or(word.to_string(), |ms| format!("{ms:.0} ms"));
    line(&format!("loaded, {rows}"), ms(loaded), "below 2000 ms");
    line("sorted, the slowest column", ms(sorted), "below 200 ms");
    line("requests, and words on the console", format!("{asked}, {complaints}"), "0, 0");
    let _ = std::fs::remove_dir_all(run);
}
