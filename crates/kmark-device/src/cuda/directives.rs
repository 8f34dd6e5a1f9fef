//! The lines `// kmark: …` at the top of a kernel file: how it is launched and which cases it claims. Ours and users' files
//! are read by this alone.

use super::kernel_line::{Fits, KernelLine};
use super::machine::Machine;
use super::tensor_map::MapLine;
use super::tune::Choice;
use kmark_core::case::Case;
use kmark_core::expr::{Scope, evaluate, is_name};
use kmark_core::op::{AttrKind, Op};
use kmark_core::spelling::unknown;
use kmark_core::tensor::{Role, TensorSpec};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// Launches in order.
    pub kernels: Vec<KernelLine>,
    /// Of an oracle: kernels that fill derived inputs.
    pub derives: Vec<(String, KernelLine)>,
    /// Bytes, and whether they are zero when the kernel is bound; it leaves them so.
    pub workspace: Option<(String, bool)>,
    /// Values that expressions and the code know by a name; later ones may use earlier ones.
    pub lets: Vec<Let>,
    /// Of those that are tuned, the values that were chosen.
    pub chosen: Choice,
    /// Tensor maps, handed to kernels behind their `Args`.
    pub maps: Vec<MapLine>,
    /// Axes that become constants of the compiled code.
    pub constants: Vec<String>,
    /// Words that dtype or an attribute may have.
    pub only: Vec<(String, Vec<String>)>,
    pub require: Vec<String>,
    /// The architectures it is written for; none: sm_80 and newer.
    pub archs: Vec<String>,
    pub flags: Vec<String>,
}

/// A value by its expression, or, with parameters, a function that expressions may call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Let {
    pub(super) name: String,
    parameters: Vec<String>,
    expression: String,
    /// Of a value that is tuned: those to try, the expression among them, and a condition on what is tried.
    pub(super) values: Vec<String>,
    pub(super) when: Option<String>,
}

const MARK: &str = "// kmark:";

impl Directives {
    /// Reads the directives of a file; `Err` names the line.
    pub fn parse(text: &str) -> Result<Directives, String> {
        let mut all = Directives::default();
        for (number, line) in text.lines().enumerate() {
            if let Some(rest) = line.trim_start().strip_prefix(MARK) {
                all.line(rest.trim()).map_err(|e| format!("line {}: {e}", number + 1))?;
            }
        }
        Ok(all)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        if rest.is_empty() {
            return Err(format!("`{line}` says nothing after {word}"));
        }
        if let Some(fits) = Fits::first_in(rest).filter(|_| word != "kernel") {
            return Err(fits.only_in_grids());
        }
        let list = |text: &str| text.split(',').map(|w| w.trim().to_string()).collect::<Vec<_>>();
        match word {
            "kernel" => self.kernels.push(KernelLine::parse(rest)?),
            "derive" => {
                let (tensor, kernel) =
                    rest.split_once(char::is_whitespace).ok_or("derive needs a tensor and a kernel")?;
                self.derives.push((tensor.to_string(), KernelLine::parse(kernel.trim())?));
            }
            "workspace" => {
                let (bytes, zeroed) = rest.strip_suffix(" zeroed").map_or((rest, false), |bytes| (bytes, true));
                self.workspace = Some((bytes.trim().to_string(), zeroed));
            }
            "let" | "tune" => {
                let new = if word == "let" { Let::parse(rest)? } else { Let::tune(rest)? };
                if self.lets.iter().any(|known| known.name == new.name) {
                    return Err(format!("there are two values {}", new.name));
                }
                self.lets.push(new);
            }
            "map" => {
                let map = MapLine::parse(rest)?;
                if self.maps.iter().any(|known| known.name == map.name) {
                    return Err(format!("there are two maps {}", map.name));
                }
                self.maps.push(map);
            }
            "constants" => self.constants.extend(list(rest)),
            "only" => {
                for part in rest.split_whitespace() {
                    let (name, words) =
                        part.split_once('=').ok_or(format!("`{part}`: write it like dtype=bf16,f16"))?;
                    self.only.push((name.to_string(), list(words)));
                }
            }
            "require" => self.require.push(rest.to_string()),
            "arch" => self.archs.extend(list(rest)),
            "flags" => self.flags.extend(rest.split_whitespace().map(String::from)),
            _ => {
                let known = [
                    "kernel",
                    "derive",
                    "workspace",
                    "let",
                    "tune",
                    "map",
                    "constants",
                    "only",
                    "require",
                    "arch",
                    "flags",
                ];
                return Err(unknown("directive", word, known));
            }
        }
        Ok(())
    }

