//! A personality as people write it: a name, and the figures that are to be others than the published ones.
//!
//! Sources. varmail, fileserver, webserver, oltp: the workload files of filebench 1.5. Mail store: M. Fountoulakis,
//! "DARC: design and evaluation of an I/O controller for data protection", evaluation. Metadata: the phases of mdtest
//! (part of IOR).

use std::borrow::Cow;
use std::fmt;

use rotproof_spec::{Bytes, Path, Percent, Problems, WordOrMap, deserialize_word_or_map, nearest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::MapAccess;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{FILE_BYTES_MAX, FILES_MAX};

/// A load of files: what its threads do, and to which files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Personality {
    /// Which.
    pub kind: PersonalityKind,
    /// What is to be other than published.
    pub options: PersonalityOptions,
}

/// The name of a personality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalityKind {
    /// filebench: a mail server with a file for each message.
    Varmail,
    /// filebench: a file server.
    Fileserver,
    /// filebench: a web server and its log.
    Webserver,
    /// filebench: a database with readers, writers and a log.
    Oltp,
    /// DARC: mailboxes and a log.
    MailStore,
    /// mdtest: phases of operations on names.
    Metadata,
}

/// Figures of a personality; what is left out is as published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PersonalityOptions {
    /// How many files there are names for (mail_store: mailboxes; metadata: files, and as many directories).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u32>,
    /// How many threads there are (oltp: readers).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// How many threads write (oltp).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writers: Option<u32>,
    /// Entries that a directory has at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_width: Option<u32>,
    /// Mean size of a file (oltp, mail_store, metadata: the size of each).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Bytes>,
    /// Share of the files that are there before the load begins (varmail, fileserver).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocated: Option<Percent>,
    /// The largest append (varmail, fileserver, webserver).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append: Option<Bytes>,
    /// Size at which the log begins anew at its front (webserver, oltp, mail_store).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_size: Option<Bytes>,
    /// The end: how often each thread goes through its operations, instead of a `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loops: Option<u64>,
    /// Leave the files and directories of the last loop (metadata).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<bool>,
}

/// The figures of a personality, complete.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(missing_docs, reason = "as in the options")]
pub struct Figures {
    pub files: u32,
    pub threads: u32,
    pub writers: u32,
    pub directory_width: u32,
    pub file_size: u64,
    pub preallocated: f64,
    pub append: u64,
    pub log_size: u64,
    pub loops: Option<u64>,
    pub keep: bool,
}

const KINDS: [(&str, PersonalityKind); 6] = [
    ("varmail", PersonalityKind::Varmail),
    ("fileserver", PersonalityKind::Fileserver),
    ("webserver", PersonalityKind::Webserver),
    ("oltp", PersonalityKind::Oltp),
    ("mail_store", PersonalityKind::MailStore),
    ("metadata", PersonalityKind::Metadata),
];

/// Threads of a personality.
const THREADS_MAX: u32 = 1000;
/// A log that is shorter could be lapped by what is in flight.
const LOG_BYTES_MIN: u64 = 4 << 20;
/// What no log may be larger than: its blocks are numbered as a file's.
const LOG_BYTES_MAX: u64 = FILE_BYTES_MAX;

impl PersonalityKind {
    /// Its name.
    pub fn word(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }

    /// The figures as published.
    pub fn published(self) -> Figures {
        let base = Figures {
            files: 1000,
            threads: 16,
            writers: 0,
            directory_width: 1_000_000,
            file_size: 16 << 10,
            preallocated: 1.0,
            append: 16 << 10,
            log_size: 64 << 20,
            loops: None,
            keep: false,
        };
        match self {
            Self::Varmail => Figures { preallocated: 0.8, ..base },
            Self::Fileserver => Figures {
                files: 10_000,
                threads: 50,
                directory_width: 20,
                file_size: 128 << 10,
                preallocated: 0.8,
                ..base
            },
            Self::Webserver => Figures { threads: 100, directory_width: 20, ..base },
            Self::Oltp => Figures {
                files: 10,
                threads: 200,
                writers: 10,
                directory_width: 1024,
                file_size: 10 << 20,
                log_size: 10 << 20,
                ..base
            },
            Self::MailStore => Figures { directory_width: 1024, file_size: 100 << 20, ..base },
            Self::Metadata => Figures { threads: 4, file_size: 0, ..base },
        }
    }

