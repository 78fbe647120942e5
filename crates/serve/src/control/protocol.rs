//! The words of the control protocol, version 1. What they mean to users is in `docs/control.md`.
//!
//! ```text
//! server: {"rotproof":"control","version":1,"name":"disk","pid":4711}
//! client: {"id":1,"do":"add","rules":["write, once: zeros"]}
//! server: {"id":1,"ok":{"names":["fault-1"]}}
//! client: {"id":2,"do":"pause","rules":["fault-9"]}
//! server: {"id":2,"error":{"kind":"invalid","message":"there is no rule called ..."}}
//! ```

use crate::volume::VolumeTask;
use rotproof_fault::RuleEntry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Version of the protocol. It changes when a client of the old one would misunderstand the new.
pub const VERSION: u64 = 1;

/// Bytes of an id that is a text.
const ID_BYTES_MAX: usize = 64;

/// The first line of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// `control`.
    pub rotproof: String,
    /// The [`VERSION`] that the server speaks.
    pub version: u64,
    /// How the stack is called.
    pub name: String,
    /// The process that serves it.
    pub pid: u32,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// What is served, and a summary.
    Status {},
    /// Adds rules, all or none.
    Add {
        /// In the short form, or as in a trial file.
        rules: Vec<RuleEntry>,
    },
    /// The rules, a page at a time.
    List {
        /// Position of the first, from 0.
        #[serde(default)]
        from: u64,
        /// Removed ones too.
        #[serde(default)]
        removed: bool,
        /// With each, what it aims at and how often that was hit.
        #[serde(default)]
        targets: bool,
    },
    /// Pauses rules, all or none.
    Pause {
        /// Their names.
        rules: Vec<String>,
    },
    /// Lets paused rules act again, all or none.
    Resume {
        /// Their names.
        rules: Vec<String>,
    },
    /// Removes rules for good, all or none.
    Remove {
        /// Their names.
        rules: Vec<String>,
    },
    /// Lets the requests that hang now come back.
    Release {
        /// The names of the rules that hold them; absent for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rules: Option<Vec<String>>,
    },
    /// What was injected, a page at a time; `hits` is the older word for it.
    #[serde(alias = "hits")]
    Injections {
        /// Number of the first record, from 0; absent for the last ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<u64>,
        /// How many records at most.
        #[serde(default = "count_default")]
        count: u64,
        /// Only those of the rule with this name, among as many as are looked at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// What the volume in the stack is like.
    VolumeStatus {},
    /// Has something done to the volume in the stack.
    VolumeTask {
        /// What.
        task: VolumeTask,
    },
    /// How far a task has come.
    VolumeProgress {
        /// Its number.
        task: u64,
    },
    /// What one copy has of a stretch of the volume in the stack.
    VolumeRead {
        /// Which, from 0.
        copy: usize,
        /// Bytes of the volume.
        offset: u64,
        /// Bytes, at most [`READ_BYTES_MAX`].
        length: u64,
    },
}

/// Bytes that [`Action::VolumeRead`] gives at once.
pub const READ_BYTES_MAX: u64 = 64 << 10;

fn count_default() -> u64 {
    20
}

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The line is no JSON object, or its `id` is none.
    Malformed,
    /// It asks for something that does not exist, or with arguments that make no sense.
    Invalid,
    /// It is meant for another version of the protocol.
    Version,
    /// The line is too long. The connection is closed.
    TooLong,
    /// There are too many connections. The connection is closed.
    Busy,
    /// The client was too slow. The connection is closed.
    TooSlow,
    /// More was added than is kept.
    Limit,
    /// A defect of Rotproof.
    Internal,
}

/// The object under `error` of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// For programs.
    pub kind: FaultKind,
    /// For people: what is wrong, and what to do.
    pub message: String,
}

impl ErrorBody {
    pub(super) fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// A request as it was read: what to answer to, and what is asked for.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// What the reply carries; null without one.
    pub(super) id: Value,
    /// What is asked for, or why that cannot be told.
    pub(super) action: Result<Action, ErrorBody>,
}

