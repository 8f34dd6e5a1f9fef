//! Suites: TOML in, cases out. A suite names cases by op, dtypes, axes and attributes; lists mean every combination.
//! Suites of other benchmarks come as JSON.

mod json;

use crate::error::{Error, Result};
use crate::own;
use crate::units::parse_duration;
use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::op::Op;
use kmark_core::spelling::unknown;
use std::path::Path;
use std::time::Duration;
use toml::Value;

/// Names and TOML texts of suites that others may include.
type Library<'a> = &'a [(&'a str, &'a str)];

/// Suites in the binary.
pub static BUILT_IN: Library<'static> = include!(concat!(env!("OUT_DIR"), "/suites.rs"));

/// More cases than this are a mistake in a suite, not a plan.
const MAX_CASES: usize = 100_000;
/// A suite file larger than this is something else.
const MAX_FILE: u64 = 4 << 20;

#[derive(Debug, Default)]
pub struct Suite {
    pub about: String,
    pub budget: Option<Duration>,
    pub sweeps: Vec<Sweep>,
}

/// One `[[cases]]` table: every combination of its values.
#[derive(Debug, Clone)]
pub struct Sweep {
    pub op: String,
    pub dtypes: Vec<String>,
    /// Axes in the op's order: `4096x7168`. Instead of axes among `values`.
    pub configs: Vec<String>,
    /// Axes and attributes by name.
    pub values: IndexMap<String, Vec<String>>,
}

impl Suite {
    pub fn built_in(name: &str) -> Option<Result<Suite>> {
        let (name, text) = BUILT_IN.iter().find(|(n, _)| *n == name)?;
        Some(Suite::parse_with(text, &[name], BUILT_IN))
    }

    pub fn from_file(path: &str) -> Result<Suite> {
        Suite::file_with(&[path], BUILT_IN)
    }

    /// The last of the trail is a file.
    fn file_with(trail: &[&str], library: Library) -> Result<Suite> {
        let path = trail[trail.len() - 1];
        let meta = std::fs::metadata(path).map_err(|e| Error::usage(format!("{path}: {e}")))?;
        if !meta.is_file() {
            return Err(Error::usage(format!(
                "{path} is not a file, and a folder with no task.yml is no problem either"
            )));
        }
        if meta.len() > MAX_FILE {
            return Err(Error::usage(format!("{path} is {} bytes long; a suite has at most {MAX_FILE}", meta.len())));
        }
        let text = std::fs::read_to_string(path).map_err(|e| Error::usage(format!("{path}: {e}")))?;
        if is_json(path) { json::parse(&text, path) } else { Suite::parse_with(&text, trail, library) }
    }

    /// `origin` is the file name for messages.
    #[cfg(test)]
    fn parse(text: &str, origin: &str) -> Result<Suite> {
        Suite::parse_with(text, &[origin], BUILT_IN)
    }

