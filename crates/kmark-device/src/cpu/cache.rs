//! Cache control: evicting a tensor from every cache, storing past the caches, and asking for lines early. Safe
//! wrappers; on processors without the instructions they fall back to plain copies.

use bytemuck::NoUninit;
use rayon::prelude::*;

/// Evicts the slice's lines from all caches of all cores. Exact and cheap: a flush by walking twice the last-level
/// cache would cost 600 MiB of traffic per sample on a server, and evict only probably.
pub fn flush(bytes: &[u8]) {
    const PART: usize = 1 << 20;
    // Small tensors are flushed here: another thread, once woken, would still be looking for work when the timed launch
    // begins, and two threads of one core slow each other down.
    if bytes.len() <= PART {
        flush_lines(bytes);
    } else {
        bytes.par_chunks(PART).for_each(flush_lines);
    }
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
/// traffic of a copy. Whoever streams calls [`stream_fence`] before another thread may read.
pub fn stream_copy<T: NoUninit + bytemuck::AnyBitPattern>(dst: &mut [T], src: &[T], ahead: &[T]) {
    assert_eq!(dst.len(), src.len());
    stream_bytes(bytemuck::cast_slice_mut(dst), bytemuck::cast_slice(src), bytemuck::cast_slice(ahead));
}

#[cfg(target_arch = "x86_64")]
fn stream_bytes(dst: &mut [u8], src: &[u8], ahead: &[u8]) {
    let head = dst.as_ptr().align_offset(64).min(dst.len());
    let lines = (dst.len() - head) / 64;
    let tail = head + lines * 64;
    if head > 0 || tail < dst.len() {
        dst[..head].copy_from_slice(&src[..head]);
        dst[tail..].copy_from_slice(&src[tail..]);
    }
    let (to, from) = (&mut dst[head..tail], &src[head..tail]);
    stream_lines(to, from, ahead);
}

/// Waits until everything that this thread streamed has left its write buffers.
pub fn stream_fence() {
    // SAFETY: no operands; orders the streaming stores before whatever tells others that they are done.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}

/// Asks for the lines of a slice, so that they are there when they are read.
#[inline(always)]
pub fn prefetch<T: NoUninit>(data: &[T]) {
    for line in bytemuck::cast_slice::<T, u8>(data).chunks(64) {
        prefetch_line(line);
    }
}

#[inline(always)]
fn prefetch_line(line: &[u8]) {
    // SAFETY: a prefetch never faults and changes nothing but the cache.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast())
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn stream_lines(to: &mut [u8], from: &[u8], ahead: &[u8]) {
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions; `to` starts on a line and holds whole lines.
        unsafe { stream_lines_512(to, from, ahead) }
    } else {
        stream_lines_128(to, from, ahead);
    }
}

/// Whole lines; `to` starts on one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn stream_lines_512(to: &mut [u8], from: &[u8], ahead: &[u8]) {
    use std::arch::x86_64::{_mm512_loadu_si512, _mm512_stream_si512};
    let mut ahead = ahead.chunks(64);
    for (to, from) in to.chunks_exact_mut(64).zip(from.chunks_exact(64)) {
        if let Some(line) = ahead.next() {
            prefetch_line(line);
        }
        // SAFETY: 64 readable bytes go to 64 writable ones at a 64-byte boundary.
        unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), _mm512_loadu_si512(from.as_ptr().cast())) }
    }
}

/// The same with the instructions that every x86-64 has.
#[cfg(target_arch = "x86_64")]
fn stream_lines_128(to: &mut [u8], from: &[u8], ahead: &[u8]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
    let mut ahead = ahead.chunks(64);
    for (to, from) in to.chunks_exact_mut(64).zip(from.chunks_exact(64)) {
        if let Some(line) = ahead.next() {
            prefetch_line(line);
        }
        for (to, from) in to.chunks_exact_mut(16).zip(from.chunks_exact(16)) {
            // SAFETY: 16 readable bytes go to 16 writable ones at a 16-byte boundary.
            unsafe { _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast())) }
        }
    }
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
    #[cfg(target_arch = "x86_64")]
    fn lines_are_copied_with_either_instructions() {
        #[repr(align(64))]
        struct Aligned([u8; 256]);
        let src: Vec<u8> = (0..=255).collect();
        let mut dst = Aligned([0; 256]);
        stream_lines_128(&mut dst.0, &src, &[]);
        assert_eq!(dst.0.as_slice(), src);
        if std::arch::is_x86_feature_detected!("avx512f") {
            dst.0.fill(0);
            // SAFETY: the processor has the instructions, the slice is aligned and of whole lines.
            unsafe { stream_lines_512(&mut dst.0, &src, &src) }
            assert_eq!(dst.0.as_slice(), src);
        }
    }

    #[test]
    fn flushing_changes_no_value() {
        let data: Vec<u8> = (0..100_000).map(|i| i as u8).collect();
        flush(&data);
        assert!(data.iter().enumerate().all(|(i, b)| *b == i as u8));
    }
}