    /// `Err` says why the file does not claim this case.
    pub fn claims(&self, names: &Names) -> Result<(), String> {
        for (name, words) in &self.only {
            let is = match name.as_str() {
                "dtype" => names.case.dtype.name(),
                name => names.case.attrs.get(name).map(|s| s.as_str()).ok_or(format!("the op has no {name}"))?,
            };
            if !words.iter().any(|w| w == is) {
                return Err(format!("is for {name} {}, not {is}", words.join(", ")));
            }
        }
        for condition in &self.require {
            if names.value(condition)? == 0 {
                return Err(format!("needs {condition}"));
            }
        }
        let inputs = names.tensors.iter().filter(|t| t.role == Role::In).map(|t| t.name);
        for name in self.kernels.iter().flat_map(|k| &k.bind) {
            if !inputs.clone().any(|input| input == name) {
                return Err(format!("bind=: {}", unknown("input", name, inputs)));
            }
            names.is_a_weight(name).map_err(|axis| format!("bind=: {name} is no weight, it grows with {axis}"))?;
        }
        self.check_choice(names)?;
        self.maps.iter().try_for_each(|map| map.tile(names).map(drop))
    }

    /// What its expressions may name in a case on a GPU, its own values among them.
    pub fn names<'a>(
        &self,
        op: &'a Op,
        case: &'a Case,
        tensors: &'a [TensorSpec],
        machine: &'a Machine,
    ) -> Result<Names<'a>, String> {
        let functions = self.lets.iter().filter(|l| !l.parameters.is_empty()).cloned().collect();
        let mut names = Names { op, case, tensors, machine, functions, lets: Vec::new() };
        for new in &self.lets {
            let name = &new.name;
            // Attributes are constants of the code in upper case.
            let attribute = op.attrs.iter().any(|a| a.name.to_uppercase().replace('-', "_") == *name);
            if attribute || names.name(name).is_some() {
                return Err(format!("let {name}: the name has a meaning already"));
            }
            if new.parameters.is_empty() {
                let chosen = self.chosen.iter().find(|(known, _)| known == name).map(|(_, value)| Ok(*value));
                let value = chosen.unwrap_or_else(|| names.value(&new.expression));
                let value = value.map_err(|e| format!("let {name}: {e}"))?;
                names.lets.push((name.clone(), value));
            }
        }
        Ok(names)
    }

    /// The inputs of which something is made before the timed launches, if there are any.
    pub fn made_of(&self) -> Option<String> {
        let mut all: Vec<&str> = self.kernels.iter().flat_map(|k| &k.bind).map(String::as_str).collect();
        all.sort_unstable();
        all.dedup();
        (!all.is_empty()).then(|| all.join(","))
    }

    /// Whether it is written for this architecture.
    pub fn runs_on(&self, arch: &str) -> bool {
        self.archs.is_empty() || self.archs.iter().any(|a| a == arch)
    }

    pub fn workspace_bytes(&self, names: &Names) -> Result<usize, String> {
        let bytes = self.workspace.as_ref().map_or(Ok(0), |(e, _)| names.value(e))?;
        usize::try_from(bytes).map_err(|_| format!("a workspace of {bytes} bytes"))
    }
}

impl Let {
    fn parse(text: &str) -> Result<Let, String> {
        let how = || format!("`{text}`: write it like let TILE = n>64?128:64, or let COST(W) = ceil(n,W)*W");
        let (left, expression) = text.split_once('=').ok_or_else(how)?;
        let (name, parameters) = match left.trim().strip_suffix(')').and_then(|l| l.split_once('(')) {
            Some((name, list)) => (name, list.split(',').map(|p| p.trim().to_string()).collect()),
            None => (left.trim(), Vec::new()),
        };
        if !is_name(name) || !parameters.iter().all(|p: &String| is_name(p)) || expression.trim().is_empty() {
            return Err(how());
        }
        Ok(Let { name: name.to_string(), parameters, expression: expression.trim().to_string(), ..Let::default() })
    }

    fn tune(text: &str) -> Result<Let, String> {
        let how = || format!("`{text}`: write it like tune BN = 128, 192, 256 when BN<=n");
        let (list, when) = text.split_once(" when ").map_or((text, None), |(list, when)| (list, Some(when.trim())));
        let (name, list) = list.split_once('=').ok_or_else(how)?;
        let values: Vec<String> = parts(list).iter().map(|v| v.trim().to_string()).collect();
        if !is_name(name.trim()) || values.iter().any(String::is_empty) || when.is_some_and(str::is_empty) {
            return Err(how());
        }
        let (name, expression) = (name.trim().to_string(), values[0].clone());
        Ok(Let { name, expression, values, when: when.map(String::from), ..Let::default() })
    }
}

/// Splits at commas outside parentheses.
pub(super) fn parts(text: &str) -> Vec<String> {
    let mut depth = 0;
    let split = text.split(|c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    });
    split.map(String::from).collect()
}

/// What expressions may name.
pub struct Names<'a> {
    pub op: &'a Op,
    pub case: &'a Case,
    pub tensors: &'a [TensorSpec],
    machine: &'a Machine,
    functions: Vec<Let>,
    /// Values of the file's own.
    pub lets: Vec<(String, i64)>,
}

