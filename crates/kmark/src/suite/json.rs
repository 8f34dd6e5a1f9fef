//! Suites as JSON, the form in which kernel benchmarks keep them: an object of kernels, each a list of problems.
//! `gemm`, `mha` and `nsa` have the field names that are usual there; any op takes its own axes and attributes.

use super::{Suite, Sweep, float_word};
use crate::error::{Error, Result};
use indexmap::IndexMap;
use kmark_core::dtype::DType;
use kmark_core::spelling::unknown;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

type Parsed<T> = std::result::Result<T, String>;

/// Names of dtypes elsewhere, and ours.
const DTYPES: &[(&str, DType)] = &[
    ("float16", DType::F16),
    ("fp16", DType::F16),
    ("half", DType::F16),
    ("bfloat16", DType::Bf16),
    ("float32", DType::F32),
    ("fp32", DType::F32),
    ("float64", DType::F64),
    ("fp64", DType::F64),
];

/// `origin` is the file for messages. One sweep for each problem.
pub fn parse(text: &str, origin: &str) -> Result<Suite> {
    let Unique(json) = serde_json::from_str(text).map_err(|e| {
        let said = e.to_string();
        let what = said.split(" at line ").next().unwrap_or("not JSON");
        Error::usage(format!("{origin}:{}:{}: {what}", e.line(), e.column()))
    })?;
    let wrong = |what: String| Error::usage(format!("{origin}: {what}"));
    let Value::Object(kernels) = json else {
        return Err(wrong("a suite in JSON is an object of kernels: {\"gemm\": [...]}".into()));
    };
    let mut suite = Suite::default();
    for (kernel, problems) in &kernels {
        let read = reader(kernel).map_err(wrong)?;
        let problems = problems.as_array().filter(|list| !list.is_empty());
        let problems = problems.ok_or_else(|| wrong(format!("{kernel} must be a list of problems")))?;
        for (i, problem) in problems.iter().enumerate() {
            let at = |e: String| wrong(format!("{kernel} number {}: {e}", i + 1));
            let fields = problem.as_object().ok_or_else(|| at("a problem is an object".into()))?;
            suite.sweeps.push(read(kernel, fields).map_err(at)?);
        }
    }
    if suite.sweeps.is_empty() {
        return Err(wrong("no kernels".into()));
    }
    Ok(suite)
}

type Reader = fn(&str, &Map<String, Value>) -> Parsed<Sweep>;

fn reader(kernel: &str) -> Parsed<Reader> {
    let seeds = [("gemm", gemm as Reader), ("mha", mha), ("nsa", nsa)];
    if let Some((_, read)) = seeds.iter().find(|(name, _)| *name == kernel) {
        return Ok(*read);
    }
    if kmark_ops::find(kernel).is_some() {
        return Ok(own);
    }
    let ops = kmark_ops::OPS.iter().map(|e| e.op.name);
    let known: Vec<&str> = ops.filter(|op| !seeds.iter().any(|(name, _)| name == op)).collect();
    Err(unknown("kernel", kernel, seeds.map(|(name, _)| name).into_iter().chain(known)))
}

