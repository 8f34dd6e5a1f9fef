//! Every kernel and oracle by the real compiler, for every architecture. Takes longer than all other tests and waits for
//! nothing: its name puts it first, its priority behind whatever else wants a core.

use crate::every_kernel::from_smoke;
use crate::text;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The real compiler of CUDA 13, or of 12, from the Python environment that `./check` makes: no GPU, no toolkit.
fn nvrtc(cuda: u32) -> PathBuf {
    let python = std::env::var_os("KMARK_PYTHON")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/numpy-env/bin/python"));
    let find = format!(
        "import nvidia, pathlib; print(next(pathlib.Path(list(nvidia.__path__)[0]).glob('*/lib/libnvrtc.so.{cuda}')).parent)"
    );
    let found = Command::new(&python).args(["-c", &find]).output();
    match found {
        Ok(out) if out.status.success() => PathBuf::from(text(&out.stdout).trim()),
        _ => panic!("{} has no NVRTC of CUDA {cuda}; ./check installs it, or set KMARK_PYTHON", python.display()),
    }
}

const HOPPER_FORMS: &str = r#"
[[cases]]
op = "gemm"
dtype = "bf16"
layout = ["nt", "nn", "tn", "tt"]
configs = ["4096x4096x4096"]
[[cases]]
op = "gemm"
dtype = "f16"
layout = "nt"
bias = "yes"
configs = ["4096x576x7168", "2048x2112x7168", "100x7168x4096", "16x4096x4096"]
[[cases]]
op = "gemm"
dtype = "bf16"
layout = "nt"
configs = ["600x5000x5000", "256x1024x1024", "2048x5001x5120"]
[[cases]]
op = "gemm"
dtype = "f32"
tf32 = "yes"
layout = "nt"
configs = ["600x5000x5000", "100x1000x1024"]
[[cases]]
op = "gemm"
dtype = "f8e4m3"
layout = "nt"
scale = ["tensor", "block"]
configs = ["4096x4096x4096", "2048x7168x2048", "48x4096x4096"]
[[cases]]
op = "grouped-gemm"
dtype = ["bf16", "f8e4m3"]
configs = ["4x1024x4096x2048", "5x200x576x512"]
[[cases]]
op = "grouped-gemm"
dtype = ["bf16", "f8e4m3"]
form = "masked"
configs = ["4x40x576x640"]
[[cases]]
op = "attention"
dtype = "bf16"
causal = ["no", "yes"]
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention"
dtype = "f16"
lse = "yes"
configs = ["2x16x16x4096x4096x64", "1x2x2x50x100x256"]
[[cases]]
op = "attention"
dtype = "bf16"
causal = "yes"
window = 100
configs = ["2x16x16x4096x4096x128", "2x16x16x4096x4096x64"]
[[cases]]
op = "attention-bwd"
dtype = "f16"
layout = "bshd"
configs = ["2x16x16x4096x4096x128", "2x16x16x4096x4096x64"]
[[cases]]
op = "attention-bwd"
dtype = "bf16"
causal = "yes"
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention-bwd"
dtype = "bf16"
causal = "yes"
deterministic = "yes"
configs = ["2x16x16x4096x4096x128"]
[[cases]]
op = "attention-varlen"
dtype = "bf16"
lengths = "ragged"
configs = ["4x1000x8x2x128"]
[[cases]]
op = "attention-decode"
dtype = "bf16"
configs = ["64x4096x32x8x128", "1x4096x32x8x128"]
[[cases]]
op = "mla-decode"
dtype = "bf16"
configs = ["64x4096x128", "4x200x16"]
[[cases]]
op = ["cross-entropy", "cross-entropy-fwd-bwd"]
dtype = "bf16"
configs = ["16x131072", "4096x131072", "4096x32001", "512x65536", "512x262144"]
[[cases]]
op = "quant-fp8"
dtype = ["bf16", "f32"]
pow2 = ["no", "yes"]
configs = ["16x262144", "512x262144"]
[[cases]]
op = "quant-fp8"
dtype = "bf16"
granularity = ["1x128", "128x128"]
memory = ["dense", "unaligned"]
configs = ["512x4097"]
[[cases]]
op = ["rmsnorm", "layernorm", "add-rmsnorm", "softmax", "softmax-bwd", "softmax-fwd-bwd"]
dtype = "f16"
configs = ["16x262144", "512x262144", "2000x50000", "65536x8192"]
"#;

/// One form or two of each kernel that the compiler of CUDA 12 might serialise: it takes twice the time.
const SERIALISED: [&str; 12] = [
    "--filter=gemm/f16/m100*",
    "--filter=gemm/f32/m600*",
    "--filter=gemm/f8e4m3/m4096*scale-block",
    "--filter=gemm/f8e4m3/m48*scale-tensor",
    "--filter=grouped-gemm/*m1024-n4096-k2048",
    "--filter=attention/f16*d64/lse-yes",
    "--filter=attention/f16*d256/lse-yes",
    "--filter=attention-bwd/f16*",
    "--filter=attention-bwd/*causal-yes/deterministic-yes",
    "--filter=attention-varlen/*",
    "--filter=attention/bf16*d64/causal-yes/window-100",
    "--filter=mla-decode/*h128",
];