impl Names<'_> {
    pub fn value(&self, expression: &str) -> Result<i64, String> {
        evaluate(expression, self)
    }

    /// Weights are the same however many rows are computed on: whoever prepares more has done the work before it is timed.
    /// `Err` says with which axis a tensor grows.
    fn is_a_weight(&self, name: &str) -> Result<(), &'static str> {
        let Some(first) = self.op.axes.iter().find(|a| a.name == "m").or(self.op.axes.first()) else { return Ok(()) };
        let mut more = self.case.clone();
        more.axes.entry(first.name.into()).and_modify(|size| *size *= 2);
        let shape = |tensors: &[TensorSpec]| tensors.iter().find(|t| t.name == name).map(|t| t.shape.clone());
        if shape(&self.op.tensors(&more)) == shape(self.tensors) { Ok(()) } else { Err(first.name) }
    }
}

impl Scope for Names<'_> {
    fn function(&self, name: &str) -> Option<(&[String], &str)> {
        let found = self.functions.iter().find(|f| f.name == name)?;
        Some((&found.parameters, &found.expression))
    }

    fn name(&self, name: &str) -> Option<i64> {
        match name {
            "sms" => return Some(self.machine.sms as i64),
            "max_shared" => return Some(self.machine.shared as i64),
            "l2" => return Some(self.machine.l2 as i64),
            "max_cluster" => return Some(self.machine.max_cluster()),
            "size" => return Some(self.case.dtype.size() as i64),
            _ => {}
        }
        if let Some((_, value)) = self.lets.iter().find(|(known, _)| known == name) {
            return Some(*value);
        }
        if let Some((attr, word)) = name.split_once('.') {
            let of = self.op.attrs.iter().find(|a| a.name == attr);
            if of.is_some_and(|a| matches!(a.kind, AttrKind::OneOf(words) if words.contains(&word))) {
                return Some(i64::from(self.case.attr(attr) == word));
            }
        }
        if let Some((tensor, what)) = name.split_once('.') {
            let spec = self.tensors.iter().find(|t| t.name == tensor);
            return match what {
                "rows" => Some(spec.map_or(0, |s| s.rows() as i64)),
                "cols" => Some(spec.map_or(0, |s| s.row_len() as i64)),
                "pitch" => Some(spec.map_or(0, |s| s.pitch as i64)),
                _ => None,
            };
        }
        if let Some(size) = self.case.axes.get(name) {
            return Some(*size as i64);
        }
        let attr = self.op.attrs.iter().find(|a| a.name == name)?;
        let value = self.case.attr(name);
        match attr.kind {
            AttrKind::OneOf(words) if words.contains(&"yes") => Some(i64::from(value == "yes")),
            AttrKind::Integer | AttrKind::Count(_) | AttrKind::Size(_) => value.parse().ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read() {
        let text = "// One idea.\n// kmark: kernel rows grid=ceil(m,4),min(n,2) block=32,4 shared=n*4\n// kmark: kernel sum grid=1 block=256\n\
                    // kmark: workspace 4*n\n// kmark: constants n,d\n// kmark: only dtype=bf16,f16 w=same\n// kmark: require n%8==0 && n > 8\nint x;\n";
        let d = Directives::parse(text).unwrap();
        assert_eq!(d.kernels.len(), 2);
        assert_eq!(d.kernels[0].grid, ["ceil(m,4)", "min(n,2)"]);
        assert_eq!((d.constants.len(), d.only.len(), d.require.len()), (2, 2, 1));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, part) in [
            ("\n// kmark: kernal rows", "line 2: unknown directive 'kernal'; did you mean 'kernel'"),
            ("// kmark: kernel rows grid=1", "needs grid= and block="),
            ("// kmark: kernel rows grid=1 blok=32", "did you mean 'block'"),
            ("// kmark: workspace", "says nothing"),
            ("// kmark: let 2x = 3", "write it like let TILE"),
            ("// kmark: let A = 3\n// kmark: let A = 4", "line 2: there are two values A"),
            ("// kmark: tune A = 3,, 4", "write it like tune BN = 128, 192, 256 when BN<=n"),
            ("// kmark: kernel k grid=1 block=1 with=pdl", "unknown word after with= 'pdl'"),
            ("// kmark: kernel k grid=1 block=1 bnd=w", "did you mean 'bind'"),
            ("// kmark: let A = sms*occupancy", "line 1: occupancy follows from the compiled kernel"),
            ("// kmark: workspace clusters*n", "line 1: clusters follow from the compiled kernel"),
            ("// kmark: kernel k grid=occupancy block=occupancy*32", "line 1: kernel k: occupancy follows"),
            ("// kmark: map a of a box=64,64", "write it like map NAME = TENSOR box="),
            ("// kmark: map a = a swizzle=128", "needs box="),
        ] {
            let error = Directives::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
