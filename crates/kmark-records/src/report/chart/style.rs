//! How charts look: what each class of a shape means, for light and for dark. The one table from which style sheets are
//! written and pixels are painted. Colours are those of Okabe and Ito, which people tell apart however they see colours.

use super::font;
use std::fmt::Write;
use std::sync::LazyLock;

/// Colours that impls have, before shapes change.
pub const COLOURS: usize = 8;
/// Of the pattern that marks failures: the distance of its stripes and how much of it they fill.
pub const HATCH: (f64, f64) = (7.0, 1.5);

/// A colour on white, and the same on black.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ink {
    light: u32,
    dark: u32,
}

impl Ink {
    /// Red, green and blue.
    pub fn rgb(self, dark: bool) -> [u8; 3] {
        let [_, r, g, b] = (if dark { self.dark } else { self.light }).to_be_bytes();
        [r, g, b]
    }
}

const fn ink(light: u32, dark: u32) -> Ink {
    Ink { light, dark }
}

const TEXT: Ink = ink(0x1b1f24, 0xe6e9ed);
pub const PAPER: Ink = ink(0xffffff, 0x14181d);
pub const BAD: Ink = ink(0xb3261e, 0xff8a80);

#[derive(Clone, Copy)]
enum Property {
    Fill(Ink),
    Stroke(Ink),
    Width(f64),
    Dash(f64, f64),
    Opacity(f64),
    Size(f64),
    Hatch,
    Hollow,
    Bold,
    End,
    Middle,
}
use Property::*;

/// What a shape of some classes looks like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Look {
    pub fill: Option<Ink>,
    pub hatched: bool,
    pub stroke: Option<Ink>,
    pub width: f64,
    pub dash: Option<(f64, f64)>,
    pub opacity: f64,
    pub size: f64,
    pub bold: bool,
    /// How much of a text lies left of its place.
    pub anchor: f64,
}

/// Classes; where two say something of the same thing, the later holds.
static CLASSES: [(&str, &[Property]); 35] = [
    ("title", &[Size(22.0), Bold]),
    ("dim", &[Fill(ink(0x5b6470, 0x9aa5b1))]),
    ("small", &[Size(11.0)]),
    ("b", &[Bold]),
    ("end", &[End]),
    ("mid", &[Middle]),
    ("bad", &[Fill(BAD), Bold]),
    ("paper", &[Fill(PAPER)]),
    ("grid", &[Stroke(ink(0xdfe3e8, 0x2c343d))]),
    ("axis", &[Stroke(ink(0x8a94a0, 0x76818d))]),
    ("roof", &[Stroke(TEXT), Width(2.0), Hollow]),
    ("roof2", &[Stroke(TEXT), Width(1.5), Dash(6.0, 4.0), Hollow]),
    ("whisker", &[Stroke(TEXT), Width(1.5)]),
    ("badmark", &[Stroke(BAD), Width(2.2), Hollow]),
    ("hatch", &[Hatch, Stroke(BAD)]),
    ("stripe", &[Fill(BAD)]),
    ("mark", &[Stroke(PAPER)]),
    ("pale", &[Opacity(0.35)]),
    ("curve", &[Width(2.0), Hollow]),
    ("f0", &[Fill(ink(0x0072b2, 0x3aa0e0))]),
    ("f1", &[Fill(ink(0xe69f00, 0xe69f00))]),
    ("f2", &[Fill(ink(0x009e73, 0x009e73))]),
    ("f3", &[Fill(ink(0xd55e00, 0xd55e00))]),
    ("f4", &[Fill(ink(0xcc79a7, 0xcc79a7))]),
    ("f5", &[Fill(ink(0x56b4e9, 0x56b4e9))]),
    ("f6", &[Fill(ink(0x6b7480, 0xa5afba))]),
    ("f7", &[Fill(ink(0xf0e442, 0xf0e442))]),
    ("s0", &[Stroke(ink(0x0072b2, 0x3aa0e0))]),
    ("s1", &[Stroke(ink(0xe69f00, 0xe69f00))]),
    ("s2", &[Stroke(ink(0x009e73, 0x009e73))]),
    ("s3", &[Stroke(ink(0xd55e00, 0xd55e00))]),
    ("s4", &[Stroke(ink(0xcc79a7, 0xcc79a7))]),
    ("s5", &[Stroke(ink(0x56b4e9, 0x56b4e9))]),
    ("s6", &[Stroke(ink(0x6b7480, 0xa5afba))]),
    ("s7", &[Stroke(ink(0xb8ad00, 0xf0e442))]),
];

