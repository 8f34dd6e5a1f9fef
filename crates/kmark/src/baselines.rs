//! Environments of Python libraries: what is pinned, where it is installed, which interpreter and variables a family of
//! impls gets. Data and paths: nothing is run here but by `script`, and nothing is downloaded.

pub mod script;

use crate::error::{Error, Result};
use crate::interpreter;
use indexmap::IndexMap;
use kmark_core::spelling::unknown;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Names and TOML texts of the environments in the binary.
static BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/baselines.rs"));

static ALL: LazyLock<Vec<Baseline>> = LazyLock::new(|| {
    BUILT_IN.iter().map(|(n, text)| Baseline::parse(n, text).unwrap_or_else(|e| panic!("{e}"))).collect()
});

/// The environment whose packages are torch and all that it needs.
pub const TORCH: &str = "torch";

/// One environment: packages that work together, at exact versions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    #[serde(skip)]
    pub name: String,
    #[serde(skip)]
    pub text: &'static str,
    pub about: String,
    /// Which Pythons there are wheels for: `>=3.11, <3.14`.
    pub python: String,
    /// The one version of torch that it works with; none: it needs no torch.
    pub torch: Option<String>,
    /// The CUDA version that torch must be built for.
    pub cuda: Option<String>,
    /// Families of impls that run here, each with the module that shows whether it works.
    pub families: IndexMap<String, String>,
    #[serde(default)]
    env: IndexMap<String, Setting>,
    #[serde(default, rename = "package")]
    pub packages: Vec<Package>,
    #[serde(default, rename = "source")]
    pub sources: Vec<Source>,
}

/// A variable of all families, or a table of variables of the family that it is named after.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Setting {
    All(String),
    Family(IndexMap<String, String>),
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Of every wheel that may be taken, one per Python at most.
    pub sha256: Vec<String>,
    /// Take only files like these out of the wheel.
    #[serde(default)]
    pub only: Vec<String>,
    /// What their paths lose in front.
    #[serde(default)]
    pub strip: String,
    /// Files to add to them: path and text.
    #[serde(default)]
    pub write: IndexMap<String, String>,
}

/// A package that exists only as source for this torch.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub name: String,
    pub version: String,
    /// Where its authors work, for people.
    pub repository: String,
    /// An archive that pip can build, and its hash.
    pub url: String,
    pub sha256: String,
    /// Programs without which there is no building.
    #[serde(default)]
    pub needs: Vec<String>,
    #[serde(default)]
    pub env: IndexMap<String, String>,
}

pub fn all() -> &'static [Baseline] {
    &ALL
}

/// By the name of an environment, or of a family that runs in it.
pub fn find(word: &str) -> Option<&'static Baseline> {
    all().iter().find(|b| b.name == word).or_else(|| all().iter().find(|b| b.families.contains_key(word)))
}

/// Each once, in the order in which they were named.
pub fn find_all(words: &[String]) -> Result<Vec<&'static Baseline>> {
    let mut found: Vec<&'static Baseline> = Vec::new();
    for word in words {
        let known = || {
            let names = all().iter().map(|b| b.name.as_str());
            names.chain(all().iter().flat_map(|b| b.families.keys().map(String::as_str).filter(|f| *f != b.name)))
        };
        let b = find(word).ok_or_else(|| Error::usage(unknown("baseline", word, known())))?;
        if !found.iter().any(|f| f.name == b.name) {
            found.push(b);
        }
    }
    Ok(found)
}

/// The folder of all environments.
fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = set("KMARK_HOME").or_else(|| set("XDG_DATA_HOME").map(|d| d.join("kmark")));
    let home = home.or_else(|| set("HOME").map(|h| h.join(".local/share/kmark")))?;
    std::path::absolute(home.join("baselines")).ok()
}

/// The interpreter where no environment is installed: `$KMARK_PYTHON`, else the one that this program was installed with,
/// else `python3`.
pub fn default_python() -> PathBuf {
    let set = std::env::var_os("KMARK_PYTHON").filter(|v| !v.is_empty()).map(PathBuf::from);
    set.or_else(interpreter::own).unwrap_or_else(|| "python3".into())
}

