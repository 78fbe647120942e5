//! What each client of a load did, beside what all did together.

use std::time::Duration;

use rotproof_load::Failure;
use rotproof_measure::load::clients::ClientOutcome;
use rotproof_results::run::ClientRun;

use crate::output::Paint;
use crate::table::{Align, Table, clip};
use crate::units;

/// The longest name of a client that a table shows whole.
const NAME_WIDTH: usize = 24;

/// The figures of the run, a line for each client and operation.
pub(super) fn table(clients: &[ClientOutcome], paint: Paint) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[
        ("client", Left),
        ("", Left),
        ("requests", Right),
        ("throughput", Right),
        ("IOPS", Right),
        ("p99", Right),
        ("errors", Right),
    ]);
    for client in clients {
        let mut name = name(client);
        for line in client.performance.iter().filter(|line| line.phase == "run") {
            let throughput =
                if line.bytes == 0 { String::new() } else { units::rate_or_none(line.bytes_per_second) };
            table.row([
                std::mem::take(&mut name),
                line.operation.to_string(),
                units::short_count(line.requests as f64),
                throughput,
                units::pace_or_none(line.requests_per_second),
                units::short_duration(Duration::from_nanos(line.latency_ns.p99)),
                units::count(line.errors),
            ]);
        }
    }
    table.render(paint)
}

/// How people tell it from the others: the way to it where that is short, else what its machine calls itself.
fn name(client: &ClientOutcome) -> String {
    let way = client.machine.to_string();
    if way.chars().count() <= NAME_WIDTH {
        return way;
    }
    clip(&format!("{}, workers {}..{}", client.host, client.workers.start, client.workers.end), NAME_WIDTH)
}

/// Whose a failing block is; nothing if the load has no clients.
pub(super) fn of_failure(clients: &[ClientOutcome], failure: &Failure) -> String {
    let place = (failure.object_index, failure.block);
    let owner = clients.iter().find(|client| client.failing_blocks.contains(&place));
    owner.map_or(String::new(), |client| format!(" ({})", name(client)))
}

/// For programs; nothing if the load has no clients.
pub(super) fn found(clients: &[ClientOutcome]) -> Option<Vec<ClientRun>> {
    let each = clients.iter().map(|client| ClientRun {
        client: client.machine.to_string(),
        host: client.host.clone(),
        workers: (client.workers.start, client.workers.end),
        performance: client.performance.clone(),
        errors: client.errors,
        failing_blocks: client.failing_blocks.len() as u64,
    });
    (!clients.is_empty()).then(|| each.collect())
}