/// Rows that vectors do not divide, long ones and short ones.
const ROW_FORMS: &str = r#"
[[cases]]
op = ["rmsnorm", "layernorm", "add-rmsnorm", "softmax", "softmax-bwd", "softmax-fwd-bwd", "rmsnorm-bwd", "layernorm-bwd"]
dtype = "bf16"
memory = ["dense", "unaligned"]
configs = ["4096x4097", "512x65537"]
[[cases]]
op = ["rmsnorm", "layernorm", "softmax-bwd", "rmsnorm-bwd", "layernorm-bwd", "quant-fp8"]
dtype = "bf16"
memory = "unaligned"
configs = ["8192x4096"]
[[cases]]
op = ["rmsnorm", "softmax", "softmax-bwd"]
dtype = "bf16"
memory = ["strided", "unaligned"]
configs = ["4096x8191", "512x20001"]
[[cases]]
op = ["rmsnorm", "layernorm", "add-rmsnorm", "softmax", "softmax-bwd", "softmax-fwd-bwd"]
dtype = "f32"
memory = "unaligned"
configs = ["512x65537"]
[[cases]]
op = ["rmsnorm-bwd", "layernorm-bwd"]
dtype = ["bf16", "f32"]
configs = ["2000x50000"]
[[cases]]
op = "cross-entropy-fwd-bwd"
dtype = ["bf16", "f32"]
memory = ["dense", "strided", "unaligned"]
configs = ["33x1", "33x17"]
[[cases]]
op = ["rmsnorm", "layernorm", "add-rmsnorm", "softmax", "softmax-bwd"]
dtype = "f64"
configs = ["33x257"]
[[cases]]
op = "layernorm-bwd"
dtype = "f16"
bias = "yes"
configs = ["512x262144", "150x4097", "33x1000"]
"#;

/// Without errors or warnings, and for Ampere and Hopper without spills: every kernel; oracles in one dtype, and for the
/// other architectures fewer dtypes, hardly optimised. Kernels for Hopper alone in the forms that they take there:
/// no product is serialised, nor by the compiler of CUDA 12.
/// (Every case of `smoke` was compiled for Hopper by the run in `evidence/`, whose test looks at spills.)
#[test]
fn every_kernel_compiles_for_every_architecture() {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled");
    let suite = |name: &str, text: &str| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_string()
    };
    let (forms, rows) = (&suite("forms.toml", HOPPER_FORMS), &suite("rows.toml", ROW_FORMS));
    let every_dtype = &from_smoke("every-dtype", 0);
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gemm_wgmma.cu");
    let compile = |cuda: u32, what: &[&str], how: &[&str]| {
        // Tests that time something run beside it: what they calibrate their clocks with gets the processor first.
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(assert_cmd::cargo::cargo_bin("kmark")).arg("build").args(what).args(how);
        let out = command.env("KMARK_CUDA_PATH", nvrtc(cuda)).env("KMARK_CACHE", &cache).output().unwrap();
        assert_eq!(out.status.code(), Some(0), "CUDA {cuda}: {}{}", text(&out.stdout), text(&out.stderr));
    };
    let for_hopper = ["--arch", "sm_90a", "--no-oracles"];
    let rungs = ["--impl=cuda/01_rows", "--impl=cuda/02*", "--impl=cuda/03*", "--impl=cuda/04*", "--impl=cuda/05*"];
    compile(13, &[&[rows.as_str()][..], &rungs[..4]].concat(), &for_hopper);
    for (cuda, of) in [(13, &rungs[..]), (12, &[&rungs[1..], &SERIALISED].concat())] {
        compile(cuda, &[&[forms.as_str()][..], of].concat(), &for_hopper);
        compile(cuda, &["gemm", "--set", "layout=nt", "--dtype", "bf16", "--impl", example], &for_hopper);
    }
    compile(13, &[every_dtype], &for_hopper);
    compile(13, &[every_dtype, "--arch", "sm_90a", "--no-kernels", "--dtype", "bf16"], &["--quick"]);
    compile(13, &[every_dtype, "--arch", "sm_80"], &["--no-oracles"]);
    let fewer = ["--no-oracles", "--quick"];
    compile(13, &[every_dtype, "--arch", "sm_100a", "--dtype", "bf16,f8e4m3"], &fewer);
    compile(13, &[every_dtype, "--arch", "sm_86,sm_89,sm_120a", "--dtype", "f8e4m3"], &fewer);
}
