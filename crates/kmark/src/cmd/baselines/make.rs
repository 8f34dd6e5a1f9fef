//! `kmark baselines install` and `bundle`: everything is decided and checked here, then one script does it.

use super::arch;
use crate::baselines::script::{self, Facts};
use crate::baselines::{Baseline, TORCH, default_python, find, find_all};
use crate::cli::{BundleArgs, InstallArgs};
use crate::cmd::{print, say};
use crate::error::{Error, Result};
use crate::units;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Wheels are pinned for this one; elsewhere there is nothing to install.
const PLATFORM: &str = "linux x86_64";
/// Parts smaller than this are a slip of the finger.
const SMALLEST_PART: u64 = 64 << 10;

pub fn install(args: &InstallArgs) -> Result<u8> {
    let asked = find_all(&args.names)?;
    let python = args.python.clone().unwrap_or_else(default_python);
    let facts = probe(&python)?;
    if let Some(from) = args.from.as_ref().filter(|f| !f.join("bundle.json").is_file()) {
        return Err(Error::usage(format!(
            "--from {}: no bundle.json; `kmark baselines bundle` makes one",
            from.display()
        )));
    }
    // Nothing is begun that could have been known to fail.
    let links = asked.iter().map(|b| links(b, &facts, args)).collect::<Result<Vec<bool>>>()?;
    for (b, link) in asked.into_iter().zip(links) {
        if args.dry_run {
            print(&plan(b, link, &facts, args)?)?;
            continue;
        }
        let job = json!({
            "kmark": env!("CARGO_PKG_VERSION"), "target": b.dir()?, "force": args.force, "link": link,
            "python": facts.minor(), "from": args.from.as_deref().map(absolute), "environment": environment(b, !link),
        });
        script::call(&python, script::INSTALL, &job)?;
        say(&format!("{}: installed; `kmark baselines check {}` imports it", b.name, b.name));
    }
    Ok(0)
}

/// Whether the environment uses the interpreter's torch.
fn links(b: &Baseline, facts: &Facts, args: &InstallArgs) -> Result<bool> {
    let dir = b.dir()?;
    if dir.exists() && !args.force {
        return Err(Error::usage(format!("{} is there already in {}; --force makes it anew", b.name, dir.display())));
    }
    if !b.runs_on(&facts.python) {
        let line = format!("{} needs Python {}; {} is {}", b.name, b.python, facts.executable, facts.python);
        return Err(Error::usage(format!("{line}; --python names another")));
    }
    if b.torch.is_none() {
        return Ok(false);
    }
    let fits = facts.torch.as_ref().is_some_and(|t| b.takes(&t.version, t.cuda.as_deref()));
    match (fits, args.with_torch || b.name == TORCH) {
        (true, _) => Ok(!args.with_torch),
        (false, true) => Ok(false),
        (false, false) => {
            let has = facts.torch.as_ref().map_or("no torch".into(), |t| format!("torch {}", t.version));
            let ways = "--with-torch installs it into the environment, --python names an interpreter that has it";
            Err(Error::usage(format!("{} needs {}; {} has {has}; {ways}", b.name, b.wants_torch(), facts.executable)))
        }
    }
}

/// What the scripts are told of an environment.
fn environment(b: &Baseline, with_torch: bool) -> Value {
    let arch = if b.sources.is_empty() { None } else { arch() };
    let sources: Vec<_> = b.sources.iter().map(|s| s.filled(arch.as_deref())).collect();
    let linked_torch = b.name == TORCH && !with_torch;
    let packages = if linked_torch { Vec::new() } else { b.closure(with_torch && b.torch.is_some()) };
    json!({"name": b.name, "text": b.text, "packages": packages, "sources": sources})
}

