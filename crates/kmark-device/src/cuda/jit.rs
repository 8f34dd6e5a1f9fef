//! From kernel text to a loaded module: NVRTC for the exact architecture, with a cache on disk whose key is everything
//! that the result depends on. Files appear whole: written beside, then renamed.

use super::nvrtc::{Compiled, Nvrtc};
use crate::Fault;
use kmark_core::record::Status;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Headers that a kernel may include: name and text.
pub type Headers = &'static [(&'static str, &'static str)];

/// Those of this crate.
pub const HEADERS: Headers =
    &[("kmark.cuh", include_str!("device/kmark.cuh")), ("judge.cuh", include_str!("device/judge.cuh"))];

/// Text to compile.
pub struct Source<'a> {
    /// As errors name it.
    pub name: &'a str,
    /// Before the first line of the file itself.
    pub prelude: &'a str,
    pub text: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    /// Where a user's own headers are looked for.
    pub folder: Option<&'a Path>,
    pub flags: Vec<String>,
}

/// What everything is compiled with. Functions without a mark are the device's: there is no host here.
pub const OPTIONS: [&str; 3] = ["--std=c++17", "--device-as-default-execution-space", "--ptxas-options=-v"];

pub struct Jit {
    cache: Option<PathBuf>,
    quick: bool,
}

impl Jit {
    /// `cache` is a folder of ours; `None` compiles everything anew.
    pub fn new(cache: Option<PathBuf>) -> Jit {
        Jit { cache, quick: false }
    }

    /// Compiles with next to no optimisation: errors and warnings of the language are the same and come many times faster,
    /// but registers and spills are not those of the kernel.
    pub fn quick(self) -> Jit {
        Jit { quick: true, ..self }
    }

    pub fn nvrtc() -> Result<&'static Nvrtc, String> {
        static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
        NVRTC.get_or_init(Nvrtc::load).as_ref().map_err(Clone::clone)
    }

    /// The cubin for `arch` and the compiler's log; from the cache if it is there.
    pub fn compile(&self, source: &Source, arch: &str) -> Result<Compiled, Fault> {
        let nvrtc = Self::nvrtc().map_err(|e| Fault::new(Status::Unavailable, e))?;
        let mut options = vec![format!("--gpu-architecture={arch}")];
        options.extend(OPTIONS.map(String::from));
        options.extend(source.folder.iter().map(|f| format!("--include-path={}", f.display())));
        options.extend(source.flags.iter().cloned());
        options.extend(self.quick.then(|| "--Ofast-compile=max".to_string()));
        let text = format!("{}#line 1 \"{}\"\n{}", source.prelude, source.name, source.text);
        let own = own_headers(&text, source.folder, &options);
        // A user's headers may include ours.
        let texts = own.iter().fold(text.clone(), |all, (_, bytes)| all + "\n" + &String::from_utf8_lossy(bytes));
        let headers = included(&texts, source.headers);
        let key = key(&text, &headers, &own, &options, nvrtc.version);
        if let Some(found) = self.cache.as_deref().and_then(|c| read(c, &key)) {
            return Ok(found);
        }
        let compiled = nvrtc
            .compile(&text, source.name, &headers, &options)
            .map_err(|log| Fault::new(Status::BuildFailed, explain(source.name, arch, &log)))?;
        if let Some(cache) = &self.cache {
            write(cache, &key, &compiled); // a cache that cannot be written is a slower run, no failure
        }
        Ok(compiled)
    }
}

/// The first error in the first line, for tables; the whole log below it.
fn explain(name: &str, arch: &str, log: &str) -> String {
    let first = log.lines().find(|l| l.contains("error")).or(log.lines().next()).unwrap_or("no log");
    format!("{}\n{name} for {arch}:\n{log}", first.trim())
}

/// The headers that `text` includes, and those that they include.
pub fn included<'a>(text: &str, known: &'a [(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    let mut texts = vec![text];
    while let Some(text) = texts.pop() {
        for name in names_included(text) {
            if let Some(header) = known.iter().find(|h| h.0 == name).filter(|h| !found.contains(h)) {
                found.push(*header);
                texts.push(header.1);
            }
        }
    }
    found.sort();
    found
}

/// What stands in the `#include` lines of a text, between quotes or angle brackets; the line's own words where neither is.
fn names_included(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let what = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim();
        let quoted = what.strip_prefix('"').and_then(|w| w.split('"').next());
        Some(quoted.or_else(|| what.strip_prefix('<').and_then(|w| w.split('>').next())).unwrap_or(what))
    })
}

