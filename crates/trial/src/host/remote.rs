//! Rotproof on another machine, reached by a command such as `ssh`: lines to its standard input, lines from its standard
//! output, and its last words if it fails. Whatever it says is another machine's word and is not trusted.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

/// How a machine is reached: the beginning of a command line that runs Rotproof there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    name: String,
    /// For the shell.
    command: String,
}

/// A line longer than this is no message.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// So many of the last lines on its standard error are quoted when it fails.
const LAST_WORDS: usize = 8;
/// How long it may take to end when its input has ended, and then when it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);

impl FromStr for Machine {
    type Err = String;

    /// A host, which is reached by ssh, or a command line such as `ssh -p 2222 me@host ./rotproof`.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('-') {
            return Err("a host belongs here, or a command that runs rotproof on one".into());
        }
        let is_host = !text.contains(|char: char| char.is_whitespace() || "/;|&$<>`\"'\\()".contains(char));
        let command = if is_host { format!("ssh -o BatchMode=yes {text} rotproof") } else { text.to_owned() };
        Ok(Self { name: text.to_owned(), command })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// What is heard from a machine.
#[derive(Debug)]
pub enum Heard {
    /// A line, without its end.
    Line(String),
    /// No more will come. Why, if it was not by itself.
    End(Option<String>),
}

/// Rotproof that runs there. Dropped before its end it is ended.
#[derive(Debug)]
pub struct Remote {
    machine: Machine,
    child: Child,
    input: Option<ChildStdin>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Machine {
    /// Runs a verb of Rotproof there. `hear` gets every line that it prints, from a thread, and then the end.
    ///
    /// The kernel ends it when the thread that started it ends, so that thread must outlive it.
    pub fn start(&self, verb: &str, hear: impl Fn(Heard) + Send + 'static) -> Result<Remote> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {} {verb}", self.command)]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Its own process group, so that Ctrl-C in the terminal reaches only us, and we end it in order.
        command.process_group(0);
        // SAFETY: between fork and exec only `prctl`, which is async-signal-safe, is called.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = command.spawn().doing(|| format!("starting {self}"))?;
        let input = child.stdin.take();
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let (output, errors) = (child.stdout.take(), child.stderr.take());
        let kept = Arc::clone(&last_words);
        let listen = std::thread::spawn(move || {
            let why = output.and_then(|output| read_lines(output, |line| hear(Heard::Line(line))));
            hear(Heard::End(why));
        });
        let listen_to_errors = std::thread::spawn(move || {
            let keep = |line: String| {
                let mut kept = kept.lock();
                if kept.len() == LAST_WORDS {
                    kept.pop_front();
                }
                kept.push_back(line.chars().filter(|char| !char.is_control()).take(200).collect());
            };
            errors.map(|errors| read_lines(errors, keep));
        });
        let readers = vec![listen, listen_to_errors];
        Ok(Remote { machine: self.clone(), child, input, last_words, readers })
    }
}

/// Reads lines to the end; says why if that came early.
fn read_lines(input: impl Read, mut take: impl FnMut(String)) -> Option<String> {
    let mut input = BufReader::with_capacity(64 << 10, input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) if line.last() != Some(&b'\n') && line.len() as u64 == LINE_BYTES_MAX => {
                return Some(format!("a line of more than {LINE_BYTES_MAX} bytes"));
            }
            Ok(_) => {
                let end = if line.last() == Some(&b'\n') { line.len() - 1 } else { line.len() };
                match std::str::from_utf8(&line[..end]) {
                    Ok(text) => take(text.to_owned()),
                    Err(_) => return Some("a line that is not UTF-8".to_owned()),
                }
            }
            Err(error) => return Some(error.to_string()),
        }
    }
}

impl Remote {
    /// Sends a line.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        let Some(input) = &mut self.input else { return Err(self.lost("its input is closed")) };
        let sent = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        sent.map_err(|error| self.lost(&error.to_string()))
    }

    /// Ends its input, on which it ends by itself.
    pub fn hang_up(&mut self) {
        self.input = None;
    }

    /// What is wrong with a machine that does not do as it should, with its last words.
    pub fn lost(&self, why: &str) -> Error {
        let said: Vec<String> = self.last_words.lock().iter().cloned().collect();
        let said = if said.is_empty() { String::new() } else { format!("; it said: {}", said.join("\n")) };
        Error::new(ErrorKind::Missing, format!("{}: {why}{said}", self.machine))
    }

    /// Waits for its end for a moment, so that its last words are there.
    pub fn listen_for_last_words(&mut self) {
        let until = Instant::now() + Duration::from_millis(500);
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ends_within(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.input = None;
        if !self.ends_within(PATIENCE) {
            let group = -i32::try_from(self.child.id()).unwrap_or(i32::MAX);
            // SAFETY: the group is that of a child that has not been waited for, so the number is still its own.
            unsafe { libc::kill(group, libc::SIGTERM) };
            if !self.ends_within(PATIENCE) {
                // SAFETY: as above.
                unsafe { libc::kill(group, libc::SIGKILL) };
            }
        }
        let _ = self.child.wait();
        // Somebody that it has left behind may hold its output open: nobody waits for that.
        self.readers.retain(|reader| !reader.is_finished());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn start(command: &str) -> (Remote, Receiver<Heard>) {
        let (send, heard) = channel();
        let machine: Machine = command.parse().expect("a command");
        let hear = move |heard| send.send(heard).expect("somebody listens");
        (machine.start("verb", hear).expect("starts"), heard)
    }

    fn next(heard: &Receiver<Heard>) -> Heard {
        heard.recv_timeout(Duration::from_secs(30)).expect("something is heard")
    }

    #[test]
    fn a_word_is_a_host_and_anything_else_a_command() {
        let command = |text: &str| text.parse::<Machine>().map(|machine| machine.command);
        assert_eq!(command("me@host.example"), Ok("ssh -o BatchMode=yes me@host.example rotproof".into()));
        assert_eq!(command("./rotproof"), Ok("./rotproof".into()));
        assert_eq!(command("ssh -p 22 a rotproof"), Ok("ssh -p 22 a rotproof".into()));
        for wrong in ["", "  ", "-oProxyCommand=x"] {
            assert!(command(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_go_both_ways_until_one_side_ends() {
        let (mut remote, heard) = start("sh -c 'while read line; do echo \"got $line\"; done; exit 3'");
        remote.tell("one").expect("it listens");
        assert!(matches!(next(&heard), Heard::Line(line) if line == "got one"));
        remote.hang_up();
        assert!(matches!(next(&heard), Heard::End(None)));
        assert!(remote.tell("two").is_err());
    }

    #[test]
    fn what_it_said_last_is_told_and_garbage_is_an_end() {
        let (mut remote, heard) = start("sh -c 'echo no such thing >&2; printf \"\\377\\n\"; exit 1'");
        assert!(matches!(next(&heard), Heard::End(Some(why)) if why.contains("UTF-8")));
        remote.listen_for_last_words();
        let error = remote.lost("it ended").to_string();
        assert!(error.contains("it ended; it said: no such thing"), "{error}");
    }

    #[test]
    fn one_that_does_not_end_by_itself_is_ended_with_all_its_children() {
        let (remote, heard) = start("sh -c 'trap \"\" HUP; echo $$; sleep 60; true'");
        let Heard::Line(pid) = next(&heard) else { panic!("it tells its number") };
        drop(remote);
        assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    }
}
