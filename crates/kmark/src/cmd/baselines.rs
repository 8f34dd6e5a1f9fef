//! `kmark baselines`: the Python libraries that impls are compared with, each in an environment of its own.

mod make;

use super::list::Listing;
use super::{print, say, to_json};
use crate::baselines::{self, Baseline, TORCH, script};
use crate::cli::{BaselinesArgs, BaselinesWhat};
use crate::device::{gpus, kernel_cache};
use crate::error::{CASE_FAILED, Error, Result};
use crate::units;
use indexmap::IndexMap;
use kmark_core::spelling::unknown;
use kmark_device::cuda::Cuda;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::path::Path;

/// (op, family) of every adapter.
type Adapters = Vec<(String, String)>;

/// `adapters` is asked only where a verb needs to know them.
pub fn run(args: BaselinesArgs, adapters: impl FnOnce() -> Result<Adapters>) -> Result<u8> {
    match args.what {
        BaselinesWhat::List { op, json } => list(&adapters()?, op.as_deref(), json),
        BaselinesWhat::Check { names, json } => check(&names, json),
        BaselinesWhat::Install(args) => make::install(&args),
        BaselinesWhat::Bundle(args) => make::bundle(&args),
    }
}

fn list(adapters: &[(String, String)], op: Option<&str>, json: bool) -> Result<u8> {
    if let Some(op) = op.filter(|op| kmark_ops::find(op).is_none()) {
        return Err(Error::usage(unknown("op", op, kmark_ops::OPS.iter().map(|e| e.op.name))));
    }
    let mut list = Listing::new(&["environment", "installed", "family", "ops", "about"]);
    for b in baselines::all() {
        let size = b.installed().map(|dir| size(&dir));
        let (mut name, mut installed) = (b.name.as_str(), size.map_or("no".into(), units::bytes));
        let mut about = b.about.as_str();
        for family in b.families.keys() {
            let ops: Vec<&str> = adapters.iter().filter(|(_, f)| f == family).map(|(op, _)| op.as_str()).collect();
            if op.is_some_and(|op| !ops.contains(&op)) {
                continue;
            }
            let json = json!({
                "environment": b.name, "family": family, "about": b.about, "torch": b.torch, "cuda": b.cuda,
                "installed": size.is_some(), "bytes": size, "python": baselines::python_of(family), "ops": ops,
                "install": baselines::install_hint(family),
                "packages": b.closure(false).iter().map(|p| format!("{}=={}", p.name, p.version)).collect::<Vec<_>>(),
            });
            list.push(&[name, &installed, family, &ops.join(" "), about], json);
            // Once per environment.
            (name, about) = ("", "");
            installed.clear();
        }
    }
    list.print(json)?;
    Ok(0)
}

/// Bytes of all files below a folder; what a link points to is not in it.
fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let of = |e: std::fs::DirEntry| match e.file_type() {
        Ok(t) if t.is_dir() => size(&e.path()),
        Ok(t) if t.is_file() => e.metadata().map_or(0, |m| m.len()),
        _ => 0,
    };
    entries.map(of).sum()
}

/// The architecture of the first GPU, if there is one.
fn arch() -> Option<String> {
    gpus().ok().filter(|n| *n > 0)?;
    Cuda::open(0, kernel_cache(), kmark_ops::headers()).ok().map(|c| c.arch().to_string())
}

/// What `check` finds in one environment.
#[derive(Serialize)]
struct Receipt {
    environment: String,
    dir: String,
    ok: bool,
    python: Option<String>,
    /// The interpreter whose torch it uses.
    linked_to: Option<String>,
    torch: Option<Found>,
    cuda: Option<Found>,
    packages: Vec<Found>,
    /// Per family: nothing, or why its module cannot be imported.
    families: IndexMap<String, Option<String>>,
    /// Why nothing else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

#[derive(Serialize)]
struct Found {
    name: String,
    wanted: String,
    found: Option<String>,
    ok: bool,
}

impl Found {
    fn new(name: &str, wanted: &str, found: Option<&str>) -> Found {
        Found { name: name.into(), wanted: wanted.into(), found: found.map(String::from), ok: found == Some(wanted) }
    }

