//! What two readings of a machine say about the time between them.
//!
//! A counter that went backwards (a device that came anew under an old name, processes that ended) says nothing, and so
//! gives no value.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counters::{
    Counters, CpuCounters, DiskCounters, InterfaceCounters, MemoryState, PressureCounters,
};
use crate::machine::Machine;
use crate::processes::ProcessCounters;

/// A figure of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in results, such as `cpu.user`.
    pub name: &'static str,
    /// What its values are.
    pub unit: Unit,
}

impl Metric {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|metric| metric.name == name)
    }
}

/// What values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Of the time since the sample before, 0 to 1.
    Share,
    /// Processors that were kept busy on average since the sample before.
    Processors,
    /// A number at this moment, or its mean since the sample before.
    Count,
    /// At this moment.
    Bytes,
    /// Events a second since the sample before.
    PerSecond,
    /// Bytes a second since the sample before.
    BytesPerSecond,
}

impl Unit {
    /// Its word in results.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Share => "share",
            Unit::Processors => "processors",
            Unit::Count => "count",
            Unit::Bytes => "bytes",
            Unit::PerSecond => "per_second",
            Unit::BytesPerSecond => "bytes_per_second",
        }
    }
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $unit:ident;)*) => {
        $(pub(crate) const $constant: Metric = Metric { name: $name, unit: Unit::$unit };)*

        impl Metric {
            /// All of them, in the order of results.
            pub const ALL: &'static [Metric] = &[$($constant),*];
        }
    };
}

metrics! {
    CPU_UTILISATION = "cpu.utilisation", Share;
    CPU_USER = "cpu.user", Share;
    CPU_SYSTEM = "cpu.system", Share;
    CPU_IOWAIT = "cpu.iowait", Share;
    CPU_INTERRUPTS_HANDLING = "cpu.interrupts_handling", Share;
    CPU_STEAL = "cpu.steal", Share;
    CPU_INTERRUPTS = "cpu.interrupts", PerSecond;
    CPU_CONTEXT_SWITCHES = "cpu.context_switches", PerSecond;
    CPU_RUNNABLE = "cpu.runnable", Count;
    CPU_BLOCKED = "cpu.blocked", Count;
    MEMORY_FREE = "memory.free", Bytes;
    MEMORY_AVAILABLE = "memory.available", Bytes;
    MEMORY_BUFFERS = "memory.buffers", Bytes;
    MEMORY_CACHED = "memory.cached", Bytes;
    MEMORY_DIRTY = "memory.dirty", Bytes;
    MEMORY_WRITEBACK = "memory.writeback", Bytes;
    MEMORY_SWAP_USED = "memory.swap_used", Bytes;
    MEMORY_SWAP_IN = "memory.swap_in", BytesPerSecond;
    MEMORY_SWAP_OUT = "memory.swap_out", BytesPerSecond;
    NETWORK_RECEIVED = "network.received", BytesPerSecond;
    NETWORK_SENT = "network.sent", BytesPerSecond;
    NETWORK_RECEIVED_PACKETS = "network.received_packets", PerSecond;
    NETWORK_SENT_PACKETS = "network.sent_packets", PerSecond;
    NETWORK_DROPPED = "network.dropped_packets", PerSecond;
    NETWORK_RETRANSMITS = "network.retransmits", PerSecond;
    DISK_READS = "disk.reads", PerSecond;
    DISK_WRITES = "disk.writes", PerSecond;
    DISK_READ = "disk.read", BytesPerSecond;
    DISK_WRITTEN = "disk.written", BytesPerSecond;
    DISK_UTILISATION = "disk.utilisation", Share;
    DISK_IN_FLIGHT = "disk.in_flight", Count;
    PRESSURE_SOME = "pressure.some", Share;
    PRESSURE_FULL = "pressure.full", Share;
    PROCESS_USER = "process.user", Processors;
    PROCESS_SYSTEM = "process.system", Processors;
    PROCESS_RESIDENT = "process.resident", Bytes;
    PROCESS_THREADS = "process.threads", Count;
    PROCESS_CONTEXT_SWITCHES = "process.context_switches", PerSecond;
}

