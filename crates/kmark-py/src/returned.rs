//! What a launch returned: which outputs, in whose memory, and whether it was there when the call came back. Containers
//! and arrays are of the plain types only, so that looking at them runs nobody's code.

use crate::dlpack;
use crate::foreign::Foreign;
use crate::tools::Tools;
use kmark_core::record::Status;
use kmark_core::tensor::Role;
use kmark_device::buffer::{Buffer, Buffers};
use kmark_device::cuda::Cuda;
use kmark_device::{Fault, Span};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// The arrays in a result, by number of the output. `outputs` are numbers and names of those that there are, in order.
pub fn arrays(
    tools: &Tools,
    result: &Bound<'_, PyAny>,
    outputs: &[(usize, &str)],
) -> Result<Vec<(usize, Foreign)>, String> {
    let mut named: Vec<(usize, Bound<'_, PyAny>)> = Vec::new();
    if let Ok(dict) = result.cast_exact::<PyDict>() {
        for (key, value) in dict.iter() {
            let name = key.cast_exact::<PyString>().map_err(|_| "a key of the result is no str")?;
            let name = name.to_str().map_err(|_| "a key of the result is no text")?;
            let known = outputs.iter().find(|(_, n)| *n == name);
            let (output, _) = known.ok_or_else(|| format!("{name} was returned, which is no output"))?;
            named.push((*output, value));
        }
    } else {
        let values = if let Ok(list) = result.cast_exact::<PyList>() {
            list.iter().collect()
        } else if let Ok(tuple) = result.cast_exact::<PyTuple>() {
            tuple.iter().collect()
        } else {
            vec![result.clone()]
        };
        if values.len() > outputs.len() {
            return Err(format!("{} arrays were returned; the op has {} outputs", values.len(), outputs.len()));
        }
        named.extend(outputs.iter().map(|(i, _)| *i).zip(values));
    }
    let there = named.into_iter().filter(|(_, value)| !value.is_none());
    there.map(|(output, value)| Ok((output, tools.array(&value)?))).collect()
}

/// `Err` says why an array cannot be that output.
pub fn check(buffers: &Buffers, output: usize, array: &Foreign) -> Result<(), String> {
    let (buffer, spec) = (&buffers.0[output], buffers.0[output].spec());
    let name = spec.name;
    if array.dtype != spec.dtype.name() || array.kind != dlpack::kind(spec.dtype) {
        return Err(format!("{name} was returned as {}, not as {}", array.dtype, spec.dtype.name()));
    }
    if array.shape.iter().map(|n| *n as usize).ne(spec.shape.iter().copied()) {
        return Err(format!("{name} was returned with shape {:?}, not {:?}", array.shape, spec.shape));
    }
    if array.on_gpu != buffer.is_on_device() {
        let (is, should) = if array.on_gpu { ("a GPU", "the host") } else { ("the host", "the GPU") };
        return Err(format!("{name} was returned in the memory of {is}, not of {should}"));
    }
    let inputs = buffers.0.iter().filter(|b| b.spec().role == Role::In);
    match inputs.into_iter().find(|b| overlap(array.span(), place(b))) {
        Some(input) => Err(format!("{name} was returned as memory of the input {}", input.spec().name)),
        None => Ok(()),
    }
}

fn place(buffer: &Buffer) -> Span {
    Span { address: buffer.address(), bytes: buffer.spec().bytes() }
}

fn overlap(a: Span, b: Span) -> bool {
    a.bytes > 0 && b.bytes > 0 && a.address < b.address + b.bytes as u64 && b.address < a.address + a.bytes as u64
}

/// Which outputs are returned and how they lie: as in the first launch, ever after. So what is done outside the interval
/// is known before it is timed.
#[derive(Default)]
pub struct Plan(Option<Vec<(usize, Vec<i64>)>>);

impl Plan {
    pub fn hold(&mut self, arrays: &[(usize, Foreign)]) -> Result<(), String> {
        let now: Vec<_> = arrays.iter().map(|(output, a)| (*output, a.strides.clone())).collect();
        match self.0.get_or_insert_with(|| now.clone()) == &now {
            true => Ok(()),
            false => Err("what is returned, and how it lies in memory, changed after the first launch".into()),
        }
    }

    /// Whether anything is copied into place.
    pub fn returns(&self) -> bool {
        self.0.as_ref().is_some_and(|p| !p.is_empty())
    }
}

/// Elements of a returned array that are looked at when the timer stops.
const GLIMPSES: usize = 32;

pub struct Returned {
    pub output: usize,
    array: Foreign,
    /// Places and what was there.
    glimpses: Vec<(usize, [u8; 8])>,
}

impl Returned {
    pub fn new(output: usize, array: Foreign) -> Returned {
        Returned { output, array, glimpses: Vec::new() }
    }

    /// Notes elements at random places, and the last. A GPU is looked at by its own engine.
    pub fn glimpse(&mut self) {
        let elems = self.array.elems();
        if self.array.on_gpu || elems == 0 {
            return;
        }
        let places = (1..GLIMPSES).map(|_| (random() % elems as u64) as usize).chain([elems - 1]);
        self.glimpses = places.map(|i| (i, self.array.element(i))).collect();
    }

    /// Copies it into its place.
    pub fn put(&self, buffer: &Buffer, cuda: Option<&Cuda>) -> Result<(), Fault> {
        let (spec, array) = (buffer.spec(), &self.array);
        let (row, pitch) = (spec.row_len() * spec.dtype.size(), spec.pitch * spec.dtype.size());
        if let Some(cuda) = cuda {
            if !array.is_dense() {
                return Err(wrong(format!("{} was returned with gaps between its elements", spec.name)));
            }
            let copy = |to: usize, from: usize, bytes: usize| {
                cuda.queue().copy(buffer.address() + to as u64, array.address + from as u64, bytes)
            };
            return match row == pitch {
                true => copy(0, 0, spec.bytes()),
                false => (0..spec.rows()).try_for_each(|r| copy(r * pitch, r * row, row)),
            };
        }
        if row == pitch && !overlap(array.span(), place(buffer)) {
            array.copy_to(&mut buffer.write::<u8>());
        } else {
            let mut rows = vec![0; array.elems() * array.size()];
            array.copy_to(&mut rows);
            let mut into = buffer.write::<u8>();
            rows.chunks(row.max(1)).enumerate().for_each(|(r, from)| into[r * pitch..][..row].copy_from_slice(from));
        }
        if self.glimpses.iter().any(|(i, was)| array.element(*i) != *was) {
            let message = format!("{} was still being written when the launch had returned", spec.name);
            return Err(wrong(message));
        }
        Ok(())
    }
}

fn wrong(message: String) -> Fault {
    Fault::new(Status::Wrong, message)
}

/// Numbers that nobody can know before: the first from the system.
fn random() -> u64 {
    thread_local!(static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0u8)));
    let next = STATE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    STATE.set(next);
    let z = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
