//! What a kernel has counted at one moment, taken from the texts of `/proc`.
//!
//! The texts are parsed by procfs-core (decision 021); here is only what it lacks or is too strict about. A text that
//! cannot be parsed is an `Err` with the reason, and what it would have told is absent.

use std::collections::BTreeMap;

use procfs_core::net::InterfaceDeviceStatus;
use procfs_core::{
    DiskStats, ExplicitSystemInfo, FromBufRead, FromBufReadSI, KernelStats, Meminfo, ProcError, VmStat,
    parse_pressure_record,
};

use crate::processes::ProcessCounters;

/// Of a whole machine. What could not be read is `None` or missing from its map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    pub cpu: Option<CpuCounters>,
    pub memory: Option<MemoryState>,
    pub swap: Option<SwapCounters>,
    /// TCP segments sent again.
    pub retransmits: Option<u64>,
    /// By the name of the interface; those that never saw a packet are left out.
    pub interfaces: BTreeMap<String, InterfaceCounters>,
    /// By the name of the device.
    pub disks: BTreeMap<String, DiskCounters>,
    /// By `cpu`, `memory`, `io`.
    pub pressure: BTreeMap<&'static str, PressureCounters>,
    /// By the name that was asked for.
    pub processes: BTreeMap<String, ProcessCounters>,
}

/// In ticks of all processors together, and events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuCounters {
    pub user: u64,
    pub system: u64,
    pub iowait: u64,
    pub interrupts_handling: u64,
    pub steal: u64,
    /// All ticks, idle ones too.
    pub total: u64,
    pub interrupts: Option<u64>,
    pub context_switches: u64,
    /// Tasks that run or could, and those that wait for I/O, at this moment.
    pub runnable: Option<u32>,
    pub blocked: Option<u32>,
}

/// In bytes, at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryState {
    pub free: u64,
    pub available: Option<u64>,
    pub buffers: u64,
    pub cached: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub swap_used: u64,
}

/// In bytes since the boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SwapCounters {
    pub read: u64,
    pub written: u64,
}

/// Since the interface is there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InterfaceCounters {
    pub received_bytes: u64,
    pub received_packets: u64,
    pub sent_bytes: u64,
    pub sent_packets: u64,
    /// Packets dropped, received and sent.
    pub dropped: u64,
}

/// Since the device is there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DiskCounters {
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Milliseconds in which it had at least one request.
    pub busy_ms: u64,
    /// Milliseconds that requests have spent in it, all added up.
    pub requests_ms: u64,
}

/// Microseconds in which some tasks, or all that were not idle, waited for the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PressureCounters {
    pub some_us: u64,
    pub full_us: Option<u64>,
}

/// The kernel counts sectors of 512 bytes, whatever those of the device are.
const SECTOR_BYTES: u64 = 512;

fn told(error: &ProcError) -> String {
    match error {
        ProcError::Incomplete(_) => "it ends too early".to_owned(),
        other => other.to_string(),
    }
}

/// `/proc/stat`.
pub(crate) fn cpu(text: &str) -> Result<CpuCounters, String> {
    // Ticks are only ever divided by ticks here, so how long one takes does not matter.
    let system = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: true,
    };
    let stat = KernelStats::from_buf_read(text.as_bytes(), &system).map_err(|error| told(&error))?;
    let total = &stat.total;
    let [iowait, irq, softirq, steal] =
        [total.iowait, total.irq, total.softirq, total.steal].map(Option::unwrap_or_default);
    // Time of guests is in that of users already (proc_stat(5)).
    let user = total.user.saturating_add(total.nice);
    let handling = irq.saturating_add(softirq);
    Ok(CpuCounters {
        user,
        system: total.system,
        iowait,
        interrupts_handling: handling,
        steal,
        total: [user, total.system, total.idle, iowait, handling, steal]
            .into_iter()
            .fold(0, u64::saturating_add),
        // procfs-core leaves it out. The first number is the sum of those behind it.
        interrupts: text
            .lines()
            .find_map(|line| line.strip_prefix("intr ")?.split_ascii_whitespace().next()?.parse().ok()),
        context_switches: stat.ctxt,
        runnable: stat.procs_running,
        blocked: stat.procs_blocked,
    })
}

