//! Impls that Python libraries have: where our package lies, which interpreter runs a family, and what there is. The host
//! never loads Python; it starts a process and reads a list.

mod names;

use crate::baselines;
use crate::device::Choice;
use crate::error::{Error, Result};
use crate::interpreter::installed;
use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::own::OwnOp;
use kmark_core::record::{Status, family, holds_python};
use kmark_core::spelling::unknown;
use kmark_device::buffer::Buffers;
use kmark_device::{Device, Fault, Impl, Launch};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Where the package `kmark` lies, if not beside the program.
pub const PACKAGE_VARIABLE: &str = "KMARK_PACKAGE";
/// The package's compiled module, where it is not in its folder.
const EXTENSION_VARIABLE: &str = "KMARK_EXTENSION";

/// The variables that a worker was given, as it notes them in records.
const SETTINGS_VARIABLE: &str = "KMARK_SETTINGS";

/// Before a file in the name of the process that runs the references of its ops.
pub const JUDGE: &str = "judge:";

/// What to type when a library is missing.
const INSTALL_VARIABLE: &str = "KMARK_INSTALL";

/// Runs a module of our package without putting anything else that lies beside it on the interpreter's path, nor what lies
/// in the current folder, which `-c` would put first: a `numpy.py` there is not NumPy.
const BOOT: &str = "\
import sys
sys.path[:1] = []
import importlib.util, runpy
folder, module = sys.argv[1:3]
spec = importlib.util.spec_from_file_location('kmark', folder + '/__init__.py', submodule_search_locations=[folder])
sys.modules['kmark'] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules['kmark'])
sys.argv[0:3] = [module]
runpy.run_module(module, run_name='__main__')
";

/// An adapter of a Python library, or a function of the user's, as the host knows it.
#[derive(Clone, Debug, Deserialize)]
pub struct PythonImpl {
    /// Empty for a user's function: it is what the case says.
    pub op: String,
    pub name: String,
    pub about: String,
    pub hash: String,
    pub devices: Vec<String>,
}

impl Impl for PythonImpl {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> std::borrow::Cow<'_, str> {
        (&*self.about).into()
    }
    fn hash(&self) -> String {
        self.hash.clone()
    }
    /// The adapter itself says what it does not support, when it binds.
    fn supports(&self, _: &'static Op, _: &Case) -> std::result::Result<(), String> {
        Ok(())
    }
    fn bind(
        &self,
        _: &dyn Device,
        _: &'static Op,
        _: &Case,
        _: &Buffers,
    ) -> std::result::Result<Box<dyn Launch>, Fault> {
        Err(Fault::new(Status::Unavailable, format!("{} runs in a Python process", self.name)))
    }
}

/// All adapters, listed once by the interpreter; `Err` says why that cannot be done.
pub fn catalogue() -> std::result::Result<&'static [PythonImpl], &'static str> {
    CATALOGUE.get_or_init(|| list().map_err(|e| e.message)).as_deref().map_err(String::as_str)
}

static CATALOGUE: OnceLock<std::result::Result<Vec<PythonImpl>, String>> = OnceLock::new();

fn list() -> Result<Vec<PythonImpl>> {
    let python = baselines::default_python();
    let failed = |why: String| Error::own(format!("{} cannot list the adapters: {why}", python.display()));
    told(command(&python, "kmark.catalogue")?).map_err(failed)
}

/// What a file or folder of a user's says of its ops. Its code runs in the process that is asked.
pub fn describe(path: &str) -> Result<Vec<OwnOp>> {
    if !Path::new(path).exists() {
        return Err(Error::usage(format!("{path}: there is no such file")));
    }
    let mut command = worker(&format!("{JUDGE}{path}"), Choice::Cpu)?;
    command.arg("--describe");
    told(command).map_err(|why| Error::usage(format!("{path}: {why}")))
}

/// Runs the references of a file on cases, without judging anything; the error is what is wrong with them.
pub fn try_reference(path: &str, cases: &[String]) -> Result<()> {
    asked::<serde_json::Value>(path, "--try", cases).map(drop)
}

/// The arithmetic of cases, by running their references on shapes alone.
pub fn count_flops(path: &str, cases: &[String]) -> Result<Vec<u64>> {
    asked(path, "--count", cases)
}

fn asked<T: serde::de::DeserializeOwned>(path: &str, flag: &str, cases: &[String]) -> Result<T> {
    let mut command = worker(&format!("{JUDGE}{path}"), Choice::Cpu)?;
    command.args(cases.iter().flat_map(|case| [flag, case]));
    told(command).map_err(|why| Error::usage(format!("{path}: {why}")))
}

