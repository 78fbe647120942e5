//! The control socket as its clients see it, well-behaved and hostile ones.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rotproof_block::{Context, ErrorKind, Operation, Phase, Time};
use rotproof_fault::{Data, End, EngineOptions, Header, Sites, Step, UNNAMED_SITE};
use rotproof_serve::Ready;
use rotproof_serve::control::{
    Action, Client, ControlLimits, ControlServer, Handler, LINE_BYTES_MAX, ServedStack, Session,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A control socket over an engine for a device of 1 MiB.
struct Stand {
    sites: Sites,
    socket: PathBuf,
    server: Option<ControlServer>,
    _folder: TempDir,
}

fn handler(sites: &Sites) -> Handler {
    let ready = Ready {
        name: "disk".into(),
        pid: 4711,
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        rules: 0,
        exports: Vec::new(),
        control: PathBuf::from("/nowhere"),
    };
    Handler::new(sites.clone(), ServedStack { ready, began: Instant::now() })
}

fn sites() -> Sites {
    let mut sites = Sites::default();
    sites.add(UNNAMED_SITE, EngineOptions { seed: 1, device_size: 1 << 20 }).expect("the first place");
    sites
}

impl Stand {
    fn new(limits: ControlLimits) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("socket");
        let sites = sites();
        let listener = UnixListener::bind(&socket).expect("bound");
        let server = ControlServer::start(listener, handler(&sites), limits).expect("starts");
        Self { sites, socket, server: Some(server), _folder: folder }
    }

    fn connect(&self) -> Peer {
        let stream = UnixStream::connect(&self.socket).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
        stream.set_write_timeout(Some(Duration::from_secs(60))).expect("a deadline");
        let mut peer = Peer(BufReader::new(stream));
        let greeting = peer.line().expect("it greets");
        if greeting.get("error").is_none() {
            assert_eq!(greeting, json!({ "rotproof": "control", "version": 1, "name": "disk", "pid": 4711 }));
        }
        peer
    }
}

/// The end of a client.
struct Peer(BufReader<UnixStream>);

impl Peer {
    /// The next line; `None` if the server has closed.
    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).expect("JSON in every line")),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no answer: {error}"),
        }
    }

    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("it listens");
    }

    fn ask(&mut self, text: &str) -> Value {
        self.say(&format!("{text}\n"));
        self.line().expect("an answer")
    }

    fn is_served(&mut self) -> bool {
        self.ask("{\"do\":\"status\"}").get("ok").is_some()
    }
}

fn fails(sites: &Sites, offset: u64) -> bool {
    let context = Context { phase: Phase::Run, ..Context::default() };
    let header = Header { operation: Operation::Read, offset, length: 4096, context };
    let Some(mut passage) = sites.engines()[0].gate().begin(&header, &[]) else { return false };
    loop {
        match passage.next(Data::Read(&mut [0; 4096]), || Time(0)) {
            Step::Submit => passage.submitted(true),
            Step::Complete(end) => return end != End::AsBelow,
            step => panic!("{step:?}"),
        }
    }
}

#[test]
fn rules_come_pause_go_and_are_counted() {
    let stand = Stand::new(ControlLimits::default());
    let mut client = Client::connect(&stand.socket).expect("connects");
    assert_eq!(client.greeting().name, "disk");
    let rules = serde_json::from_value(json!([
        "name=bad, read, offset=4096: error",
        { "match": { "operation": "read", "offset": 8192 }, "effect": "error", "schedule": { "every": 2 } }
    ]))
    .expect("rules");
    assert_eq!(client.ask(&Action::Add { rules }).expect("added"), json!({ "names": ["bad", "fault-2"] }));
    assert!(fails(&stand.sites, 4096) && !fails(&stand.sites, 0));
    let names = || vec!["bad".to_owned(), "fault-2".to_owned()];
    client.ask(&Action::Pause { rules: names() }).expect("paused");
    assert!(!fails(&stand.sites, 4096));
    client.ask(&Action::Resume { rules: names() }).expect("resumed");
    assert!(fails(&stand.sites, 4096));
    let listed = client.ask(&Action::List { from: 0, removed: false, targets: true }).expect("listed");
    assert_eq!(listed["rules"][0]["hits"], 2);
    assert_eq!(listed["rules"][0]["short"], "read, offset=4KiB: error");
    assert_eq!(listed["rules"][0]["targets"][0]["hits"], 2);
    assert_eq!(listed["next"], Value::Null);
    let injected = client.ask(&Action::Injections { from: None, count: 1, rule: None }).expect("hits");
    assert_eq!(
        (&injected["total"], &injected["from"], &injected["injections"][0]["offset"]),
        (&json!(2), &json!(1), &json!(4096))
    );
    let of_other = Action::Injections { from: Some(0), count: 10, rule: Some("fault-2".into()) };
    assert_eq!(client.ask(&of_other).expect("injections")["injections"], json!([]));
    client.ask(&Action::Remove { rules: names() }).expect("removed");
    assert!(!fails(&stand.sites, 4096));
    let left = client.ask(&Action::List { from: 0, removed: false, targets: false }).expect("listed");
    assert_eq!(left["rules"], json!([]));
    let status = client.ask(&Action::Status {}).expect("status");
    assert_eq!(status["rules"], json!({ "active": 0, "paused": 0, "removed": 2 }));
    assert_eq!((&status["injections"], &status["hanging"]), (&json!(2), &json!(0)));
}