/// The files that `text` includes from a user's folders, those that these include, and what is in them. An include that
/// names no file, but a macro, may be any file of the folder.
pub fn own_headers(text: &str, folder: Option<&Path>, options: &[String]) -> Vec<(PathBuf, Vec<u8>)> {
    let named = options.iter().filter_map(|o| o.strip_prefix("--include-path=").or_else(|| o.strip_prefix("-I")));
    let folders: Vec<PathBuf> = folder.map(Path::to_path_buf).into_iter().chain(named.map(PathBuf::from)).collect();
    let mut found: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    let mut texts = vec![(text.to_string(), None::<PathBuf>)];
    while let Some((text, beside)) = texts.pop() {
        for name in names_included(&text) {
            let mut paths: Vec<PathBuf> = beside.iter().chain(&folders).map(|f| f.join(name)).collect();
            if !name.contains('.') {
                paths.extend(folder.and_then(|f| f.read_dir().ok()).into_iter().flatten().flatten().map(|e| e.path()));
            }
            for path in paths {
                let Ok(bytes) = std::fs::read(&path) else { continue };
                if !found.iter().any(|(known, _)| *known == path) {
                    texts.push((String::from_utf8_lossy(&bytes).into_owned(), path.parent().map(Path::to_path_buf)));
                    found.push((path, bytes));
                }
            }
        }
    }
    found.sort();
    found
}

fn key(
    text: &str,
    headers: &[(&str, &str)],
    own: &[(PathBuf, Vec<u8>)],
    options: &[String],
    version: (i32, i32),
) -> String {
    let mut h = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        h.update(&(bytes.len() as u64).to_le_bytes());
        h.update(bytes);
    };
    part(text.as_bytes());
    headers.iter().for_each(|(name, text)| (part(name.as_bytes()), part(text.as_bytes())).1);
    own.iter().for_each(|(path, bytes)| (part(path.as_os_str().as_encoded_bytes()), part(bytes)).1);
    options.iter().for_each(|o| part(o.as_bytes()));
    part(format!("{}.{}", version.0, version.1).as_bytes());
    h.finalize().to_hex()[..32].to_string()
}

/// A cached file is the length of the log, the log, the cubin, and a checksum over all of it.
fn read(cache: &Path, key: &str) -> Option<Compiled> {
    let bytes = std::fs::read(cache.join(key)).ok()?;
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if blake3::hash(body).as_bytes() != sum {
        return None; // half a file, or somebody else's: compiled again and replaced
    }
    let (length, rest) = body.split_at_checked(8)?;
    let (log, cubin) = rest.split_at_checked(u64::from_le_bytes(length.try_into().ok()?) as usize)?;
    Some(Compiled { cubin: cubin.to_vec(), log: String::from_utf8_lossy(log).into_owned() })
}

fn write(cache: &Path, key: &str, compiled: &Compiled) {
    let mut bytes = (compiled.log.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(compiled.log.as_bytes());
    bytes.extend_from_slice(&compiled.cubin);
    let sum = blake3::hash(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    let beside = cache.join(format!("{key}.{}", std::process::id()));
    let _ = std::fs::create_dir_all(cache);
    if std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, cache.join(key))).is_err() {
        let _ = std::fs::remove_file(&beside);
    }
}

/// Bytes of spilled registers that the compiler's log speaks of, and warnings that mean a slow path.
pub fn complaints(log: &str) -> Vec<String> {
    let slow = ["C7508", "C7510", "serialized", "ignored to maintain"];
    let bad = |line: &&str| {
        let spills = line.contains("spill")
            && !(line.contains(" 0 bytes spill stores") && line.contains(" 0 bytes spill loads"));
        spills || line.contains("warning") || slow.iter().any(|w| line.contains(w))
    };
    log.lines().filter(bad).map(|l| l.trim().to_string()).collect()
}