    fn words(&self) -> String {
        match &self.found {
            Some(found) if self.ok => format!("{} {found}", self.name),
            Some(found) => format!("{} {found}, wanted {}", self.name, self.wanted),
            None => format!("{} is missing, wanted {}", self.name, self.wanted),
        }
    }
}

/// What `install` wrote, as far as `check` needs it.
#[derive(Deserialize)]
struct Written {
    linked: bool,
    base: script::Facts,
}

/// The answer of check.py.
#[derive(Deserialize)]
struct Seen {
    facts: script::Facts,
    versions: IndexMap<String, Option<String>>,
    imports: IndexMap<String, Option<String>>,
}

fn check(names: &[String], json: bool) -> Result<u8> {
    let mut asked = baselines::find_all(names)?;
    if names.is_empty() {
        asked = baselines::all().iter().filter(|b| b.installed().is_some()).collect();
    }
    let arch = if asked.is_empty() { None } else { arch() };
    let receipts = asked.iter().map(|b| receipt(b, arch.as_deref())).collect::<Result<Vec<_>>>()?;
    if json {
        print(&to_json(&receipts))?;
    } else {
        receipts.iter().try_for_each(|r| print(&r.words()))?;
    }
    if receipts.is_empty() {
        say("no environment is installed; `kmark baselines list` shows them, `kmark baselines install NAME` makes one");
    }
    Ok(if receipts.iter().all(|r| r.ok) { 0 } else { CASE_FAILED })
}

fn receipt(b: &'static Baseline, arch: Option<&str>) -> Result<Receipt> {
    let dir = b.dir()?;
    let mut receipt = Receipt {
        environment: b.name.clone(),
        dir: dir.display().to_string(),
        ok: false,
        python: None,
        linked_to: None,
        torch: None,
        cuda: None,
        packages: Vec::new(),
        families: IndexMap::new(),
        fault: None,
    };
    if b.installed().is_none() {
        receipt.fault = Some(format!("not installed; `{}`", baselines::install_hint(&b.name)));
        return Ok(receipt);
    }
    match look(b, &dir, arch) {
        Ok((written, seen)) => receipt.fill(b, written, seen),
        Err(e) => receipt.fault = Some(format!("{e}; `{} --force` makes it anew", baselines::install_hint(&b.name))),
    }
    Ok(receipt)
}

fn look(b: &Baseline, dir: &Path, arch: Option<&str>) -> Result<(Written, Seen)> {
    let file = dir.join("receipt.json");
    let broken = |why: String| Error::own(format!("{}: {why}", file.display()));
    let text = std::fs::read_to_string(&file).map_err(|e| broken(e.to_string()))?;
    let written: Written = serde_json::from_str(&text).map_err(|e| broken(e.to_string()))?;
    let family = |(name, module): (&String, &String)| {
        let env: IndexMap<String, String> = baselines::env_of(name, arch).into_iter().collect();
        json!({"name": name, "module": module, "env": env})
    };
    let job = json!({
        "name": b.name,
        "packages": wanted(b, &written).iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(),
        "families": b.families.iter().map(family).collect::<Vec<_>>(),
    });
    let answer = script::call(&dir.join("bin/python"), script::CHECK, &job)?;
    let seen = serde_json::from_value(answer).map_err(|e| Error::own(format!("its Python talks nonsense: {e}")))?;
    Ok((written, seen))
}

/// Names and versions that must be in the environment. Where torch is another interpreter's, only what torch says of
/// itself counts: it may have been built on the spot, without the packages that the index's torch stands on.
fn wanted(b: &Baseline, written: &Written) -> Vec<(String, String)> {
    let packages =
        if written.linked && b.name == TORCH { Vec::new() } else { b.closure(!written.linked && b.torch.is_some()) };
    let sources = b.sources.iter().map(|s| (s.name.clone(), s.version.clone()));
    packages.into_iter().map(|p| (p.name, p.version)).chain(sources).collect()
}

impl Receipt {
    fn fill(&mut self, b: &Baseline, written: Written, seen: Seen) {
        let version = |name: &str| seen.versions.get(name).and_then(|v| v.as_deref());
        self.packages = wanted(b, &written).iter().map(|(n, v)| Found::new(n, v, version(n))).collect();
        if let Some(wanted) = &b.torch {
            let torch = seen.facts.torch.as_ref();
            let mut found = Found::new("torch", wanted, torch.map(|t| t.version.as_str()));
            found.ok = torch.is_some_and(|t| b.takes(&t.version, t.cuda.as_deref()));
            self.cuda = b.cuda.as_ref().map(|c| Found::new("CUDA", c, torch.and_then(|t| t.cuda.as_deref())));
            self.torch = Some(found);
        }
        self.linked_to = written.linked.then_some(written.base.executable);
        self.python = Some(seen.facts.python);
        self.families = seen.imports;
        let mut versions = self.packages.iter().chain(&self.torch).chain(&self.cuda);
        self.ok = versions.all(|f| f.ok) && self.families.values().all(|why| why.is_none());
    }

    fn words(&self) -> String {
        let mut text = format!("{}: {}\n", self.environment, if self.ok { "ok" } else { "broken" });
        let mut put = |name: &str, value: &str| text.push_str(&format!("  {name:14}  {value}\n"));
        put("folder", &self.dir);
        if let Some(fault) = &self.fault {
            put("", fault);
        }
        if let Some(python) = &self.python {
            put("python", python);
        }
        for found in self.torch.iter().chain(&self.cuda) {
            let of = self.linked_to.as_ref().map(|p| format!(" (of {p})")).unwrap_or_default();
            put("", &format!("{}{of}", found.words()));
        }
        self.packages.iter().for_each(|p| put("", &p.words()));
        for (family, why) in &self.families {
            put(family, why.as_deref().unwrap_or("ok"));
        }
        text
    }
}