/// Takes one value: of what, of which instance.
pub(crate) type Take<'a> = dyn FnMut(Metric, &str, f64) + 'a;

/// Says what lies between `before` and `after`, which `span` is between.
pub(crate) fn between(
    machine: &Machine,
    before: &Counters,
    after: &Counters,
    span: Duration,
    take: &mut Take<'_>,
) {
    let seconds = span.as_secs_f64();
    if seconds <= 0.0 {
        return;
    }
    if let (Some(before), Some(after)) = (&before.cpu, &after.cpu) {
        cpu(before, after, seconds, take);
    }
    if let Some(memory) = &after.memory {
        memory_state(memory, take);
    }
    if let (Some(before), Some(after)) = (&before.swap, &after.swap) {
        rate(MEMORY_SWAP_IN, "", (before.read, after.read), seconds, take);
        rate(MEMORY_SWAP_OUT, "", (before.written, after.written), seconds, take);
    }
    for (name, before, after) in both(&before.interfaces, &after.interfaces) {
        interface(name, before, after, seconds, take);
    }
    if let (Some(before), Some(after)) = (before.retransmits, after.retransmits) {
        rate(NETWORK_RETRANSMITS, "tcp", (before, after), seconds, take);
    }
    for (name, before, after) in both(&before.disks, &after.disks) {
        disk(name, before, after, seconds, take);
    }
    for (&resource, after) in &after.pressure {
        if let Some(before) = before.pressure.get(resource) {
            pressure(resource, before, after, seconds, take);
        }
    }
    for (name, before, after) in both(&before.processes, &after.processes) {
        process(name, before, after, seconds, machine.ticks_per_second(), take);
    }
}

/// What is in both maps.
fn both<'a, T>(
    before: &'a std::collections::BTreeMap<String, T>,
    after: &'a std::collections::BTreeMap<String, T>,
) -> impl Iterator<Item = (&'a str, &'a T, &'a T)> {
    after.iter().filter_map(|(name, after)| Some((name.as_str(), before.get(name)?, after)))
}

/// How much a counter grew.
fn grown((before, after): (u64, u64)) -> Option<f64> {
    after.checked_sub(before).map(|grown| grown as f64)
}

fn rate(metric: Metric, instance: &str, counter: (u64, u64), seconds: f64, take: &mut Take<'_>) {
    if let Some(grown) = grown(counter) {
        take(metric, instance, grown / seconds);
    }
}

fn cpu(before: &CpuCounters, after: &CpuCounters, seconds: f64, take: &mut Take<'_>) {
    // Ticks rather than seconds: what the processors did is then always shares of one whole.
    if let Some(all) = grown((before.total, after.total)).filter(|&all| all > 0.0) {
        let parts = [
            (CPU_USER, before.user, after.user),
            (CPU_SYSTEM, before.system, after.system),
            (CPU_INTERRUPTS_HANDLING, before.interrupts_handling, after.interrupts_handling),
            (CPU_STEAL, before.steal, after.steal),
        ];
        // The kernel corrects single counters downwards now and then (proc_stat(5) of iowait).
        let parts = parts.map(|(metric, before, after)| (metric, after.saturating_sub(before) as f64 / all));
        let busy: f64 = parts.iter().map(|(_, share)| share).sum();
        take(CPU_UTILISATION, "", busy.min(1.0));
        parts.into_iter().for_each(|(metric, share)| take(metric, "", share.min(1.0)));
        take(CPU_IOWAIT, "", (after.iowait.saturating_sub(before.iowait) as f64 / all).min(1.0));
    }
    if let (Some(before), Some(after)) = (before.interrupts, after.interrupts) {
        rate(CPU_INTERRUPTS, "", (before, after), seconds, take);
    }
    rate(CPU_CONTEXT_SWITCHES, "", (before.context_switches, after.context_switches), seconds, take);
    for (metric, now) in [(CPU_RUNNABLE, after.runnable), (CPU_BLOCKED, after.blocked)] {
        if let Some(now) = now {
            take(metric, "", now.into());
        }
    }
}

