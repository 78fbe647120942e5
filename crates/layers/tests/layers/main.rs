//! The layers as their users see them.

mod conformance;
mod devices;
mod fault_layer;
