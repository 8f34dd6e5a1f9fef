//! The lines `// kmark: …` at the top of a kernel file: how it is launched and which cases it claims. Ours and users' files
//! are read by this alone.

use super::expr::evaluate;
use kmark_core::case::Case;
use kmark_core::op::{AttrKind, Op};
use kmark_core::tensor::TensorSpec;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// Launches in order.
    pub kernels: Vec<KernelLine>,
    /// Of an oracle: kernels that fill derived inputs.
    pub derives: Vec<(String, KernelLine)>,
    pub workspace: Option<String>,
    /// Axes that become constants of the compiled code.
    pub constants: Vec<String>,
    /// Words that dtype or an attribute may have.
    pub only: Vec<(String, Vec<String>)>,
    pub require: Vec<String>,
    /// The architectures it is written for; none: sm_80 and newer.
    pub archs: Vec<String>,
    pub flags: Vec<String>,
}

/// One launch: the kernel's name, and expressions for its shape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelLine {
    pub name: String,
    pub grid: Vec<String>,
    pub block: Vec<String>,
    pub shared: Option<String>,
    pub cluster: Option<String>,
}

/// A launch with its shape known.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub cluster: u32,
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
        let list = |text: &str| text.split(',').map(|w| w.trim().to_string()).collect::<Vec<_>>();
        match word {
            "kernel" => self.kernels.push(KernelLine::parse(rest)?),
            "derive" => {
                let (tensor, kernel) =
                    rest.split_once(char::is_whitespace).ok_or("derive needs a tensor and a kernel")?;
                self.derives.push((tensor.to_string(), KernelLine::parse(kernel.trim())?));
            }
            "workspace" => self.workspace = Some(rest.to_string()),
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
                let known = ["kernel", "derive", "workspace", "constants", "only", "require", "arch", "flags"];
                return Err(kmark_core::spelling::unknown("directive", word, known));
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
        Ok(())
    }

    /// Whether it is written for this architecture.
    pub fn runs_on(&self, arch: &str) -> bool {
        self.archs.is_empty() || self.archs.iter().any(|a| a == arch)
    }

    pub fn workspace_bytes(&self, names: &Names) -> Result<usize, String> {
        let bytes = self.workspace.as_ref().map_or(Ok(0), |e| names.value(e))?;
        usize::try_from(bytes).map_err(|_| format!("a workspace of {bytes} bytes"))
    }
}

impl KernelLine {
    fn parse(text: &str) -> Result<KernelLine, String> {
        let mut words = text.split_whitespace();
        let name = words.next().ok_or("a kernel needs a name")?.to_string();
        let mut line = KernelLine { name, ..KernelLine::default() };
        for word in words {
            let (key, value) = word.split_once('=').ok_or(format!("`{word}`: write it like grid=ceil(m,4)"))?;
            match key {
                "grid" => line.grid = parts(value),
                "block" => line.block = parts(value),
                "shared" => line.shared = Some(value.to_string()),
                "cluster" => line.cluster = Some(value.to_string()),
                _ => {
                    return Err(kmark_core::spelling::unknown(
                        "launch setting",
                        key,
                        ["grid", "block", "shared", "cluster"],
                    ));
                }
            }
        }
        if line.grid.is_empty() || line.block.is_empty() || line.grid.len() > 3 || line.block.len() > 3 {
            return Err(format!("kernel {} needs grid= and block=, each of one to three numbers", line.name));
        }
        Ok(line)
    }

    /// `None` if there is nothing to launch.
    pub fn shape(&self, names: &Names) -> Result<Option<Shape>, String> {
        let one = |e: &String| -> Result<u32, String> {
            let v = names.value(e)?;
            u32::try_from(v).map_err(|_| format!("kernel {}: {e} is {v}", self.name))
        };
        let three = |list: &[String]| -> Result<[u32; 3], String> {
            let mut all = [1; 3];
            for (v, e) in all.iter_mut().zip(list) {
                *v = one(e)?;
            }
            Ok(all)
        };
        let (grid, block) = (three(&self.grid)?, three(&self.block)?);
        let shared = self.shared.as_ref().map_or(Ok(0), &one)?;
        let cluster = self.cluster.as_ref().map_or(Ok(1), &one)?;
        if grid.contains(&0) {
            return Ok(None);
        }
        let threads: u64 = block.iter().map(|b| *b as u64).product();
        if threads == 0 || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 {
            return Err(format!("kernel {}: grid {grid:?} and block {block:?} cannot be launched", self.name));
        }
        Ok(Some(Shape { grid, block, shared, cluster }))
    }
}

/// Splits at commas outside parentheses.
fn parts(text: &str) -> Vec<String> {
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
    pub sms: u32,
}

impl Names<'_> {
    pub fn value(&self, expression: &str) -> Result<i64, String> {
        evaluate(expression, &|name| self.find(name))
    }

    fn find(&self, name: &str) -> Option<i64> {
        match name {
            "sms" => return Some(self.sms as i64),
            "size" => return Some(self.case.dtype.size() as i64),
            _ => {}
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
        ] {
            let error = Directives::parse(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
