//! The one way to say that a word is not known: name the nearest right one, then the choices.

/// "unknown suite 'smok'; did you mean 'smoke'? (known: quack, smoke)"
pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let mut line = format!("unknown {what} '{word}'");
    match nearest(word, known.iter().copied()) {
        Some(near) => line.push_str(&format!("; did you mean '{near}'?")),
        None if known.is_empty() => {}
        None => line.push(';'),
    }
    if !known.is_empty() && known.len() <= 24 {
        line.push_str(&format!(" (known: {})", known.join(", ")));
    }
    line
}

pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|k| (strsim::jaro_winkler(word, k), k))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, k)| k)
}