/// Ours but for its axes, which may be written M, N and K.
fn gemm(kernel: &str, fields: &Map<String, Value>) -> Parsed<Sweep> {
    let mut own = Map::new();
    for (name, value) in fields {
        let name = if matches!(name.as_str(), "M" | "N" | "K") { name.to_lowercase() } else { name.clone() };
        if own.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let attrs = kmark_ops::find(kernel).map_or(Vec::new(), |e| e.op.attrs.iter().map(|a| a.name).collect());
    let mut sweep = named("gemm", &own, &["m", "n", "k"], &attrs)?;
    sweep.values.entry("layout".into()).or_insert_with(|| vec!["nn".into()]);
    Ok(sweep)
}

fn mha(_: &str, fields: &Map<String, Value>) -> Parsed<Sweep> {
    let f = Fields::new(fields, &["batch", "heads", "seq_len", "dim", "is_causal", "dtype"])?;
    let (heads, length) = (f.size("heads")?, f.size("seq_len")?);
    f.sweep(
        "attention",
        &[
            ("b", f.size("batch")?.to_string()),
            ("hq", heads.to_string()),
            ("hkv", heads.to_string()),
            ("sq", length.to_string()),
            ("sk", length.to_string()),
            ("d", f.size("dim")?.to_string()),
            ("causal", f.flag("is_causal", false)?),
            ("layout", "bshd".into()),
        ],
    )
}

/// `groups` is what it is in the kernels that are benchmarked so: query heads to each kv head, not how many groups.
fn nsa(kernel: &str, fields: &Map<String, Value>) -> Parsed<Sweep> {
    if fields.contains_key("hq") {
        return own(kernel, fields);
    }
    let f = Fields::new(
        fields,
        &["batch", "heads", "seq_len", "dim", "block_size", "groups", "selected_blocks", "is_causal", "scale", "dtype"],
    )?;
    let (heads, groups) = (f.size("heads")?, f.size_or("groups", 1)?);
    if heads % groups != 0 {
        return Err(format!("groups = {groups} does not divide heads = {heads}; it is query heads per kv head"));
    }
    f.sweep(
        "nsa",
        &[
            ("b", f.size("batch")?.to_string()),
            ("s", f.size("seq_len")?.to_string()),
            ("hq", heads.to_string()),
            ("hkv", (heads / groups).to_string()),
            ("d", f.size("dim")?.to_string()),
            ("block", f.size_or("block_size", 32)?.to_string()),
            ("selected", f.size_or("selected_blocks", 16)?.to_string()),
            ("causal", f.flag("is_causal", true)?),
            ("scale", f.scale()?),
        ],
    )
}

/// An op by its own name, with its own axes and attributes.
fn own(kernel: &str, fields: &Map<String, Value>) -> Parsed<Sweep> {
    let op = kmark_ops::find(kernel).ok_or_else(|| format!("no op {kernel}"))?.op;
    let axes: Vec<&str> = op.axes.iter().map(|a| a.name).collect();
    let attrs: Vec<&str> = op.attrs.iter().map(|a| a.name).collect();
    named(op.name, fields, &axes, &attrs)
}

/// Fields that are axes and attributes. What their values mean is checked when cases are made.
fn named(op: &str, fields: &Map<String, Value>, axes: &[&str], attrs: &[&str]) -> Parsed<Sweep> {
    let known: Vec<&str> = axes.iter().chain(attrs).copied().chain(["dtype"]).collect();
    let f = Fields::new(fields, &known)?;
    let mut values: Vec<(&str, String)> = Vec::new();
    for axis in axes {
        values.push((axis, f.size(axis)?.to_string()));
    }
    for attr in attrs.iter().filter(|a| fields.contains_key(**a)) {
        let word = match &fields[*attr] {
            Value::Bool(yes) => yes_no(*yes),
            Value::Number(n) => number(n),
            Value::String(s) => s.clone(),
            _ => return Err(format!("{attr} must be a number, a word, true or false")),
        };
        values.push((attr, word));
    }
    f.sweep(op, &values)
}

fn yes_no(yes: bool) -> String {
    if yes { "yes".into() } else { "no".into() }
}

fn number(n: &Number) -> String {
    if n.is_f64() { float_word(n.as_f64().unwrap_or(f64::NAN)) } else { n.to_string() }
}

/// The fields of one problem, all of them known.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn new(fields: &'a Map<String, Value>, known: &[&str]) -> Parsed<Fields<'a>> {
        match fields.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(unknown("field", name, known.iter().copied())),
            None => Ok(Fields(fields)),
        }
    }
    fn size(&self, name: &str) -> Parsed<u64> {
        let value = self.0.get(name).ok_or_else(|| format!("{name} is missing"))?;
        let size = value.as_u64().filter(|v| *v > 0);
        size.ok_or_else(|| format!("{name} = {value}: a size is a whole number from 1"))
    }
    fn size_or(&self, name: &str, default: u64) -> Parsed<u64> {
        if self.0.contains_key(name) { self.size(name) } else { Ok(default) }
    }
    fn flag(&self, name: &str, default: bool) -> Parsed<String> {
        match self.0.get(name) {
            None => Ok(yes_no(default)),
            Some(Value::Bool(yes)) => Ok(yes_no(*yes)),
            Some(other) => Err(format!("{name} = {other}: true or false")),
        }
    }
    /// Left out, or null as Python writes it: what the op takes by itself.
    fn scale(&self) -> Parsed<String> {
        match self.0.get("scale") {
            None | Some(Value::Null) => Ok("auto".into()),
            Some(Value::Number(n)) if n.as_f64().is_some_and(|v| v > 0.0) => Ok(number(n)),
            Some(other) => Err(format!("scale = {other}: a positive number")),
        }
    }
    fn dtype(&self) -> Parsed<DType> {
        let word = match self.0.get("dtype") {
            None => return Ok(DType::F16),
            Some(Value::String(word)) => word,
            Some(other) => return Err(format!("dtype = {other}: a word, for instance \"float16\"")),
        };
        let found = DTYPES.iter().find(|(name, _)| name == word).map(|(_, dtype)| *dtype);
        let names = DTYPES.iter().map(|(name, _)| *name).chain(DType::ALL.map(DType::name));
        found.or_else(|| DType::parse(word)).ok_or_else(|| unknown("dtype", word, names))
    }
    fn sweep(&self, op: &str, values: &[(&str, String)]) -> Parsed<Sweep> {
        let values: IndexMap<_, _> = values.iter().map(|(name, v)| (name.to_string(), vec![v.clone()])).collect();
        Ok(Sweep { op: op.into(), dtypes: vec![self.dtype()?.name().into()], configs: Vec::new(), values })
    }
}

