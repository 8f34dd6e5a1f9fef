//! Pictures as PNG, twice as fine as the screen: for slides, and for programs that show no SVG.

use super::raster::{Canvas, Outline, dashes};
use super::scene::{Form, Picture, Point, Shape};
use super::style::{HATCH, Look, PAPER};
use miniz_oxide::deflate::compress_to_vec_zlib;

const FINE: f64 = 2.0;
/// Pictures higher than this many pixels do not fit into other programs: they are drawn smaller.
const HIGH: f64 = 16384.0;
/// Of the compression: most of what it can do, and quick.
const LEVEL: u8 = 6;

pub fn file(picture: &Picture, dark: bool) -> Vec<u8> {
    let scale = (HIGH / picture.height).min(FINE);
    let pixels = |length: f64| (length * scale).ceil() as usize;
    let mut canvas = Canvas::new(pixels(picture.width), pixels(picture.height), PAPER.rgb(dark));
    for shape in &picture.shapes {
        paint(&mut canvas, shape, scale, dark);
    }
    encoded(&canvas, scale)
}

fn paint(canvas: &mut Canvas, shape: &Shape, scale: f64, dark: bool) {
    let look = Look::of(&shape.class);
    let at = |(x, y): Point| (x * scale, y * scale);
    let all = |points: &[Point]| points.iter().map(|p| at(*p)).collect::<Vec<_>>();
    let (area, mut lines) = match &shape.form {
        Form::Text(from, text) => {
            let wide = super::font::width(text, look.size, look.bold);
            let from = (from.0 - look.anchor * wide, from.1);
            (Some(Outline::text(at(from), text, scale * look.size, look.bold)), Vec::new())
        }
        Form::Line(from, to) => (None, vec![all(&[*from, *to])]),
        Form::Path(points) => (None, vec![all(points)]),
        Form::Cross((x, y), r) => {
            let line = |d: f64| all(&[(x - r, y - d), (x + r, y + d)]);
            (None, vec![line(*r), line(-r)])
        }
        Form::Rect((x, y), (w, h)) => {
            let edge = all(&[(*x, *y), (x + w, *y), (x + w, y + h), (*x, y + h), (*x, *y)]);
            (Some(Outline::rect(at((*x, *y)), at((*w, *h)))), vec![edge])
        }
        // Only marks are round, and have a thin edge of paper.
        Form::Circle(centre, r) => {
            let width = look.stroke.map_or(0.0, |_| look.width * scale);
            if let Some(ink) = look.stroke {
                canvas.fill(&Outline::circle(at(*centre), scale * r + width / 2.0), ink.rgb(dark), &|_, _| 1.0);
            }
            (Some(Outline::circle(at(*centre), scale * r - width / 2.0)), Vec::new())
        }
        Form::Polygon(points) => {
            let mut edge = all(points);
            let area = Outline::polygon(&edge);
            edge.extend(edge.first().copied());
            (Some(area), vec![edge])
        }
    };
    let opacity = look.opacity as f32;
    if let (Some(area), Some(ink)) = (area, look.fill) {
        match look.hatched {
            true => canvas.fill(&area, ink.rgb(dark), &|x, y| opacity * stripe(x, y, scale)),
            false => canvas.fill(&area, ink.rgb(dark), &|_, _| opacity),
        }
    }
    let Some(ink) = look.stroke else { return };
    if let Some((on, off)) = look.dash {
        let cut = |line: &Vec<Point>| dashes(line, (scale * on, scale * off)).into_iter().map(Vec::from);
        lines = lines.iter().flat_map(cut).collect();
    }
    for line in lines {
        canvas.fill(&Outline::stroke(&line, scale * look.width), ink.rgb(dark), &|_, _| opacity);
    }
}

/// How much of a pixel is on one of the slanting stripes that mark failures.
fn stripe(x: usize, y: usize, scale: f64) -> f32 {
    let (distance, wide) = (scale * HATCH.0, scale * HATCH.1);
    let across = ((x as f64 + y as f64 + 1.0) * std::f64::consts::FRAC_1_SQRT_2).rem_euclid(distance);
    let inside = (across + 0.5).min(wide - across + 0.5).max(across - distance + 0.5);
    inside.clamp(0.0, 1.0) as f32
}

fn encoded(canvas: &Canvas, scale: f64) -> Vec<u8> {
    let (row, big) = (3 * canvas.width, |n: usize| (n as u32).to_be_bytes());
    // Most rows are like the row above: each is written as what differs from that (filter 2).
    let mut lines = Vec::with_capacity(canvas.pixels.len() + canvas.height);
    for y in 0..canvas.height {
        let this = &canvas.pixels[y * row..][..row];
        lines.push(2);
        match y {
            0 => lines.extend(this),
            _ => lines.extend(this.iter().zip(&canvas.pixels[(y - 1) * row..]).map(|(a, b)| a.wrapping_sub(*b))),
        }
    }
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    let eight_bits_of_three_colours = [8, 2, 0, 0, 0];
    chunk(&mut out, b"IHDR", &[&big(canvas.width)[..], &big(canvas.height), &eight_bits_of_three_colours].concat());
    let per_metre = big((scale * 96.0 / 0.0254) as usize);
    chunk(&mut out, b"pHYs", &[&per_metre[..], &per_metre, &[1]].concat());
    chunk(&mut out, b"IDAT", &compress_to_vec_zlib(&lines, LEVEL));
    chunk(&mut out, b"IEND", &[]);
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend((data.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend(name);
    out.extend(data);
    let sum = checksum(&out[start..]);
    out.extend(sum.to_be_bytes());
}

/// CRC-32.
fn checksum(bytes: &[u8]) -> u32 {
    let shift = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::scene::Scene;

    #[test]
    fn sums_are_those_of_the_standard() {
        assert_eq!(checksum(b"IEND"), 0xae42_6082);
    }

    #[test]
    fn a_picture_is_written_pixel_by_pixel() {
        let mut scene = Scene::default();
        scene.rect((1.0, 1.0), (2.0, 2.0), "f0", "");
        let picture = scene.finish(4.0, 4.0, "", "");
        let (file, dark) = (file(&picture, false), file(&picture, true));
        assert!(dark != file && dark[..24] == file[..24]);
        assert_eq!(&file[16..24], [0, 0, 0, 8, 0, 0, 0, 8], "8 by 8 pixels");
        let at = file.windows(4).position(|w| w == b"IDAT").unwrap();
        let length = u32::from_be_bytes(file[at - 4..at].try_into().unwrap()) as usize;
        let lines = miniz_oxide::inflate::decompress_to_vec_zlib(&file[at + 4..][..length]).unwrap();
        assert_eq!(lines.len(), 8 * (1 + 3 * 8));
        assert!(lines[1..25].iter().all(|v| *v == 255), "the first row is paper");
        let third = &lines[2 * 25 + 1..][..24];
        assert_eq!(third[..9], [0, 0, 0, 0, 0, 0, 1, 0x73, 0xb3], "where the blue begins");
    }
}
