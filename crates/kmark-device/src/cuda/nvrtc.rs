//! NVRTC: CUDA C++ text to a cubin for one architecture, with the compiler's log.

use super::library::{Library, MISSING, functions};
use std::ffi::{CStr, CString, c_char, c_int, c_void};

type Program = *mut c_void;

functions! {
    #[allow(non_snake_case)]
    struct Table {
        nvrtcVersion: fn(major: *mut c_int, minor: *mut c_int);
        nvrtcCreateProgram: fn(program: *mut Program, source: *const c_char, name: *const c_char, headers: c_int, texts: *const *const c_char, names: *const *const c_char);
        nvrtcCompileProgram: fn(program: Program, count: c_int, options: *const *const c_char);
        nvrtcDestroyProgram: fn(program: *mut Program);
        nvrtcGetProgramLogSize: fn(program: Program, size: *mut usize);
        nvrtcGetProgramLog: fn(program: Program, log: *mut c_char);
        nvrtcGetCUBINSize: fn(program: Program, size: *mut usize);
        nvrtcGetCUBIN: fn(program: Program, cubin: *mut c_char);
    }
}

pub struct Nvrtc {
    table: Table,
    pub path: String,
    pub version: (i32, i32),
    /// Must be mapped before the first compilation; the wheels' library does not find it by itself.
    _builtins: Option<Library>,
    _library: Library,
}

/// What came of a compilation.
pub struct Compiled {
    pub cubin: Vec<u8>,
    pub log: String,
}

impl Nvrtc {
    pub fn load() -> Result<Nvrtc, String> {
        let hint = "NVRTC compiles the kernels; it comes with the CUDA toolkit or with `pip install nvidia-cuda-nvrtc`";
        let library = Library::open(&["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"])
            .map_err(|e| format!("no libnvrtc: {e}. {hint}; set {} to its folder", super::library::PATH_VARIABLE))?;
        let table = Table::of(&library);
        let mut version = (0, 0);
        // SAFETY: two integers are written.
        let code = unsafe { table.nvrtcVersion(&mut version.0, &mut version.1) };
        if code != 0 {
            return Err(format!("{}: nvrtcVersion failed with code {code}. {hint}", library.path));
        }
        let builtins = library.folder().and_then(|f| {
            let files = std::fs::read_dir(f).ok()?.flatten().map(|e| e.path());
            let name = |p: &std::path::PathBuf| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let found = files.into_iter().find(|p| name(p).starts_with("libnvrtc-builtins.so"))?;
            Library::open(&[found.to_str()?]).ok()
        });
        Ok(Nvrtc { table, path: library.path.clone(), version, _builtins: builtins, _library: library })
    }

    /// `headers` are names and texts for `#include`. `Err` is the compiler's log.
    pub fn compile(
        &self,
        source: &str,
        name: &str,
        headers: &[(&str, &str)],
        options: &[String],
    ) -> Result<Compiled, String> {
        let c = |text: &str| CString::new(text).map_err(|_| format!("{name}: the text contains a zero byte"));
        let list = |texts: &mut dyn Iterator<Item = &str>| texts.map(c).collect::<Result<Vec<CString>, String>>();
        let pointers = |list: &[CString]| list.iter().map(|s| s.as_ptr()).collect::<Vec<_>>();
        let (source, file) = (c(source)?, c(name)?);
        let names = list(&mut headers.iter().map(|h| h.0))?;
        let texts = list(&mut headers.iter().map(|h| h.1))?;
        let options = list(&mut options.iter().map(|o| o.as_str()))?;
        let mut program = Guard { table: &self.table, program: std::ptr::null_mut() };
        // SAFETY: all strings outlive the calls; counts are those of the lists.
        unsafe {
            let code = self.table.nvrtcCreateProgram(
                &mut program.program,
                source.as_ptr(),
                file.as_ptr(),
                names.len() as c_int,
                pointers(&texts).as_ptr(),
                pointers(&names).as_ptr(),
            );
            self.check(code, "nvrtcCreateProgram")?;
            let code =
                self.table.nvrtcCompileProgram(program.program, options.len() as c_int, pointers(&options).as_ptr());
            let log = program.text()?;
            if code != 0 {
                return Err(if log.is_empty() { format!("nvrtcCompileProgram failed with code {code}") } else { log });
            }
            let mut size = 0;
            self.check(self.table.nvrtcGetCUBINSize(program.program, &mut size), "nvrtcGetCUBINSize")?;
            let mut cubin = vec![0u8; size];
            self.check(self.table.nvrtcGetCUBIN(program.program, cubin.as_mut_ptr().cast()), "nvrtcGetCUBIN")?;
            Ok(Compiled { cubin, log })
        }
    }

    fn check(&self, code: c_int, what: &str) -> Result<(), String> {
        match code {
            0 => Ok(()),
            MISSING => Err(format!("{} has no {what}: it is too old", self.path)),
            code => Err(format!("{what} failed with code {code}")),
        }
    }
}

struct Guard<'a> {
    table: &'a Table,
    program: Program,
}

impl Guard<'_> {
    fn text(&self) -> Result<String, String> {
        let mut size = 0usize;
        // SAFETY: the library writes `size` bytes, the last one zero.
        unsafe {
            if self.table.nvrtcGetProgramLogSize(self.program, &mut size) != 0 {
                return Err("nvrtcGetProgramLogSize failed".into());
            }
            let mut log = vec![0u8; size.max(1)];
            if self.table.nvrtcGetProgramLog(self.program, log.as_mut_ptr().cast()) != 0 {
                return Err("nvrtcGetProgramLog failed".into());
            }
            Ok(CStr::from_bytes_until_nul(&log).map(|c| c.to_string_lossy().trim().to_string()).unwrap_or_default())
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: created above, destroyed once; null is refused by the library with a code.
        unsafe { self.table.nvrtcDestroyProgram(&mut self.program) };
    }
}