/// What a process of ours prints; `Err` is its last line on standard error.
fn told<T: serde::de::DeserializeOwned>(mut command: Command) -> std::result::Result<T, String> {
    let output = command.output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(text.lines().last().unwrap_or("it failed").to_string());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| e.to_string())
}

/// Ops with the families that have adapters for them, each pair once.
pub fn families() -> Result<Vec<(String, String)>> {
    let adapters = catalogue().map_err(Error::own)?.iter();
    let mut pairs: Vec<(String, String)> = adapters.map(|a| (a.op.clone(), family(&a.name))).collect();
    pairs.sort();
    pairs.dedup();
    Ok(pairs)
}

/// The adapters of an op on a kind of device.
pub fn impls_of(op: &str, device: &str) -> Vec<&'static dyn Impl> {
    let all = catalogue().unwrap_or_default().iter();
    let here = all.filter(|i| i.op == op && i.devices.iter().any(|d| d == device));
    here.map(|i| i as &'static dyn Impl).collect()
}

/// Whether a family's worker is a Python process. Only families of listed adapters and of files can be.
pub fn runs(of: &str) -> bool {
    let listed = CATALOGUE.get().and_then(|c| c.as_deref().ok()).unwrap_or_default();
    holds_python(of) || of.starts_with(JUDGE) || listed.iter().any(|i| family(&i.name) == of)
}

/// The command that starts a family's worker.
pub fn worker(family: &str, device: Choice) -> Result<Command> {
    let python = baselines::python_of(family);
    if let (_, Some(built)) = package()?
        && !built.is_file()
    {
        let release = if built.parent().is_some_and(|p| p.ends_with("release")) { " --release" } else { "" };
        return Err(Error::usage(format!("the Python part is not built; cargo build{release} --workspace builds it")));
    }
    let mut command = command(&python, "kmark.worker")?;
    command.args([family, "--device", &device.word()]);
    let variables = baselines::env_of(family, device.arch().as_deref());
    // What was set for this worker alone belongs into its records.
    let said: Vec<String> =
        variables.iter().filter(|(k, _)| !k.ends_with("PATH")).map(|(k, v)| format!("{k}={v}")).collect();
    command.env(SETTINGS_VARIABLE, said.join(" ")).envs(variables);
    if family.starts_with(JUDGE) {
        // A reference makes the same large arrays again and again: fresh pages for each are a third of its time.
        command.envs([("MALLOC_MMAP_THRESHOLD_", "2000000000"), ("MALLOC_TRIM_THRESHOLD_", "4000000000")]);
    }
    if baselines::find(family).is_some() {
        let hint = format!("{} makes an environment that has it", baselines::install_hint(family));
        command.env(INSTALL_VARIABLE, hint);
    }
    Ok(command)
}

fn command(python: &Path, module: &str) -> Result<Command> {
    let (package, extension) = package()?;
    let mut command = Command::new(python);
    command.args(["-c", BOOT]).arg(&package).arg(module);
    command.env("PYTHONUNBUFFERED", "1");
    // Adapters can be listed without it.
    if let Some(extension) = extension.filter(|e| e.is_file()) {
        command.env(EXTENSION_VARIABLE, extension);
    }
    Ok(command)
}

