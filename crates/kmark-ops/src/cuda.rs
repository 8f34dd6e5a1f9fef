//! What CUDA implementations share: the table row, the headers that kernels include, and files that users bring along.

use kmark_core::case::Case;
use kmark_core::op::Op;
use kmark_core::record::Status;
use kmark_device::buffer::Buffers;
use kmark_device::cuda::directives::Directives;
use kmark_device::cuda::jit::{self, Headers};
use kmark_device::cuda::machine::Machine;
use kmark_device::cuda::{Cuda, KernelFile, Text, Wrong, declare, prelude, tensor_map, tune};
use kmark_device::{Device, Fault, Impl, Launch, kind_of};
use std::any::Any;
use std::borrow::Cow;
use std::path::Path;
use std::sync::OnceLock;

/// A CUDA kernel of ours: one row of an op's table, made by `kernels!`. The idea is the first sentence of the file.
pub struct CudaImpl {
    /// Under `src/`.
    pub path: &'static str,
    pub name: &'static str,
    pub source: &'static str,
}

/// A table: the op's folder, its kernels, and behind a semicolon what is no kernel file.
macro_rules! kernels {
    ($op:literal $(, $name:literal)* $(; $more:expr)?) => {
        &[
            $(&$crate::cuda::CudaImpl {
                path: concat!($op, "/cuda/", $name, ".cu"),
                name: concat!("cuda/", $name),
                source: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $op, "/cuda/", $name, ".cu")),
            },)*
            $($more)?
        ]
    };
}
pub(crate) use kernels;

/// A file of ours: its path under `src/`, and its text as it was built in.
pub struct Source(pub &'static str, pub &'static str);

impl Source {
    /// As a header that is found by the name of the op whose oracle it is.
    pub fn header(&self, op: &Op) -> (&'static str, &'static str) {
        (Box::leak(kmark_device::cuda::oracle_name(op).into_boxed_str()), text(self.0, self.1))
    }
}

/// An op's `00_oracle.cu`.
macro_rules! oracle {
    ($op:literal) => {
        $crate::cuda::Source(
            concat!($op, "/cuda/00_oracle.cu"),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $op, "/cuda/00_oracle.cu")),
        )
    };
}
pub(crate) use oracle;

/// A kernel author's switch: the folder `crates/kmark-ops/src` of a checkout, whose `.cu` and `.cuh` files are then taken
/// instead of those built in, so that a change needs no new build. Hashes are those of what was run.
pub const SOURCES_VARIABLE: &str = "KMARK_SOURCES";

/// The built-in text, or the file's.
fn text(path: &str, built_in: &'static str) -> &'static str {
    let Some(folder) = std::env::var_os(SOURCES_VARIABLE) else { return built_in };
    match std::fs::read_to_string(Path::new(&folder).join(path)) {
        Ok(text) => Box::leak(text.into_boxed_str()), // a few files, once per process and case
        Err(_) => built_in,
    }
}

/// Every file under `device/`: its name there, and its text.
const OWN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/headers.rs"));

/// Everything that a kernel may include.
pub fn headers() -> Headers {
    static ALL: OnceLock<Vec<(&str, &str)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let own = OWN.iter().map(|(name, built_in)| (*name, text(&format!("device/{name}"), built_in)));
        let below = jit::HEADERS.iter().map(|(name, built_in)| {
            let path = format!("../../kmark-device/src/cuda/device/{name}");
            (*name, text(&path, built_in))
        });
        own.chain(below).chain(added()).collect()
    })
}

/// Headers that stand in the author's folder and not in the binary.
fn added() -> Vec<(&'static str, &'static str)> {
    let Some(folder) = std::env::var_os(SOURCES_VARIABLE) else { return Vec::new() };
    let files = std::fs::read_dir(Path::new(&folder).join("device")).into_iter().flatten().flatten();
    let names = files.map(|f| f.file_name().to_string_lossy().into_owned());
    let new = names.filter(|n| n.ends_with(".cuh") && !OWN.iter().any(|(own, _)| own == n));
    new.map(|n| {
        let text = text(&format!("device/{n}"), "");
        (&*Box::leak(n.into_boxed_str()), text)
    })
    .collect()
}

impl CudaImpl {
    fn file(&self) -> Result<KernelFile<'static>, String> {
        let text = text(self.path, self.source);
        let directives = Directives::parse(text).map_err(|e| format!("{}: {e}", self.path))?;
        Ok(KernelFile {
            name: self.path.into(),
            text: Text::Cuda(text.into()),
            directives,
            headers: headers(),
            folder: None,
        })
    }
}

/// What portable kernels are compiled for in tests: Ampere, Ada, Hopper, Blackwell.
pub const ARCHITECTURES: &[&str] = &["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"];

