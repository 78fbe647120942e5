//! The systems and machines of Zhang, *Cooperative Data Protection*, section 4.1, as instances of [`Path`].

use crate::{
    Checksum, Device, Disk, Goal, Memory, Path, Protection, Repair, Stage, Switch, Time, Uncertain,
    fit_per_mbit, rate_of_index,
};

/// Seconds from a write to its flush, t1 - t0.
pub const FLUSH_SECONDS: f64 = 30.0;

/// Error rates of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Configuration {
    /// Errors per second and bit of its memory.
    pub memory: Uncertain,
    /// Undetected bit error rate of its disk.
    pub disk: Uncertain,
}

impl Configuration {
    /// The words for known machines, worst first.
    pub const WORDS: [&'static str; 4] = ["low-end", "consumer", "enterprise", "server"];

    /// From one of [`Configuration::WORDS`]. Memory: the worst published rate (167,066 FIT/Mbit, index 13.4), memory
    /// without error correction (25,000, index 14.2), and the best (0.56, index 18.8).
    pub fn from_word(word: &str) -> Option<Self> {
        let (fit, disk_index) = match word {
            "low-end" => (167_066.0, 10.0),
            "consumer" => (25_000.0, 12.0),
            "enterprise" => (0.56, 12.0),
            "server" => (0.56, 20.0),
            _ => return None,
        };
        Some(Self {
            memory: Uncertain::exact(fit_per_mbit(fit)),
            disk: Uncertain::exact(rate_of_index(disk_index)),
        })
    }
}

/// The words for known systems, weakest first. E2E alone is with Fletcher.
pub const WORDS: [&str; 6] = ["nc", "zfs", "e2e-xor", "e2e-fletcher", "z2-static", "z2-dynamic"];

/// From one of [`WORDS`]; the dynamic one switches at `goal`.
pub fn from_word(word: &str, goal: Goal) -> Option<Path> {
    Some(match word {
        "nc" => nc(),
        "zfs" => zfs(),
        "e2e-xor" => e2e(Checksum::xor_64()),
        "e2e-fletcher" => e2e(Checksum::fletcher_256()),
        "z2-static" => z2_static(),
        "z2-dynamic" => z2_dynamic(goal),
        _ => return None,
    })
}

/// No checksum anywhere: P(mem, t_res) + P(dsk) + P(mem, 30).
pub fn nc() -> Path {
    path("nc", [Protection::NONE, Protection::NONE, Protection::NONE], [Repair::None; 3])
}

/// Fletcher on the disk: P(mem, t_res) + P_udc(dsk, Fletcher) + P(mem, 30).
pub fn zfs() -> Path {
    let fletcher = Protection::Fixed(vec![Checksum::fletcher_256()]);
    path("zfs", [Protection::NONE, fletcher, Protection::NONE], [Repair::None; 3])
}

/// One checksum from the writer to the reader, who alone checks it:
/// P_udc(mem, C, t_res) + P_udc(dsk, C) + P_udc(mem, C, 30).
pub fn e2e(checksum: Checksum) -> Path {
    let name = match checksum.name.as_str() {
        "xor-64" => "e2e-xor".to_owned(),
        "fletcher-256" => "e2e-fletcher".to_owned(),
        other => format!("e2e-{other}"),
    };
    let all = Protection::Fixed(vec![checksum]);
    // What the reader finds wrong he reads again; for what was wrong on the disk or before it, that is too late.
    path(&name, [all.clone(), all.clone(), all], [Repair::None, Repair::None, Repair::Upstream])
}

/// Z2, xor in memory for as long as the block is there:
/// P_udc(mem, xor, t_res) + P_udc(dsk, xor and Fletcher) + P_udc(mem, xor, 30).
pub fn z2_static() -> Path {
    let [xor, both, _] = z2_checksums();
    let xor = Protection::Fixed(xor);
    path(
        "z2-static",
        [xor.clone(), Protection::Fixed(both), xor],
        [Repair::Upstream, Repair::None, Repair::Upstream],
    )
}

/// Z2 that goes over to Fletcher where xor would miss the goal: as [`z2_static`] before it, and after it
/// P_udc(mem, Fletcher, t_res) + P_udc(dsk, Fletcher) + P_udc(mem, xor, 30).
pub fn z2_dynamic(goal: Goal) -> Path {
    let [xor, both, fletcher] = z2_checksums();
    let disk = Protection::Switched { before: both, after: fletcher.clone() };
    let reader = Protection::Switched { before: xor.clone(), after: fletcher };
    let mut path = path(
        "z2-dynamic",
        [Protection::Fixed(xor), disk, reader],
        [Repair::Upstream, Repair::None, Repair::Upstream],
    );
    path.switch = Some(Switch::AtGoal(goal));
    path
}

fn z2_checksums() -> [Vec<Checksum>; 3] {
    let (xor, fletcher) = (Checksum::xor_64(), Checksum::fletcher_256());
    [vec![xor.clone()], vec![xor, fletcher.clone()], vec![fletcher]]
}

/// The life of a block: 30 s in the writer's memory, the disk, the reader's memory; on a consumer's machine until
/// [`Path::on`] says otherwise.
fn path(name: &str, protection: [Protection; 3], repair: [Repair; 3]) -> Path {
    let memory = Device::Memory(Memory::independent(Uncertain::exact(fit_per_mbit(25_000.0))));
    let disk = Device::Disk(Disk::ageless(Uncertain::exact(rate_of_index(12.0))));
    let places = [
        ("writer's memory", memory, Time::Seconds(FLUSH_SECONDS)),
        ("disk", disk, Time::Seconds(0.0)),
        ("reader's memory", memory, Time::Residency),
    ];
    let stages = places.into_iter().zip(protection).zip(repair);
    let stages = stages.map(|(((name, device, time), protection), repair)| Stage {
        name: name.into(),
        device,
        follows_configuration: true,
        time,
        protection,
        repair,
    });
    Path { name: name.into(), stages: stages.collect(), switch: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(system: &str, machine: &str, residency: f64) -> f64 {
        let machine = Configuration::from_word(machine).expect("a machine");
        let path = from_word(system, Goal::zettabyte()).expect("a system");
        path.on(machine.memory, machine.disk).undetected(residency).score()
    }

    #[test]
    fn the_published_scores_come_out() {
        // Published with one decimal, the rest cut off.
        for (system, machine, published) in [
            ("nc", "consumer", 7.4),
            ("nc", "enterprise", 7.4),
            ("nc", "server", 12.8),
            ("zfs", "enterprise", 12.8),
            ("zfs", "server", 12.8),
        ] {
            let score = score(system, machine, 1.0);
            assert!((published..published + 0.1).contains(&score), "{system} {machine}: {score}");
        }
    }

    #[test]
    fn every_word_is_a_system_and_the_better_ones_score_higher() {
        for machine in Configuration::WORDS {
            let scores: Vec<f64> = WORDS.iter().map(|system| score(system, machine, 3600.0)).collect();
            assert!(scores[0] <= scores[1] && scores[1] < scores[2] && scores[2] < scores[3], "{scores:?}");
            assert!(scores[4] <= scores[5], "{scores:?}");
        }
        assert!(from_word("raid", Goal::zettabyte()).is_none());
        assert!(Configuration::from_word("quantum").is_none());
    }
}