/// `/proc/meminfo`.
pub(crate) fn memory(text: &str) -> Result<MemoryState, String> {
    let memory = Meminfo::from_buf_read(text.as_bytes()).map_err(|error| told(&error))?;
    Ok(MemoryState {
        free: memory.mem_free,
        available: memory.mem_available,
        buffers: memory.buffers,
        cached: memory.cached,
        dirty: memory.dirty,
        writeback: memory.writeback,
        swap_used: memory.swap_total.saturating_sub(memory.swap_free),
    })
}

/// `/proc/vmstat`, on a machine with pages of so many bytes.
pub(crate) fn swap(text: &str, page_bytes: u64) -> Result<SwapCounters, String> {
    let VmStat(counts) = VmStat::from_buf_read(text.as_bytes()).map_err(|error| told(&error))?;
    let bytes = |name: &str| {
        let pages = counts.get(name).copied().ok_or_else(|| format!("it has no {name}"))?;
        Ok::<_, String>(u64::try_from(pages).unwrap_or_default().saturating_mul(page_bytes))
    };
    Ok(SwapCounters { read: bytes("pswpin")?, written: bytes("pswpout")? })
}

/// `/proc/net/dev`, without interfaces that never saw a packet.
pub(crate) fn interfaces(text: &str) -> Result<BTreeMap<String, InterfaceCounters>, String> {
    let InterfaceDeviceStatus(all) =
        InterfaceDeviceStatus::from_buf_read(text.as_bytes()).map_err(|error| told(&error))?;
    let seen = all.into_iter().filter(|(_, status)| status.recv_packets > 0 || status.sent_packets > 0);
    let counters = seen.map(|(name, status)| {
        let counters = InterfaceCounters {
            received_bytes: status.recv_bytes,
            received_packets: status.recv_packets,
            sent_bytes: status.sent_bytes,
            sent_packets: status.sent_packets,
            dropped: status.recv_drop.saturating_add(status.sent_drop),
        };
        (name, counters)
    });
    Ok(counters.collect())
}

/// `RetransSegs` in `/proc/net/snmp`, a line of names and one of numbers for each protocol. procfs-core wants every field
/// of every protocol, so that a kernel without one of them would tell nothing.
pub(crate) fn retransmits(text: &str) -> Result<u64, String> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let found = lines.next().zip(lines.next()).and_then(|(names, numbers)| {
        let mut pairs = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
        pairs.find(|(name, _)| *name == "RetransSegs")?.1.parse().ok()
    });
    found.ok_or_else(|| "it has no retransmits of TCP".to_owned())
}