/// The interpreter that runs a family: its environment's, else the one above.
pub fn python_of(family: &str) -> PathBuf {
    find(family).and_then(Baseline::installed).map_or_else(default_python, |dir| dir.join("bin/python"))
}

/// Variables that a family's process gets on a GPU of this architecture (`sm_90a`).
pub fn env_of(family: &str, arch: Option<&str>) -> Vec<(String, String)> {
    let Some(baseline) = find(family) else { return Vec::new() };
    let dir = baseline.installed();
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let mut env = baseline.settings(family, arch, dir.as_deref().and_then(site).as_deref(), set);
    if let Some(dir) = dir {
        // Its programs, such as ninja, before those of the system.
        env.push(("PATH".into(), in_front(dir.join("bin").display().to_string(), set("PATH"))));
    }
    env
}

/// What to type to get a family's libraries.
pub fn install_hint(family: &str) -> String {
    format!("kmark baselines install {}", find(family).map_or(family, |b| b.name.as_str()))
}

/// Where an environment keeps its packages.
fn site(dir: &Path) -> Option<String> {
    let mut entries = std::fs::read_dir(dir.join("lib")).ok()?.flatten().map(|e| e.path());
    let lib = entries.find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")))?;
    Some(lib.join("site-packages").display().to_string())
}

/// `new` before what a search path has already.
fn in_front(new: String, old: Option<String>) -> String {
    old.map_or(new.clone(), |old| format!("{new}:{old}"))
}

/// A value with `{arch}` (sm_90a), `{sm}` (90), `{capability}` (9.0a) and `{site}` filled in; `None` if one is not known.
fn fill(value: &str, arch: Option<&str>, site: Option<&str>) -> Option<String> {
    let number = arch.map(|a| a.trim_start_matches("sm_"));
    let split = number.and_then(|n| n.trim_end_matches(char::is_alphabetic).len().checked_sub(1).map(|at| (n, at)));
    let sm = number.map(|n| n.trim_end_matches(char::is_alphabetic).to_string());
    let capability = split.map(|(n, at)| format!("{}.{}", &n[..at], &n[at..]));
    let known = [
        ("{arch}", arch.map(String::from)),
        ("{sm}", sm),
        ("{capability}", capability),
        ("{site}", site.map(String::from)),
    ];
    known.into_iter().try_fold(value.to_string(), |text, (word, value)| match value {
        Some(value) => Some(text.replace(word, &value)),
        None => (!text.contains(word)).then_some(text),
    })
}

impl Source {
    /// Variables of its build, of which those that the user has set stay as they are.
    pub fn filled(&self, arch: Option<&str>) -> Source {
        let env = self.env.iter().filter_map(|(k, v)| Some((k.clone(), fill(v, arch, None)?))).collect();
        Source { env, ..self.clone() }
    }
}

impl Baseline {
    fn parse(name: &str, text: &'static str) -> Result<Baseline> {
        let wrong = |what: String| Error::own(format!("baselines/{name}.toml: {what}"));
        let parsed: Baseline = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let baseline = Baseline { name: name.into(), text, ..parsed };
        match baseline.fault() {
            Some(what) => Err(wrong(what)),
            None => Ok(baseline),
        }
    }

