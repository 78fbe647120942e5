//! Rotproof on another machine, reached by a command such as `ssh`: lines to its standard input, lines from its standard
//! output, and its last words if it fails. Whatever it says is another machine's word and is not trusted.

use std::collections::VecDeque;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rotproof_block::error::IoContext;
use rotproof_block::{Error, ErrorKind, Result};

use crate::process_group::Process;
use crate::start_thread;

/// How a machine is reached: the beginning of a command line that runs Rotproof there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    text: String,
}

/// A line longer than this is no message.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// So many of the last lines on its standard error are quoted when it fails.
const LAST_WORDS: usize = 8;
/// How long its last words may take to arrive.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(500);

impl FromStr for Machine {
    type Err = String;

    /// A host, which is reached by ssh, or a command line such as `ssh -p 2222 me@host ./rotproof`.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('-') {
            return Err("a host belongs here, or a command that runs rotproof on one".into());
        }
        Ok(Self { text: text.to_owned() })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
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
    process: Process,
    last_words: Arc<Mutex<VecDeque<String>>>,
    /// Reads what it says on standard error. Nobody waits for it for long: somebody that the command has left behind may hold
    /// that open.
    listener: JoinHandle<()>,
}

impl Machine {
    /// Whether it names a host to log in to, and not the beginning of a command.
    pub fn is_host(&self) -> bool {
        !self.text.contains(|char: char| char.is_whitespace() || "/;|&$<>`\"'\\()".contains(char))
    }

    /// What runs Rotproof there, with these arguments, which no shell on the way may change.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = if self.is_host() {
            let mut ssh = Command::new("ssh");
            ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10", &self.text, "rotproof"]);
            ssh
        } else {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("{} \"$@\"", self.text), "sh"]);
            shell
        };
        command.args(arguments);
        command
    }

    /// Runs a verb of Rotproof there. `hear` gets every line that it prints, from a thread, and then the end.
    pub fn start(&self, verb: &str, hear: impl Fn(Heard) + Send + 'static) -> Result<Remote> {
        let mut process = Process::start(&mut self.command([verb])).doing(|| format!("starting {self}"))?;
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let (output, errors) = (process.child.stdout.take(), process.child.stderr.take());
        let kept = Arc::clone(&last_words);
        start_thread("hear", move || {
            let why = output.and_then(|output| read_lines(output, |line| hear(Heard::Line(line))));
            hear(Heard::End(why));
        })?;
        let listener = start_thread("last-words", move || {
            let keep = |line: String| {
                let mut kept = kept.lock();
                if kept.len() == LAST_WORDS {
                    kept.pop_front();
                }
                kept.push_back(line.chars().filter(|char| !char.is_control()).take(200).collect());
            };
            errors.map(|errors| read_lines(errors, keep));
        })?;
        Ok(Remote { machine: self.clone(), process, last_words, listener })
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
        let Some(input) = &mut self.process.child.stdin else { return Err(self.lost("its input is closed")) };
        let sent = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        sent.map_err(|error| self.lost(&error.to_string()))
    }

    /// Ends its input, on which it ends by itself.
    pub fn hang_up(&mut self) {
        self.process.close_input();
    }

    /// What is wrong with a machine that does not do as it should, with its last words.
    pub fn lost(&self, why: &str) -> Error {
        let said: Vec<String> = self.last_words.lock().iter().cloned().collect();
        let said = if said.is_empty() { String::new() } else { format!("; it said: {}", said.join("\n")) };
        Error::new(ErrorKind::Missing, format!("{}: {why}{said}", self.machine))
    }

    /// Waits for its last words, for a moment.
    pub fn listen_for_last_words(&self) {
        let until = Instant::now() + LAST_WORDS_WITHIN;
        while !self.listener.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;
    use crate::process::{Liveness, ProcessIdentity};

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
        let program = |text: &str| {
            let machine: Machine = text.parse().expect("one way or the other");
            machine.command(["client"]).get_program().to_owned()
        };
        for host in ["target", "me@host.example", "root@10.0.0.7"] {
            assert_eq!(program(host), "ssh", "{host}");
        }
        for command in ["./rotproof", "ssh -p 22 a rotproof", "a;b"] {
            assert_eq!(program(command), "sh", "{command}");
        }
        for wrong in ["", "  ", "-oProxyCommand=x"] {
            assert!(wrong.parse::<Machine>().is_err(), "{wrong}");
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
        let (remote, heard) = start("sh -c 'echo no such thing >&2; printf \"\\377\\n\"; exit 1'");
        assert!(matches!(next(&heard), Heard::End(Some(why)) if why.contains("UTF-8")));
        remote.listen_for_last_words();
        let error = remote.lost("it ended").to_string();
        assert!(error.contains("it ended; it said: no such thing"), "{error}");
    }

    #[test]
    fn one_that_does_not_end_by_itself_is_ended_with_all_its_children() {
        let (remote, heard) = start("sh -c 'trap \"\" HUP; echo $$; sleep 60; true'");
        let Heard::Line(pid) = next(&heard) else { panic!("it tells its number") };
        let process = ProcessIdentity::of(pid.trim().parse().expect("a number")).expect("it runs");
        assert_eq!(process.liveness(), Liveness::Alive);
        drop(remote);
        // A process that is killed runs a moment longer, in the kernel.
        let deadline = Instant::now() + Duration::from_secs(30);
        while process.liveness() == Liveness::Alive {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
