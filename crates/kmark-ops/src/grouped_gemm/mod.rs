//! Products of groups of rows, each with a matrix of its own: the experts of a mixture. Rows lie one group after the
//! other, padded, or each group in a slot of full size.
//!
//! The rungs on a GPU: `01_fma` for f32, `01_mma` for any other case, `02_wgmma` (16 bits) and `03_fp8` on Hopper where groups begin at
//! multiples of 128 rows. On an H200 (evidence/h200/products) the better of DeepGEMM and torch has 0.98 of their speed as a geometric
//! mean; they are ahead by 8 to 14 % with groups of 1024 rows in fp8 and contiguous ones of few, behind by 2 to 3 % with 4 groups of
//! 8192 rows in fp8 and by 2 % (16 bits) and 6 to 8 % (fp8) with ragged groups of up to 4096 rows.

mod cpu;
mod plain;

use crate::contract::*;
use crate::truth::product::{self, BLOCK, Operand, Scales, derive_scales, rms_share, slack};

pub const ENTRY: Entry = Entry {
    op: &OP,
    cpu: &[
        &naive(&plain::RIGHT, text!("plain.rs", "mod.rs")),
        &CpuImpl {
            about: "group by group: widened, multiplied by the gemm crate on all cores, rounded",
            ..vectorised(cpu::bind, text!("cpu.rs", "mod.rs"))
        },
    ],
    oracle: oracle!("grouped_gemm"),
    cuda: kernels!("grouped_gemm", "01_fma", "01_mma", "02_wgmma", "03_fp8"),
    mutants: &[plain::MUTANTS],
};

const OP: Op = Op {
    name: "grouped-gemm",
    about: "d = a b[group of the row]^T with b[g,n,k]; f8e4m3 with scales per 128 of k; padding rows of d are nobody's",
    axes: &[
        Axis { name: "g", about: "groups", tries: &[1, 2, 3, 5] },
        Axis { name: "m", about: "rows of a group, at most", tries: &[1, 3, 16, 40] },
        Axis { name: "n", about: "columns of d", tries: &[1, 8, 40, 130] },
        Axis { name: "k", about: "length of the sums", tries: &[1, 16, 128, 130, 257] },
    ],
    attrs: &[
        one_of(
            "form",
            &["contiguous", "masked"],
            "a[rows,k] and the group of each row (-1: padding), or a[g,m,k] and how many rows of each count",
        ),
        one_of("lengths", &["equal", "ragged"], "m rows in every group, or from none to m"),
        size("align", "128", &[1, 4, 16], "contiguous: each group is padded to a multiple of so many rows"),
        MEMORY,
    ],
    dtypes: &[DType::Bf16, DType::F16, DType::F32, DType::F8e4m3],
    default_configs: &["8x512x4096x4096"],
    check,
    tensors,
    cost,
    derive,
    oracle,
    ..Op::NEW
};

fn check(c: &Case) -> Result<(), String> {
    // Shapes and costs walk over the groups.
    if c.axis("g") > 1 << 16 {
        return Err(format!("g = {} is more than 65536 groups", c.axis("g")));
    }
    Ok(())
}

fn tensors(c: &Case) -> Vec<TensorSpec> {
    let (g, n, k) = (c.axis("g"), c.axis("n"), c.axis("k"));
    let (rows, blocks) = (Groups::new(c).total, k.div_ceil(BLOCK));
    let memory = c.attr("memory");
    let by_row = |last: usize| if masked(c) { vec![g, c.axis("m"), last] } else { vec![rows, last] };
    let mut t = vec![
        TensorSpec::input("a", c.dtype, &by_row(k), NORMAL).laid_out(memory),
        TensorSpec::input("b", c.dtype, &[g, n, k], NORMAL).laid_out(memory),
    ];
    if scaled(c) {
        t.push(TensorSpec::input("a_scale", DType::F32, &by_row(blocks), Fill::Derived));
        t.push(TensorSpec::input("b_scale", DType::F32, &[g, n.div_ceil(BLOCK), blocks], Fill::Derived));
    }
    t.push(match masked(c) {
        true => TensorSpec::input("count", DType::I32, &[g], Fill::Derived),
        false => TensorSpec::input("group", DType::I32, &[rows], Fill::Derived),
    });
    let d = TensorSpec::output("d", out_dtype(c), &by_row(n)).laid_out(memory);
    t.push(d.with_rms_share(rms_share(c.dtype, out_dtype(c), false)));
    t
}

/// Of rows that are padding and of matrices without rows nothing need be read.
fn cost(c: &Case, _: &[TensorSpec]) -> Cost {
    let (n, k) = (c.axis("n"), c.axis("k"));
    let groups = Groups::new(c);
    let rows: usize = groups.lens.iter().sum();
    let used = groups.lens.iter().filter(|len| **len > 0).count();
    let (blocks, e) = (k.div_ceil(BLOCK), c.dtype.size());
    let scales = if scaled(c) { 4 * blocks * (rows + used * n.div_ceil(BLOCK)) } else { 0 };
    let index = 4 * if masked(c) { c.axis("g") } else { groups.total };
    Cost {
        bytes_read: ((rows + used * n) * k * e + scales + index) as u64,
        bytes_written: (rows * n * out_dtype(c).size()) as u64,
        flops: (2 * rows * n * k) as u64,
    }
}