pub type Bound = Result<Box<dyn Launch>, Fault>;

/// Binds a kernel file to a case's memory on a GPU, with a mistake if one is wanted.
pub fn bind(
    file: &KernelFile,
    device: &dyn Device,
    op: &'static Op,
    case: &Case,
    buffers: &Buffers,
    wrong: Option<Wrong>,
) -> Bound {
    let cuda =
        kind_of::<Cuda>(device).ok_or_else(|| Fault::new(Status::Unsupported, format!("{} needs a GPU", file.name)))?;
    if !file.directives.runs_on(cuda.arch()) {
        let message = format!("{} is for {}; this GPU is {}", file.name, file.directives.archs.join(", "), cuda.arch());
        return Err(Fault::new(Status::Unsupported, message));
    }
    Ok(Box::new(file.bind(cuda, op, case, buffers, wrong)?))
}

/// The file of an impl that is a kernel of ours or a user's; a library's function has none.
pub fn kernel_file(imp: &dyn Impl) -> Option<KernelFile<'static>> {
    let imp = imp.as_any()?;
    let own = imp.downcast_ref::<CudaImpl>().and_then(|kernel| kernel.file().ok());
    own.or_else(|| imp.downcast_ref::<UserKernel>().map(|kernel| kernel.file.clone()))
}

impl Impl for CudaImpl {
    fn name(&self) -> &str {
        self.name
    }
    fn about(&self) -> Cow<'_, str> {
        first_sentence(self.source).into()
    }
    fn device(&self) -> &'static str {
        "cuda"
    }
    fn hash(&self) -> String {
        let text = text(self.path, self.source);
        hash(text.as_bytes(), text, None, &[])
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        self.file()?.claims(op, case)
    }
    fn bind(&self, device: &dyn Device, op: &'static Op, case: &Case, buffers: &Buffers) -> Bound {
        let file = self.file().map_err(|e| Fault::new(Status::BuildFailed, e))?;
        bind(&file, device, op, case, buffers, None)
    }
    fn variants(&self, op: &'static Op, case: &Case, arch: &str) -> Vec<String> {
        self.file().and_then(|f| f.variants(op, case, &Machine::usual(arch))).unwrap_or_default()
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// What the comment at the head of a file begins with.
fn first_sentence(text: &str) -> String {
    let lines = text.lines().map_while(|l| l.strip_prefix("// ")).take_while(|l| !l.starts_with("kmark: "));
    let head = lines.collect::<Vec<_>>().join(" ");
    head.split(". ").next().unwrap_or_default().trim_end_matches('.').to_string()
}

/// The hash of an impl together with what was found when it was bound: the libraries that it stands on, the values chosen.
pub fn hash_with(own: String, more: &str) -> String {
    if more.is_empty() {
        return own;
    }
    blake3::hash(format!("{own}\n{more}").as_bytes()).to_hex()[..16].to_string()
}

/// Of a kernel's bytes, of every header that it includes, ours (`kmark.cuh` comes with the prelude) and the user's, and of
/// what makes the prelude and the compiler's options.
fn hash(bytes: &[u8], text: &str, folder: Option<&Path>, flags: &[String]) -> String {
    let mut h = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        h.update(&(bytes.len() as u64).to_le_bytes());
        h.update(bytes);
    };
    part(bytes);
    part(prelude::SOURCE.as_bytes());
    if ["// kmark: let ", "// kmark: tune ", "// kmark: map "].iter().any(|line| text.contains(line)) {
        part(declare::SOURCE.as_bytes());
    }
    if text.contains("// kmark: map ") {
        part(tensor_map::SOURCE.as_bytes());
    }
    jit::OPTIONS.iter().for_each(|o| part(o.as_bytes()));
    let own = jit::own_headers(text, folder, flags);
    let texts = own.iter().fold(format!("#include \"kmark.cuh\"\n{text}"), |all, (_, bytes)| {
        all + "\n" + &String::from_utf8_lossy(bytes)
    });
    for (name, text) in jit::included(&texts, headers()) {
        part(name.as_bytes());
        part(text.as_bytes());
    }
    for (path, bytes) in own {
        part(path.file_name().unwrap_or_default().as_encoded_bytes());
        part(&bytes);
    }
    h.finalize().to_hex()[..16].to_string()
}

/// A user's own file: `./mine.cu:entry`, `./mine.ptx`, `./mine.cubin:entry`.
pub struct UserKernel {
    name: String,
    file: KernelFile<'static>,
    hash: String,
}

