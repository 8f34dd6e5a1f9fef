//! The lines `// kmark: map NAME = TENSOR box=…`: a tensor as the tensor memory accelerator (TMA) of Hopper and newer GPUs
//! reads and writes it, box by box. Checked as soon as a case is known; encoded by the driver when a kernel is bound.

use super::directives::{Names, parts};
use super::driver::{Address, Driver, TensorMap, TileOf};
use super::prelude::slots;
use crate::Fault;
use kmark_core::dtype::DType;
use kmark_core::expr::is_name;

/// The text of this file, for the hashes of kernels that have maps.
pub const SOURCE: &str = include_str!("tensor_map.rs");

/// One tensor map: expressions, innermost dimension first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapLine {
    pub name: String,
    pub tensor: String,
    tile: Vec<String>,
    /// Sizes; none: columns and rows of the tensor.
    dims: Vec<String>,
    /// Elements from one index to the next, of all dimensions but the innermost; none: the pitch.
    strides: Vec<String>,
    /// Bytes of a line whose 16-byte pieces are exchanged, so that reading a column meets no bank twice.
    swizzle: Option<String>,
}

/// A map with its sizes known.
pub struct Tile {
    dtype: DType,
    dims: Vec<u64>,
    /// In bytes.
    strides: Vec<u64>,
    tile: Vec<u32>,
    swizzle: u32,
}

/// What the accelerator counts in: addresses, strides and rows of a box are multiples of it.
const GRAIN: u64 = 16;

/// Misses fetch whole lines of 128 bytes into the L2 cache. With 256, products whose rows begin within a line took up to 13 % longer on
/// an H200, those of few rows up to 7 %.
const PROMOTION_128: i32 = 2;

/// By NVIDIA's numbers, from 0 on.
const SWIZZLES: [u32; 4] = [0, 32, 64, 128];

impl MapLine {
    pub fn parse(text: &str) -> Result<MapLine, String> {
        let how = || format!("`{text}`: write it like map NAME = TENSOR box=64,128 swizzle=128");
        let (name, rest) = text.split_once('=').ok_or_else(how)?;
        let mut words = rest.split_whitespace();
        let (name, tensor) = (name.trim().to_string(), words.next().unwrap_or_default().to_string());
        if !is_name(&name) || !is_name(&tensor) {
            return Err(how());
        }
        let mut map = MapLine { name, tensor, ..MapLine::default() };
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(how)?;
            match key {
                "box" => map.tile = parts(value),
                "dims" => map.dims = parts(value),
                "strides" => map.strides = parts(value),
                "swizzle" => map.swizzle = Some(value.to_string()),
                _ => {
                    let known = ["box", "dims", "strides", "swizzle"];
                    return Err(kmark_core::spelling::unknown("map setting", key, known));
                }
            }
        }
        let rank = if map.dims.is_empty() { 2 } else { map.dims.len() };
        let strides = if map.strides.is_empty() && rank == 2 { 1 } else { map.strides.len() };
        if map.tile.len() != rank || strides + 1 != rank || rank > 5 {
            return Err(format!(
                "map {} needs box= with a number for each of its dims (two unless dims= says otherwise, at most five), and \
                 strides= with one less",
                map.name
            ));
        }
        Ok(map)
    }

    /// Its sizes in a case; `None` if the case lacks the tensor, `Err` if the accelerator cannot do it.
    pub fn tile(&self, names: &Names) -> Result<Option<Tile>, String> {
        let bad = |e: String| format!("map {}: {e}", self.name);
        let Some(spec) = names.tensors.iter().find(|t| t.name == self.tensor) else {
            // Other cases of the op may have it; a name that none has is a mistake.
            let known: Vec<&str> = slots(names.op, names.case).iter().map(|s| s.name).collect();
            let missing = || bad(kmark_core::spelling::unknown("tensor", &self.tensor, known.iter().copied()));
            return if known.contains(&self.tensor.as_str()) { Ok(None) } else { Err(missing()) };
        };
        let size = spec.dtype.size() as u64;
        let swizzle = self.swizzle.as_ref().map_or(Ok(0), |e| names.value(e)).map_err(bad)?;
        let swizzle = u32::try_from(swizzle).ok().filter(|s| SWIZZLES.contains(s));
        let swizzle = swizzle.ok_or_else(|| bad("swizzle is 0, 32, 64 or 128 bytes".into()))?;
        let values = |list: &[String]| -> Result<Vec<u64>, String> {
            let one = |e: &String| {
                let v = names.value(e)?;
                u64::try_from(v).ok().filter(|v| *v > 0).ok_or_else(|| format!("{e} is {v}"))
            };
            list.iter().map(one).collect::<Result<_, _>>().map_err(bad)
        };
        let or = |list: Vec<u64>, other: &[usize]| match list.is_empty() {
            true => other.iter().map(|v| *v as u64).collect(),
            false => list,
        };
        let dims = or(values(&self.dims)?, &[spec.row_len(), spec.rows()]);
        // A single row has no next one, whatever its pitch.
        let pitch = if spec.rows() == 1 { spec.row_len().next_multiple_of(GRAIN as usize) } else { spec.pitch };
        let strides: Vec<u64> = or(values(&self.strides)?, &[pitch]).iter().map(|s| s * size).collect();
        let tile = values(&self.tile)?;
        let row = tile[0] * size;
        let multiple = |what: String, bytes: u64| {
            let fits = bytes.is_multiple_of(GRAIN);
            fits.then_some(()).ok_or_else(|| bad(format!("{what} {bytes} bytes, not at multiples of {GRAIN}")))
        };
        multiple(format!("{} begins after", self.tensor), spec.offset as u64 * size)?;
        strides.iter().try_for_each(|s| multiple(format!("rows of {} are apart", self.tensor), *s))?;
        multiple("a row of the box has".into(), row)?;
        // Reading ends with the tensor's last element. Writing does not: seen on an H200 with rows of 65 elements of 2 bytes.
        if spec.role.is_output() {
            multiple(format!("{} is written, and its rows have", self.tensor), dims[0] * size)?;
        }
        if tile.iter().any(|t| *t > 256) || (swizzle > 0 && row > swizzle as u64) {
            return Err(bad(format!(
                "a box of {tile:?} is too large: 256 each, and a row of {swizzle} bytes if swizzled"
            )));
        }
        if dims.iter().any(|v| *v > 1 << 32) || strides.iter().any(|v| *v >= 1 << 40) {
            return Err(bad(format!("{dims:?} elements at {strides:?} bytes are beyond 32 and 40 bits")));
        }
        let tile = tile.into_iter().map(|t| t as u32).collect();
        Ok(Some(Tile { dtype: spec.dtype, dims, strides, tile, swizzle }))
    }
}

impl Tile {
    /// The map of the tensor at `address`.
    pub fn encode(&self, driver: &Driver, address: Address) -> Result<TensorMap, Fault> {
        // By NVIDIA's numbers; 8-bit floats are bytes.
        let dtype = match self.dtype {
            DType::F8e4m3 | DType::F8e5m2 => 0,
            DType::I32 => 3,
            DType::I64 => 5,
            DType::F16 => 6,
            DType::F32 => 7,
            DType::F64 => 8,
            DType::Bf16 => 9,
        };
        let swizzle = SWIZZLES.iter().position(|bytes| *bytes == self.swizzle).unwrap_or(0) as i32;
        driver.tensor_map(&TileOf {
            dtype,
            address,
            dims: &self.dims,
            strides: &self.strides,
            tile: &self.tile,
            swizzle,
            promotion: PROMOTION_128,
        })
    }
}