/// The package's folder, and its compiled module if that lies elsewhere: beside the program in an environment, or in a
/// checkout.
fn package() -> Result<(PathBuf, Option<PathBuf>)> {
    let is_package = |dir: &PathBuf| dir.join("registry.py").is_file();
    if let Some(dir) = std::env::var_os(PACKAGE_VARIABLE).map(PathBuf::from) {
        let shown = dir.display().to_string();
        return Some((dir, None))
            .filter(|(d, _)| is_package(d))
            .ok_or_else(|| Error::usage(format!("{PACKAGE_VARIABLE}={shown} is not the folder of the package kmark")));
    }
    let exe = std::env::current_exe().and_then(|e| e.canonicalize());
    let exe = exe.map_err(|e| Error::own(format!("cannot find this program: {e}")))?;
    let beside = exe.parent().unwrap_or(Path::new("."));
    if let Some(dir) = installed(beside).into_iter().find(is_package) {
        return Ok((dir, None));
    }
    if let Some(dir) = exe.ancestors().map(|a| a.join("python/kmark")).find(is_package) {
        let built = beside.join(format!("{}kmark_py{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX));
        return Ok((dir, Some(built)));
    }
    Err(Error::usage(
        "this kmark has no Python part; pip install the kmark wheel, and use the kmark that comes with it",
    ))
}

/// Whether an impl's name is Python code in a file: `./mine.py:fast`, `./solution.json`.
pub fn is_file(name: &str) -> bool {
    holds_python(name.rsplit_once(':').map_or(name, |(path, _)| path))
}

/// A function of the user's, as an impl. What can be known without running the file is checked here.
pub fn user_function(name: &str) -> Result<PythonImpl> {
    let wrong = |what: String| Error::usage(format!("--impl {name}: {what}"));
    if name.ends_with(".json") {
        let bytes = std::fs::read(name).map_err(|e| wrong(e.to_string()))?;
        return Ok(users(name, blake3::hash(&bytes).to_hex()[..16].to_string()));
    }
    let Some((path, function)) = name.rsplit_once(':').filter(|(_, f)| !f.is_empty()) else {
        return Err(wrong("name the function, like ./mine.py:fast".into()));
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let bound = names::bound(&text);
    if !bound.iter().any(|n| n == function || n == names::EVERYTHING) {
        return Err(wrong(unknown("function in the file", function, bound.iter().map(String::as_str))));
    }
    Ok(users(name, hash(Path::new(path))))
}

fn users(name: &str, hash: String) -> PythonImpl {
    let about = "a function of the user's".into();
    PythonImpl { op: String::new(), name: name.to_string(), about, hash, devices: Vec::new() }
}

/// Of a user's file and of the files beside it that it imports, and those that they import.
fn hash(file: &Path) -> String {
    let mut found: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
    let mut paths = vec![file.to_path_buf()];
    while let Some(path) = paths.pop() {
        if found.contains_key(&path) {
            continue;
        }
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        for module in imported(&String::from_utf8_lossy(&bytes)) {
            let beside = folder.join(module.trim_start_matches('.').replace('.', "/"));
            paths.extend([beside.with_extension("py"), beside.join("__init__.py")]);
        }
        found.insert(path, bytes);
    }
    let mut h = blake3::Hasher::new();
    for (path, bytes) in found {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        h.update(&(name.len() as u64).to_le_bytes()).update(name);
        h.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    h.finalize().to_hex()[..16].to_string()
}

/// Modules that a Python text names in its import statements, wherever they stand.
fn imported(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for line in text.lines().map(str::trim_start) {
        let first = |words: &str| words.split_whitespace().next().unwrap_or("").to_string();
        if let Some(rest) = line.strip_prefix("import ") {
            modules.extend(rest.split(',').map(first));
        } else if let Some((from, names)) = line.strip_prefix("from ").and_then(|r| r.split_once(" import ")) {
            let from = from.trim();
            modules.push(from.to_string());
            // `from . import a`, and `from folder import a`, where a is a file.
            let dot = if from.ends_with('.') { "" } else { "." };
            modules.extend(names.trim_matches(['(', ')', ' ']).split(',').map(|n| format!("{from}{dot}{}", first(n))));
        }
    }
    modules.retain(|m| !m.trim_start_matches('.').is_empty());
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_helper_modules_are_in_the_hash() {
        let folder = std::env::temp_dir().join(format!("kmark-py-hash-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("parts")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        put("mine.py", "import numpy as np, helper\nfrom parts import rows\ndef f(x):\n    return x\n");
        put("helper.py", "def g():\n    from .deep import h\n");
        put("deep.py", "h = 1\n");
        put("parts/rows.py", "r = 1\n");
        put("stranger.py", "s = 1\n");
        let hash = || user_function(&format!("{}:f", folder.join("mine.py").display())).unwrap().hash;
        let mut seen = vec![hash()];
        put("stranger.py", "s = 2\n");
        assert_eq!(seen[0], hash());
        for (name, text) in
            [("deep.py", "h = 2\n"), ("parts/rows.py", "r = 2\n"), ("helper.py", "from .deep import h\n")]
        {
            put(name, text);
            assert!(!seen.contains(&hash()), "{name}");
            seen.push(hash());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn names_of_functions_in_files() {
        assert!(is_file("./mine.py:fast") && is_file("mine.py") && !is_file("./mine.cu:fast") && !is_file("quack"));
        assert!(user_function("./mine.py").unwrap_err().message.contains("name the function"));
        assert!(user_function("./nowhere.py:f").unwrap_err().message.contains("No such file"));
    }
}