    /// What cannot be meant like that.
    fn fault(&self) -> Option<String> {
        let hash = |h: &str| h.len() == 64 && h.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let plain = |path: &str| !path.starts_with('/') && !path.split('/').any(|part| part == "..");
        for p in &self.packages {
            if p.sha256.is_empty() || !p.sha256.iter().all(|h| hash(h)) {
                return Some(format!("{}: sha256 is a list of hashes", p.name));
            }
            if p.only.is_empty() && !(p.strip.is_empty() && p.write.is_empty()) {
                return Some(format!("{}: strip and write go with only", p.name));
            }
            if !p.write.keys().all(|path| plain(path)) {
                return Some(format!("{}: write stays inside the environment", p.name));
            }
        }
        if let Some(s) = self.sources.iter().find(|s| !hash(&s.sha256) || !s.url.starts_with("https://")) {
            return Some(format!("{}: a source has an https address and a hash", s.name));
        }
        let stray = self.env.iter().find(|(k, v)| matches!(v, Setting::Family(_)) && !self.families.contains_key(*k));
        if let Some((family, _)) = stray {
            return Some(format!("env.{family} is no family of it"));
        }
        (self.bounds().is_none()).then(|| format!("python = {:?}: write it like >=3.11, <3.14", self.python))
    }

    /// Minor versions of Python 3: from, and before.
    fn bounds(&self) -> Option<(u32, u32)> {
        let (from, before) = self.python.split_once(", ")?;
        Some((from.strip_prefix(">=3.")?.parse().ok()?, before.strip_prefix("<3.")?.parse().ok()?))
    }

    /// Whether there are wheels for this Python, `3.12` or `3.12.1`.
    pub fn runs_on(&self, python: &str) -> bool {
        let minor = python.strip_prefix("3.").and_then(|rest| rest.split('.').next()?.parse().ok());
        self.bounds().zip(minor).is_some_and(|((from, before), m)| from <= m && m < before)
    }

    /// Whether a torch is the one it works with. A local part (`+cu130`) counts only if it is pinned.
    pub fn takes(&self, version: &str, cuda: Option<&str>) -> bool {
        let bare = |v: &'_ str| v.split('+').next().unwrap_or_default().to_string();
        let wanted = self.torch.as_deref().unwrap_or_default();
        let same = if wanted.contains('+') { wanted == version } else { wanted == bare(version) };
        same && (self.cuda.is_none() || self.cuda.as_deref() == cuda)
    }

    pub fn wants_torch(&self) -> String {
        let cuda = self.cuda.as_ref().map(|c| format!(" for CUDA {c}")).unwrap_or_default();
        format!("torch {}{cuda}", self.torch.as_deref().unwrap_or_default())
    }

    /// Where it is, or would be.
    pub fn dir(&self) -> Result<PathBuf> {
        let nowhere = || Error::usage("there is no home folder to install into; set KMARK_HOME");
        folder().map(|f| f.join(&self.name)).ok_or_else(nowhere)
    }

    pub fn installed(&self) -> Option<PathBuf> {
        self.dir().ok().filter(|dir| dir.join("bin/python").exists())
    }

    /// Its packages, and torch's if torch is to be in the environment too; where both name one, its own version counts.
    pub fn closure(&self, with_torch: bool) -> Vec<Package> {
        let torch =
            if with_torch && self.name != TORCH { &find(TORCH).expect("it is built in").packages[..] } else { &[] };
        let missing = torch.iter().filter(|t| !self.packages.iter().any(|p| p.name == t.name));
        missing.chain(&self.packages).cloned().collect()
    }

    /// A variable that the user has set stays; a search path gets ours in front; what cannot be filled in is left out.
    fn settings(
        &self,
        family: &str,
        arch: Option<&str>,
        site: Option<&str>,
        set: impl Fn(&str) -> Option<String>,
    ) -> Vec<(String, String)> {
        let of_all = self.env.iter().filter_map(|(k, v)| match v {
            Setting::All(value) => Some((k, value)),
            Setting::Family(_) => None,
        });
        let own = self.env.get(family).into_iter().flat_map(|s| match s {
            Setting::Family(table) => table.iter().collect(),
            Setting::All(_) => Vec::new(),
        });
        let mut settings = Vec::new();
        for (name, value) in of_all.chain(own) {
            let Some(value) = fill(value, arch, site) else { continue };
            match set(name) {
                old if name.ends_with("_PATH") => settings.push((name.clone(), in_front(value, old))),
                None => settings.push((name.clone(), value)),
                Some(_) => {}
            }
        }
        settings
    }
}

#[cfg(test)]
mod tests;
