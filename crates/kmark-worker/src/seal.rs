//! Lines that only host and engine can have written. Whatever runs in a worker can find its pipes and write to them, so
//! every line carries a keyed hash of its direction, its number and its text. The host draws the key, and hands it over
//! before any code of a user's is loaded.

use rustix::rand::{GetRandomFlags, getrandom};
use std::io;

/// What host and engine share, and nobody else.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// From the operating system.
    pub fn draw() -> io::Result<Key> {
        let mut bytes = [0; 32];
        match getrandom(&mut bytes, GetRandomFlags::empty())? {
            32 => Ok(Key(bytes)),
            _ => Err(io::Error::other("the system gave too few random bytes")),
        }
    }

    /// The first line of a worker's requests.
    pub fn line(&self) -> String {
        format!("{}\n", blake3::Hash::from_bytes(self.0).to_hex())
    }

    pub fn of_line(line: &str) -> Option<Key> {
        Some(Key(*blake3::Hash::from_hex(line.trim_end()).ok()?.as_bytes()))
    }
}

/// Which way a line goes.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(u8)]
pub enum Way {
    Request = 1,
    Reply = 2,
}

/// One end of one direction. Both ends count lines, so that none can be repeated, left out or moved.
pub struct Seal {
    key: Key,
    way: Way,
    count: u64,
}

impl Seal {
    pub fn new(key: &Key, way: Way) -> Seal {
        Seal { key: key.clone(), way, count: 0 }
    }

    fn next_tag(&mut self, text: &[u8]) -> blake3::Hash {
        self.count += 1;
        let mut hasher = blake3::Hasher::new_keyed(&self.key.0);
        hasher.update(&[self.way as u8]).update(&self.count.to_le_bytes()).update(text);
        hasher.finalize()
    }

    /// The line that carries `text`, which has no line break.
    pub fn close(&mut self, text: &str) -> String {
        format!("{} {text}\n", self.next_tag(text.as_bytes()).to_hex())
    }

    /// What a line carries; `None` if it is not the other end's next line.
    pub fn open<'a>(&mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let (tag, rest) = line.split_at_checked(2 * blake3::OUT_LEN)?;
        let text = rest.strip_prefix(b" ")?.strip_suffix(b"\n")?;
        // The comparison of two hashes takes the same time wherever they differ.
        (blake3::Hash::from_hex(tag).ok()? == self.next_tag(text)).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_line_of_the_other_end_opens() {
        let key = Key::draw().unwrap();
        let key_again = Key::of_line(&key.line()).unwrap();
        let (mut from, mut to) = (Seal::new(&key, Way::Reply), Seal::new(&key_again, Way::Reply));
        let (first, second) = (from.close("{}"), from.close("{}"));
        assert_eq!(to.open(first.as_bytes()), Some(&b"{}"[..]));
        assert_eq!(to.open(first.as_bytes()), None, "repeated");
        let mut to = Seal::new(&key, Way::Reply);
        assert_eq!(to.open(second.as_bytes()), None, "one was left out");
        let mut to = Seal::new(&key, Way::Request);
        assert_eq!(to.open(first.as_bytes()), None, "the other direction");
        let mut to = Seal::new(&Key::draw().unwrap(), Way::Reply);
        assert_eq!(to.open(first.as_bytes()), None, "another key");
        for forged in ["", "{}\n", "{\"is\":\"bye\"}\n", &first[..first.len() - 1], &first.replace("{}", "[]")] {
            assert_eq!(Seal::new(&key, Way::Reply).open(forged.as_bytes()), None, "{forged}");
        }
    }
}
