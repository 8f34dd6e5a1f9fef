//! Random cases of any op, the same on every machine, so that a failure can be repeated. Knows no op.

use indexmap::IndexMap;
use kmark_core::case::Case;
use kmark_core::op::AttrKind;
use kmark_ops::Entry;

pub struct Random {
    state: u64,
    longest: u64,
}

impl Random {
    /// No size that an op leaves open is larger than `longest`.
    pub fn new(seed: u64, longest: u64) -> Random {
        Random { state: seed, longest }
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) % n
    }
    /// Sizes that break kernels: 1, odd ones, around powers of two, now and then a long one.
    fn size(&mut self) -> u64 {
        let size = match self.below(8) {
            0 => 1,
            1 => 1 << self.below(9),
            2 => (1 << (1 + self.below(9))) - 1,
            3 => (1 << self.below(9)) + 1,
            4 => 500 + self.below(2000),
            _ => 1 + self.below(100),
        };
        // Shorter ones differ among themselves as long ones do.
        if size <= self.longest { size } else { self.longest - size % 16.min(self.longest) }
    }
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
    /// A case that the op accepts; an op may refuse combinations.
    pub fn case(&mut self, entry: &Entry) -> Case {
        for _ in 0..1000 {
            if let Ok(case) = self.any(entry) {
                return case;
            }
        }
        panic!("{}: no random case is valid", entry.op.name)
    }
    fn any(&mut self, entry: &Entry) -> Result<Case, String> {
        let op = entry.op;
        let dtype = self.of(op.dtypes);
        let mut axes = IndexMap::new();
        for (i, axis) in op.axes.iter().enumerate() {
            // Only one axis is long, so that a test takes milliseconds.
            let size = match axis.tries {
                [] if i + 1 == op.axes.len() => self.size(),
                [] => self.size().min(70),
                tries => self.of(tries),
            };
            axes.insert(axis.name.to_string(), size);
        }
        let mut attrs = IndexMap::new();
        for attr in op.attrs {
            let value = match attr.kind {
                AttrKind::OneOf(words) => self.of(words).to_string(),
                AttrKind::Count(tries) | AttrKind::Size(tries) => self.of(tries).to_string(),
                AttrKind::Scale => self.of(&["auto", "auto", "0.3"]).to_string(),
                AttrKind::Positive | AttrKind::Integer => attr.default.to_string(),
            };
            attrs.insert(attr.name.to_string(), value);
        }
        op.case(dtype, &axes, &attrs, self.below(1 << 20))
    }
}
