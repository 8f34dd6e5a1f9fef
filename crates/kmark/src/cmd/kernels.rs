//! What an author of a CUDA kernel needs to know of an op: what the compiler sees before the first line, and a file to
//! start from.

use crate::error::{Error, Result};
use kmark_core::case::{Case, DEFAULT_SEED};
use kmark_core::dtype::DType;
use kmark_device::cuda::{For, prelude};
use kmark_ops::Entry;
use std::fmt::Write;

/// The op's first default case, in bf16 where it has that. A user's op may have none, or one that is no case.
fn example(e: &Entry) -> Result<Case> {
    let mut config = e.op.default_configs.first().map_or("", |c| c).split('x');
    let size = |word: Option<&str>| word.and_then(|w| w.parse().ok()).unwrap_or(64);
    let axes = e.op.axes.iter().map(|a| (a.name.to_string(), size(config.next()))).collect();
    let dtype = if e.op.dtypes.contains(&DType::Bf16) { DType::Bf16 } else { e.op.dtypes[0] };
    e.op.case(dtype, &axes, &Default::default(), DEFAULT_SEED).map_err(Error::usage)
}

/// Types, attributes and arguments as the compiler sees them, for the op's first default case.
pub fn signature(e: &Entry) -> Result<String> {
    let case = example(e)?;
    let text = prelude(e.op, &case, &[], For::Kernel).expect("no constants are asked for");
    let mut out = format!("// {}: {}\n// As for case {}; kernels are\n", e.op.name, e.op.about, case.id);
    out.push_str("//     extern \"C\" __global__ void NAME(const __grid_constant__ Args a)\n");
    out.push_str(&text);
    out.push('\n');
    Ok(out)
}

/// A file that compiles and runs, and is rejected until its body computes something.
pub fn template(e: &Entry) -> Result<String> {
    let case = example(e)?;
    let tensors = e.op.tensors(&case);
    let out = tensors.iter().find(|t| t.role.is_output()).expect("an op has outputs").name;
    let axes: Vec<&str> = e.op.axes.iter().map(|a| a.name).collect();
    let mut text = String::new();
    let mut line = |s: String| writeln!(text, "{s}").expect("a string takes everything");
    line(format!("// {}: {}", e.op.name, e.op.about));
    line("//".into());
    line(format!("// kmark: kernel mine grid={out}.rows block=256"));
    line("//".into());
    line("// A kernel line says how to launch: grid=E[,E[,E]] block=E[,E[,E]] shared=E cluster=E[,E[,E]] with=overlap,cooperative;".into());
    line("// several lines are several launches in order. Expressions (no spaces; + - * / % ?: == <, ceil(a,b), min(a,b), max(a,b),".into());
    line(format!(
        "// least(W,from,to,step,E)) know the axes ({}), numeric attributes, ATTR.WORD, NAME.rows, NAME.cols, NAME.pitch of a",
        axes.join(", ")
    ));
    line("// tensor, size (bytes of the dtype), sms, max_shared, max_cluster, l2 of the GPU; a grid its occupancy and clusters. Further lines:".into());
    line(
        "//     let TILE = E               a value for the lines below and for the code; let COST(W) = E a function"
            .into(),
    );
    line("//     tune STAGES = 2, 3, 4      a value that is tried; the fastest right variant runs".into());
    line(
        "//     map x = x box=64,TILE swizzle=128    a tensor map; kernels take Maps maps as a second argument".into(),
    );
    line(
        "//     workspace BYTES [zeroed]   constants AXIS,… (sizes as constants, upper case)   only dtype=bf16,f16"
            .into(),
    );
    line("//     require CONDITION          arch sm_90a          flags --use_fast_math".into());
    line("//     kernel pack … bind=TENSOR  a launch before those that are timed; sees that input and the workspace alone".into());
    line("// Hopper: #include \"hopper/barrier.cuh\", \"hopper/tma.cuh\", \"hopper/wgmma.cuh\". All of it: FORMAT.md, kernel files.".into());
    line(format!("// Arguments and types: kmark list ops {} --signature", e.op.name));
    line(String::new());
    line("extern \"C\" __global__ void mine(const __grid_constant__ Args a) {".into());
    line("    i64 row = blockIdx.x;".into());
    for t in &tensors {
        let role = if t.role.is_output() { "written" } else { "read" };
        let shape: Vec<String> = t.shape.iter().map(|d| d.to_string()).collect();
        line(format!("    // a.{}: {}, {} of {} in this op's first case", t.name, role, shape.join(" x "), t.dtype));
    }
    line(format!("    for (i64 c = threadIdx.x; c < a.{out}.cols; c += blockDim.x) {{"));
    line(format!(
        "        a.{out}.at(row, c) = down<{out}_t>(0.0f); // up(x) widens an element to float, down<T>(v) rounds to T"
    ));
    line("    }".into());
    line("}".into());
    Ok(text)
}
