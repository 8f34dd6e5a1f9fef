//! The processor's own settings, which belong to the thread: a function that changes how numbers are rounded, or that
//! flushes small ones to zero, changes it for the oracle that judges it.

/// Runs `f` and puts the settings back.
pub fn kept<R>(f: impl FnOnce() -> R) -> R {
    let before = settings::get();
    let result = f();
    settings::set(before);
    result
}

#[cfg(target_arch = "x86_64")]
mod settings {
    use std::arch::asm;

    pub fn get() -> u32 {
        let mut word = 0u32;
        // SAFETY: stores the control word of SSE to our variable.
        unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut word, options(nostack, preserves_flags)) };
        word
    }

    pub fn set(word: u32) {
        // SAFETY: loads a word that was stored by the same processor: rounding as it was before.
        unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const word, options(nostack, readonly, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod settings {
    use std::arch::asm;

    pub fn get() -> u64 {
        let word: u64;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }

    pub fn set(word: u64) {
        // SAFETY: writes what was read before: rounding as it was.
        unsafe { asm!("msr fpcr, {}", in(reg) word, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod settings {
    pub fn get() {}
    pub fn set(_: ()) {}
}
