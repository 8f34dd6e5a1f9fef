//! A line that is written when the user ends the program, whatever it is doing just then.

use std::sync::OnceLock;

static WORDS: OnceLock<String> = OnceLock::new();

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const DEFAULT: *const () = std::ptr::null();
/// What a shell sets for programs that Ctrl-C is not meant for.
const IGNORED: *const () = std::ptr::without_provenance(1);
const STDERR: i32 = 2;

// SAFETY: as the C library declares them; a handler is an address, 0 or 1.
unsafe extern "C" {
    fn signal(number: i32, handler: *const ()) -> *const ();
    fn raise(number: i32) -> i32;
    fn write(file: i32, bytes: *const u8, count: usize) -> isize;
}

/// Writes these words to standard error if the program is interrupted or terminated, which then ends as it would have.
pub fn leave(words: String) {
    if WORDS.set(words).is_err() {
        return;
    }
    for number in [SIGINT, SIGTERM] {
        let spoken = speak as extern "C" fn(i32) as *const ();
        // SAFETY: the handler calls only what may be called in one; words are set before it is.
        unsafe {
            if signal(number, spoken) == IGNORED {
                signal(number, IGNORED);
            }
        }
    }
}

extern "C" fn speak(number: i32) {
    // SAFETY: all three may be called in a handler; the words live as long as the program.
    unsafe {
        if let Some(words) = WORDS.get() {
            write(STDERR, words.as_ptr(), words.len());
        }
        signal(number, DEFAULT);
        raise(number);
    }
}
