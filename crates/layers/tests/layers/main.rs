//! The layers as their users see them.

mod conformance;
mod dedup_layer;
mod devices;
mod fault_layer;