    /// `trail` is who includes whom, down to this suite's own name; `library` is what it may include.
    fn parse_with(text: &str, trail: &[&str], library: Library) -> Result<Suite> {
        let origin = trail[trail.len() - 1];
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let line = e.span().map_or(1, |s| text[..s.start].lines().count().max(1));
            Error::usage(format!("{origin}:{line}: {}", e.message().lines().next().unwrap_or("not TOML")))
        })?;
        let wrong = |what: String| Error::usage(format!("{origin}: {what}"));
        let mut suite = Suite::default();
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("about", Value::String(s)) => suite.about = s.clone(),
                ("budget", Value::String(s)) => {
                    suite.budget = suite.budget.max(Some(parse_duration(s).map_err(wrong)?))
                }
                ("ops", Value::Array(files)) => {
                    for file in files {
                        let Value::String(file) = file else { return Err(wrong("ops has the wrong type".into())) };
                        own::beside(origin, file)?;
                    }
                }
                ("suites", Value::Array(names)) => {
                    for name in names {
                        let Value::String(name) = name else { return Err(wrong("suites has the wrong type".into())) };
                        suite.include(name, trail, library)?;
                    }
                }
                ("cases", Value::Array(sweeps)) => {
                    for (i, g) in sweeps.iter().enumerate() {
                        let Value::Table(t) = g else { return Err(wrong("write cases as [[cases]]".into())) };
                        let parsed = Sweep::parse(t).map_err(|e| wrong(format!("[[cases]] number {}: {e}", i + 1)))?;
                        suite.sweeps.extend(parsed);
                    }
                }
                ("about" | "budget" | "suites" | "cases" | "ops", _) => {
                    return Err(wrong(format!("{key} has the wrong type")));
                }
                _ => return Err(wrong(unknown("key", key, ["about", "budget", "ops", "suites", "cases"]))),
            }
        }
        if suite.sweeps.is_empty() {
            return Err(wrong("no [[cases]]".into()));
        }
        Ok(suite)
    }

    /// Takes over the cases of another suite, and its budget if that is longer. Files are beside the one that names them.
    fn include(&mut self, name: &str, trail: &[&str], library: Library) -> Result<()> {
        let origin = trail[trail.len() - 1];
        let wrong = |what: String| Error::usage(format!("{origin}: {what}"));
        let beside = Path::new(origin).parent().unwrap_or(Path::new("")).join(name).display().to_string();
        let from_file = is_file(name) && is_file(origin);
        let name = if from_file { beside.as_str() } else { name };
        let longer: Vec<&str> = trail.iter().copied().chain([name]).collect();
        let is_same = |other: &&str| *other == name || (from_file && is_one_file(other, name));
        if trail.iter().any(is_same) {
            return Err(wrong(format!("suites include each other: {}", longer.join(" > "))));
        }
        let included = match library.iter().find(|(n, _)| *n == name) {
            _ if from_file => Suite::file_with(&longer, library)?,
            Some((_, text)) => Suite::parse_with(text, &longer, library)?,
            None => return Err(wrong(unknown("suite", name, library.iter().map(|(n, _)| *n)))),
        };
        self.budget = self.budget.max(included.budget);
        self.sweeps.extend(included.sweeps);
        match self.sweeps.len() {
            0..=MAX_CASES => Ok(()),
            count => Err(wrong(format!("{count} tables of cases are more than {MAX_CASES}"))),
        }
    }
}

/// Whether two names are of one file.
fn is_one_file(a: &str, b: &str) -> bool {
    std::fs::canonicalize(a).ok().is_some_and(|a| std::fs::canonicalize(b).is_ok_and(|b| a == b))
}

impl Sweep {
    /// One sweep per op that the table names.
    fn parse(table: &toml::Table) -> std::result::Result<Vec<Sweep>, String> {
        let mut sweep = Sweep { op: String::new(), dtypes: Vec::new(), configs: Vec::new(), values: IndexMap::new() };
        let mut ops = Vec::new();
        for (key, value) in table {
            let words = words(value).ok_or_else(|| format!("{key} must be a word, a number or a list of them"))?;
            match key.as_str() {
                "op" => ops = words,
                "dtype" => sweep.dtypes = words,
                "configs" => sweep.configs = words,
                _ => {
                    sweep.values.insert(key.clone(), words);
                }
            }
        }
        if ops.is_empty() {
            return Err("op is missing".into());
        }
        Ok(ops.into_iter().map(|op| Sweep { op, ..sweep.clone() }).collect())
    }

    /// The op's own default shapes, at bf16 (what a large model runs), or its first dtype.
    pub fn default_of(op: &Op) -> Sweep {
        let dtype = if op.dtypes.contains(&DType::Bf16) { DType::Bf16 } else { op.dtypes[0] };
        Sweep {
            op: op.name.into(),
            dtypes: vec![dtype.name().into()],
            configs: op.default_configs.iter().map(|c| c.to_string()).collect(),
            values: IndexMap::new(),
        }
    }

