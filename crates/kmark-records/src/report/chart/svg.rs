//! Pictures as SVG: plain shapes and class names, so that any viewer shows them, and the font.

use super::font;
use super::scene::{Form, Picture, Shape};
use super::style::{HATCH, SHEET};
use std::fmt::Write;

/// What every SVG file must name; nothing is fetched from there.
const NAMESPACE: &str = "http://www.w3.org/2000/svg";

/// A file that needs nothing else.
pub fn file(picture: &Picture) -> String {
    let style = format!("<style>{}{}</style>\n", *font::SHEET, *SHEET);
    written(picture, &format!(" xmlns=\"{NAMESPACE}\""), &style)
}

/// The same inside a page that has the style already.
pub fn inline(picture: &Picture) -> String {
    written(picture, "", "")
}

fn written(picture: &Picture, namespace: &str, style: &str) -> String {
    let Picture { width, height, .. } = picture;
    let (title, about) = (escaped(&picture.title), escaped(&picture.about));
    let (distance, stripe) = HATCH;
    let mut out = format!(
        "<svg{namespace} class=\"kc\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" \
         role=\"img\"><title>{title}</title><desc>{about}</desc>\n{style}<defs><pattern id=\"kmark-hatch\" \
         width=\"{distance}\" height=\"{distance}\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"{stripe}\" height=\"{distance}\" class=\"stripe\"/></pattern></defs>\n\
         <rect width=\"100%\" height=\"100%\" class=\"paper\"/>\n"
    );
    for shape in &picture.shapes {
        element(&mut out, shape).expect("a string grows");
    }
    out + "</svg>\n"
}

fn element(out: &mut String, shape: &Shape) -> std::fmt::Result {
    let class = if shape.class.is_empty() { String::new() } else { format!(" class=\"{}\"", shape.class) };
    let title =
        if shape.hover.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(&shape.hover)) };
    match &shape.form {
        Form::Text((x, y), text) => writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\"{class}>{}</text>", escaped(text)),
        Form::Line((x1, y1), (x2, y2)) => {
            writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"{class}/>")
        }
        Form::Path(points) => {
            let steps = points.iter().enumerate().map(|(i, (x, y))| (if i == 0 { 'M' } else { 'L' }, x, y));
            let d: String = steps.map(|(letter, x, y)| format!("{letter}{x:.1} {y:.1}")).collect();
            writeln!(out, "<path d=\"{d}\"{class}/>")
        }
        Form::Cross((x, y), r) => {
            let (left, right, top, bottom) = (x - r, x + r, y - r, y + r);
            writeln!(
                out,
                "<path d=\"M{left:.1} {top:.1}L{right:.1} {bottom:.1}M{left:.1} {bottom:.1}L{right:.1} {top:.1}\"{class}>\
                 {title}</path>"
            )
        }
        Form::Rect((x, y), (w, h)) => {
            let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"");
            writeln!(out, "<rect {place}{class}>{title}</rect>")
        }
        Form::Circle((x, y), r) => {
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\"{class}>{title}</circle>")
        }
        Form::Polygon(points) => {
            let corners: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            writeln!(out, "<polygon points=\"{}\"{class}>{title}</polygon>", corners.join(" "))
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(escaped("<b a='\"&\u{1b}'>"), "&lt;b a=&#39;&quot;&amp;?&#39;&gt;");
    }
}