fn derive(c: &Case, tensor: &str, inputs: &View, rows: Range<usize>, out: &mut [f64]) {
    let groups = Groups::new(c);
    match tensor {
        "count" => rows.zip(out).for_each(|(i, v)| *v = groups.lens[i] as f64),
        "group" => rows.zip(out).for_each(|(row, v)| *v = groups.of(row).map_or(-1.0, |g| g as f64)),
        _ => derive_scales(c, inputs.spec(tensor), rows, out),
    }
}

fn oracle(c: &Case, inputs: &View, sink: &dyn Sink) {
    let n = c.axis("n");
    let (groups, a, b) = (Groups::new(c), rows_of_a(c, inputs), columns_of_b(c, inputs));
    let off = slack(c.dtype, out_dtype(c), c.axis("k"), scaled(c), false);
    for g in 0..groups.lens.len() {
        let columns = g * n..(g + 1) * n;
        product::put(sink, (&a, groups.rows(g)), (&b, columns), off, None, |row, column| row * n + column - g * n);
    }
    let (zeros, free, region) = (vec![0.0; n], vec![f64::INFINITY; n], Region::One(0));
    for start in (0..groups.total).filter(|row| groups.of(*row).is_none()).map(|row| row * n) {
        sink.put(Block { tensor: "d", start, expect: &zeros, slack: &free, loose: &[], region });
    }
}

fn masked(c: &Case) -> bool {
    c.attr("form") == "masked"
}

fn out_dtype(c: &Case) -> DType {
    if scaled(c) { DType::Bf16 } else { c.dtype }
}

fn scaled(c: &Case) -> bool {
    c.dtype.size() == 1
}

/// Where the rows of each group lie.
struct Groups {
    starts: Vec<usize>,
    lens: Vec<usize>,
    /// Rows in all, padding included.
    total: usize,
}

impl Groups {
    fn new(c: &Case) -> Groups {
        let (g, m, align) = (c.axis("g"), c.axis("m"), c.count("align"));
        let lens = if c.attr("lengths") == "ragged" { truth::ragged(g, m) } else { vec![m; g] };
        let slot = |len: &usize| if masked(c) { m } else { len.next_multiple_of(align) };
        let mut starts = truth::starts(lens.iter().map(slot));
        let total = starts.pop().expect("the end of the last");
        Groups { starts, lens, total }
    }
    fn rows(&self, group: usize) -> Range<usize> {
        self.starts[group]..self.starts[group] + self.lens[group]
    }
    /// The group of a row; none if it is padding.
    fn of(&self, row: usize) -> Option<usize> {
        // The last group that starts here or before; an empty one shares its start with the one behind it.
        let group = self.starts.partition_point(|start| *start <= row).checked_sub(1)?;
        self.rows(group).contains(&row).then_some(group)
    }
}

fn rows_of_a<'a>(c: &Case, inputs: &'a View<'a>) -> Operand<'a> {
    let (k, count) = (c.axis("k"), Groups::new(c).total);
    let scales = || Scales { values: inputs.all("a_scale"), width: k.div_ceil(BLOCK), span: 1 };
    Operand { inputs, name: "a", count, k, across: false, scales: scaled(c).then(scales) }
}

/// The columns of all groups, one after the other.
fn columns_of_b<'a>(c: &Case, inputs: &'a View<'a>) -> Operand<'a> {
    let (k, n, count) = (c.axis("k"), c.axis("n"), c.axis("g") * c.axis("n"));
    let scales = || {
        let (all, width) = (inputs.all("b_scale"), k.div_ceil(BLOCK));
        // Blocks of columns start anew in every group, so each column gets scales of its own.
        let row = |column: usize| column / n * n.div_ceil(BLOCK) + column % n / BLOCK;
        let values = (0..count).flat_map(|column| &all[row(column) * width..][..width]).copied().collect();
        Scales { values, width, span: 1 }
    };
    Operand { inputs, name: "b", count, k, across: false, scales: scaled(c).then(scales) }
}

/// Groups that have rows, and which, as memory says it: the group of each row, or the counts of groups that lie in slots
/// of so many rows.
fn rows_by_group(slot: Option<usize>, index: &[i32]) -> Vec<(usize, Range<usize>)> {
    let all: Vec<(i32, Range<usize>)> = match slot {
        Some(slot) => {
            let rows = |g: usize| g * slot..g * slot + index[g] as usize;
            (0..index.len()).map(|g| (g as i32, rows(g))).collect()
        }
        None => {
            let runs = || index.chunk_by(|a, b| a == b);
            let starts = truth::starts(runs().map(<[i32]>::len));
            runs().zip(starts.windows(2)).map(|(run, at)| (run[0], at[0]..at[1])).collect()
        }
    };
    // Padding has a negative group.
    all.into_iter().filter(|(g, rows)| *g >= 0 && !rows.is_empty()).map(|(g, rows)| (g as usize, rows)).collect()
}
