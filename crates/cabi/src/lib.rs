//! The fault engine behind a C interface, for storage stacks that are not ours (`docs/c-abi.md`).
//!
//! `engine` has the rules and what is known of them, `queue` the way in for requests, `request` the steps of one;
//! `status` sees that no panic and no error gets across the boundary but as a number and a text. Types and functions
//! that C sees begin with `rotproof_`; the header is generated from them.
//!
//! It knows no device and carries nothing: each step tells the caller what to do next.

mod engine;
mod queue;
mod request;
mod rules;
mod status;
mod text;