/// Spilled bytes of kernel `name`, stores and loads together, from the compiler's log.
pub fn spilled(log: &str, name: &str) -> Option<u32> {
    let mut lines = log.lines().skip_while(|l| !l.contains(&format!("Function properties for {name}")));
    lines.next()?;
    let line = lines.next()?;
    let number = |what: &str| {
        let before = line.split(&format!(" bytes {what}")).next()?;
        before.rsplit([' ', ',']).next()?.parse::<u32>().ok()
    };
    Some(number("spill stores")? + number("spill loads")?)
}

/// Whether the compiler lets products of Hopper's tensor cores wait for each other.
pub fn serialises(log: &str) -> bool {
    log.contains("wgmma.mma_async instructions are serialized")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_included_is_part_of_the_key() {
        let known = [("a.cuh", "#include \"b.cuh\"\n"), ("b.cuh", "int b;"), ("c.cuh", "int c;")];
        let found = included("#include \"a.cuh\"\nint x;", &known);
        assert_eq!(found.iter().map(|h| h.0).collect::<Vec<_>>(), ["a.cuh", "b.cuh"]);
        let of = |headers: &[(&str, &str)]| key("", headers, &[], &[], (12, 8));
        assert_ne!(of(&found), of(&[("a.cuh", "#include \"b.cuh\"\n"), ("b.cuh", "int b ;")]));
    }

    #[test]
    fn a_users_headers_are_part_of_the_key_however_they_are_included() {
        let folder = std::env::temp_dir().join(format!("kmark-own-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        put("a.h", "#include \"sub/b.h\"\n");
        put("sub/b.h", "# include <c.h>\n");
        put("sub/c.h", "int c;");
        put("other.h", "int other;");
        let own = |text: &str| own_headers(text, Some(&folder), &[]);
        let keys = |text: &str| key(text, &[], &own(text), &[], (12, 8));
        let texts = ["  #include \"a.h\"", "#  include <a.h> // mine"];
        for text in texts {
            let names: Vec<_> = own(text).iter().map(|(p, _)| p.strip_prefix(&folder).unwrap().to_owned()).collect();
            assert_eq!(names, ["a.h", "sub/b.h", "sub/c.h"].map(PathBuf::from), "{text}");
        }
        let before = texts.map(keys);
        put("other.h", "int another;");
        assert_eq!(before, texts.map(keys));
        put("sub/c.h", "int d;");
        assert!(texts.map(keys).iter().zip(&before).all(|(now, then)| now != then));
        assert_eq!(own("#define A \"a.h\"\n#include A").len(), 4, "a macro may name any file");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_broken_file_is_no_hit() {
        let folder = std::env::temp_dir().join(format!("kmark-jit-{}", std::process::id()));
        let compiled = Compiled { cubin: vec![1, 2, 3], log: "fine".into() };
        write(&folder, "k", &compiled);
        assert_eq!(read(&folder, "k").map(|c| (c.cubin, c.log)), Some((vec![1, 2, 3], "fine".into())));
        let mut bytes = std::fs::read(folder.join("k")).unwrap();
        bytes.truncate(bytes.len() - 1);
        std::fs::write(folder.join("k"), &bytes).unwrap();
        assert!(read(&folder, "k").is_none());
        std::fs::write(folder.join("k"), [0xff; 40]).unwrap();
        assert!(read(&folder, "k").is_none());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn spills_are_read_from_the_log() {
        let log = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas info    : Function properties for k\n\
                   ptxas         .     352 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Used 79 registers\n";
        assert_eq!(spilled(log, "k"), Some(20));
        assert_eq!(complaints(log).len(), 1);
        assert!(complaints(&log.replace("12 bytes", "0 bytes").replace("8 bytes", "0 bytes")).is_empty());
    }

    #[test]
    fn serialised_products_are_read_from_the_log() {
        let log = "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are serialized due to non \
                   wgmma instructions defining accumulator registers of a wgmma in the function 'k'\n";
        assert!(serialises(log) && complaints(log).len() == 1);
        assert!(!serialises("ptxas info    : Used 79 registers\n"));
    }
}
