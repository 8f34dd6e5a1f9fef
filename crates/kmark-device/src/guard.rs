//! What stands in memory that no launch may write: bytes that depend on a key drawn for this process and on where they
//! are. Nobody can write them by chance, by habit or from memory.

use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::OnceLock;

/// Guard band on each side of a tensor. Wide enough to catch a whole vector or row tail written past the end.
pub const BYTES: usize = 4096;

/// Drawn once; `engine.cu` gets it with every check.
pub fn key() -> u64 {
    static KEY: OnceLock<u64> = OnceLock::new();
    *KEY.get_or_init(|| {
        let mut bytes = [0; 8];
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(8) => u64::from_ne_bytes(bytes),
            // Without the system's source: where this process was put in memory, which differs from run to run.
            _ => (&raw const KEY as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    })
}

/// The byte that belongs at an address; as `guard_byte` in `engine.cu`.
fn byte(key: u64, address: u64) -> u8 {
    let z = key.wrapping_add(address >> 3);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> (8 * (address & 7))) as u8
}

/// Fills memory that lies at `address`, or is going to.
pub fn fill(bytes: &mut [u8], address: u64) {
    let key = key();
    bytes.iter_mut().zip(address..).for_each(|(b, at)| *b = byte(key, at));
}

/// Places in `bytes`, which lie at `address`, where something else stands.
pub fn others(bytes: &[u8], address: u64) -> impl DoubleEndedIterator<Item = usize> {
    let key = key();
    bytes.iter().enumerate().filter(move |(i, b)| **b != byte(key, address + *i as u64)).map(|(i, _)| i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_byte_is_found_and_no_constant_passes() {
        let mut bytes = vec![0; 4096];
        fill(&mut bytes, 0x7f00_1234_5678);
        assert_eq!(others(&bytes, 0x7f00_1234_5678).count(), 0);
        bytes[17] ^= 1;
        bytes[4000] ^= 0x80;
        assert_eq!(others(&bytes, 0x7f00_1234_5678).collect::<Vec<_>>(), [17, 4000]);
        let same = (0..=255u8).map(|v| 4096 - others(&[v; 4096], 0x1000).count()).max();
        assert!(same < Some(64), "one value fits {same:?} of 4096 places");
        assert_ne!(byte(1, 0), byte(2, 0), "another key, other bytes");
    }
}
