//! The one way to say that a word is not known: name the nearest right one, then the choices.

/// "unknown suite 'smok'; did you mean 'smoke'? (known: quack, smoke)"
pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let mut line = format!("unknown {what} '{word}'");
    if let Some(near) = nearest(word, known.iter().copied()) {
        line.push_str(&format!("; did you mean '{near}'?"));
    }
    if !known.is_empty() && known.len() <= 24 {
        line.push_str(&format!(" (known: {})", known.join(", ")));
    }
    line
}

/// The known word that was most likely meant: one slip of the finger away, or much alike.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), strsim::jaro_winkler(word, k), k))
        .filter(|(slips, alike, _)| *slips <= 1 || *alike > 0.75)
        .min_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)))
        .map(|(_, _, k)| k)
}

/// Whether a name is like a pattern: `*` stands for any run of characters.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name
            .strip_prefix(head)
            .is_some_and(|tail| (0..=tail.len()).any(|i| tail.is_char_boundary(i) && matches(rest, &tail[i..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_understood() {
        let known = ["same", "f32", "f16", "bf16", "cpu/simd"];
        assert_eq!(nearest("f23", known), Some("f32"));
        assert_eq!(nearest("bf61", known), Some("bf16"));
        assert_eq!(nearest("cpu/smid", known), Some("cpu/simd"));
        assert_eq!(nearest("torch", known), None);
        assert_eq!(unknown("impl", "torch", ["f32"]), "unknown impl 'torch' (known: f32)");
        assert_eq!(unknown("dtype", "f23", ["f32"]), "unknown dtype 'f23'; did you mean 'f32'? (known: f32)");
    }
}
