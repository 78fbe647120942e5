//! Metrics for Prometheus while something runs, on request: an HTTP server that knows one page, `GET /metrics`.
//!
//! [`exposition`] writes the text format, [`figures`] says what there is to tell of a run or of a stack that is served,
//! [`request`] reads what a client sends, [`server`] serves. Nothing here is asked unless somebody scrapes, and nothing that
//! runs waits for it.

mod address;
mod exposition;
mod figures;
mod request;
mod server;
mod volume;

pub use address::MetricsAddress;
pub use figures::{Observed, ServedFigures};
pub use request::{Head, read_head};
pub use server::MetricsServer;
