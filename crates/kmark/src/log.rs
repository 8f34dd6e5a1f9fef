//! What workers print: the last words of each are kept for the record of a failure, and all of it goes to a file in the
//! run's folder, headed by what the worker was doing.

use kmark_core::wire::Request;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Its name in the folder of a run.
pub const FILE: &str = "impls.log";
/// A longer one is cut off: whoever prints in every launch must not fill the disk.
const MOST: u64 = 64 << 20;

/// The file, made when somebody prints something.
pub struct Log {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<File>,
    written: u64,
    /// What the last lines are about.
    heading: String,
}

impl Log {
    pub fn new(path: PathBuf) -> Log {
        Log { path, state: Mutex::default() }
    }

    /// The file, if anybody printed anything.
    pub fn written(&self) -> Option<&PathBuf> {
        self.state.lock().is_ok_and(|s| s.written > 0).then_some(&self.path)
    }

    /// A log that cannot be written is no reason to end a run.
    fn put(&self, heading: &str, words: &[u8]) {
        let Ok(mut state) = self.state.lock() else { return };
        if state.written >= MOST {
            return;
        }
        if state.file.is_none() {
            state.file = OpenOptions::new().create(true).append(true).open(&self.path).ok();
        }
        let mut text = Vec::new();
        if state.heading != heading {
            text.extend(format!("\n-- {heading}\n").as_bytes());
            state.heading = heading.to_string();
        }
        text.extend(words);
        state.written += text.len() as u64;
        if state.written >= MOST {
            text.extend(b"\n-- cut off here\n");
        }
        if let Some(file) = &mut state.file {
            let _ = file.write_all(&text);
        }
    }
}

/// The last words of a worker's output.
pub struct Tail {
    family: String,
    /// The case and the impl that it was asked about.
    about: String,
    bytes: VecDeque<u8>,
}

impl Tail {
    const KEEP: usize = 2000;

    pub fn new(family: &str) -> Tail {
        Tail { family: family.to_string(), about: "starts".into(), bytes: VecDeque::new() }
    }

    /// What it prints from now on is about this.
    pub fn asked(&mut self, request: &Request) {
        if let Request::Verify { case, impl_name, .. } | Request::Prepare { case, impl_name, .. } = request {
            self.about = format!("{} {impl_name}", case.id);
        }
    }

    pub fn follow(
        tail: &Arc<Mutex<Tail>>,
        log: Option<Arc<Log>>,
        mut from: impl Read + Send + 'static,
    ) -> JoinHandle<()> {
        let tail = Arc::clone(tail);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                let Ok(mut tail) = tail.lock() else { break };
                if let Some(log) = &log {
                    log.put(&format!("{}: {}", tail.family, tail.about), &chunk[..n]);
                }
                tail.bytes.extend(&chunk[..n]);
                let excess = tail.bytes.len().saturating_sub(Self::KEEP);
                tail.bytes.drain(..excess);
            }
        })
    }

    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_string()
    }
}
