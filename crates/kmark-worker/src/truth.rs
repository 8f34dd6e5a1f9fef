//! What is right for a user's op: another process knows, and the host carries questions to it. Tensors travel in files.

use crate::seal::{Key, Seal, Way};
use kmark_core::case::Case;
use kmark_core::gate::Verify;
use kmark_core::own::Truth;
use kmark_core::tensor::View;
use kmark_core::wire::{Question, Reply, Request};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A worker's ends of the two pipes.
pub(crate) struct Line {
    requests: BufReader<File>,
    replies: File,
    incoming: Seal,
    outgoing: Seal,
}

impl Line {
    pub(crate) fn new(key: &Key, requests: BufReader<File>, replies: File) -> Line {
        Line { requests, replies, incoming: Seal::new(key, Way::Request), outgoing: Seal::new(key, Way::Reply) }
    }

    /// The next request; `None` when the host has left. `Err` says who spoke instead.
    pub(crate) fn receive(&mut self) -> Result<Option<Request>, String> {
        let mut line = Vec::new();
        match self.requests.read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => {}
            _ => return Ok(None),
        }
        let text = self.incoming.open(&line).ok_or("somebody else than the host sent a request")?;
        let request = serde_json::from_slice(text);
        request.map(Some).map_err(|e| format!("the host sent something else than a request: {e}"))
    }

    /// Whether the host still listens.
    pub(crate) fn send(&mut self, reply: &Reply) -> bool {
        let text = serde_json::to_string(reply).expect("replies are plain data");
        self.replies.write_all(self.outgoing.close(&text).as_bytes()).is_ok()
    }
}

/// Asks the host in the middle of a request.
pub(crate) struct FromHost {
    pub(crate) line: Arc<Mutex<Line>>,
    pub(crate) folder: PathBuf,
}

static FILES: AtomicU64 = AtomicU64::new(0);

impl FromHost {
    fn ask(&self, question: Question) -> Result<Reply, String> {
        let mut line = self.line.lock().map_err(|_| "the line to the host is broken")?;
        let gone = || "the host is gone".to_string();
        if !line.send(&Reply::Asks { question }) {
            return Err(gone());
        }
        match line.receive()?.ok_or_else(gone)? {
            Request::Answer { reply } => match *reply {
                Reply::Failed { message, .. } => Err(message),
                reply => Ok(reply),
            },
            other => Err(format!("the host answered a question with {other:?}")),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join(format!("{}-{}", std::process::id(), FILES.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Truth for FromHost {
    fn judge(&self, case: &Case, outputs: &View) -> Result<Verify, String> {
        let path = self.file();
        let hash = write(&path, outputs)?;
        let question = Question::Judge { case: case.clone(), outputs: path.display().to_string(), hash };
        let reply = self.ask(question);
        let _ = std::fs::remove_file(&path);
        match reply? {
            Reply::Verified { verify, .. } => Ok(verify),
            other => Err(format!("asked whether outputs are right, the answer was {other:?}")),
        }
    }

    fn make(&self, case: &Case, tensor: &str) -> Result<Vec<f64>, String> {
        let path = self.file();
        let into = path.display().to_string();
        let reply = self.ask(Question::Make { case: case.clone(), tensor: tensor.to_string(), into });
        let bytes = std::fs::read(&path);
        let _ = std::fs::remove_file(&path);
        reply?;
        let bytes = bytes.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
    }
}

/// The outputs one after the other; the hash of them all.
fn write(path: &Path, outputs: &View) -> Result<String, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut file = File::create_new(path).map_err(failed)?;
    let mut hasher = blake3::Hasher::new();
    for bytes in outputs.bytes.iter().flatten() {
        hasher.update(bytes);
        file.write_all(bytes).map_err(failed)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// What [`write`] wrote, if nobody has touched it since.
pub(crate) fn read(path: &str, hash: &str) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    let same = blake3::hash(&bytes).to_hex().as_str() == hash;
    same.then_some(bytes).ok_or_else(|| "somebody wrote to the outputs after the launch".to_string())
}