impl UserKernel {
    /// `bytes` is what the file holds; directives of a cubin come from `launch`, the text of a file beside it.
    pub fn new(
        word: &str,
        path: &Path,
        bytes: Vec<u8>,
        entry: Option<&str>,
        launch: Option<&str>,
    ) -> Result<UserKernel, String> {
        let is_cuda = path.extension().is_some_and(|e| e == "cu");
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let mut directives = Directives::parse(launch.unwrap_or(&text))?;
        if directives.kernels.is_empty() {
            return Err("no line `// kmark: kernel NAME grid=… block=…` says how to launch it; see `kmark list ops \
                        --template OP`"
                .into());
        }
        if let Some(entry) = entry {
            if !directives.kernels.iter().any(|k| k.name == entry) {
                let known = directives.kernels.iter().map(|k| k.name.as_str());
                return Err(kmark_core::spelling::unknown("kernel", entry, known));
            }
            directives.kernels.retain(|k| k.name == entry || !k.bind.is_empty());
        }
        let folder = path.parent().filter(|p| is_cuda && !p.as_os_str().is_empty());
        let described = [&bytes[..], launch.unwrap_or_default().as_bytes()].concat();
        let hash = hash(&described, if is_cuda { &text } else { "" }, folder, &directives.flags);
        let folder = folder.map(Path::to_path_buf);
        let text = match path.extension().and_then(|e| e.to_str()) {
            Some("cu") => Text::Cuda(Cow::Owned(text)),
            Some("ptx") => Text::Image([bytes, vec![0]].concat()),
            _ => Text::Image(bytes),
        };
        let name = path.file_name().map_or_else(|| word.into(), |n| n.to_string_lossy().into_owned());
        let file = KernelFile { name, text, directives, headers: headers(), folder };
        Ok(UserKernel { name: word.to_string(), file, hash })
    }

    /// A kernel with some of its tuned values chosen: `choice` is the word for them, `word` the impl's new name.
    pub fn variant_of(imp: &dyn Impl, word: &str, choice: &str) -> Result<UserKernel, String> {
        let mut file = kernel_file(imp).ok_or("leaves nothing to choose")?;
        file.directives.chosen = tune::parse(choice)?;
        Ok(UserKernel { name: word.to_string(), file, hash: hash_with(imp.hash(), choice) })
    }
}

impl Impl for UserKernel {
    fn name(&self) -> &str {
        &self.name
    }
    fn about(&self) -> Cow<'_, str> {
        "a kernel of your own".into()
    }
    fn device(&self) -> &'static str {
        "cuda"
    }
    fn hash(&self) -> String {
        self.hash.clone()
    }
    fn supports(&self, op: &'static Op, case: &Case) -> Result<(), String> {
        self.file.claims(op, case)
    }
    fn bind(&self, device: &dyn Device, op: &'static Op, case: &Case, buffers: &Buffers) -> Bound {
        bind(&self.file, device, op, case, buffers, None)
    }
    fn variants(&self, op: &'static Op, case: &Case, arch: &str) -> Vec<String> {
        self.file.variants(op, case, &Machine::usual(arch)).unwrap_or_default()
    }
    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(folder: &Path) -> UserKernel {
        let path = folder.join("mine.cu");
        let bytes = std::fs::read(&path).unwrap();
        UserKernel::new("./mine.cu", &path, bytes, None, None).unwrap()
    }

    #[test]
    fn every_byte_that_a_users_kernel_includes_is_in_its_hash() {
        let folder = std::env::temp_dir().join(format!("kmark-hash-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        put("mine.cu", "// kmark: kernel k grid=1 block=32\n#include \"mine.h\"\nKERNEL k(Args a) {}\n");
        put("mine.h", "#include <deeper.h>\n");
        put("deeper.h", "int a;\n");
        let first = kernel(&folder).hash();
        assert_eq!(first, kernel(&folder).hash());
        put("deeper.h", "int b;\n");
        let second = kernel(&folder).hash();
        assert_ne!(first, second);
        put("mine.h", "#include <deeper.h>\n\n");
        assert_ne!(second, kernel(&folder).hash());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_kernel_s_idea_is_its_first_sentence() {
        assert_eq!(
            first_sentence("// Rows in\n// registers. Long ones twice.\n// kmark: kernel k grid=1\n"),
            "Rows in registers"
        );
        assert_eq!(first_sentence("// Rows.\n// kmark: kernel k grid=1\n// more\n"), "Rows");
    }

    #[test]
    fn headers_prelude_and_options_are_in_every_kernels_hash() {
        let of = |text: &str| hash(text.as_bytes(), text, None, &[]);
        let mut seen: Vec<String> = vec![of("")];
        seen.extend(headers().iter().map(|(name, _)| of(&format!("#include \"{name}\""))));
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), headers().len() + 1, "each header changes it");
        assert!(!prelude::SOURCE.is_empty() && !jit::OPTIONS.is_empty());
    }
}
