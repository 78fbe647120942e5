//! Says of a request that does not come back, once and at once, though the run goes on; and of all of them in the end.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rotproof_load::engine::{HungEnd, HungRequest};
use rotproof_measure::Monitor;

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

/// `30 s so far: write of 4.0 KiB at 1.2 MiB of a, worker 0 in run`. What matters most comes first, as a line may be cut.
fn describe(hung: &HungRequest) -> String {
    let place = match hung.length_bytes {
        0 => String::new(),
        _ => format!(" of {} at {}", units::bytes(hung.length_bytes), units::bytes(hung.offset_bytes)),
    };
    let age = units::duration(Duration::from_nanos(hung.age_ns));
    let end = match hung.end {
        HungEnd::Waiting => format!("{age} so far"),
        HungEnd::Returned => format!("back after {age}"),
        HungEnd::GivenUp => format!("given up after {age}"),
    };
    let HungRequest { operation, object, worker, phase, .. } = hung;
    format!("{end}: {operation}{place} of {object}, worker {worker} in {phase}")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_request_is_seen_however_long_its_line_is() {
        let hung = |end, length_bytes| HungRequest {
            worker: 211,
            phase: "prefill".into(),
            operation: "write".into(),
            object: "a-file-with-a-name-that-takes-a-good-part-of-the-line".into(),
            offset_bytes: 123 << 20,
            length_bytes,
            sent_ns: 1,
            age_ns: 61_250_000_000,
            end,
        };
        let requests = [(HungEnd::Waiting, 4096), (HungEnd::Returned, 4096), (HungEnd::GivenUp, 0)]
            .map(|(end, len)| hung(end, len));
        let lines = render(&requests, Paint::OFF);
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:#?}");
        let beginnings = [
            "  3 requests under way for too long",
            "    61.2 s so far: write of 4.0 KiB at 123.0 MiB of a-file",
            "    back after 61.2 s: write of 4.0 KiB at 123.0 MiB of a-file",
            "    given up after 61.2 s: write of a-file",
        ];
        for (line, beginning) in lines.iter().zip(beginnings) {
            assert!(line.starts_with(beginning), "{line}");
        }
    }
}
