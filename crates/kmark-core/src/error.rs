//! Errors as users meet them: one line and an exit code.

use crate::record::Status;
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
/// Nothing could be checked or timed: everything is unsupported or unavailable.
pub const NOTHING: u8 = 7;

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

/// The exit code of a run whose records have these statuses: a wrong answer outranks a failed case. With `strict`, what is
/// unsupported or unavailable has failed.
pub fn exit_code(statuses: impl IntoIterator<Item = Status>, strict: bool) -> u8 {
    let (mut wrong, mut failed, mut checked, mut refused) = (false, false, false, false);
    for status in statuses {
        wrong |= status == Status::Wrong;
        failed |= status.is_failure();
        checked |= status.is_comparable();
        refused |= !status.is_failure() && !status.is_comparable();
    }
    match () {
        _ if wrong => WRONG_ANSWER,
        _ if failed || (strict && refused) => CASE_FAILED,
        _ if refused && !checked => NOTHING,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_outranks_a_failure() {
        assert_eq!(exit_code([Status::Ok, Status::Hung], false), CASE_FAILED);
        assert_eq!(exit_code([Status::Crashed, Status::Wrong, Status::Ok], false), WRONG_ANSWER);
    }

    #[test]
    fn what_was_refused_fails_where_nothing_else_was_done_or_all_was_asked_for() {
        let refused = [Status::Unsupported, Status::Unavailable];
        assert_eq!((exit_code(refused, false), exit_code(refused, true)), (NOTHING, CASE_FAILED));
        let some = [Status::Ok, Status::Unsupported];
        assert_eq!((exit_code(some, false), exit_code(some, true), exit_code([], true)), (0, CASE_FAILED, 0));
    }
}