impl Look {
    pub fn of(class: &str) -> Look {
        let mut look = Look {
            fill: Some(TEXT),
            hatched: false,
            stroke: None,
            width: 1.0,
            dash: None,
            opacity: 1.0,
            size: font::SIZE,
            bold: false,
            anchor: 0.0,
        };
        for (_, properties) in CLASSES.iter().filter(|(name, _)| class.split(' ').any(|word| word == *name)) {
            properties.iter().for_each(|p| look.take(*p));
        }
        look
    }

    fn take(&mut self, property: Property) {
        match property {
            Fill(ink) => self.fill = Some(ink),
            Stroke(ink) => self.stroke = Some(ink),
            Width(width) => self.width = width,
            Dash(on, off) => self.dash = Some((on, off)),
            Opacity(opacity) => self.opacity = opacity,
            Size(size) => self.size = size,
            Hatch => (self.fill, self.hatched) = (Some(BAD), true),
            Hollow => self.fill = None,
            Bold => self.bold = true,
            End => self.anchor = 1.0,
            Middle => self.anchor = 0.5,
        }
    }
}

/// The classes as a style sheet, which follows the reader's light or dark mode.
pub static SHEET: LazyLock<String> = LazyLock::new(|| {
    let mut light = format!(
        ".kc text{{font:{}px {},system-ui,sans-serif;font-kerning:none;text-rendering:geometricPrecision;fill:{}}}",
        font::SIZE,
        font::NAME,
        hex(TEXT.light)
    );
    let mut dark = format!(".kc text{{fill:{}}}", hex(TEXT.dark));
    for (name, properties) in CLASSES {
        let (day, night): (Vec<_>, Vec<_>) = properties.iter().map(|p| (css(*p, false), css(*p, true))).unzip();
        write!(light, ".kc .{name}{{{}}}", day.join(";")).expect("a string grows");
        let differs: Vec<String> = night.into_iter().zip(day).filter(|(n, d)| n != d).map(|(n, _)| n).collect();
        if !differs.is_empty() {
            write!(dark, ".kc .{name}{{{}}}", differs.join(";")).expect("a string grows");
        }
    }
    format!("{light}@media (prefers-color-scheme:dark){{{dark}}}")
});

fn css(property: Property, dark: bool) -> String {
    let colour = |ink: Ink| hex(if dark { ink.dark } else { ink.light });
    match property {
        Fill(ink) => format!("fill:{}", colour(ink)),
        Stroke(ink) => format!("stroke:{}", colour(ink)),
        Width(width) => format!("stroke-width:{width}"),
        Dash(on, off) => format!("stroke-dasharray:{on} {off}"),
        Opacity(opacity) => format!("opacity:{opacity}"),
        Size(size) => format!("font-size:{size}px"),
        Hatch => "fill:url(#kmark-hatch)".into(),
        Hollow => "fill:none".into(),
        Bold => "font-weight:600".into(),
        End => "text-anchor:end".into(),
        Middle => "text-anchor:middle".into(),
    }
}

fn hex(colour: u32) -> String {
    format!("#{colour:06x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_classes_hold_and_both_modes_are_written() {
        let look = Look::of("bad small dim end");
        assert_eq!((look.fill, look.bold, look.size, look.anchor), (Some(BAD), true, 11.0, 1.0));
        assert!(SHEET.contains(".kc .bad{fill:#b3261e;font-weight:600}"), "{}", *SHEET);
        let (_, dark) = SHEET.split_once("@media").unwrap();
        assert!(dark.contains(".kc .bad{fill:#ff8a80}") && !dark.contains(".f1"), "{dark}");
    }
}
