//! What every format is given: the rows of a run; and small words that formats share.

use super::against;
use super::rows::{NOTHING, Row};
use kmark_core::record::Record;
use kmark_core::run::Run;
use kmark_core::spelling::matches;

/// A run as a report sees it.
pub struct RunData<'a> {
    pub name: &'a str,
    pub run: &'a Run,
    pub rows: Vec<Row>,
}

impl<'a> RunData<'a> {
    /// Of records that are in memory.
    pub fn new(name: &'a str, run: &'a Run, records: &[Record], baseline: Option<&str>) -> RunData<'a> {
        let mut rows: Vec<Row> = records.iter().map(|r| Row::new(name, run, r, &NOTHING)).collect();
        against::judge(&mut rows, baseline.or(run.settings.baseline.as_deref()));
        RunData { name, run, rows }
    }
}

/// A unit of time.
#[derive(Clone, Copy)]
pub struct Unit {
    pub name: &'static str,
    pub sign: &'static str,
    pub ns: f64,
    /// Places behind the point, where it is written for programs.
    pub decimals: usize,
}

pub static UNITS: [Unit; 4] = [
    Unit { name: "ns", sign: "ns", ns: 1.0, decimals: 1 },
    Unit { name: "us", sign: "µs", ns: 1e3, decimals: 4 },
    Unit { name: "ms", sign: "ms", ns: 1e6, decimals: 7 },
    Unit { name: "s", sign: "s", ns: 1e9, decimals: 10 },
];

/// Its name and what it holds.
pub type File = (String, Vec<u8>);

/// Whether a row's case, op or impl is like one of the patterns.
pub fn chosen(r: &Row, filter: &[String]) -> bool {
    let like = |p: &String| [&r.case, &r.impl_name, &r.op].into_iter().any(|name| matches(p, name));
    filter.is_empty() || filter.iter().any(like)
}

/// At most so many characters: the middle goes.
pub fn short(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_string();
    }
    let (head, tail) = (most / 2, (most - most / 2).saturating_sub(1));
    let end: String = text.chars().skip(n - tail).collect();
    format!("{}…{end}", text.chars().take(head).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_goes() {
        assert_eq!(
            (short("abcdefghij", 5), short("abc", 5), short("abc", 0)),
            ("ab…ij".into(), "abc".into(), "…".into())
        );
    }
}
