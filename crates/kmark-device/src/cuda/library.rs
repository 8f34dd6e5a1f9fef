//! Finding NVIDIA's libraries at run time: nothing of CUDA is needed to build, and what is missing is said, never a panic.

use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_NOW};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A folder (or several, as in PATH) that is searched before all others.
pub const PATH_VARIABLE: &str = "KMARK_CUDA_PATH";

/// A loaded library and where it came from. Never unloaded: drivers do not survive it.
pub struct Library {
    handle: Handle,
    pub path: String,
}

impl Library {
    /// Opens the first of `names` that loads. `Err` says what was tried.
    pub fn open(names: &[&str]) -> Result<Library, String> {
        let mut tried = Vec::new();
        let mut open = |name: &Path| {
            // SAFETY: loading NVIDIA's libraries runs their initialisers; that is what they are for.
            let opened = unsafe { Handle::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
            // The linker's own words are in the error's source.
            opened.inspect_err(|e| {
                let source = std::error::Error::source(e);
                tried.push(source.map_or_else(|| e.to_string(), |s| s.to_string()));
            })
        };
        for folder in folders() {
            for path in names.iter().map(|n| folder.join(n)).filter(|p| p.exists()) {
                if let Ok(handle) = open(&path) {
                    return Ok(Library { handle, path: path.display().to_string() });
                }
            }
        }
        for name in names {
            if let Ok(handle) = open(Path::new(name)) {
                return Ok(Library { handle, path: mapped(name).unwrap_or_else(|| name.to_string()) });
            }
        }
        Err(tried.last().cloned().unwrap_or_else(|| format!("{} not found", names[0])))
    }

    /// The address of a function; `T` is its type.
    ///
    /// # Safety
    /// `T` must be the function's type.
    pub unsafe fn get<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: as the caller promises.
        unsafe { self.handle.get::<T>(format!("{name}\0").as_bytes()).ok().map(|s| *s) }
    }

    /// The folder it was loaded from, if known.
    pub fn folder(&self) -> Option<PathBuf> {
        Path::new(&self.path).parent().map(Path::to_path_buf).filter(|p| p.is_absolute())
    }
}

/// Where to look, most specific first; the dynamic linker's own search comes last.
fn folders() -> &'static [PathBuf] {
    static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FOLDERS.get_or_init(|| {
        let mut all: Vec<PathBuf> = Vec::new();
        if let Some(paths) = std::env::var_os(PATH_VARIABLE) {
            all.extend(std::env::split_paths(&paths));
        }
        for root in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os) {
            all.extend(["lib64", "lib"].map(|d| Path::new(&root).join(d)));
        }
        // Wheels of a Python environment: site-packages/nvidia/*/lib.
        for environment in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os) {
            for python in children(&Path::new(&environment).join("lib")) {
                let mut wheels = children(&python.join("site-packages/nvidia"));
                wheels.sort();
                all.extend(wheels.into_iter().map(|w| w.join("lib")).filter(|p| p.is_dir()));
            }
        }
        all.extend(["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"].map(PathBuf::from));
        all
    })
}

fn children(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
}

/// The file that a library found by the linker was mapped from.
fn mapped(name: &str) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let paths = maps.lines().filter_map(|l| l.split_whitespace().nth(5));
    paths.map(str::to_owned).find(|p| p.rsplit('/').next().is_some_and(|file| file.starts_with(name)))
}

/// Declares a table of functions: each is looked up once, and a missing one is an error only when it is called.
macro_rules! functions {
    ($(#[$meta:meta])* $visible:vis struct $table:ident { $($name:ident: fn($($arg:ident: $type:ty),* $(,)?);)* }) => {
        $(#[$meta])*
        $visible struct $table {
            $($name: Option<unsafe extern "C" fn($($type),*) -> std::ffi::c_int>,)*
        }

        impl $table {
            fn of(library: &$crate::cuda::library::Library) -> $table {
                // SAFETY: the types are those of NVIDIA's headers.
                unsafe { $table { $($name: library.get(stringify!($name)),)* } }
            }

            $(
                /// The function's result code; [`MISSING`] if the library has no such function.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                unsafe fn $name(&self, $($arg: $type),*) -> std::ffi::c_int {
                    match self.$name {
                        // SAFETY: the caller's, as for any C function.
                        Some(f) => unsafe { f($($arg),*) },
                        None => $crate::cuda::library::MISSING,
                    }
                }
            )*
        }
    };
}
pub(crate) use functions;

/// A code that no library returns: the function does not exist in this version.
pub const MISSING: i32 = i32::MIN;
