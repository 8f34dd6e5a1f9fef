//! A picture: shapes at pixels, each with classes that say how it looks. Knows neither files nor rows; how it is written is
//! another's business.

use super::font;
use super::style::{COLOURS, Look};
use std::collections::HashSet;

pub type Point = (f64, f64);

pub enum Form {
    /// A text from this point on its base line.
    Text(Point, String),
    Line(Point, Point),
    Path(Vec<Point>),
    /// Two lines through a point, so far to each side.
    Cross(Point, f64),
    Rect(Point, Point),
    Circle(Point, f64),
    Polygon(Vec<Point>),
}

pub struct Shape {
    pub form: Form,
    pub class: String,
    /// Shown while the pointer is on it, and read out.
    pub hover: String,
}

/// A picture that is being drawn.
#[derive(Default)]
pub struct Scene {
    shapes: Vec<Shape>,
    /// Pixels and numbers of the marks so far.
    marked: HashSet<(i64, i64, usize)>,
}

/// A picture, with words for those who do not see it.
pub struct Picture {
    pub width: f64,
    pub height: f64,
    pub title: String,
    pub about: String,
    pub shapes: Vec<Shape>,
}

impl Scene {
    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put(Form::Text((x, y), text.to_string()), class, "");
    }

    /// A text that loses its middle where it is wider than `room`.
    pub fn text_within(&mut self, (x, y): Point, room: f64, class: &str, text: &str) {
        let look = Look::of(class);
        self.text(x, y, class, &font::fitted(text, look.size, look.bold, room));
    }

    pub fn line(&mut self, from: Point, to: Point, class: &str) {
        self.put(Form::Line(from, to), class, "");
    }

    pub fn rect(&mut self, at: Point, (width, height): Point, class: &str, hover: &str) {
        self.put(Form::Rect(at, (width.max(0.0), height.max(0.0))), class, hover);
    }

    pub fn path(&mut self, points: Vec<Point>, class: &str) {
        self.put(Form::Path(points), class, "");
    }

    pub fn polygon(&mut self, points: Vec<Point>, class: &str) {
        self.put(Form::Polygon(points), class, "");
    }

    /// The mark of the impl with this number: eight colours, then the same with another shape. Of marks that lie on each
    /// other one is drawn, so that a picture of a million has an end.
    pub fn mark(&mut self, (x, y): Point, r: f64, number: usize, hover: impl FnOnce() -> String) {
        if !self.is_free((x, y), number) {
            return;
        }
        let form = match (number / COLOURS) % 4 {
            0 => Form::Circle((x, y), r),
            1 => Form::Rect((x - r * 0.9, y - r * 0.9), (1.8 * r, 1.8 * r)),
            shape => {
                let up = if shape == 2 { -1.0 } else { 1.0 };
                Form::Polygon(vec![(x, y + up * 1.2 * r), (x - 1.15 * r, y - up * r), (x + 1.15 * r, y - up * r)])
            }
        };
        self.put(form, &format!("mark f{}", number % COLOURS), &hover());
    }

    /// Where something failed.
    pub fn cross(&mut self, (x, y): Point, r: f64, hover: impl FnOnce() -> String) {
        if self.is_free((x, y), usize::MAX) {
            self.put(Form::Cross((x, y), r), "badmark", &hover());
        }
    }

    /// Whether no mark of this number lies there, until now.
    fn is_free(&mut self, (x, y): Point, number: usize) -> bool {
        self.marked.insert((x.round() as i64, y.round() as i64, number))
    }

    pub fn finish(self, width: f64, height: f64, title: &str, about: &str) -> Picture {
        Picture { width, height, title: title.to_string(), about: about.to_string(), shapes: self.shapes }
    }

    fn put(&mut self, form: Form, class: &str, hover: &str) {
        self.shapes.push(Shape { form, class: class.to_string(), hover: hover.to_string() });
    }
}
