//! Errors as users meet them: one line and an exit code.

use kmark_core::record::Status;
use std::fmt;

/// Exit codes that scripts may rely on.
pub const OWN_ERROR: u8 = 1;
pub const USAGE: u8 = 2;
/// `kmark compare`: something became slower; something cannot be told.
pub const SLOWER: u8 = 3;
pub const UNDECIDED: u8 = 4;
pub const WRONG_ANSWER: u8 = 5;
pub const CASE_FAILED: u8 = 6;
pub const BUILD_FAILED: u8 = CASE_FAILED;

#[derive(Debug)]
pub struct Error {
    pub code: u8,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The user can mend it: a wrong word, file or size.
    pub fn usage(message: impl Into<String>) -> Error {
        Error { code: USAGE, message: message.into() }
    }
    /// Something that should have worked did not.
    pub fn own(message: impl Into<String>) -> Error {
        Error { code: OWN_ERROR, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The exit code of a run whose records have these statuses: a wrong answer outranks a failed case.
pub fn exit_code(statuses: impl IntoIterator<Item = Status>) -> u8 {
    statuses
        .into_iter()
        .map(|s| match s {
            Status::Wrong => WRONG_ANSWER,
            s if s.is_failure() => CASE_FAILED,
            _ => 0,
        })
        .reduce(|a, b| match (a, b) {
            (WRONG_ANSWER, _) | (_, WRONG_ANSWER) => WRONG_ANSWER,
            (a, b) => a.max(b),
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_outranks_a_failure() {
        assert_eq!(exit_code([Status::Ok, Status::Unsupported, Status::Unavailable]), 0);
        assert_eq!(exit_code([Status::Ok, Status::Hung]), CASE_FAILED);
        assert_eq!(exit_code([Status::Crashed, Status::Wrong, Status::Ok]), WRONG_ANSWER);
    }
}
