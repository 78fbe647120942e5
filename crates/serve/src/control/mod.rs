//! Control of a served stack while it is in use: rules come, go and pause, injections are looked at, hangs released.
//!
//! The protocol is JSON, a line each, over a Unix socket that only its owner may connect to (`docs/control.md`).
//! `protocol` has its words, `handler` what they mean, `session` what one connection may say and remember, `server`
//! the thread that all connections share, `client` the other end. Nothing here is on the path of a request: rules are
//! changed through [`rotproof_fault::Engine`], between two requests.

mod client;
mod handler;
mod protocol;
mod server;
mod session;

pub use client::Client;
pub use handler::{Handler, ServedStack};
pub use protocol::{Action, ErrorBody, FaultKind, Greeting, READ_BYTES_MAX, VERSION};
pub use server::{ControlLimits, ControlServer};
pub use session::{LINE_BYTES_MAX, Session};