    /// Every combination, as cases.
    pub fn cases(&self, seed: u64) -> std::result::Result<Vec<Case>, String> {
        let ops = kmark_ops::all().map(|e| e.op.name);
        let op = kmark_ops::find(&self.op).ok_or_else(|| unknown("op", &self.op, ops))?.op;
        let is_axis = |name: &str| op.axes.iter().any(|a| a.name == name);
        let dtypes = self.dtypes.iter().map(|d| parse_dtype(d)).collect::<std::result::Result<Vec<_>, _>>()?;
        if dtypes.is_empty() {
            return Err(format!("{}: dtype is missing", self.op));
        }
        let count = self.values.values().map(|v| v.len() as u128).product::<u128>()
            * dtypes.len() as u128
            * self.configs.len().max(1) as u128;
        if count > MAX_CASES as u128 {
            return Err(format!("{}: {count} cases are more than {MAX_CASES}", self.op));
        }
        let mut combinations: Vec<IndexMap<String, String>> = vec![IndexMap::new()];
        if !self.configs.is_empty() {
            if let Some(axis) = self.values.keys().find(|k| is_axis(k)) {
                return Err(format!("{}: give axes by configs or by name, not both ({axis})", self.op));
            }
            combinations = self.configs.iter().map(|c| parse_config(op, c)).collect::<std::result::Result<_, _>>()?;
        }
        for (name, values) in &self.values {
            let grown = combinations.iter().flat_map(|c| {
                values.iter().map(move |v| {
                    let mut c = c.clone();
                    c.insert(name.clone(), v.clone());
                    c
                })
            });
            combinations = grown.collect();
        }
        let mut cases = Vec::new();
        for dtype in dtypes {
            for c in &combinations {
                let (mut axes, mut attrs) = (IndexMap::new(), IndexMap::new());
                for (name, value) in c {
                    if is_axis(name) {
                        axes.insert(name.clone(), parse_size(name, value)?);
                    } else {
                        attrs.insert(name.clone(), value.clone());
                    }
                }
                cases.push(op.case(dtype, &axes, &attrs, seed)?);
            }
        }
        Ok(cases)
    }
}

/// A number as people write it: `1e-6`, not `0.000001`, so that a default that is spelt out stays a default.
fn float_word(v: f64) -> String {
    if v == 0.0 || (1e-4..1e9).contains(&v.abs()) { v.to_string() } else { format!("{v:e}") }
}

/// Whether a word on the command line is a suite file, by its name.
pub fn is_file(word: &str) -> bool {
    word.ends_with(".toml") || is_json(word) || word.contains('/')
}

fn is_json(path: &str) -> bool {
    path.ends_with(".json")
}

pub fn parse_dtype(word: &str) -> std::result::Result<DType, String> {
    DType::parse(word).ok_or_else(|| unknown("dtype", word, DType::ALL.map(DType::name)))
}

fn parse_size(axis: &str, word: &str) -> std::result::Result<u64, String> {
    word.parse().map_err(|_| format!("{axis} = {word}: a size is a whole number from 1"))
}

fn parse_config(op: &Op, config: &str) -> std::result::Result<IndexMap<String, String>, String> {
    let parts: Vec<&str> = config.split('x').collect();
    let names: Vec<&str> = op.axes.iter().map(|a| a.name).collect();
    if parts.len() != names.len() {
        return Err(format!("config '{config}': {} wants {} ({})", op.name, names.len(), names.join("x")));
    }
    Ok(names.iter().zip(parts).map(|(n, p)| (n.to_string(), p.to_string())).collect())
}