    /// The options that mean something to it.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::Varmail | Self::Fileserver => {
                &["files", "threads", "directory_width", "file_size", "preallocated", "append", "loops"]
            }
            Self::Webserver => {
                &["files", "threads", "directory_width", "file_size", "append", "log_size", "loops"]
            }
            Self::Oltp => &["files", "threads", "writers", "file_size", "log_size", "loops"],
            Self::MailStore => &["files", "threads", "directory_width", "file_size", "log_size", "loops"],
            Self::Metadata => &["files", "threads", "directory_width", "file_size", "loops", "keep"],
        }
    }

    /// Files that each thread needs to have one to work on at every step.
    fn files_per_thread_min(self) -> u32 {
        match self {
            // One that is there and one that is not.
            Self::Varmail | Self::Fileserver => 2,
            Self::Webserver | Self::MailStore | Self::Metadata => 1,
            // All files are everybody's.
            Self::Oltp => 0,
        }
    }

    /// Bytes of what is read and written as one in place, where anything is.
    pub(super) fn slot_bytes(self) -> Option<u64> {
        match self {
            Self::Oltp => Some(2 << 10),
            // Pages of the mail store that DARC was measured with.
            Self::MailStore => Some(8 << 10),
            _ => None,
        }
    }

    /// Whether there is a log beside the files.
    pub(super) fn has_log(self) -> bool {
        matches!(self, Self::Webserver | Self::Oltp | Self::MailStore)
    }
}

impl Personality {
    /// One with the figures as published.
    pub fn published(kind: PersonalityKind) -> Self {
        Self { kind, options: PersonalityOptions::default() }
    }

    /// Its figures, complete.
    pub fn figures(&self) -> Figures {
        let (published, options) = (self.kind.published(), &self.options);
        let bytes = |given: Option<Bytes>, published| given.map_or(published, |bytes| bytes.0);
        Figures {
            files: options.files.unwrap_or(published.files),
            threads: options.threads.unwrap_or(published.threads),
            writers: options.writers.unwrap_or(published.writers),
            directory_width: options.directory_width.unwrap_or(published.directory_width),
            file_size: bytes(options.file_size, published.file_size),
            preallocated: options.preallocated.map_or(published.preallocated, |share| share.0),
            append: bytes(options.append, published.append),
            log_size: bytes(options.log_size, published.log_size),
            loops: options.loops,
            keep: options.keep.unwrap_or(false),
        }
    }

    /// Reports what makes no sense in it.
    pub fn validate(&self, path: &Path, problems: &mut Problems) {
        let path = path.key("personality").key(self.kind.word());
        for option in self.given() {
            if !self.kind.options().contains(&option.as_str()) {
                problems.add_with_help(
                    &path.key(&option),
                    format!("{} has no `{option}`", self.kind.word()),
                    format!("it knows {}", self.kind.options().join(", ")),
                );
            }
        }
        let figures = self.figures();
        let least = figures.threads.saturating_mul(self.kind.files_per_thread_min()).max(1);
        if figures.threads == 0 || figures.threads > THREADS_MAX {
            problems.add(
                &path.key("threads"),
                format!("{} threads are not possible; give 1 to {THREADS_MAX}", figures.threads),
            );
        } else if figures.files < least || figures.files > FILES_MAX {
            problems.add_with_help(
                &path.key("files"),
                format!(
                    "{} files are not possible for {} threads; give {least} to {FILES_MAX}",
                    figures.files, figures.threads
                ),
                "each thread has files of its own",
            );
        }
        if self.kind == PersonalityKind::Oltp && !(1..=THREADS_MAX).contains(&figures.writers) {
            problems.add(
                &path.key("writers"),
                format!("{} writers are not possible; give 1 to {THREADS_MAX}", figures.writers),
            );
        }
        if figures.directory_width < 2 {
            problems.add(&path.key("directory_width"), "a directory needs room for at least 2 entries");
        }
        self.validate_sizes(&figures, &path, problems);
        if figures.loops == Some(0) {
            problems.add(&path.key("loops"), "a load that ends before it begins tests nothing");
        }
    }