fn memory_state(memory: &MemoryState, take: &mut Take<'_>) {
    let MemoryState { free, available, buffers, cached, dirty, writeback, swap_used } = *memory;
    for (metric, bytes) in [
        (MEMORY_FREE, Some(free)),
        (MEMORY_AVAILABLE, available),
        (MEMORY_BUFFERS, Some(buffers)),
        (MEMORY_CACHED, Some(cached)),
        (MEMORY_DIRTY, Some(dirty)),
        (MEMORY_WRITEBACK, Some(writeback)),
        (MEMORY_SWAP_USED, Some(swap_used)),
    ] {
        if let Some(bytes) = bytes {
            take(metric, "", bytes as f64);
        }
    }
}

fn interface(
    name: &str,
    before: &InterfaceCounters,
    after: &InterfaceCounters,
    seconds: f64,
    take: &mut Take<'_>,
) {
    for (metric, before, after) in [
        (NETWORK_RECEIVED, before.received_bytes, after.received_bytes),
        (NETWORK_SENT, before.sent_bytes, after.sent_bytes),
        (NETWORK_RECEIVED_PACKETS, before.received_packets, after.received_packets),
        (NETWORK_SENT_PACKETS, before.sent_packets, after.sent_packets),
        (NETWORK_DROPPED, before.dropped, after.dropped),
    ] {
        rate(metric, name, (before, after), seconds, take);
    }
}

fn disk(name: &str, before: &DiskCounters, after: &DiskCounters, seconds: f64, take: &mut Take<'_>) {
    for (metric, before, after) in [
        (DISK_READS, before.reads, after.reads),
        (DISK_WRITES, before.writes, after.writes),
        (DISK_READ, before.read_bytes, after.read_bytes),
        (DISK_WRITTEN, before.written_bytes, after.written_bytes),
    ] {
        rate(metric, name, (before, after), seconds, take);
    }
    let milliseconds = seconds * 1e3;
    if let Some(busy) = grown((before.busy_ms, after.busy_ms)) {
        take(DISK_UTILISATION, name, (busy / milliseconds).min(1.0));
    }
    // By Little's law, as iostat has its aqu-sz: the number at one moment would be that of the moment.
    if let Some(requests) = grown((before.requests_ms, after.requests_ms)) {
        take(DISK_IN_FLIGHT, name, requests / milliseconds);
    }
}

fn pressure(
    resource: &str,
    before: &PressureCounters,
    after: &PressureCounters,
    seconds: f64,
    take: &mut Take<'_>,
) {
    let full = before.full_us.zip(after.full_us);
    for (metric, counter) in [(PRESSURE_SOME, Some((before.some_us, after.some_us))), (PRESSURE_FULL, full)] {
        if let Some(microseconds) = counter.and_then(grown) {
            take(metric, resource, (microseconds / (seconds * 1e6)).min(1.0));
        }
    }
}