#[test]
fn what_is_refused_changes_nothing_and_says_why() {
    let stand = Stand::new(ControlLimits::default());
    let mut peer = stand.connect();
    assert!(peer.ask(r#"{"id":1,"do":"add","rules":["name=a, read: error"]}"#).get("ok").is_some());
    for (request, part) in [
        (r#"{"id":2,"do":"add","rules":["name=b: zeros","name=a: ones"]}"#, "already"),
        (
            r#"{"id":2,"do":"add","rules":["write, offset=1GiB: zeros"]}"#,
            "rules[0].match.offset: 1GiB is beyond",
        ),
        (r#"{"id":2,"do":"add","rules":["target=unique: zeros"]}"#, "target"),
        (r#"{"id":2,"do":"add","rules":["during=check: zeros"]}"#, "never enabled"),
        (r#"{"id":2,"do":"add","rules":[]}"#, "no rule"),
        (r#"{"id":2,"do":"pause","rules":["a","z"]}"#, "no rule called `z`"),
        (r#"{"id":2,"do":"release","rules":["z"]}"#, "no rule called `z`"),
        (r#"{"id":2,"do":"hits","rule":"z"}"#, "no rule called `z`"),
    ] {
        let answer = peer.ask(request);
        assert_eq!((&answer["id"], &answer["error"]["kind"]), (&json!(2), &json!("invalid")), "{answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains(part), "{request}: {message}");
    }
    let states: Vec<_> = stand.sites.report().into_iter().map(|report| report.state.word()).collect();
    assert_eq!(states, ["active"]);
}

#[test]
fn lines_may_come_in_pieces_and_many_at_once_and_the_last_one_without_its_end() {
    let stand = Stand::new(ControlLimits::default());
    let mut peer = stand.connect();
    for byte in br#"{"id":1,"do":"status"}"# {
        peer.say(&char::from(*byte).to_string());
    }
    peer.say("\n\n  \r\n");
    assert_eq!(peer.line().expect("an answer")["id"], 1);
    peer.say(&(2..500).map(|id| format!("{{\"id\":{id},\"do\":\"status\"}}\n")).collect::<String>());
    peer.say(r#"{"id":500,"do":"status"}"#);
    peer.0.get_mut().shutdown(std::net::Shutdown::Write).expect("shut");
    for id in 2..=500 {
        assert_eq!(peer.line().expect("an answer")["id"], id);
    }
    assert_eq!(peer.line(), None);
}

#[test]
fn garbage_is_answered_and_the_connection_goes_on() {
    let stand = Stand::new(ControlLimits::default());
    let mut peer = stand.connect();
    for garbage in ["nonsense", "{", "\"", "[1,2", "null", "\u{0}\u{1}", "{\"do\":7}", "{\"id\":{}}"] {
        let answer = peer.ask(garbage);
        assert!(answer["error"]["kind"] == "malformed" || answer["error"]["kind"] == "invalid", "{answer}");
    }
    peer.0.get_mut().write_all(b"\xff\xfe\xfd\n").expect("it listens");
    assert_eq!(peer.line().expect("an answer")["error"]["kind"], "malformed");
    assert!(peer.is_served());
}

#[test]
fn an_endless_line_ends_its_connection_and_no_other() {
    let stand = Stand::new(ControlLimits::default());
    let mut other = stand.connect();
    let mut endless = stand.connect();
    let piece = vec![b'x'; 64 << 10];
    let mut written = 0;
    while endless.0.get_mut().write_all(&piece).is_ok() {
        written += piece.len();
        assert!(written < LINE_BYTES_MAX + (16 << 20), "it takes all that comes");
        assert!(other.is_served());
    }
    assert_eq!(endless.line().expect("it is told")["error"]["kind"], "too_long");
    assert_eq!(endless.line(), None);
    // The longest line that is taken.
    let mut longest = stand.connect();
    let start = r#"{"id":1,"do":"add","rules":["read, name="#;
    let end = r#": error"]}"#;
    let name = "n".repeat(LINE_BYTES_MAX - start.len() - end.len());
    assert!(longest.ask(&format!("{start}{name}{end}")).get("ok").is_some());
}

#[test]
fn a_crowd_of_idle_connections_makes_room_for_one_that_has_something_to_say() {
    let stand = Stand::new(ControlLimits { connections: 4, ..ControlLimits::default() });
    let mut proven = stand.connect();
    assert!(proven.is_served());
    let mut crowd: Vec<Peer> = (0..50).map(|_| stand.connect()).collect();
    assert!(proven.is_served(), "one that works stays");
    assert!(stand.connect().is_served(), "and a new one comes in");
    let told = crowd[0].line().expect("it is told");
    assert_eq!(told["error"]["kind"], "busy");
    assert_eq!(crowd[0].line(), None);
    // Four that all work: the fifth is told to wait.
    drop(crowd);
    let mut workers: Vec<Peer> = vec![proven];
    let began = Instant::now();
    while workers.len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(60), "the places of those that went stay taken");
        let mut peer = stand.connect();
        peer.say("{\"do\":\"status\"}\n");
        if peer.line().is_some_and(|answer| answer.get("ok").is_some()) {
            workers.push(peer);
        }
    }
    let stream = UnixStream::connect(&stand.socket).expect("connected");
    let mut line = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a deadline");
    // The place of the one before the last may not have been given up yet.
    BufReader::new(stream).read_line(&mut line).expect("told");
    assert!(workers.iter_mut().all(Peer::is_served), "those that work stay: {line}");
}

#[test]
fn one_that_is_slow_to_speak_or_to_listen_is_disconnected_and_one_that_is_silent_is_not() {
    let stand =
        Stand::new(ControlLimits { patience: Duration::from_millis(200), ..ControlLimits::default() });
    let (mut silent, mut slow, mut deaf) = (stand.connect(), stand.connect(), stand.connect());
    slow.say("{\"do\":");
    // More than the kernel keeps for it, none of which it reads.
    let rules: Vec<String> =
        (0..200).map(|n| format!("\"name={}{n}, read, offset=0, nth=1: error\"", "x".repeat(900))).collect();
    assert!(silent.ask(&format!("{{\"do\":\"add\",\"rules\":[{}]}}", rules.join(","))).get("ok").is_some());
    for _ in 0..20 {
        deaf.say("{\"do\":\"list\"}\n");
    }
    assert_eq!(slow.line().expect("it is told")["error"]["kind"], "too_slow");
    assert_eq!(slow.line(), None);
    let began = Instant::now();
    while deaf.0.get_mut().write_all(b"\n").is_ok() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is never cut off");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut rest = Vec::new();
    let _ = deaf.0.read_to_end(&mut rest);
    assert!(rest.len() < 20 * 200 * 900, "it was cut off: {} bytes", rest.len());
    assert!(silent.is_served());
}

#[test]
fn a_server_that_ends_lets_its_clients_know() {
    let mut stand = Stand::new(ControlLimits::default());
    let mut client = Client::connect(&stand.socket).expect("connects");
    drop(stand.server.take());
    assert_eq!(client.ask(&Action::Status {}).expect_err("gone").kind(), ErrorKind::Missing);
    assert_eq!(Client::connect(&stand.socket).expect_err("gone").kind(), ErrorKind::Missing);
}

#[test]
fn a_client_understands_neither_another_version_nor_another_program() {
    for (line, part) in [
        ("{\"rotproof\":\"control\",\"version\":2,\"name\":\"x\",\"pid\":1}\n", "version 2"),
        ("220 mail.example.org ESMTP\n", "none of the control protocol"),
        ("{\"rotproof\":\"other\",\"version\":1,\"name\":\"x\",\"pid\":1}\n", "no control socket"),
        ("{\"id\":null,\"error\":{\"kind\":\"busy\",\"message\":\"full\"}}\n", "full"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).expect("bound");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a client");
                stream.write_all(line.as_bytes()).expect("it listens");
            });
            let error = Client::connect(&socket).expect_err(line).to_string();
            assert!(error.contains(part), "{line}: {error}");
        });
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// A session in small pieces says the same as at once, whatever is said to it.
    #[test]
    fn how_a_text_is_cut_into_pieces_makes_no_difference(
        lines in proptest::collection::vec(
            "(\\{\"id\":[0-9]{1,3},\"do\":\"(status|list|hits|release)\"\\}|[ -~]{0,40}|\\{\"do\":\"add\",\"rules\":\\[\"read: error\"\\]\\})", 0..8
        ),
        cut in 1usize..40,
    ) {
        let text = lines.join("\n");
        let run = |piece: usize| {
            let mut handler = handler(&sites());
            let mut session = Session::new(&handler);
            let mut said = Vec::new();
            let mut answer_all = |session: &mut Session, said: &mut Vec<u8>| loop {
                said.extend_from_slice(session.output());
                session.was_sent(session.output().len());
                if !session.answer_next(&mut handler) {
                    break;
                }
            };
            for bytes in text.as_bytes().chunks(piece) {
                session.receive(bytes);
                answer_all(&mut session, &mut said);
            }
            session.end_of_input();
            answer_all(&mut session, &mut said);
            assert!(session.is_over());
            String::from_utf8(said).expect("UTF-8").replace("\"seconds\":1", "\"seconds\":0")
        };
        proptest::prop_assert_eq!(run(cut), run(1000));
    }
}
