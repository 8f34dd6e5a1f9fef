//! Cache control: evicting a tensor from every cache, storing past the caches, and asking for lines early. Safe
//! wrappers; on processors without the instructions they fall back to plain copies.

use bytemuck::NoUninit;
use rayon::prelude::*;

/// Evicts the slice's lines from all caches of all cores. Exact and cheap: a flush by walking twice the last-level
/// cache would cost 600 MiB of traffic per sample on a server, and evict only probably.
pub fn flush(bytes: &[u8]) {
    bytes.par_chunks(1 << 20).for_each(flush_lines);
}

#[cfg(target_arch = "x86_64")]
fn flush_lines(bytes: &[u8]) {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _mm_clflush, _mm_mfence};
    use std::sync::OnceLock;
    static UNORDERED: OnceLock<bool> = OnceLock::new();
    // CPUID leaf 7, EBX bit 23: clflushopt, which does not wait for the flush before it.
    let unordered = *UNORDERED.get_or_init(|| __cpuid_count(7, 0).ebx & (1 << 23) != 0);
    for line in bytes.chunks(64) {
        // SAFETY: the pointers lie inside a live slice; a flush writes back and evicts, it changes no value.
        unsafe {
            if unordered {
                asm!("clflushopt [{}]", in(reg) line.as_ptr(), options(nostack, preserves_flags));
            } else {
                _mm_clflush(line.as_ptr());
            }
        }
    }
    // SAFETY: a fence has no operands; it makes the flushes finish before what follows.
    unsafe { _mm_mfence() }
}

#[cfg(target_arch = "aarch64")]
fn flush_lines(bytes: &[u8]) {
    use std::arch::asm;
    for line in bytes.chunks(64) {
        // SAFETY: clean-and-invalidate by address is allowed in user mode and changes no value.
        unsafe { asm!("dc civac, {}", in(reg) line.as_ptr(), options(nostack, preserves_flags)) }
    }
    // SAFETY: a barrier has no operands.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) }
}

/// Copies `src` to `dst` with stores that bypass the caches, and meanwhile asks for the lines of `ahead`, the data that
/// will be read next. A plain store first reads the line it overwrites; this one does not, which is a third of the
/// traffic of a copy.
pub fn stream_copy<T: NoUninit + bytemuck::AnyBitPattern>(dst: &mut [T], src: &[T], ahead: &[T]) {
    assert_eq!(dst.len(), src.len());
    stream_bytes(bytemuck::cast_slice_mut(dst), bytemuck::cast_slice(src), bytemuck::cast_slice(ahead));
}

#[cfg(target_arch = "x86_64")]
fn stream_bytes(dst: &mut [u8], src: &[u8], ahead: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm_stream_si128};
    let head = dst.as_ptr().align_offset(64).min(dst.len());
    let lines = (dst.len() - head) / 64;
    let tail = head + lines * 64;
    dst[..head].copy_from_slice(&src[..head]);
    dst[tail..].copy_from_slice(&src[tail..]);
    let (to, from) = (&mut dst[head..tail], &src[head..tail]);
    let mut ahead = ahead.chunks(64);
    for (to, from) in to.chunks_exact_mut(64).zip(from.chunks_exact(64)) {
        // SAFETY: `to` is 64 bytes at a 64-byte boundary, `from` 64 readable bytes; a prefetch never faults.
        unsafe {
            if let Some(line) = ahead.next() {
                _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
            }
            for i in (0..64).step_by(16) {
                let v = _mm_loadu_si128(from.as_ptr().add(i).cast());
                _mm_stream_si128(to.as_mut_ptr().add(i).cast(), v);
            }
        }
    }
    // SAFETY: no operands; orders the streaming stores before whatever tells others that they are done.
    unsafe { _mm_sfence() }
}

#[cfg(not(target_arch = "x86_64"))]
fn stream_bytes(dst: &mut [u8], src: &[u8], _ahead: &[u8]) {
    dst.copy_from_slice(src);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_copy_is_a_copy_at_any_alignment() {
        let src: Vec<u16> = (0..1000).collect();
        for (start, len) in [(0, 1000), (1, 999), (3, 31), (7, 32), (5, 0), (2, 1)] {
            let mut dst = vec![0u16; 1000];
            stream_copy(&mut dst[start..start + len], &src[start..start + len], &src[..len / 2]);
            assert!(dst[start..start + len] == src[start..start + len]);
            assert!(dst[..start].iter().chain(&dst[start + len..]).all(|v| *v == 0));
        }
    }

    #[test]
    fn flushing_changes_no_value() {
        let data: Vec<u8> = (0..100_000).map(|i| i as u8).collect();
        flush(&data);
        assert!(data.iter().enumerate().all(|(i, b)| *b == i as u8));
    }
}
