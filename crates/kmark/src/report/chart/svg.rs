//! Drawing: marks and text as SVG, for light and dark. Knows pixels only. Plain shapes and class names, so that any viewer
//! shows it; colours of Okabe and Ito, which people tell apart however they see colours, and shapes for when those run out.

use std::fmt::Write;

/// Colours that impls have, before shapes change.
pub const COLOURS: usize = 8;

pub const STYLE: &str = "\
.kc text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#1b1f24}\
.kc .title{font-size:22px;font-weight:600}.kc .dim{fill:#5b6470}.kc .small{font-size:11px}.kc .b{font-weight:600}\
.kc .mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace;font-size:12px}\
.kc .end{text-anchor:end}.kc .mid{text-anchor:middle}\
.kc .paper{fill:#fff}.kc .band{fill:#f4f6f8}.kc .grid{stroke:#dfe3e8;stroke-width:1}.kc .axis{stroke:#8a94a0;stroke-width:1}\
.kc .roof{stroke:#1b1f24;stroke-width:2;fill:none}.kc .roof2{stroke:#1b1f24;stroke-width:1.5;stroke-dasharray:6 4;fill:none}\
.kc .whisker{stroke:#1b1f24;stroke-width:1.5}.kc text.bad{fill:#b3261e;font-weight:600}.kc .badmark{stroke:#b3261e;stroke-width:2.2;fill:none}\
.kc .hatch{fill:url(#kmark-hatch);stroke:#b3261e;stroke-width:1}.kc .hatchline{stroke:#b3261e;stroke-width:2}\
.kc .f0{fill:#0072b2}.kc .f1{fill:#e69f00}.kc .f2{fill:#009e73}.kc .f3{fill:#d55e00}.kc .f4{fill:#cc79a7}.kc .f5{fill:#56b4e9}\
.kc .f6{fill:#6b7480}.kc .f7{fill:#f0e442}\
.kc .s0{stroke:#0072b2}.kc .s1{stroke:#e69f00}.kc .s2{stroke:#009e73}.kc .s3{stroke:#d55e00}.kc .s4{stroke:#cc79a7}.kc .s5{stroke:#56b4e9}\
.kc .s6{stroke:#6b7480}.kc .s7{stroke:#b8ad00}\
.kc .mark{stroke:#fff;stroke-width:1}.kc .pale{opacity:.35}.kc .curve{fill:none;stroke-width:2}\
@media (prefers-color-scheme:dark){.kc text{fill:#e6e9ed}.kc .dim{fill:#9aa5b1}.kc .paper{fill:#14181d}.kc .band{fill:#1c2229}\
.kc .grid{stroke:#2c343d}.kc .axis{stroke:#76818d}.kc .roof,.kc .roof2,.kc .whisker{stroke:#e6e9ed}.kc .mark{stroke:#14181d}\
.kc text.bad{fill:#ff8a80}.kc .badmark,.kc .hatch,.kc .hatchline{stroke:#ff8a80}.kc .f0{fill:#3aa0e0}.kc .s0{stroke:#3aa0e0}\
.kc .f6{fill:#a5afba}.kc .s6{stroke:#a5afba}.kc .s7{stroke:#f0e442}}";

/// A picture that is being drawn.
pub struct Svg {
    body: String,
}

impl Svg {
    pub fn new() -> Svg {
        Svg { body: String::new() }
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.put(format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\"{class}>{}</text>", escaped(text)));
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"));
    }

    /// A rectangle; `hover` is shown while the pointer is on it, and read out.
    pub fn rect(&mut self, at: (f64, f64), size: (f64, f64), class: &str, hover: &str) {
        let ((x, y), (w, h)) = (at, size);
        let title = title(hover);
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" class=\"{class}\">{title}</rect>",
            w.max(0.0),
            h.max(0.0)
        ));
    }

    pub fn path(&mut self, points: &[(f64, f64)], class: &str, closed: bool) {
        let mut d = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            write!(d, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' }).expect("a string grows");
        }
        let end = if closed { "Z" } else { "" };
        self.put(format_args!("<path d=\"{d}{end}\" class=\"{class}\"/>"));
    }

    /// The mark of the impl with this number: eight colours, then the same with another shape.
    pub fn mark(&mut self, (x, y): (f64, f64), r: f64, number: usize, class: &str, hover: &str) {
        let (class, title) = (format!("mark f{} {class}", number % COLOURS), title(hover));
        match (number / COLOURS) % 4 {
            0 => self
                .put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" class=\"{class}\">{title}</circle>")),
            1 => self.rect((x - r * 0.9, y - r * 0.9), (1.8 * r, 1.8 * r), &class, hover),
            shape => {
                let up = if shape == 2 { -1.0 } else { 1.0 };
                let corners = [(x, y + up * 1.2 * r), (x - 1.15 * r, y - up * r), (x + 1.15 * r, y - up * r)];
                let [a, b, c] = corners.map(|(x, y)| format!("{x:.1},{y:.1}"));
                self.put(format_args!("<polygon points=\"{a} {b} {c}\" class=\"{class}\">{title}</polygon>"));
            }
        }
    }

    /// Where something failed.
    pub fn cross(&mut self, (x, y): (f64, f64), r: f64, hover: &str) {
        let title = title(hover);
        let d = format!(
            "M{:.1} {:.1}L{:.1} {:.1}M{:.1} {:.1}L{:.1} {:.1}",
            x - r,
            y - r,
            x + r,
            y + r,
            x - r,
            y + r,
            x + r,
            y - r
        );
        self.put(format_args!("<path d=\"{d}\" class=\"badmark\">{title}</path>"));
    }

    /// The picture, with words for those who do not see it.
    pub fn finish(self, width: f64, height: f64, title: &str, about: &str) -> String {
        let (title, about) = (escaped(title), escaped(about));
        format!(
            "<svg xmlns=\"{NAMESPACE}\" class=\"kc\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\"><title>{title}</title><desc>{about}</desc>\n<style>{STYLE}</style>\n<defs>\
             <pattern id=\"kmark-hatch\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"7\" class=\"hatchline\"/></pattern></defs>\n\
             <rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn put(&mut self, element: std::fmt::Arguments) {
        writeln!(self.body, "{element}").expect("a string grows");
    }
}

/// What every SVG file must name; nothing is fetched from there.
pub const NAMESPACE: &str = "http://www.w3.org/2000/svg";

fn title(hover: &str) -> String {
    if hover.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(hover)) }
}

/// Text that is nothing but text inside XML or HTML.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('?'),
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// At most so many characters: the middle goes.
pub fn short(text: &str, most: usize) -> String {
    let n = text.chars().count();
    if n <= most {
        return text.to_string();
    }
    let (head, tail) = (most / 2, most - most / 2 - 1);
    let end: String = text.chars().skip(n - tail).collect();
    format!("{}…{end}", text.chars().take(head).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("<b a='\"&\u{1b}'>"), "&lt;b a=&#39;&quot;&amp;?&#39;&gt;");
        assert_eq!(short("abcdefghij", 5), "ab…ij");
        assert_eq!(short("abc", 5), "abc");
    }
}
