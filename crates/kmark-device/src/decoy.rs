//! What outputs hold before a launch and how they are held against a known answer afterwards: pieces, wrong values that
//! look like right ones, hashes, and a few elements picked at random. The host's side; `device/engine.cu` does the same
//! on a GPU. Knows bytes and element types only.

use kmark_core::dtype::DType;
use kmark_core::tensor::TensorSpec;
use rayon::prelude::*;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Outputs are hashed and given wrong values in pieces of so many bytes.
pub const PIECE: usize = 4096;
/// A tensor of fewer pieces than this is never looked at in part.
const FEWEST: u64 = 16;
/// Pieces that one thread takes at a time; below that, waking another costs more than it saves.
const AT_ONCE: usize = 64;

/// A number that nobody could have foreseen: from the system's randomness, never from a case's seed.
pub fn unforeseen() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Which part of the outputs a launch is held to, and what makes this launch's wrong values its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    pub word: u64,
    /// Of each tensor's pieces; 1 is everything.
    pub share: f64,
}

/// `count` of a tensor's `of` pieces: `start`, `start + stride` and so on, around the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    pub start: u64,
    pub stride: u64,
    pub count: u64,
    pub of: u64,
}

impl Look {
    pub fn whole() -> Look {
        Look { word: unforeseen(), share: 1.0 }
    }

    pub fn part(share: f64) -> Look {
        Look { word: unforeseen(), share }
    }