/// A value, or a list of values, as words.
fn words(value: &Value) -> Option<Vec<String>> {
    let word = |v: &Value| match v {
        Value::String(s) => Some(s.clone()),
        Value::Integer(i) => Some(i.to_string()),
        Value::Float(f) => Some(float_word(*f)),
        _ => None,
    };
    match value {
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) => list.iter().map(word).collect(),
        single => word(single).map(|w| vec![w]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_suite_loads_and_has_cases() {
        for (name, _) in BUILT_IN {
            let suite = Suite::built_in(name).unwrap().unwrap_or_else(|e| panic!("{e}"));
            assert!(!suite.about.is_empty(), "{name}");
            for sweep in &suite.sweeps {
                assert!(!sweep.cases(42).unwrap_or_else(|e| panic!("{name}: {e}")).is_empty());
            }
        }
    }

    #[test]
    fn wrong_suites_get_one_clear_line() {
        for (text, says) in [
            ("cases = 3", "cases has the wrong type"),
            ("about = \"x\"", "no [[cases]]"),
            ("[[cases]]\nop = ", "f.toml:2"),
            ("[[cases]]\nm = 3", "op is missing"),
            ("[[cases]]\nop = { a = 1 }", "op must be a word"),
            ("buget = \"1s\"", "did you mean 'budget'?"),
            ("budget = \"soon\"\n[[cases]]\nop = \"softmax\"", "not a duration"),
        ] {
            let e = Suite::parse(text, "f.toml").unwrap_err();
            assert!(e.message.contains(says), "{text:?}: {e}");
            assert_eq!((e.code, e.message.lines().count()), (2, 1), "{e}");
        }
    }

    #[test]
    fn suites_include_suites() {
        let case = |n: u32| format!("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = 1\nn = {n}\n");
        let a = format!("budget = \"2s\"\n{}", case(1));
        let b = format!("budget = \"1s\"\nsuites = [\"a\"]\n{}", case(2));
        let library = [("a", a.as_str()), ("b", b.as_str()), ("c", "suites = [\"d\"]"), ("d", "suites = [\"c\"]")];
        let parse = |text: &str| Suite::parse_with(text, &["f.toml"], &library);
        let ns = |text: &str| -> Vec<String> {
            let sweeps = parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).sweeps;
            sweeps.iter().map(|g| g.values["n"].join(",")).collect()
        };
        assert_eq!(ns("suites = [\"b\"]"), ["1", "2"]);
        assert_eq!(ns(&format!("suites = [\"a\", \"b\"]\n{}", case(3))), ["1", "1", "2", "3"]);
        // The longest budget counts, wherever it stands.
        for (text, seconds) in [
            ("suites = [\"b\"]", 2),
            ("budget = \"3s\"\nsuites = [\"b\"]", 3),
            ("suites = [\"b\"]\nbudget = \"1s\"", 2),
        ] {
            assert_eq!(parse(text).unwrap().budget, Some(Duration::from_secs(seconds)), "{text}");
        }
        for (text, says) in [
            ("suites = [\"aa\"]", "f.toml: unknown suite 'aa'; did you mean 'a'?"),
            ("suites = \"a\"", "f.toml: suites has the wrong type"),
            ("suites = [1]", "f.toml: suites has the wrong type"),
            ("suites = []", "f.toml: no [[cases]]"),
            ("suites = [\"c\"]", "d: suites include each other: f.toml > c > d > c"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.message.contains(says), "{text:?}: {e}");
            assert_eq!((e.code, e.message.lines().count()), (2, 1), "{e}");
        }
    }

    #[test]
    fn a_default_that_is_spelt_out_is_the_default() {
        let case = |eps: &str| {
            let text = format!("[[cases]]\nop = \"rmsnorm\"\ndtype = \"f32\"\nm = 1\nn = 1\n{eps}");
            Suite::parse(&text, "f").unwrap().sweeps[0].cases(42).unwrap()[0].id.clone()
        };
        assert_eq!(case("eps = 1e-6"), case(""));
        assert_eq!(case("eps = 1e-5"), "rmsnorm/f32/m1-n1/eps-1e-5");
        assert_eq!(case("eps = 0.5"), "rmsnorm/f32/m1-n1/eps-0.5");
    }

    #[test]
    fn wrong_cases_get_one_clear_line() {
        let first = |text: &str| Suite::parse(text, "f").unwrap().sweeps[0].cases(42).unwrap_err();
        for (text, says) in [
            ("[[cases]]\nop = \"sofmax\"\ndtype = \"f32\"", "did you mean 'softmax'?"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f33\"\nm = 1\nn = 1", "unknown dtype 'f33'"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = 0\nn = 1", "sizes start at 1"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = -1\nn = 1", "whole number from 1"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = 1000000000\nn = 1000000000", "larger than any machine"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = 1", "needs axis n"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nm = 1\nn = 1\nk = 1", "unknown"),
            ("[[cases]]\nop = \"softmax\"\ndtype = \"f32\"\nconfigs = \"1x2x3\"", "wants 2 (mxn)"),
        ] {
            let e = first(text);
            assert!(e.contains(says), "{text:?}: {e}");
            assert_eq!(e.lines().count(), 1);
        }
    }
}
