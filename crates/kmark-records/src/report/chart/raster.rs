//! Shapes as pixels: outlines are filled by how much of a pixel they cover, lines become outlines first.

use super::font;
use super::scene::Point;
use ab_glyph_rasterizer::{Point as Corner, Rasterizer, point};
use ttf_parser::OutlineBuilder;

/// Red, green and blue, row by row.
pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<u8>,
}

/// How much of the paint reaches a pixel.
pub type Share<'a> = &'a dyn Fn(usize, usize) -> f32;

impl Canvas {
    pub fn new(width: usize, height: usize, paper: [u8; 3]) -> Canvas {
        Canvas { width, height, pixels: paper.repeat(width * height) }
    }

    pub fn fill(&mut self, outline: &Outline, colour: [u8; 3], share: Share) {
        // What lies outside is drawn at the edge: nobody sees it, and nothing grows beyond the picture.
        let (right, bottom) = ((self.width + 8) as f32, (self.height + 8) as f32);
        let inside = |c: Corner| point(c.x.clamp(-8.0, right), c.y.clamp(-8.0, bottom));
        let pieces: Vec<Piece> = outline.pieces.iter().map(|piece| piece.map(inside)).collect();
        let corners = || pieces.iter().flatten();
        if corners().next().is_none() || corners().any(|c| !c.x.is_finite() || !c.y.is_finite()) {
            return;
        }
        let least = |of: fn(&Corner) -> f32| corners().map(of).fold(f32::INFINITY, f32::min).floor();
        let most = |of: fn(&Corner) -> f32| corners().map(of).fold(f32::NEG_INFINITY, f32::max).ceil();
        let (x0, y0) = (least(|c| c.x), least(|c| c.y));
        let (w, h) = ((most(|c| c.x) - x0) as usize + 1, (most(|c| c.y) - y0) as usize + 1);
        let mut raster = Rasterizer::new(w, h);
        for piece in &pieces {
            let [a, b, c] = piece.map(|c| point(c.x - x0, c.y - y0));
            if b == c { raster.draw_line(a, c) } else { raster.draw_quad(a, b, c) }
        }
        raster.for_each_pixel_2d(|x, y, covered| {
            let (x, y) = (x as isize + x0 as isize, y as isize + y0 as isize);
            let on = (0..self.width as isize).contains(&x) && (0..self.height as isize).contains(&y);
            if on && covered > 0.0 {
                let (x, y) = (x as usize, y as usize);
                self.blend(x, y, colour, covered.min(1.0) * share(x, y));
            }
        });
    }

    fn blend(&mut self, x: usize, y: usize, colour: [u8; 3], share: f32) {
        let at = 3 * (y * self.width + x);
        for (pixel, paint) in self.pixels[at..at + 3].iter_mut().zip(colour) {
            *pixel = (f32::from(*pixel) + (f32::from(paint) - f32::from(*pixel)) * share).round() as u8;
        }
    }
}

/// A line from the first corner to the last, or, if the second is another, a curve that bends towards it.
type Piece = [Corner; 3];

/// What is to be filled. Parts that go round the same way add up, others leave holes.
#[derive(Default)]
pub struct Outline {
    pieces: Vec<Piece>,
    start: Corner,
    last: Corner,
}

fn corner((x, y): Point) -> Corner {
    point(x as f32, y as f32)
}

impl Outline {
    pub fn polygon(points: &[Point]) -> Outline {
        let mut outline = Outline::default();
        outline.add(points);
        outline
    }

    pub fn rect((x, y): Point, (w, h): Point) -> Outline {
        Outline::polygon(&[(x, y), (x + w, y), (x + w, y + h), (x, y + h)])
    }

    pub fn circle(at: Point, r: f64) -> Outline {
        Outline::polygon(&round(at, r))
    }

    /// Lines of some width through all points, blunt at the ends, round at the bends.
    pub fn stroke(points: &[Point], width: f64) -> Outline {
        let mut outline = Outline::default();
        for pair in points.windows(2) {
            let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
            let long = (x2 - x1).hypot(y2 - y1);
            if long > 0.0 {
                let (dx, dy) = ((x2 - x1) / long * width / 2.0, (y2 - y1) / long * width / 2.0);
                outline.add(&[(x1 + dy, y1 - dx), (x2 + dy, y2 - dx), (x2 - dy, y2 + dx), (x1 - dy, y1 + dx)]);
            }
        }
        let bends = if points.len() > 2 { &points[1..points.len() - 1] } else { &[] };
        for at in bends.iter().filter(|_| width > 2.0) {
            outline.add(&round(*at, width / 2.0));
        }
        outline
    }