/// `/proc/diskstats`, of the devices that `is_wanted`.
pub(crate) fn disks(
    text: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, DiskCounters>, String> {
    let DiskStats(all) = DiskStats::from_buf_read(text.as_bytes()).map_err(|error| told(&error))?;
    let wanted = all.into_iter().filter(|disk| is_wanted(&disk.name));
    let counters = wanted.map(|disk| {
        let counters = DiskCounters {
            reads: disk.reads,
            writes: disk.writes,
            read_bytes: disk.sectors_read.saturating_mul(SECTOR_BYTES),
            written_bytes: disk.sectors_written.saturating_mul(SECTOR_BYTES),
            busy_ms: disk.time_in_progress,
            requests_ms: disk.weighted_time_in_progress,
        };
        (disk.name, counters)
    });
    Ok(counters.collect())
}

/// A file of `/proc/pressure`. Kernels before 5.13 have no line `full` for the CPU.
pub(crate) fn pressure(text: &str) -> Result<PressureCounters, String> {
    let total = |word: &str| {
        let line =
            text.lines().find(|line| line.strip_prefix(word).is_some_and(|rest| rest.starts_with(' ')))?;
        Some(parse_pressure_record(line).map(|record| record.total).map_err(|error| told(&error)))
    };
    let some_us = total("some").ok_or("it has no line `some`")??;
    Ok(PressureCounters { some_us, full_us: total("full").transpose()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::recorded;

    #[test]
    fn the_processors_are_read_from_a_recorded_text() {
        let found = cpu(recorded::STAT).expect("it is whole");
        assert_eq!(
            found,
            CpuCounters {
                user: 2010 + 5,
                system: 800,
                iowait: 400,
                interrupts_handling: 12 + 30,
                steal: 3,
                total: 2010 + 5 + 800 + 9000 + 400 + 12 + 30 + 3,
                interrupts: Some(123_456),
                context_switches: 987_654,
                runnable: Some(3),
                blocked: Some(1),
            }
        );
        assert!(cpu("cpu 1 2\n").is_err() && cpu("").is_err() && cpu("cpu a b c d\n").is_err());
    }

    #[test]
    fn memory_and_swap_are_bytes() {
        let found = memory(recorded::MEMINFO).expect("it is whole");
        assert_eq!((found.free, found.available), (1024 << 10, Some(4096 << 10)));
        assert_eq!(
            (found.buffers, found.cached, found.dirty, found.writeback),
            (10 << 10, 300 << 10, 7 << 10, 1 << 10)
        );
        assert_eq!(found.swap_used, (2000 - 1500) << 10);
        let found = swap(recorded::VMSTAT, 4096).expect("it is whole");
        assert_eq!(found, SwapCounters { read: 11 * 4096, written: 22 * 4096 });
        assert_eq!(swap("nr_free_pages 3\n", 4096), Err("it has no pswpin".into()));
        assert!(memory("MemTotal: 5 kB\n").is_err());
    }

    #[test]
    fn interfaces_without_traffic_are_left_out_and_retransmits_are_found_by_their_name() {
        let found = interfaces(recorded::NET_DEV).expect("it is whole");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["eth0", "lo"]);
        let wanted = InterfaceCounters {
            received_bytes: 1000,
            received_packets: 10,
            sent_bytes: 2000,
            sent_packets: 20,
            dropped: 3 + 4,
        };
        assert_eq!(found["eth0"], wanted);
        assert_eq!(retransmits(recorded::SNMP), Ok(77));
        for broken in ["", "Tcp: InSegs\nTcp: 5\n", "Tcp: RetransSegs\n", "Tcp: RetransSegs\nTcp: x\n"] {
            assert!(retransmits(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn disks_are_those_asked_for_in_bytes() {
        let found = disks(recorded::DISKSTATS, |name| name.starts_with("vd")).expect("it is whole");
        assert_eq!(found.keys().collect::<Vec<_>>(), ["vda", "vda1"]);
        let wanted = DiskCounters {
            reads: 100,
            writes: 50,
            read_bytes: 800 * 512,
            written_bytes: 400 * 512,
            busy_ms: 70,
            requests_ms: 90,
        };
        assert_eq!(found["vda"], wanted);
        assert!(disks("8 0 sda 1 2\n", |_| true).is_err());
    }

    #[test]
    fn pressure_is_read_with_and_without_its_second_line() {
        let both = "some avg10=1.00 avg60=0.50 avg300=0.10 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=56\n";
        assert_eq!(pressure(both), Ok(PressureCounters { some_us: 1234, full_us: Some(56) }));
        let one = both.lines().next().expect("a line");
        assert_eq!(pressure(one), Ok(PressureCounters { some_us: 1234, full_us: None }));
        for broken in ["", "some", "some ", "full total=1", "some avg10=x total=3", "some total=y"] {
            assert!(pressure(broken).is_err(), "{broken}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "(cpu|intr|some|full|Tcp:|MemFree:|8 0 sda)?[ -~\n]{0,200}") {
            let _ = cpu(&text);
            let _ = swap(&text, 4096);
            let _ = retransmits(&text);
            let _ = pressure(&text);
            let _ = disks(&text, |_| true);
            let _ = interfaces(&text);
        }
    }
}