    fn validate_sizes(&self, figures: &Figures, path: &Path, problems: &mut Problems) {
        let size = Bytes(figures.file_size);
        let slot = self.kind.slot_bytes();
        // A gamma distribution has no end; sizes above twenty times the mean are as good as never drawn.
        let largest = if slot.is_some() {
            figures.file_size.saturating_mul(2)
        } else {
            figures.file_size.saturating_mul(32)
        };
        let least = slot.unwrap_or(u64::from(self.kind != PersonalityKind::Metadata));
        if largest > FILE_BYTES_MAX || figures.file_size < least {
            problems.add_with_help(
                &path.key("file_size"),
                format!("files of {size} are not possible"),
                format!("no file may come out larger than {}", Bytes(FILE_BYTES_MAX)),
            );
        } else if let Some(slot) = slot
            && !figures.file_size.is_multiple_of(slot)
        {
            problems.add(
                &path.key("file_size"),
                format!("{size} is no multiple of {}, which is read and written as one", Bytes(slot)),
            );
        }
        if figures.append == 0 || figures.append > 1 << 20 {
            problems.add(
                &path.key("append"),
                format!("appends of up to {} are not possible; give 1 to 1MiB", Bytes(figures.append)),
            );
        }
        let has_log = self.kind.has_log();
        if has_log && !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&figures.log_size) {
            problems.add(
                &path.key("log_size"),
                format!(
                    "a log of {} is not possible; give {} to {}",
                    Bytes(figures.log_size),
                    Bytes(LOG_BYTES_MIN),
                    Bytes(LOG_BYTES_MAX)
                ),
            );
        }
    }

    /// The names of the options that are given.
    fn given(&self) -> Vec<String> {
        match serde_json::to_value(self.options) {
            Ok(serde_json::Value::Object(map)) => map.into_iter().map(|(key, _)| key).collect(),
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Personality {
    /// As [`std::str::FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())?;
        let Ok(serde_json::Value::Object(map)) = serde_json::to_value(self.options) else { return Ok(()) };
        for (number, (key, value)) in map.iter().enumerate() {
            let mark = if number == 0 { ':' } else { ',' };
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            write!(f, "{mark}{key}={value}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Personality {
    type Err = String;

    /// For command lines: a word, or `varmail:files=200,threads=4,file_size=16KiB`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (word, options) = text.split_once(':').map_or((text, ""), |(word, options)| (word, options));
        let kind = kind_of(word).ok_or_else(|| match nearest(word, Self::WORDS.iter().copied()) {
            Some(near) => format!("there is no personality `{word}`; did you mean `{near}`?"),
            None => format!("there is no personality `{word}`; known are {}", Self::WORDS.join(", ")),
        })?;
        let mut map = serde_json::Map::new();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option
                .split_once('=')
                .ok_or_else(|| format!("`{option}` has no value; write for example files=200"))?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            map.insert(key.trim().replace('-', "_"), value);
        }
        serde_json::from_value(map.into())
            .map(|options| Self { kind, options })
            .map_err(|error| error.to_string())
    }
}

fn kind_of(word: &str) -> Option<PersonalityKind> {
    KINDS.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
}

impl WordOrMap for Personality {
    const WORDS: &'static [&'static str] =
        &["varmail", "fileserver", "webserver", "oltp", "mail_store", "metadata"];
    const EXPECTING: &'static str =
        "a personality such as varmail or { varmail: { files: 200, threads: 4 } }";

    fn from_word(word: &str) -> Option<Result<Self, String>> {
        kind_of(word).map(|kind| Ok(Self::published(kind)))
    }

    fn from_map<'de, A: MapAccess<'de>>(key: &str, map: &mut A) -> Result<Self, A::Error> {
        let kind =
            kind_of(key).ok_or_else(|| serde::de::Error::unknown_variant(key, <Self as WordOrMap>::WORDS))?;
        map.next_value().map(|options| Self { kind, options })
    }
}

impl Serialize for Personality {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.options == PersonalityOptions::default() {
            return serializer.serialize_str(self.kind.word());
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.kind.word(), &self.options)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Personality {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_word_or_map(deserializer)
    }
}

impl JsonSchema for Personality {
    fn schema_name() -> Cow<'static, str> {
        "Personality".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let options = generator.subschema_for::<PersonalityOptions>();
        let maps: serde_json::Map<String, serde_json::Value> =
            Self::WORDS.iter().map(|&word| (word.to_owned(), options.clone().to_value())).collect();
        json_schema!({
            "description": "A load of files: filebench's personalities, a mail store, mdtest's phases.",
            "anyOf": [
                { "description": "As published.", "enum": <Self as WordOrMap>::WORDS },
                {
                    "description": "With other figures.",
                    "type": "object",
                    "properties": maps,
                    "minProperties": 1,
                    "maxProperties": 1,
                    "additionalProperties": false
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let personality: Personality = text.parse().expect(text);
        let mut problems = Problems::default();
        personality.validate(&Path::root(), &mut problems);
        problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn every_personality_reads_in_files_and_on_command_lines_and_survives_its_text() {
        for word in Personality::WORDS {
            let personality: Personality = word.parse().expect(word);
            let json = serde_json::to_string(&personality).expect("can be written");
            assert_eq!(json, format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<Personality>(&json).expect("and read"), personality);
            assert_eq!(mistakes(word), [""; 0], "{word}");
        }
        let text = "varmail:file_size=8KiB,files=200,preallocated=50%,threads=4";
        let changed: Personality = text.parse().expect("well-formed");
        let json = r#"{"varmail":{"files":200,"threads":4,"file_size":"8KiB","preallocated":"50%"}}"#;
        assert_eq!(serde_json::from_str::<Personality>(json).expect("the same"), changed);
        assert_eq!(serde_json::to_string(&changed).expect("can be written"), json);
        assert_eq!(changed.to_string(), text);
        let figures = changed.figures();
        assert_eq!(
            (figures.files, figures.threads, figures.file_size, figures.append),
            (200, 4, 8192, 16384)
        );
    }

    #[test]
    fn mistakes_are_told_with_what_to_do() {
        for (text, wanted) in [
            ("varmial", "did you mean `varmail`?"),
            ("xyz", "known are varmail, fileserver"),
            ("varmail:files", "`files` has no value"),
            ("varmail:fils=3", "unknown field `fils`"),
            ("varmail:files=many", "invalid type"),
        ] {
            let found = text.parse::<Personality>().expect_err(text);
            assert!(found.contains(wanted), "{text}: {found}");
        }
        for (text, wanted) in [
            ("varmail:threads=0", "personality.varmail.threads: 0 threads are not possible; give 1 to 1000"),
            (
                "varmail:threads=4,files=7",
                "personality.varmail.files: 7 files are not possible for 4 threads; give 8 to 200000",
            ),
            (
                "webserver:preallocated=10%",
                "personality.webserver.preallocated: webserver has no `preallocated`",
            ),
            ("oltp:writers=0", "personality.oltp.writers: 0 writers are not possible; give 1 to 1000"),
            (
                "oltp:file_size=3KiB",
                "personality.oltp.file_size: 3KiB is no multiple of 2KiB, which is read and written as one",
            ),
            (
                "oltp:file_size=9007199254740992KiB",
                "personality.oltp.file_size: files of 8388608TiB are not possible",
            ),
            ("varmail:file_size=1GiB", "personality.varmail.file_size: files of 1GiB are not possible"),
            (
                "varmail:append=0",
                "personality.varmail.append: appends of up to 0 are not possible; give 1 to 1MiB",
            ),
            (
                "webserver:log_size=1KiB",
                "personality.webserver.log_size: a log of 1KiB is not possible; give 4MiB to 1GiB",
            ),
            (
                "varmail:directory_width=1",
                "personality.varmail.directory_width: a directory needs room for at least 2 entries",
            ),
            ("varmail:loops=0", "personality.varmail.loops: a load that ends before it begins tests nothing"),
        ] {
            assert_eq!(mistakes(text), [wanted], "{text}");
        }
    }

    #[test]
    fn the_published_figures_are_those_of_filebench() {
        let of = |kind: PersonalityKind| {
            let figures = kind.published();
            (figures.files, figures.directory_width, figures.file_size, figures.threads, figures.preallocated)
        };
        assert_eq!(of(PersonalityKind::Varmail), (1000, 1_000_000, 16 << 10, 16, 0.8));
        assert_eq!(of(PersonalityKind::Webserver), (1000, 20, 16 << 10, 100, 1.0));
        assert_eq!(of(PersonalityKind::Fileserver), (10_000, 20, 128 << 10, 50, 0.8));
        assert_eq!(of(PersonalityKind::Oltp), (10, 1024, 10 << 20, 200, 1.0));
        assert_eq!(PersonalityKind::Oltp.published().writers, 10);
        assert_eq!(PersonalityKind::Oltp.published().log_size, 10 << 20);
    }
}