/// JSON in which no key appears twice: the second would silently replace the first.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Unique, D::Error> {
        d.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, v: bool) -> std::result::Result<Value, E> {
        Ok(v.into())
    }
    fn visit_i64<E>(self, v: i64) -> std::result::Result<Value, E> {
        Ok(v.into())
    }
    fn visit_u64<E>(self, v: u64) -> std::result::Result<Value, E> {
        Ok(v.into())
    }
    fn visit_f64<E>(self, v: f64) -> std::result::Result<Value, E> {
        Ok(Number::from_f64(v).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, v: &str) -> std::result::Result<Value, E> {
        Ok(v.into())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(v)) = seq.next_element()? {
            list.push(v);
        }
        Ok(list.into())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let Unique(v) = map.next_value()?;
            if object.contains_key(&key) {
                return Err(serde::de::Error::custom(format!("{key} is given twice")));
            }
            object.insert(key, v);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sweep in one line: `op dtype name=value ...`
    fn line(g: &Sweep) -> String {
        let values: Vec<String> = g.values.iter().map(|(k, v)| format!("{k}={}", v.join(","))).collect();
        format!("{} {} {}", g.op, g.dtypes.join(","), values.join(" "))
    }

    fn lines(text: &str) -> Vec<String> {
        parse(text, "f.json").unwrap_or_else(|e| panic!("{text}: {e}")).sweeps.iter().map(line).collect()
    }

    #[test]
    fn kernels_become_ops() {
        let text = r#"{"gemm": [{"M": 1024, "N": 512, "K": 64, "dtype": "float16"}, {"m": 1, "n": 2, "k": 3, "dtype": "bf16"}],
            "mha": [{"batch": 8, "heads": 32, "seq_len": 1024, "dim": 128, "is_causal": false},
                    {"batch": 1, "heads": 2, "seq_len": 3, "dim": 4, "is_causal": true, "dtype": "bfloat16"}],
            "nsa": [{"batch": 2, "heads": 16, "seq_len": 512, "dim": 64, "block_size": 64, "groups": 4,
                     "selected_blocks": 8, "is_causal": false, "scale": 0.1}]}"#;
        assert_eq!(
            lines(text),
            [
                "gemm f16 m=1024 n=512 k=64 layout=nn",
                "gemm bf16 m=1 n=2 k=3 layout=nn",
                "attention f16 b=8 hq=32 hkv=32 sq=1024 sk=1024 d=128 causal=no layout=bshd",
                "attention bf16 b=1 hq=2 hkv=2 sq=3 sk=3 d=4 causal=yes layout=bshd",
                "nsa f16 b=2 s=512 hq=16 hkv=4 d=64 block=64 selected=8 causal=no scale=0.1",
            ]
        );
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        assert_eq!(
            lines(r#"{"nsa": [{"batch": 2, "heads": 16, "seq_len": 512, "dim": 64, "scale": null}]}"#),
            ["nsa f16 b=2 s=512 hq=16 hkv=16 d=64 block=32 selected=16 causal=yes scale=auto"]
        );
        assert_eq!(
            lines(r#"{"mha": [{"batch": 2, "heads": 16, "seq_len": 512, "dim": 64}]}"#),
            ["attention f16 b=2 hq=16 hkv=16 sq=512 sk=512 d=64 causal=no layout=bshd"]
        );
    }

    #[test]
    fn ops_have_their_own_names() {
        let text = r#"{"rmsnorm": [{"m": 4, "n": 7168, "dtype": "fp32", "rstd": true, "eps": 1e-5, "w": "bf16"}]}"#;
        assert_eq!(lines(text), ["rmsnorm f32 m=4 n=7168 w=bf16 eps=1e-5 rstd=yes"]);
        let cases = parse(text, "f.json").unwrap().sweeps[0].cases(42).unwrap();
        assert_eq!(cases[0].id, "rmsnorm/f32/m4-n7168/w-bf16/eps-1e-5/rstd-yes");
        for (word, dtype) in [("half", "f16"), ("fp16", "f16"), ("float32", "f32"), ("bf16", "bf16"), ("f64", "f64")] {
            let text = format!(r#"{{"softmax": [{{"m": 1, "n": 2, "dtype": "{word}"}}]}}"#);
            assert_eq!(lines(&text), [format!("softmax {dtype} m=1 n=2")]);
        }
    }

    #[test]
    fn wrong_suites_get_one_clear_line() {
        let mha = r#""batch": 1, "heads": 6, "seq_len": 8, "dim": 4"#;
        for (text, says) in [
            ("{\"gemm\": [\n  {\"M\": 1,}\n]}", "f.json:2:11: trailing comma"),
            ("{\"gemm\": [{\"M\": 1", "f.json:1:17: EOF while parsing"),
            ("", "f.json:1:0: EOF while parsing"),
            ("[1]", "f.json: a suite in JSON is an object of kernels"),
            ("{}", "f.json: no kernels"),
            (r#"{"gem": []}"#, "unknown kernel 'gem'; did you mean 'gemm'?"),
            (r#"{"gemm": []}"#, "f.json: gemm must be a list of problems"),
            (r#"{"gemm": {"M": 1}}"#, "gemm must be a list of problems"),
            (r#"{"gemm": [7]}"#, "gemm number 1: a problem is an object"),
            (r#"{"gemm": [{"M": 1, "N": 1, "K": 1}, {"M": 1, "N": 1}]}"#, "gemm number 2: k is missing"),
            (r#"{"gemm": [{"M": 1, "m": 1, "N": 1, "K": 1}]}"#, "m is given twice"),
            (r#"{"gemm": [{"M": 1, "M": 1, "N": 1, "K": 1}]}"#, "f.json:1:25: M is given twice"),
            (r#"{"gemm": [{"M": "1", "N": 1, "K": 1}]}"#, "m = \"1\": a size is a whole number from 1"),
            (r#"{"gemm": [{"M": 1.5, "N": 1, "K": 1}]}"#, "m = 1.5: a size is a whole number from 1"),
            (r#"{"gemm": [{"M": 0, "N": 1, "K": 1}]}"#, "m = 0: a size is a whole number from 1"),
            (r#"{"gemm": [{"M": 1, "N": 1, "K": 1, "dtype": "float61"}]}"#, "did you mean 'float16'?"),
            (r#"{"gemm": [{"M": 1, "N": 1, "K": 1, "dtype": 16}]}"#, "dtype = 16: a word"),
            (&format!("{{\"mha\": [{{{mha}, \"casual\": true}}]}}"), "did you mean 'is_causal'?"),
            (&format!("{{\"mha\": [{{{mha}, \"is_causal\": 1}}]}}"), "is_causal = 1: true or false"),
            (&format!("{{\"nsa\": [{{{mha}, \"groups\": 4}}]}}"), "groups = 4 does not divide heads = 6"),
            (&format!("{{\"nsa\": [{{{mha}, \"scale\": -1}}]}}"), "scale = -1: a positive number"),
            (r#"{"rmsnorm": [{"m": 1, "n": 2, "esp": 1}]}"#, "unknown field 'esp'; did you mean 'eps'?"),
            (r#"{"rmsnorm": [{"m": 1, "n": 2, "eps": [1]}]}"#, "eps must be a number, a word, true or false"),
        ] {
            let e = parse(text, "f.json").unwrap_err();
            assert!(e.message.contains(says), "{text:?}: {e}");
            assert_eq!((e.code, e.message.lines().count()), (2, 1), "{e}");
        }
    }
}