impl Request {
    /// Reads a line. No bytes make it panic.
    pub(super) fn parse(line: &[u8]) -> Self {
        let malformed = |message: String| Self {
            id: Value::Null,
            action: Err(ErrorBody::new(FaultKind::Malformed, message)),
        };
        let mut object = match serde_json::from_slice(line) {
            Ok(Value::Object(object)) => object,
            Ok(_) => return malformed("a request is a JSON object, such as {\"do\":\"status\"}".into()),
            Err(error) => return malformed(format!("this line is no JSON: {error}")),
        };
        let id = object.remove("id").unwrap_or_default();
        let is_id = match &id {
            Value::Null | Value::Number(_) => true,
            Value::String(text) => text.len() <= ID_BYTES_MAX,
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        };
        if !is_id {
            return malformed(format!("`id` is a number or a text of at most {ID_BYTES_MAX} bytes"));
        }
        let action = match object.remove("version") {
            Some(version) if version != json!(VERSION) => Err(ErrorBody::new(
                FaultKind::Version,
                format!("this server speaks version {VERSION} of the protocol, not {version}"),
            )),
            _ => serde_json::from_value(Value::Object(object))
                .map_err(|error| ErrorBody::new(FaultKind::Invalid, error.to_string())),
        };
        Self { id, action }
    }

    /// The line of the answer, its end included.
    pub(super) fn reply(id: &Value, answer: Result<Value, ErrorBody>) -> Vec<u8> {
        let reply = match answer {
            Ok(ok) => json!({ "id": id, "ok": ok }),
            Err(error) => json!({ "id": id, "error": error }),
        };
        let mut line = reply.to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(line: &str) -> (Value, FaultKind, String) {
        let Request { id, action } = Request::parse(line.as_bytes());
        let error = action.expect_err(line);
        (id, error.kind, error.message)
    }

    #[test]
    fn what_a_client_writes_is_what_a_server_reads() {
        let rule: RuleEntry = serde_json::from_str("\"write, once: zeros\"").expect("a rule");
        let names = || vec!["a".to_owned(), "b".to_owned()];
        for action in [
            Action::Status {},
            Action::Add { rules: vec![rule] },
            Action::List { from: 3, removed: true, targets: true },
            Action::Pause { rules: names() },
            Action::Resume { rules: names() },
            Action::Remove { rules: names() },
            Action::Release { rules: None },
            Action::Release { rules: Some(names()) },
            Action::Injections { from: Some(4), count: 7, rule: Some("a".into()) },
            Action::Injections { from: None, count: 7, rule: None },
            Action::VolumeStatus {},
            Action::VolumeTask { task: VolumeTask::Rollback { version: 7 } },
            Action::VolumeTask { task: VolumeTask::Scrub { rate: Some(1) } },
            Action::VolumeProgress { task: 3 },
            Action::VolumeRead { copy: 1, offset: 4096, length: 512 },
        ] {
            let line = serde_json::to_vec(&action).expect("plain data");
            assert_eq!(Request::parse(&line).action, Ok(action));
        }
    }

    #[test]
    fn a_request_that_makes_no_sense_is_answered_with_its_id_where_it_has_one() {
        for (line, id, kind, part) in [
            ("", Value::Null, FaultKind::Malformed, "no JSON"),
            ("[]", Value::Null, FaultKind::Malformed, "JSON object"),
            ("{\"id\":[1]}", Value::Null, FaultKind::Malformed, "`id`"),
            ("{\"id\":1}", json!(1), FaultKind::Invalid, "do"),
            ("{\"id\":1,\"do\":\"explode\"}", json!(1), FaultKind::Invalid, "explode"),
            ("{\"id\":\"x\",\"do\":\"pause\"}", json!("x"), FaultKind::Invalid, "rules"),
            ("{\"id\":1,\"do\":\"status\",\"now\":1}", json!(1), FaultKind::Invalid, "now"),
            ("{\"id\":1,\"version\":2,\"do\":\"status\"}", json!(1), FaultKind::Version, "version 1"),
            (
                "{\"id\":1,\"do\":\"add\",\"rules\":[\"wirte: zeros\"]}",
                json!(1),
                FaultKind::Invalid,
                "did you mean",
            ),
        ] {
            let (found_id, found_kind, message) = complaint(line);
            assert_eq!((found_id, found_kind), (id, kind), "{line}");
            assert!(message.contains(part), "{line}: {message}");
        }
        assert!(Request::parse(b"{\"id\":1,\"version\":1,\"do\":\"status\"}").action.is_ok());
        assert!(Request::parse(b"\xff\xfe").action.is_err());
        let deep = "[".repeat(100_000);
        assert!(Request::parse(deep.as_bytes()).action.is_err(), "nesting is bounded");
    }
}
