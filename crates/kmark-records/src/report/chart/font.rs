//! The font of charts, Inter: how wide a text is, and the outlines of its letters. The files travel inside the charts, so
//! that these look the same everywhere.

use crate::report::short;
use std::sync::LazyLock;
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// As style sheets name it.
pub const NAME: &str = "'Kmark Inter'";
/// Of text that says nothing else.
pub const SIZE: f64 = 13.0;

const REGULAR: &[u8] = include_bytes!("font/Inter-Regular.ttf");
const BOLD: &[u8] = include_bytes!("font/Inter-SemiBold.ttf");

static FACES: LazyLock<[Face<'static>; 2]> =
    LazyLock::new(|| [REGULAR, BOLD].map(|file| Face::parse(file, 0).expect("our own file is a font")));

fn face(bold: bool) -> &'static Face<'static> {
    &FACES[usize::from(bold)]
}

/// The glyph of a letter, or of one that the font does not have.
fn glyph(face: &Face, letter: char) -> GlyphId {
    face.glyph_index(letter).unwrap_or(GlyphId(0))
}

/// How wide a text is, in the unit of its size.
pub fn width(text: &str, size: f64, bold: bool) -> f64 {
    let face = face(bold);
    let units: u64 = text.chars().map(|c| u64::from(face.glyph_hor_advance(glyph(face, c)).unwrap_or(0))).sum();
    units as f64 * size / f64::from(face.units_per_em())
}

/// The text, its middle left out where it is wider than `room`.
pub fn fitted(text: &str, size: f64, bold: bool, room: f64) -> String {
    // No letter is so narrow that a text this long has room; longer ones are not measured over and over.
    let most = (room / size * 8.0).max(2.0) as usize;
    let mut shown = short(text, most);
    while width(&shown, size, bold) > room && shown.chars().count() > 2 {
        let letters = shown.chars().count();
        let less = (letters as f64 * room / width(&shown, size, bold)) as usize;
        shown = short(text, less.clamp(2, letters - 1));
    }
    shown
}

/// Draws the letters of a text one after the other: each is given to `pen` with the place where it begins.
pub fn draw(text: &str, size: f64, bold: bool, mut pen: impl FnMut(f64, f64, &dyn Fn(&mut dyn OutlineBuilder))) {
    let face = face(bold);
    let scale = size / f64::from(face.units_per_em());
    let mut x = 0.0;
    for letter in text.chars() {
        let glyph = glyph(face, letter);
        pen(x, scale, &|builder| {
            face.outline_glyph(glyph, builder);
        });
        x += scale * f64::from(face.glyph_hor_advance(glyph).unwrap_or(0));
    }
}

/// The font as a style sheet holds it.
pub static SHEET: LazyLock<String> = LazyLock::new(|| {
    let rule = |file: &[u8], weight: u32| {
        let data = base64(file);
        format!("@font-face{{font-family:{NAME};font-weight:{weight};src:url(data:font/ttf;base64,{data})}}")
    };
    rule(REGULAR, 400) + &rule(BOLD, 600)
});

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i)) as usize & 63] as char;
            out.push(if i <= group.len() { letter } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_as_letters() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|t| base64(t.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
    }

    #[test]
    fn text_has_a_width_and_is_made_to_fit() {
        assert!(width("iii", 13.0, false) < width("MMM", 13.0, false));
        assert!(width("time", 13.0, false) < width("time", 13.0, true));
        assert_eq!(fitted("short", 13.0, false, 100.0), "short");
        let long = fitted(&"cuda/02_wgmma ".repeat(1000), 13.0, false, 120.0);
        assert!((100.0..=120.0).contains(&width(&long, 13.0, false)) && long.contains('…'), "{long}");
        assert_eq!(fitted("anything", 13.0, false, 0.0).chars().count(), 2);
        assert!("aµ×±…·←→≤†".chars().all(|c| face(true).glyph_index(c).is_some()));
    }
}
