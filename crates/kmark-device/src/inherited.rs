//! Descriptors that a process was started with, made its own: away from the numbers where everybody looks for them, and
//! closed to whatever it starts.

use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// Numbers from here on are not handed out by chance.
const OUT_OF_THE_WAY: RawFd = 500;

/// The pipe at `number`, which is closed there. Each can be taken once.
pub fn take_pipe(number: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(|e| e.into_inner());
    if taken.contains(&number) {
        return Err(io::Error::other("its pipe was taken before"));
    }
    // SAFETY: borrowed for two calls; if it is not open, they say so.
    let given = unsafe { BorrowedFd::borrow_raw(number) };
    if FileType::from_raw_mode(fstat(given)?.st_mode) != FileType::Fifo {
        return Err(io::Error::other("there is no pipe"));
    }
    let moved = fcntl_dupfd_cloexec(given, OUT_OF_THE_WAY)?;
    taken.push(number);
    // SAFETY: open, as was just seen; it came with the process, so no value owns it, and it is taken once.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Ok(moved)
}

/// Whatever else this process was started with, from the third on, is not handed to those that it starts.
pub fn keep_to_ourselves() {
    for number in 3..OUT_OF_THE_WAY {
        // SAFETY: borrowed for one call, which changes nothing where it is not open.
        let _ = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC);
    }
}
