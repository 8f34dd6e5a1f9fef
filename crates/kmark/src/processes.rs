//! Processes that outlive those that started them. The host adopts what its workers leave behind, daemons included, so
//! that it can end them: nothing that an impl started runs on while others are timed, or after the run.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::HashSet;
use std::fs::{read_dir, read_to_string};
use std::process::{Child, Command};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

/// Children that are no orphans: workers, of whichever device, and those that were there before the first of them. A shell
/// may have had them before it became this program.
static KNOWN: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(|| {
    // From now on, whoever loses its parent among our descendants becomes our child. Elsewhere than on Linux, and where it
    // is refused, a process group is all that ends with its worker.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    Mutex::new(children("self").into_iter().map(|p| p.as_raw_pid() as u32).collect())
});

fn known() -> MutexGuard<'static, HashSet<u32>> {
    KNOWN.lock().unwrap_or_else(|e| e.into_inner())
}

/// Starts a child that is none of the orphans.
pub fn start(command: &mut Command) -> std::io::Result<Child> {
    let mut known = known(); // held, so that nobody ends it before it is known
    let child = command.spawn()?;
    known.insert(child.id());
    Ok(child)
}

/// A child that has ended.
pub fn forget(pid: u32) {
    known().remove(&pid);
}

/// Ends all children but those that are known, and what they leave in turn.
pub fn end_orphans() {
    for _ in 0..100 {
        let known = known();
        let orphans: Vec<Pid> =
            children("self").into_iter().filter(|p| !known.contains(&(p.as_raw_pid() as u32))).collect();
        if orphans.is_empty() {
            return;
        }
        for pid in &orphans {
            let _ = kill_process(*pid, Signal::KILL);
            let _ = waitpid(Some(*pid), WaitOptions::NOHANG);
        }
        drop(known);
        std::thread::sleep(Duration::from_millis(2)); // a killed process is there until it has let go of its memory
    }
}

/// Sends a signal to a process and to all that descend from it, whatever groups and sessions they have made.
pub fn signal_tree(root: Pid, signal: Signal) {
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        let _ = kill_process(pid, signal); // a parent first: once it stands still it has no more children
        open.extend(children(&pid.to_string()));
    }
}

/// The children of all threads of a process; an orphan may have been given to any of them.
fn children(pid: &str) -> Vec<Pid> {
    let threads = read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|t| read_to_string(t.path().join("children")).ok());
    lists.flat_map(|l| l.split(' ').filter_map(|p| Pid::from_raw(p.trim().parse().ok()?)).collect::<Vec<_>>()).collect()
}
