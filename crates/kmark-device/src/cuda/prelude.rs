//! What a kernel file sees before its first line: element types, attributes as constants, and the `Args` that its kernels
//! take. Made from op and case alone; one text serves all sizes of a combination of dtype and attributes, unless the file
//! asks for sizes as constants. [`pack`] lays out the same `Args` for the launch.

use kmark_core::case::Case;
use kmark_core::dtype::DType;
use kmark_core::fill::Fill;
use kmark_core::op::{AttrKind, Op};
use kmark_core::tensor::{Role, TensorSpec};
use std::fmt::Write;

/// The text of this file: it decides what a kernel sees, so it is part of every kernel's hash.
pub const SOURCE: &str = include_str!("prelude.rs");

/// A tensor that the op has in this case, or in one with other attributes.
pub struct Slot {
    pub name: &'static str,
    pub dtype: DType,
    /// What this case makes of it; `None` if it lacks the tensor.
    pub spec: Option<TensorSpec>,
    /// In some case it is an output.
    pub may_be_output: bool,
    /// In some case it is an input.
    pub may_be_input: bool,
}

/// Slots over all combinations of the op's attributes that are words, in the op's order: the same for every case of a
/// dtype, so that an op has one signature.
pub fn slots(op: &Op, case: &Case) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    for variant in variants(op, case) {
        let mut after = 0;
        for t in op.tensors(&variant) {
            let at = slots.iter().position(|s| s.name == t.name).unwrap_or_else(|| {
                let slot = Slot { name: t.name, dtype: t.dtype, spec: None, may_be_output: false, may_be_input: false };
                slots.insert(after, slot);
                after
            });
            slots[at].may_be_output |= t.role.is_output();
            slots[at].may_be_input |= t.role.is_input();
            after = at + 1;
        }
    }
    for t in op.tensors(case) {
        let slot = slots.iter_mut().find(|s| s.name == t.name).expect("the case is one of its variants");
        slot.dtype = t.dtype;
        slot.spec = Some(t);
    }
    slots
}

/// The case with every combination of words for its attributes, first choices first. How memory lies and what type a
/// weight has changes no signature.
fn variants(op: &Op, case: &Case) -> Vec<Case> {
    let mut all = vec![case.clone()];
    for attr in op.attrs {
        let AttrKind::OneOf(words) = attr.kind else { continue };
        if attr.name == "memory" || words.contains(&"same") {
            continue;
        }
        let with = |case: &Case, word: &str| {
            let mut case = case.clone();
            case.attrs.insert(attr.name.to_string(), word.to_string());
            case
        };
        all = all.iter().flat_map(|c| words.iter().map(move |w| with(c, w))).collect();
    }
    all
}

pub fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::F16 => "f16",
        DType::Bf16 => "bf16",
        DType::F8e4m3 => "e4m3",
        DType::F8e5m2 => "e5m2",
        DType::I32 => "int",
        DType::I64 => "i64",
    }
}

/// Who reads the prelude.
#[derive(Clone, Copy, PartialEq)]
pub enum For {
    Kernel,
    Oracle,
}

/// Tallies of an output are spread over this many places.
pub const SLOTS: usize = 256;

