//! A command of the user's that is told of every event, on a thread of its own: it holds nothing up.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rotproof_block::Result;
use rotproof_block::error::IoContext;
use serde::Serialize;
use serde_json::Value;

use super::events::Event;

/// Events that wait for the command at most; those beyond are dropped and counted.
const WAITING_MAX: usize = 256;

/// How long the command may run for one event before it is killed with all that it has begun.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often it is looked whether it has ended.
const INTERVAL: Duration = Duration::from_millis(10);

/// What a hook has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HookReport {
    /// Runs that ended well.
    pub done: u64,
    /// Runs that ended with an error, took too long, or could not begin.
    pub failed: u64,
    /// Events that it was not told of, as too many waited.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counts {
    done: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// A command that is told of events.
#[derive(Debug)]
pub(super) struct Hook {
    sender: Option<SyncSender<Event>>,
    counts: Arc<Counts>,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Of which volume, and how that is called.
#[derive(Clone, Debug)]
pub(super) struct Of {
    pub(super) stack: String,
    pub(super) volume: String,
}

impl Hook {
    /// One that runs `command` by a shell, for each event.
    pub(super) fn start(command: &str, of: Of) -> Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let (counts, stops): (Arc<Counts>, Arc<AtomicBool>) = Default::default();
        let (command, counted, stopped) = (command.to_owned(), Arc::clone(&counts), Arc::clone(&stops));
        let thread = std::thread::Builder::new()
            .name("rotproof-hook".into())
            .spawn(move || run(&command, &of, &receiver, &counted, &stopped))
            .doing(|| "starting the thread of a hook".into())?;
        Ok(Self { sender: Some(sender), counts, stops, thread: Some(thread) })
    }

    /// Tells it. Never waits.
    pub(super) fn tell(&self, event: &Event) {
        let Some(sender) = &self.sender else { return };
        if let Err(TrySendError::Full(_)) = sender.try_send(event.clone()) {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn report(&self) -> HookReport {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HookReport {
            done: get(&self.counts.done),
            failed: get(&self.counts.failed),
            dropped: get(&self.counts.dropped),
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        // What waits is told yet, one after the other, unless it takes long.
        drop(self.sender.take());
        let Some(thread) = self.thread.take() else { return };
        let end = Instant::now() + Duration::from_secs(2);
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(INTERVAL);
        }
        self.stops.store(true, Ordering::SeqCst);
        let _ = thread.join();
    }
}

fn run(command: &str, of: &Of, events: &Receiver<Event>, counts: &Counts, stops: &AtomicBool) {
    while let Ok(event) = events.recv() {
        if stops.load(Ordering::SeqCst) {
            return;
        }
        let is_well = begin(command, of, &event).is_ok_and(|child| ends_well(child, stops));
        let counter = if is_well { &counts.done } else { &counts.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The command has the word of the event as `$1`, and all else in its environment.
fn begin(command: &str, of: &Of, event: &Event) -> std::io::Result<Child> {
    let mut child = Command::new("/bin/sh");
    child.args(["-c", command, "rotproof", event.word]).stdin(Stdio::null()).stdout(Stdio::null());
    child
        .env("ROTPROOF_EVENT", event.word)
        .env("ROTPROOF_STACK", &of.stack)
        .env("ROTPROOF_VOLUME", &of.volume);
    child.env("ROTPROOF_DETAILS", event.details.to_string());
    for (key, value) in event.details.as_object().into_iter().flatten() {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        child.env(format!("ROTPROOF_{}", key.to_uppercase()), value);
    }
    child.process_group(0).spawn()
}

fn ends_well(mut child: Child, stops: &AtomicBool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end && !stops.load(Ordering::SeqCst) => std::thread::sleep(INTERVAL),
            _ => break,
        }
    }
    if let Ok(group) = libc::pid_t::try_from(child.id()) {
        // SAFETY: a signal to the group that the child was begun as; it has not been waited for, so the number is its own.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_is_told_what_has_happened_and_one_that_fails_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = folder.path().join("told");
        let command = format!(
            "echo \"$1 $ROTPROOF_STACK $ROTPROOF_MEMBER $ROTPROOF_WHY $ROTPROOF_DETAILS\" >> {}; test \"$1\" = member_failed",
            told.display()
        );
        let of = Of { stack: "disk".into(), volume: "0".repeat(32) };
        let hook = Hook::start(&command, of).expect("starts");
        let details = json!({ "member": 3, "why": "it's $(gone)" });
        hook.tell(&Event { word: "member_failed", details });
        hook.tell(&Event { word: "repaired", details: json!({ "bytes": 4096 }) });
        while hook.report().done + hook.report().failed < 2 {
            std::thread::sleep(INTERVAL);
        }
        assert_eq!(hook.report(), HookReport { done: 1, failed: 1, dropped: 0 });
        let told = std::fs::read_to_string(told).expect("was told");
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].starts_with("member_failed disk 3 it's $(gone) {"), "{told}");
        assert_eq!(lines[1], "repaired disk   {\"bytes\":4096}");
    }

    #[test]
    fn one_that_hangs_holds_nothing_up() {
        let of = Of { stack: "disk".into(), volume: String::new() };
        let hook = Hook::start("sleep 1000", of).expect("starts");
        for _ in 0..WAITING_MAX + 10 {
            hook.tell(&Event { word: "repaired", details: json!({}) });
        }
        assert!(hook.report().dropped >= 9, "{:?}", hook.report());
    }
}
