//! `rotproof probe`: looks at this machine, a line for each sample, until it is told to stop.

use std::io::{self, IsTerminal, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind};
use rotproof_probe::protocol::{Hello, Sample};
use rotproof_probe::{ProbesSpec, look_on};

use crate::args::ProbeArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};
use crate::signals::cancel_on_signals;
use crate::table::clip;
use crate::units;

/// Lines between two headings.
const PAGE_LINES: usize = 20;

/// Prints samples as they come.
pub fn probe(args: &ProbeArgs, output: Output) -> Result<Exit, CommandError> {
    let spec = spec(args)?;
    let cancel = cancel_on_signals()?;
    let (asked, _kept_open) = listen()?;
    let hello = Hello::of_this_machine(spec.interval.0);
    let paint = output.stdout_paint();
    let first = if args.json { hello.to_line() } else { heading(&hello, args) };
    let mut is_read = output.line(first)?;
    let (began, mut lines, mut failed) = (Instant::now(), 0, None);
    if is_read {
        look_on(&spec, &asked, &cancel, &mut |sample| {
            let mut print = || -> Result<bool, Error> {
                if args.json {
                    return output.line(sample.to_line());
                }
                for note in &sample.notes {
                    output.note(clip(note, 80));
                }
                if lines % PAGE_LINES == 0 && !output.line(columns(paint))? {
                    return Ok(false);
                }
                lines += 1;
                output.line(row(began.elapsed(), sample))
            };
            is_read = print().unwrap_or_else(|error| {
                failed = Some(error);
                false
            });
            is_read
        });
    }
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(cancel.signal().map_or(Exit::Pass, Exit::of_signal)),
    }
}

fn spec(args: &ProbeArgs) -> Result<ProbesSpec, Error> {
    let mut spec =
        ProbesSpec { interval: args.interval, processes: args.processes.clone(), ..ProbesSpec::default() };
    let left_out = args.without.iter().try_for_each(|group| spec.leave_out(group));
    left_out.and_then(|()| spec.checked()).map_err(|why| Error::new(ErrorKind::Invalid, why))
}

/// Where each line of standard input arrives, until it ends. A terminal is left alone: there Ctrl-C is at hand, and a
/// program in its background that read from it would be stopped.
fn listen() -> Result<(Receiver<()>, Option<Sender<()>>), Error> {
    let (words, asked) = channel();
    if io::stdin().is_terminal() {
        return Ok((asked, Some(words)));
    }
    let read = move || {
        let mut bytes = [0; 256];
        loop {
            let lines = match io::stdin().read(&mut bytes) {
                Ok(0) => return,
                Ok(count) => bytes[..count].iter().filter(|&&byte| byte == b'\n').count(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Err(_) => return,
            };
            for _ in 0..lines {
                if words.send(()).is_err() {
                    return;
                }
            }
        }
    };
    std::thread::Builder::new().spawn(read).doing(|| "starting a thread for standard input".into())?;
    Ok((asked, None))
}

fn heading(hello: &Hello, args: &ProbeArgs) -> String {
    let processors = units::counted(hello.processors as u64, "processor");
    format!("{}: {processors}, every {}; Ctrl-C ends it\n", clip(&hello.host, 40), args.interval)
}

fn columns(paint: Paint) -> String {
    let groups = format!(
        "{:>19}  {:>8}  {:>18}  {:>18}  {:>4}",
        "CPU", "memory", "network, a second", "disks, a second", "disk"
    );
    let names = cells(
        ["time", "busy", "wait", "free", "received", "sent", "read", "written", "busy"].map(str::to_owned),
    );
    format!("{}\n{}", paint.dim(groups), paint.dim(names))
}

/// What a person wants to see of a sample; `--json` has all of it.
fn row(at: Duration, sample: &Sample) -> String {
    let of = |metric: &str, is_wanted: fn(&str) -> bool| {
        let found = sample.values.iter().filter(move |(known, of, _)| known.name == metric && is_wanted(of));
        found.map(|(_, _, value)| *value).reduce(|sum, value| sum + value)
    };
    let most = |metric: &str| {
        let found = sample.values.iter().filter(|(known, _, _)| known.name == metric);
        found.map(|(_, _, value)| *value).reduce(f64::max)
    };
    let share = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0}%", value * 100.0));
    let bytes = |value: Option<f64>| value.map_or("-".to_owned(), units::short_bytes);
    // What goes through these goes through others too, and would count twice.
    let is_wire = |interface: &str| interface != "lo";
    let is_disk = |disk: &str| !disk.starts_with("dm-") && !disk.starts_with("md");
    cells([
        units::short_duration(at),
        share(most("cpu.utilisation")),
        share(most("cpu.iowait")),
        bytes(most("memory.available")),
        bytes(of("network.received", is_wire)),
        bytes(of("network.sent", is_wire)),
        bytes(of("disk.read", is_disk)),
        bytes(of("disk.written", is_disk)),
        share(most("disk.utilisation")),
    ])
}

fn cells(texts: [String; 9]) -> String {
    let [at, busy, wait, free, received, sent, read, written, disk] = texts;
    format!(
        "{at:>7}  {busy:>4}  {wait:>4}  {free:>8}  {received:>8}  {sent:>8}  {read:>8}  {written:>8}  {disk:>4}"
    )
}

#[cfg(test)]
mod tests {
    use rotproof_probe::Metric;

    use super::*;

    #[test]
    fn a_sample_is_a_line_under_its_columns() {
        let metric = |name| Metric::named(name).expect(name);
        let sample = Sample {
            span: Duration::from_secs(1),
            values: [
                ("cpu.utilisation", "", 0.625),
                ("memory.available", "", 3.0 * 1073741824.0),
                ("network.received", "eth0", 1e8),
                ("network.received", "lo", 1e9),
                ("network.sent", "eth0", 2048.0),
                ("disk.read", "sda", 1e6),
                ("disk.read", "dm-0", 1e6),
                ("disk.written", "sda", 0.0),
                ("disk.written", "sdb", 4e6),
                ("disk.utilisation", "sda", 0.25),
                ("disk.utilisation", "sdb", 0.75),
            ]
            .map(|(name, of, value)| (metric(name), of.to_owned(), value))
            .to_vec(),
            ..Sample::default()
        };
        let text = format!("{}\n{}", columns(Paint::OFF), row(Duration::from_secs(12), &sample));
        insta::assert_snapshot!(text, @r"
                        CPU    memory   network, a second     disks, a second  disk
           time  busy  wait      free  received      sent      read   written  busy
         12.0 s   62%     -  3.00 GiB  95.4 MiB  2.00 KiB   977 KiB  3.81 MiB   75%
        ");
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }
}