fn plan(b: &Baseline, link: bool, facts: &Facts, args: &InstallArgs) -> Result<String> {
    let dir = b.dir()?;
    let verb = if dir.exists() { "replaces" } else { "makes" };
    let mut text = format!("{} {verb} {}\n", b.name, dir.display());
    let mut put = |line: String| text.push_str(&format!("  {line}\n"));
    put(format!("with Python {} of {}", facts.python, facts.executable));
    if link {
        put(format!("and its {}", b.wants_torch()));
    }
    let environment = environment(b, !link);
    match &args.from {
        Some(from) => put(format!("from the bundle in {}", from.display())),
        None if environment["packages"].as_array().is_some_and(|p| !p.is_empty()) => {
            put("downloads, each held to its sha256:".into())
        }
        None => {}
    }
    for p in environment["packages"].as_array().into_iter().flatten() {
        let part = if p["only"].as_array().is_some_and(|o| !o.is_empty()) { " (a part of it)" } else { "" };
        put(format!("  {} {}{part}", words(&p["name"]), words(&p["version"])));
    }
    for s in &b.sources {
        put(format!("  {} {}, built from source with {}", s.name, s.version, s.needs.join(" and ")));
    }
    Ok(text)
}

fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn bundle(args: &BundleArgs) -> Result<u8> {
    let mut asked = find_all(&args.names)?;
    if args.with_torch {
        // First, so that what others share with it is in its archive.
        asked.retain(|b| b.name != TORCH);
        asked.insert(0, find(TORCH).expect("it is built in"));
    }
    let out = &args.out;
    if out.exists() && std::fs::read_dir(out).map_or(true, |mut entries| entries.next().is_some()) {
        return Err(Error::usage(format!("--out {} exists and is not an empty folder", out.display())));
    }
    if args.split < SMALLEST_PART {
        let line = format!("--split {}: parts have at least {}", args.split, units::bytes(SMALLEST_PART));
        return Err(Error::usage(line));
    }
    let python = default_python();
    let facts = probe(&python)?;
    let version = args.python_version.clone().unwrap_or_else(|| facts.minor().to_string());
    if let Some(b) = asked.iter().find(|b| !b.runs_on(&version)) {
        return Err(Error::usage(format!("--python-version {version}: {} needs {}", b.name, b.python)));
    }
    if let Some(b) = asked.iter().find(|b| !b.sources.is_empty()) {
        // What is built here must be built for there.
        let fits = facts.torch.as_ref().is_some_and(|t| b.takes(&t.version, t.cuda.as_deref()));
        if facts.minor() != version || !fits {
            let wants = b.wants_torch();
            let line = format!("{} is built from source, by a Python {version} that has {wants}", b.name);
            return Err(Error::usage(format!("{line}; KMARK_PYTHON names one")));
        }
    }
    let environments: Vec<Value> = asked.iter().map(|b| environment(b, b.name == TORCH)).collect();
    let job = json!({
        "kmark": env!("CARGO_PKG_VERSION"), "out": absolute(out), "split": args.split, "level": args.level, "python": version,
        "environments": environments,
    });
    let manifest = script::call(&python, script::BUNDLE, &job)?;
    print(&summary(&manifest, out))?;
    Ok(0)
}

fn summary(manifest: &Value, out: &Path) -> String {
    let mut text = String::new();
    for (name, archive) in manifest["archives"].as_object().into_iter().flatten() {
        let parts: Vec<u64> =
            archive["parts"].as_array().into_iter().flatten().filter_map(|p| p["bytes"].as_u64()).collect();
        let total = units::bytes(parts.iter().sum());
        text.push_str(&format!("{name}: {total} in {} parts\n", parts.len()));
    }
    let names: Vec<&str> =
        manifest["environments"].as_object().into_iter().flatten().map(|(n, _)| n.as_str()).collect();
    text + &format!("there: kmark baselines install {} --from {}\n", names.join(" "), out.display())
}

fn probe(python: &Path) -> Result<Facts> {
    let facts = script::probe(python)?;
    if facts.platform != PLATFORM {
        return Err(Error::usage(format!("wheels are pinned for {PLATFORM}; this is {}", facts.platform)));
    }
    Ok(facts)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}