    pub fn text((x, y): Point, text: &str, size: f64, bold: bool) -> Outline {
        let mut outline = Outline::default();
        font::draw(text, size, bold, |from, scale, letter| {
            letter(&mut Pen { outline: &mut outline, from: (x + from, y), scale });
        });
        outline
    }

    fn add(&mut self, points: &[Point]) {
        let next = points.iter().cycle().skip(1);
        let pieces = points.iter().zip(next).map(|(a, b)| [corner(*a), corner(*b), corner(*b)]);
        self.pieces.extend(pieces);
    }
}

/// A circle as corners.
fn round((x, y): Point, r: f64) -> Vec<Point> {
    let n = 32;
    let turn = |i: usize| (i as f64 / n as f64 * std::f64::consts::TAU).sin_cos();
    (0..n).map(turn).map(|(sin, cos)| (x + r * cos, y + r * sin)).collect()
}

/// The pieces of a line that is drawn for `on` and left out for `off`, over and over.
pub fn dashes(points: &[Point], (on, off): (f64, f64)) -> Vec<[Point; 2]> {
    let mut out = Vec::new();
    let mut walked = 0.0;
    for pair in points.windows(2) {
        let ((x1, y1), (x2, y2)) = (pair[0], pair[1]);
        let long = (x2 - x1).hypot(y2 - y1);
        let at = |d: f64| (x1 + (x2 - x1) * d / long, y1 + (y2 - y1) * d / long);
        let mut done = 0.0;
        while done < long {
            let phase = walked % (on + off);
            let (drawn, step) = if phase < on { (true, on - phase) } else { (false, on + off - phase) };
            // Never so little that the sum does not change.
            let end = (done + step.max(1e-3)).min(long);
            if drawn {
                out.push([at(done), at(end)]);
            }
            (walked, done) = (walked + end - done, end);
        }
    }
    out
}

/// Moves a letter to its place.
struct Pen<'a> {
    outline: &'a mut Outline,
    from: Point,
    scale: f64,
}

impl Pen<'_> {
    fn at(&self, x: f32, y: f32) -> Corner {
        corner((self.from.0 + self.scale * f64::from(x), self.from.1 - self.scale * f64::from(y)))
    }

    fn bend(&mut self, over: Corner, to: Corner) {
        self.outline.pieces.push([self.outline.last, over, to]);
        self.outline.last = to;
    }
}

impl OutlineBuilder for Pen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let at = self.at(x, y);
        (self.outline.start, self.outline.last) = (at, at);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let to = self.at(x, y);
        self.bend(to, to);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let (over, to) = (self.at(x1, y1), self.at(x, y));
        self.bend(over, to);
    }

    /// TrueType outlines, which ours are, have none of these.
    fn curve_to(&mut self, _: f32, _: f32, _: f32, _: f32, x: f32, y: f32) {
        self.line_to(x, y);
    }

    fn close(&mut self) {
        let start = self.outline.start;
        self.bend(start, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: [u8; 3] = [0, 0, 0];

    fn drawn(outline: &Outline) -> Canvas {
        let mut canvas = Canvas::new(20, 20, [255; 3]);
        canvas.fill(outline, INK, &|_, _| 1.0);
        canvas
    }

    /// The share of the picture that is black.
    fn black(canvas: &Canvas) -> f64 {
        canvas.pixels.iter().map(|p| 1.0 - f64::from(*p) / 255.0).sum::<f64>() / 3.0
    }

    #[test]
    fn areas_are_what_they_should_be() {
        assert!((black(&drawn(&Outline::rect((2.0, 3.0), (10.0, 5.5)))) - 55.0).abs() < 0.5);
        assert!((black(&drawn(&Outline::circle((10.0, 10.0), 5.0))) - 78.5).abs() < 1.5);
        let line = Outline::stroke(&[(2.0, 10.0), (18.0, 10.0)], 2.0);
        assert!((black(&drawn(&line)) - 32.0).abs() < 0.5);
        let letter = black(&drawn(&Outline::text((3.0, 17.0), "o", 20.0, false)));
        assert!((20.0..60.0).contains(&letter), "a ring, not a disc: {letter}");
    }

    #[test]
    fn nothing_outside_and_nothing_without_end_is_drawn() {
        for at in [f64::NAN, f64::INFINITY, 1e30, -1e30] {
            let canvas = drawn(&Outline::rect((at, 5.0), (4.0, 4.0)));
            assert!(black(&canvas) < 1.0, "{at}");
        }
    }

    #[test]
    fn dashes_leave_gaps() {
        let parts = dashes(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)], (6.0, 4.0));
        assert_eq!(parts, [[(0.0, 0.0), (6.0, 0.0)], [(10.0, 0.0), (10.0, 6.0)]]);
    }
}
