//! What is fuzzed: everything that reads what strangers wrote, each with what must hold whatever that is, and with inputs
//! to begin from.
//!
//! libFuzzer calls these through `fuzz/fuzz_targets/`, without end; the tests of this crate run each for a moment on
//! mutations that are the same every time. To add a target, add a module, a row to [`TARGETS`], and a file and an entry
//! of that name for cargo-fuzz; a test finds what was forgotten.

pub mod client_message;
pub mod control;
pub mod fault_rule;
pub mod fleet_file;
pub mod fuse_request;
pub mod guard_format;
pub mod import_plan;
pub mod kinds;
pub mod ledger;
pub mod metrics_request;
pub mod mutate;
pub mod nbd_client;
pub mod nbd_server;
pub mod path_file;
pub mod postgres;
pub mod probe_lines;
pub mod recording;
pub mod table;
pub mod trace;
pub mod trial_file;
pub mod vhost_request;
pub mod volume_member;
pub mod volume_parts;

/// Something that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// The name of its file in `fuzz/fuzz_targets/`.
    pub name: &'static str,
    /// Panics if something does not hold for these bytes.
    pub check: fn(&[u8]),
    /// Inputs to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [FuzzTarget; 33] = [
    FuzzTarget { name: "fault_rule", check: fault_rule::check, seeds: fault_rule::seeds },
    FuzzTarget { name: "trial_file", check: trial_file::check, seeds: trial_file::seeds },
    FuzzTarget { name: "fuse_request", check: fuse_request::check, seeds: fuse_request::seeds },
    FuzzTarget { name: "vhost_request", check: vhost_request::check, seeds: vhost_request::seeds },
    FuzzTarget { name: "nbd_client", check: nbd_client::check, seeds: nbd_client::seeds },
    FuzzTarget { name: "nbd_server", check: nbd_server::check, seeds: nbd_server::seeds },
    FuzzTarget { name: "import_fispdk", check: import_plan::check_fispdk, seeds: import_plan::seeds },
    FuzzTarget { name: "import_achilles", check: import_plan::check_achilles, seeds: import_plan::seeds },
    FuzzTarget { name: "import_fio", check: import_plan::check_fio, seeds: import_plan::fio_seeds },
    FuzzTarget { name: "path_file", check: path_file::check, seeds: path_file::seeds },
    FuzzTarget { name: "fleet_file", check: fleet_file::check, seeds: fleet_file::seeds },
    FuzzTarget { name: "ledger", check: ledger::check, seeds: ledger::seeds },
    FuzzTarget { name: "trace_spc", check: trace::check_spc, seeds: trace::seeds },
    FuzzTarget { name: "trace_msr", check: trace::check_msr, seeds: trace::seeds },
    FuzzTarget { name: "trace_blkparse", check: trace::check_blkparse, seeds: trace::seeds },
    FuzzTarget { name: "trace_blktrace", check: trace::check_blktrace, seeds: trace::seeds },
    FuzzTarget { name: "trace_fio", check: trace::check_fio, seeds: trace::seeds },
    FuzzTarget { name: "trace_disksim", check: trace::check_disksim, seeds: trace::seeds },
    FuzzTarget { name: "trace_csv", check: trace::check_csv, seeds: trace::seeds },
    FuzzTarget { name: "table", check: table::check, seeds: table::seeds },
    FuzzTarget { name: "run_report", check: table::check_run, seeds: table::run_seeds },
    FuzzTarget { name: "client_message", check: client_message::check, seeds: client_message::seeds },
    FuzzTarget { name: "control", check: control::check, seeds: control::seeds },
    FuzzTarget { name: "probe_lines", check: probe_lines::check, seeds: probe_lines::seeds },
    FuzzTarget { name: "metrics_request", check: metrics_request::check, seeds: metrics_request::seeds },
    FuzzTarget { name: "recording", check: recording::check, seeds: recording::seeds },
    FuzzTarget { name: "log_writes", check: recording::check_log, seeds: recording::log_seeds },
    FuzzTarget { name: "crash_state", check: recording::check_state, seeds: recording::state_seeds },
    FuzzTarget { name: "volume_member", check: volume_member::check, seeds: volume_member::seeds },
    FuzzTarget { name: "volume_parts", check: volume_parts::check, seeds: volume_parts::seeds },
    FuzzTarget { name: "guard_format", check: guard_format::check, seeds: guard_format::seeds },
    FuzzTarget { name: "kinds", check: kinds::check, seeds: kinds::seeds },
    FuzzTarget { name: "postgres", check: postgres::check, seeds: postgres::seeds },
];