/// `constants` are axes whose sizes become part of the code.
pub fn prelude(op: &Op, case: &Case, constants: &[String], reader: For) -> Result<String, String> {
    let mut p = String::from("#include \"kmark.cuh\"\n");
    let line = |p: &mut String, text: std::fmt::Arguments| {
        p.write_fmt(text).and_then(|()| p.write_char('\n')).expect("a string takes everything");
    };
    line(&mut p, format_args!("using acc_t = {};", type_name(case.acc())));
    let slots = slots(op, case);
    for s in &slots {
        line(&mut p, format_args!("using {}_t = {};", s.name, type_name(s.dtype)));
    }
    for attr in op.attrs {
        let (upper, value) = (attr.name.to_uppercase().replace('-', "_"), case.attr(attr.name));
        match attr.kind {
            AttrKind::OneOf(words) if words.contains(&"yes") => {
                line(&mut p, format_args!("[[maybe_unused]] constexpr bool {upper} = {};", value == "yes"));
            }
            AttrKind::OneOf(words) => {
                let all: Vec<String> = words.iter().map(|w| format!("{upper}_{}", w.replace('-', "_"))).collect();
                let chosen = format!("{upper}_{}", value.replace('-', "_"));
                line(
                    &mut p,
                    format_args!("enum {{ {} }}; [[maybe_unused]] constexpr int {upper} = {chosen};", all.join(", ")),
                );
            }
            AttrKind::Positive => {
                line(&mut p, format_args!("[[maybe_unused]] constexpr double {upper} = {:?};", case.number(attr.name)))
            }
            AttrKind::Scale => {
                let auto = value == "auto";
                let number = if auto { 0.0 } else { case.number(attr.name) };
                line(
                    &mut p,
                    format_args!(
                        "[[maybe_unused]] constexpr bool {upper}_AUTO = {auto}; [[maybe_unused]] constexpr double {upper} = {number:?};"
                    ),
                );
            }
            AttrKind::Integer | AttrKind::Count(_) | AttrKind::Size(_) => {
                line(&mut p, format_args!("[[maybe_unused]] constexpr i64 {upper} = {value};"));
            }
        }
    }
    for name in constants {
        let size = case.axes.get(name).ok_or_else(|| {
            kmark_core::spelling::unknown("axis in constants", name, case.axes.keys().map(|k| k.as_str()))
        })?;
        line(&mut p, format_args!("[[maybe_unused]] constexpr i64 {} = {size};", name.to_uppercase()));
    }
    if reader == For::Oracle {
        line(&mut p, format_args!("[[maybe_unused]] constexpr int REGIONS = {}, SLOTS = {SLOTS};", op.regions.len()));
        line(&mut p, format_args!("#include \"judge.cuh\""));
    }
    line(&mut p, format_args!("{}", args(op, &slots, reader)));
    Ok(p)
}

/// The struct alone.
fn args(op: &Op, slots: &[Slot], reader: For) -> String {
    let mut text = String::from("struct Args {\n");
    for s in slots.iter().filter(|s| reader == For::Kernel || s.may_be_input) {
        let role = s.spec.as_ref().map_or(if s.may_be_output { Role::Out } else { Role::In }, |t| t.role);
        let derived = s.spec.as_ref().is_some_and(|t| t.fill == Fill::Derived);
        let constant = if reader == For::Kernel { role == Role::In } else { !derived };
        let (constant, name) = (if constant { "const " } else { "" }, s.name);
        writeln!(text, "    Tensor<{constant}{name}_t> {name};").expect("a string takes everything");
    }
    let axes: Vec<&str> = op.axes.iter().map(|a| a.name).collect();
    writeln!(text, "    i64 {};\n    u8* workspace;", axes.join(", ")).expect("a string takes everything");
    if reader == For::Oracle {
        text.push_str("    u64 seed;\n    RowTally* property;\n");
        for s in slots.iter().filter(|s| s.may_be_output) {
            writeln!(text, "    Gate<{0}_t> {0}_gate;", s.name).expect("a string takes everything");
        }
    }
    text + "};"
}

/// `Args` as the kernel receives them, up to and including the workspace: words of 8 bytes, in the order of the struct.
/// `address` gives where a tensor that the case has lies.
pub fn pack(
    op: &Op,
    case: &Case,
    slots: &[Slot],
    reader: For,
    address: &dyn Fn(&str) -> u64,
    workspace: u64,
) -> Vec<u64> {
    let mut words = Vec::new();
    for s in slots.iter().filter(|s| reader == For::Kernel || s.may_be_input) {
        match &s.spec {
            Some(t) if reader == For::Kernel || t.role.is_input() => {
                words.extend([address(t.name), t.rows() as u64, t.row_len() as u64, t.pitch as u64]);
            }
            _ => words.extend([0; 4]),
        }
    }
    words.extend(op.axes.iter().map(|a| case.axis(a.name) as u64));
    words.push(workspace);
    words
}