    /// Of tensor number `tensor`, which has so many bytes.
    pub fn pieces(&self, tensor: usize, bytes: usize) -> Pieces {
        let of = bytes.div_ceil(PIECE) as u64;
        if self.share >= 1.0 || of <= FEWEST {
            return Pieces { start: 0, stride: 1, count: of, of };
        }
        let draw = |i: u64| mixed(self.word ^ mixed(tensor as u64 * 64 + i)) % of;
        // A stride without a common divisor meets every piece once before it comes back.
        let stride = (1..60).map(draw).find(|s| gcd(*s, of) == 1).unwrap_or(1);
        let count = ((of as f64 * self.share).ceil() as u64).clamp(FEWEST, of);
        Pieces { start: draw(0), stride, count, of }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Pieces {
    pub fn is_whole(&self) -> bool {
        self.count == self.of
    }

    /// For each piece whether it is among them.
    fn marks(&self) -> Vec<bool> {
        let mut marks = vec![self.is_whole(); self.of as usize];
        if !self.is_whole() {
            (0..self.count).for_each(|i| marks[((self.start + i * self.stride) % self.of) as usize] = true);
        }
        marks
    }
}

/// The bits of an element type, and masks of them repeated over a word of 8 bytes.
struct Bits {
    size: u32,
    fraction: u32,
    /// 0 for integers.
    exponent: u32,
    has_infinities: bool,
    /// The bit that always changes, and those that may.
    top: u64,
    low: u64,
    /// All but the sign, the sign, and the exponent.
    magnitude: u64,
    sign: u64,
    exponents: u64,
}

impl Bits {
    fn of(dtype: DType) -> Bits {
        let (fraction, exponent) = match dtype {
            DType::F64 => (52, 11),
            DType::F32 => (23, 8),
            DType::F16 => (10, 5),
            DType::Bf16 => (7, 8),
            DType::F8e4m3 => (3, 4),
            DType::F8e5m2 => (2, 5),
            // Their lowest three bits are what changes.
            DType::I32 | DType::I64 => (3, 0),
        };
        let size = dtype.size() as u32 * 8;
        let repeated = |bits: u64| (0..64 / size).fold(0, |all, i| all | bits << (i * size));
        let (top, low) = if exponent == 0 { (1, 6) } else { (1 << (fraction - 1), (1 << (fraction - 1)) / 2 - 1) };
        Bits {
            size,
            fraction,
            exponent,
            has_infinities: !matches!(dtype, DType::F8e4m3),
            top: repeated(top),
            low: repeated(low),
            magnitude: repeated((1 << (size - 1)) - 1),
            sign: repeated(1 << (size - 1)),
            exponents: repeated(((1 << exponent) - 1) << fraction),
        }
    }

    /// Another value for one element: the highest bit of the fraction always changes, the second never, those below by
    /// chance, so that it is off by an eighth at least and of the same size; what has no size (zeros, infinities) gets
    /// an ordinary one.
    fn wrong(&self, old: u64, noise: u64) -> u64 {
        let one = u64::MAX >> (64 - self.size);
        let flip = (self.top | noise & self.low) & one;
        if self.exponent == 0 {
            return old ^ flip;
        }
        let (magnitude, exponents) = (self.magnitude & one, self.exponents & one);
        let bias = (1u64 << (self.exponent - 1)) - 1;
        if old & magnitude == 0 {
            return old | (bias - 4) << self.fraction | flip;
        }
        if self.has_infinities && old & exponents == exponents {
            return old ^ flip ^ (bias + 1) << self.fraction;
        }
        let new = old ^ flip;
        if !self.has_infinities && new & magnitude == magnitude { new ^ 1 } else { new }
    }

    /// Whether an element of the word is 0; `word` has no signs.
    fn has_zero(&self, word: u64) -> bool {
        (word + self.magnitude) & self.sign != self.sign
    }

    /// The same for all elements of a word, and whether one of them needs more than that.
    fn wrong_word(&self, old: u64, noise: u64) -> (u64, bool) {
        let new = old ^ (self.top | noise & self.low);
        let infinite = if self.has_infinities { !old & self.exponents } else { !new & self.magnitude };
        let special = self.exponent > 0 && (self.has_zero(old & self.magnitude) || self.has_zero(infinite));
        (new, special)
    }

    /// Elements one after the other, of which the first has this index.
    fn disguise(&self, bytes: &mut [u8], first: usize, word: u64) {
        let (size, mut index) = (self.size as usize / 8, first);
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for bytes in words {
            let (old, noise) = (u64::from_le_bytes(*bytes), noise(index, word));
            let (mut new, special) = self.wrong_word(old, noise);
            if special {
                new = (0..8 / size as u32).fold(0, |all, i| {
                    let one = u64::MAX >> (64 - self.size);
                    let at = i * self.size;
                    all | self.wrong(old >> at & one, noise >> at & one) << at
                });
            }
            *bytes = new.to_le_bytes();
            index += 8 / size;
        }
        for element in rest.chunks_exact_mut(size) {
            let mut old = [0; 8];
            old[..size].copy_from_slice(element);
            let new = self.wrong(u64::from_le_bytes(old), noise(index, word));
            element.copy_from_slice(&new.to_le_bytes()[..size]);
            index += 1;
        }
    }
}

/// Chance enough for bits that nobody may foresee; nobody must like their distribution.
fn noise(index: usize, word: u64) -> u64 {
    let n = (index as u64 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    n ^ n >> 29
}

/// Gives the elements in some pieces of a tensor wrong values; what lies between rows stays.
pub fn disguise(spec: &TensorSpec, bytes: &mut [u8], pieces: &Pieces, word: u64) {
    let (marks, bits, size) = (pieces.marks(), Bits::of(spec.dtype), spec.dtype.size());
    let (row, pitch) = (spec.row_len() * size, spec.pitch * size);
    bytes.par_chunks_mut(PIECE).enumerate().with_min_len(AT_ONCE).filter(|(i, _)| marks[*i]).for_each(|(i, piece)| {
        let first = i * PIECE;
        if row == pitch {
            return bits.disguise(piece, first / size, word);
        }
        for start in (first / pitch * pitch..first + piece.len()).step_by(pitch) {
            let (from, to) = (start.max(first), (start + row).min(first + piece.len()));
            if from < to {
                bits.disguise(&mut piece[from - first..to - first], from / size, word);
            }
        }
    });
}

/// A hash for each piece.
pub fn hashes(bytes: &[u8]) -> Vec<u64> {
    bytes.par_chunks(PIECE).with_min_len(AT_ONCE).map(hash).collect()
}

/// The pieces among `pieces` whose hash is not the kept one. A kept 0 is not compared: that piece may differ.
pub fn differing(bytes: &[u8], kept: &[u64], pieces: &Pieces) -> u64 {
    let marks = pieces.marks();
    let looked_at =
        bytes.par_chunks(PIECE).enumerate().with_min_len(AT_ONCE).filter(|(i, _)| marks[*i] && kept[*i] != 0);
    looked_at.filter(|(i, piece)| hash(piece) != kept[*i]).count() as u64
}

/// Never 0. A change of any bit changes it for certain while the others stay: each step can be undone.
fn hash(piece: &[u8]) -> u64 {
    let mut lanes = [0x243f_6a88_85a3_08d3u64, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];
    let mut step = |words: [u64; 4]| {
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    };
    let (blocks, rest) = piece.as_chunks::<32>();
    let word = |bytes: &[u8], i: usize| u64::from_le_bytes(std::array::from_fn(|b| bytes[8 * i + b]));
    blocks.iter().for_each(|b| step(std::array::from_fn(|i| word(b, i))));
    if !rest.is_empty() {
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        step(std::array::from_fn(|i| word(&last, i)));
    }
    lanes.into_iter().fold(0, |h, lane| mixed(h ^ lane)).max(1)
}

/// Which elements of a tensor a glance with this word takes: their row-major indices.
pub fn glance_at(spec: &TensorSpec, word: u64, count: usize) -> impl Iterator<Item = usize> {
    let elems = spec.elems() as u64;
    (0..count as u64).map(move |i| (mixed(word.wrapping_add(i)) % elems.max(1)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(spec: &TensorSpec, values: &[f64]) -> Vec<u8> {
        let mut bytes = vec![0xa5; spec.bytes()];
        spec.write(values, 0, &mut bytes);
        bytes
    }

    fn decoded(spec: &TensorSpec, bytes: &[u8]) -> Vec<f64> {
        let mut values = vec![0.0; spec.elems()];
        spec.read(bytes, 0, &mut values);
        values
    }

    #[test]
    fn every_element_becomes_wrong_and_stays_plausible() {
        for dtype in DType::ALL {
            for memory in ["dense", "strided"] {
                let spec = TensorSpec::output("y", dtype, &[37, 29]).laid_out(memory);
                let values: Vec<f64> = (0..37 * 29).map(|i| ((i % 61) as f64 - 30.0) * 0.5).collect();
                let mut bytes = encoded(&spec, &values);
                let (old, gaps) = (decoded(&spec, &bytes), bytes.clone());
                for word in 0..20 {
                    let before = decoded(&spec, &bytes);
                    disguise(&spec, &mut bytes, &Look::whole().pieces(0, spec.bytes()), mixed(word));
                    for (a, b) in before.iter().zip(decoded(&spec, &bytes)) {
                        let off = (a - b).abs();
                        assert!(b.is_finite() && b != *a, "{} {a} {b}", dtype.name());
                        let near = dtype.is_float() && *a != 0.0;
                        assert!(
                            !near || (0.125 * a.abs()..1.01 * a.abs().max(0.1)).contains(&off),
                            "{} {a} {b}",
                            dtype.name()
                        );
                    }
                    bytes = encoded(&spec, &old);
                }
                disguise(&spec, &mut bytes, &Look::whole().pieces(0, spec.bytes()), 1);
                assert!(spec.gaps().all(|g| bytes[g.clone()] == gaps[g]), "gaps are nobody's");
            }
        }
    }

    #[test]
    fn what_has_no_size_gets_one() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
            let bits = Bits::of(dtype);
            let spec = TensorSpec::output("y", dtype, &[1]);
            let read = |b: u64| decoded(&spec, &b.to_le_bytes()[..dtype.size()])[0];
            for old in 0..1u64 << bits.size.min(16) {
                let old = old << (bits.size - bits.size.min(16));
                for noise in [0, 1, 2, 5, u64::MAX] {
                    let new = bits.wrong(old, noise);
                    assert!(read(new).is_finite() && read(new) != read(old), "{} {old:x} {new:x}", dtype.name());
                    assert!(
                        read(old) != 0.0 || (0.05..0.2).contains(&read(new).abs()),
                        "{} {}",
                        dtype.name(),
                        read(new)
                    );
                }
            }
        }
    }

    #[test]
    fn a_part_meets_every_piece_in_time_and_none_twice() {
        let bytes = 1000 * PIECE - 100;
        let mut met = vec![0; 1000];
        for _ in 0..500 {
            let pieces = Look::part(0.05).pieces(3, bytes);
            assert_eq!((pieces.count, pieces.of), (50, 1000));
            let marks = pieces.marks();
            assert_eq!(marks.iter().filter(|m| **m).count(), 50);
            marks.iter().zip(&mut met).for_each(|(m, met)| *met += u32::from(*m));
        }
        assert!(met.iter().all(|m| *m > 0), "{met:?}");
        assert!(Look::part(0.05).pieces(0, 10 * PIECE).is_whole(), "small tensors are looked at whole");
    }

    #[test]
    fn a_changed_bit_shows_in_its_piece() {
        let bytes: Vec<u8> = (0..3 * PIECE + 77).map(|i| mixed(i as u64) as u8).collect();
        let mut kept = hashes(&bytes);
        let all = Look::whole().pieces(0, bytes.len());
        assert_eq!((kept.len(), differing(&bytes, &kept, &all)), (4, 0));
        for at in [0, 8 * PIECE - 1, 8 * PIECE, 8 * bytes.len() - 1] {
            let mut other = bytes.clone();
            other[at / 8] ^= 1 << (at % 8);
            assert_eq!(differing(&other, &kept, &all), 1);
        }
        let mut other = bytes.clone();
        other[5] ^= 1;
        kept[0] = 0;
        assert_eq!(differing(&other, &kept, &all), 0, "a piece that may differ");
    }
}