fn process(
    name: &str,
    before: &ProcessCounters,
    after: &ProcessCounters,
    seconds: f64,
    ticks_per_second: f64,
    take: &mut Take<'_>,
) {
    if before.generation == after.generation {
        let ticks = seconds * ticks_per_second;
        rate(PROCESS_USER, name, (before.user_ticks, after.user_ticks), ticks, take);
        rate(PROCESS_SYSTEM, name, (before.system_ticks, after.system_ticks), ticks, take);
        if let (Some(before), Some(after)) = (before.context_switches, after.context_switches) {
            rate(PROCESS_CONTEXT_SWITCHES, name, (before, after), seconds, take);
        }
    }
    take(PROCESS_RESIDENT, name, after.resident_bytes as f64);
    take(PROCESS_THREADS, name, after.threads as f64);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::recorded;
    use crate::spec::ProbesSpec;

    fn found(before: &Counters, after: &Counters, span: Duration) -> BTreeMap<(&'static str, String), f64> {
        let machine = Machine::in_folders("recorded", "/nowhere", "/nowhere", &ProbesSpec::default());
        let mut values = BTreeMap::new();
        between(&machine, before, after, span, &mut |metric, instance, value| {
            assert!(Metric::ALL.contains(&metric) && value.is_finite(), "{metric:?} {value}");
            assert!(values.insert((metric.name, instance.to_owned()), value).is_none(), "{metric:?} twice");
        });
        values
    }

    #[test]
    fn two_readings_of_recorded_texts_give_the_figures_between_them() {
        let folder = recorded::folder();
        let (proc, sys) = (folder.path().join("proc"), folder.path().join("sys"));
        let mut machine = Machine::in_folders("recorded", &proc, sys, &ProbesSpec::default());
        let before = machine.read();
        for (file, text) in [
            // 100 ticks later: 40 user, 20 system, 10 waiting, 30 idle.
            (
                "stat",
                "cpu  2050 5 820 9030 410 12 30 3 9 0\nintr 123656 1\nctxt 988654\nbtime 1\nprocesses 2\n",
            ),
            ("vmstat", "pswpin 11\npswpout 24\n"),
            ("net/dev", "a\nb\n eth0: 3000 30 0 3 0 0 0 0 2000 20 0 8 0 0 0 0\n"),
            ("net/snmp", "Tcp: RetransSegs\nTcp: 87\n"),
            ("diskstats", "254 0 vda 120 2 1800 40 40 1 400 50 1 1070 3090\n"),
            ("pressure/io", "some avg10=0 avg60=0 avg300=0 total=1200000\n"),
        ] {
            std::fs::write(proc.join(file), text).expect("written");
        }
        let found = found(&before, &machine.read(), Duration::from_secs(2));
        let value = |name: &str, instance: &str| {
            let entry = found.iter().find(|((metric, of), _)| *metric == name && of == instance);
            entry.map(|(_, value)| (value * 1e6).round() / 1e6)
        };
        for (name, instance, wanted) in [
            ("cpu.utilisation", "", Some(0.6)),
            ("cpu.user", "", Some(0.4)),
            ("cpu.system", "", Some(0.2)),
            ("cpu.iowait", "", Some(0.1)),
            ("cpu.interrupts", "", Some(100.0)),
            ("cpu.context_switches", "", Some(500.0)),
            ("cpu.runnable", "", None),
            ("memory.dirty", "", Some(7168.0)),
            ("memory.swap_in", "", Some(0.0)),
            ("memory.swap_out", "", Some(4096.0)),
            ("network.received", "eth0", Some(1000.0)),
            ("network.dropped_packets", "eth0", Some(2.0)),
            ("network.received", "lo", None),
            ("network.retransmits", "tcp", Some(5.0)),
            ("disk.reads", "vda", Some(10.0)),
            ("disk.read", "vda", Some(256_000.0)),
            ("disk.writes", "vda", None),
            ("disk.utilisation", "vda", Some(0.5)),
            ("disk.in_flight", "vda", Some(1.5)),
            ("pressure.some", "io", Some(0.1)),
            ("pressure.full", "io", None),
            ("pressure.full", "cpu", Some(0.0)),
        ] {
            assert_eq!(value(name, instance), wanted, "{name} {instance}");
        }
    }

    #[test]
    fn processes_of_another_generation_have_no_rates() {
        let one = ProcessCounters {
            user_ticks: 100,
            resident_bytes: 5,
            generation: 1,
            ..ProcessCounters::default()
        };
        let of = |process: ProcessCounters| Counters {
            processes: [("x".to_owned(), process)].into(),
            ..Counters::default()
        };
        let same = found(&of(one), &of(ProcessCounters { user_ticks: 150, ..one }), Duration::from_secs(1));
        assert_eq!(same[&("process.user", "x".into())], 0.5);
        let other = ProcessCounters { user_ticks: 150, generation: 2, ..one };
        let other = found(&of(one), &of(other), Duration::from_secs(1));
        assert!(!other.contains_key(&("process.user", "x".into())));
        assert_eq!(other[&("process.resident", "x".into())], 5.0);
        assert!(found(&of(one), &of(one), Duration::ZERO).is_empty());
    }
}
