//! Says of a request that does not come back, once and at once, though the run goes on; and of all of them in the end.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_load::engine::{HungEnd, HungRequest, LoadOperation};
use rotproof_trial::runner::Monitor;

use crate::output::{Output, Paint};
use crate::table::clip;
use crate::units;

/// How often it is asked for such requests.
const LOOK: Duration = Duration::from_millis(200);
/// Requests that are listed in the end.
const LISTED_MAX: usize = 8;
const WIDTH: usize = 80;

/// Tells of them on standard error, as long as it is kept.
pub struct HungWatch {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl HungWatch {
    /// Begins to look.
    pub fn start(output: Output, monitor: &Arc<Monitor>) -> Self {
        let (stop, stopped) = channel::<()>();
        let monitor = Arc::clone(monitor);
        let look = move || {
            loop {
                let is_over = stopped.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout);
                for hung in monitor.take_hung() {
                    let word = output.stderr_paint().notable("hung:");
                    output.note(format_args!("{word} {}", describe(&hung)));
                }
                if is_over {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("hung".into()).spawn(look);
        Self { thread: thread.ok().map(|thread| (stop, thread)) }
    }
}

impl Drop for HungWatch {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // It prints only.
            let _ = thread.join();
        }
    }
}

/// `write of 4.0 KiB at 1.2 MiB of a, worker 0 in run: 30 s so far`.
fn describe(hung: &HungRequest) -> String {
    let place = match hung.operation {
        LoadOperation::Flush => String::new(),
        _ => format!(" of {} at {}", units::bytes(hung.length_bytes), units::bytes(hung.offset_bytes)),
    };
    let age = units::duration(Duration::from_nanos(hung.age_ns));
    let end = match hung.end {
        HungEnd::Waiting => format!("{age} so far"),
        HungEnd::Returned => format!("came back after {age}"),
        HungEnd::GivenUp => format!("given up after {age}"),
    };
    format!(
        "{}{place} of {}, worker {} in {}: {end}",
        hung.operation.word(),
        hung.object,
        hung.worker,
        hung.phase
    )
}

/// Lines about requests that took too long; none if there were none.
pub fn render(hung: &[HungRequest], paint: Paint) -> Vec<String> {
    if hung.is_empty() {
        return Vec::new();
    }
    let requests = units::counted(hung.len() as u64, "request");
    let mut lines = vec![paint.notable(format!("  {requests} under way for too long")).to_string()];
    lines.extend(hung.iter().take(LISTED_MAX).map(|hung| clip(&format!("    {}", describe(hung)), WIDTH)));
    if hung.len() > LISTED_MAX {
        lines.push("    and more; --json lists them".into());
    }
    lines
}
