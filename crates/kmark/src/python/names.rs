//! Names that a Python text binds, found without running it. What it cannot see, the worker finds out.

/// Stands for the names of `from module import *`, which are not in the text.
pub const EVERYTHING: &str = "*";

/// By `def`, `class`, assignment, import, or `@kmark.impl("name")`; at any depth, since a condition may stand around it.
pub fn bound(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for statement in statements(text) {
        let line = statement.trim_start();
        if let Some(rest) = ["async def ", "def ", "class "].iter().find_map(|w| line.strip_prefix(w)) {
            names.push(identifier(rest));
        } else if let Some(rest) = line.strip_prefix("import ") {
            names.extend(rest.split(',').map(|one| last_word(one).split('.').next().unwrap_or("").to_string()));
        } else if let Some((_, rest)) = line.strip_prefix("from ").and_then(|r| r.split_once(" import ")) {
            names.extend(rest.trim_matches(['(', ')', ' ']).split(',').map(last_word));
        } else if line.starts_with('@') && line.contains("impl(") {
            names.extend(first_string(line));
        } else {
            names.extend(assigned(line));
        }
    }
    names.retain(|n| !n.is_empty());
    let mut seen = std::collections::HashSet::new();
    names.retain(|n| seen.insert(n.clone()));
    names
}

/// Lines without comments; what stands in parentheses is one.
fn statements(text: &str) -> Vec<String> {
    let (mut all, mut open, mut depth) = (Vec::new(), String::new(), 0i32);
    for line in text.lines() {
        let code = line.split('#').next().unwrap_or("").trim_end();
        // A bracket in a string must not hide the rest of the file.
        let words = ["def ", "async def ", "class ", "import ", "from ", "@"];
        let begins = words.iter().any(|w| code.starts_with(w)) || !assigned(code).is_empty();
        if begins && !code.starts_with(' ') && !open.is_empty() {
            all.push(std::mem::take(&mut open));
            depth = 0;
        }
        depth += code.chars().map(|c| i32::from("([{".contains(c)) - i32::from(")]}".contains(c))).sum::<i32>();
        open.push_str(if open.is_empty() { code } else { code.trim_start() });
        if depth <= 0 {
            all.push(std::mem::take(&mut open));
            depth = 0;
        }
    }
    all.push(open);
    all
}

/// The targets of `a = b = …`, `a, b = …` and `a: T = …`.
fn assigned(line: &str) -> Vec<String> {
    let names = |targets: &str| -> Vec<String> {
        targets.split(',').map(str::trim).filter(|t| is_name(t)).map(String::from).collect()
    };
    if let Some((target, rest)) = line.split_once(':')
        && is_name(target.trim())
        && rest.contains(" = ")
    {
        return names(target);
    }
    // Behind a bracket or a quote stand arguments.
    let head = line.split(['(', '[', '{', '"', '\'']).next().unwrap_or("");
    let mut parts: Vec<&str> = head.split('=').collect();
    parts.pop();
    // Comparisons, and assignments that need the name already, have another sign beside theirs.
    let plain = |p: &&str| !p.is_empty() && !p.ends_with(|c: char| "<>!+-*/%&|^:@".contains(c));
    if parts.iter().all(plain) { parts.into_iter().flat_map(names).collect() } else { Vec::new() }
}

fn is_name(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_') && chars.all(|c| c.is_alphanumeric() || c == '_')
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// `a as b` binds b.
fn last_word(text: &str) -> String {
    text.split_whitespace().last().unwrap_or("").trim_matches(['(', ')']).to_string()
}

/// What stands first in quotes behind the parenthesis.
fn first_string(line: &str) -> Option<String> {
    let inside = line.split_once("impl(")?.1.trim_start();
    let quote = inside.chars().next().filter(|c| "\"'".contains(*c))?;
    inside[1..].split(quote).next().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_binds_a_name_is_found() {
        let text = "\
import numpy as np, torch.nn
from parts import (rows,  # helpers
    columns as cols,
)
if True:
    def inside(x): pass
try:
    from fast import quick
except ImportError:
    quick = None
plain = partial(inside, n=3)
typed: object = torch.compile(plain, mode=\"max\")
one = two = inside
a, b = 1, 2
@kmark.impl(\"named\", op=\"rmsnorm\")
def registered(x, y=1): return x
async def later(): pass
class Kernel: pass
f(called=1)
x == y
print(\"def text(\")
last = (
    1
)
annotated: dict[str, int] = {}
total += 1
# def commented(): pass
";
        let found = bound(text);
        let wanted = [
            "np",
            "torch",
            "rows",
            "cols",
            "inside",
            "quick",
            "plain",
            "typed",
            "one",
            "two",
            "a",
            "b",
            "named",
            "registered",
            "later",
            "Kernel",
            "last",
            "annotated",
        ];
        for name in wanted {
            assert!(found.iter().any(|n| n == name), "{name} of {found:?}");
        }
        for name in ["called", "x", "commented", "columns", "n", "mode", "text", "total"] {
            assert!(!found.iter().any(|n| n == name), "{name} of {found:?}");
        }
        assert_eq!(bound("from all import *\n"), [EVERYTHING]);
    }
}
