//! What came of the groups, added up so that the order of threads cannot change it.

/// Sums over groups of one weighed quantity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    total: f64,
    squares: f64,
}

impl Sum {
    /// Adds one group's value.
    pub fn add(&mut self, value: f64) {
        self.total += value;
        self.squares += value * value;
    }

    fn merge(&mut self, other: Self) {
        self.total += other.total;
        self.squares += other.squares;
    }

    fn estimate(self, groups: f64) -> Estimate {
        let variance = (self.squares - self.total * self.total / groups).max(0.0);
        Estimate { value: self.total, standard_error: variance.sqrt() }
    }
}

/// Sums of a chunk of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Groups.
    pub groups: u64,
    /// Failed devices.
    pub failures: Sum,
    /// Events that damaged sectors.
    pub errors: Sum,
    /// Damaged sectors that pass their checksum.
    pub silent: Sum,
    /// Groups that lost more devices than they have parity.
    pub lost_devices: Sum,
    /// Groups that lost sectors.
    pub lost_sectors: Sum,
}

/// What came of one group, with its weight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupFate {
    /// By how much it counts.
    pub weight: f64,
    /// Failed devices.
    pub failures: f64,
    /// Events that damaged sectors.
    pub errors: f64,
    /// Expected number of damaged sectors that pass their checksum.
    pub silent: f64,
    /// Whether more devices were lost than there is parity.
    pub lost_devices: bool,
    /// Whether a damaged sector could not be repaired.
    pub lost_sectors: bool,
}

impl Tally {
    /// Adds a group in which something happened.
    pub fn add(&mut self, fate: &GroupFate) {
        let weigh = |value: f64| value * fate.weight;
        self.failures.add(weigh(fate.failures));
        self.errors.add(weigh(fate.errors));
        self.silent.add(weigh(fate.silent));
        self.lost_devices.add(weigh(f64::from(u8::from(fate.lost_devices))));
        self.lost_sectors.add(weigh(f64::from(u8::from(fate.lost_sectors))));
    }

    /// Adds the sums of another chunk.
    pub fn merge(&mut self, other: &Self) {
        self.groups += other.groups;
        self.failures.merge(other.failures);
        self.errors.merge(other.errors);
        self.silent.merge(other.silent);
        self.lost_devices.merge(other.lost_devices);
        self.lost_sectors.merge(other.lost_sectors);
    }

    /// The estimates for the fleet of all groups.
    pub fn outcome(&self) -> Outcome {
        let groups = self.groups as f64;
        Outcome {
            failures: self.failures.estimate(groups),
            errors: self.errors.estimate(groups),
            silent: self.silent.estimate(groups),
            lost_devices: self.lost_devices.estimate(groups),
            lost_sectors: self.lost_sectors.estimate(groups),
        }
    }
}

/// An estimate for the whole fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Expected number in the fleet.
    pub value: f64,
    /// Standard error of the simulation; the truth is within two of them in 95 of 100 runs.
    pub standard_error: f64,
}

/// What came of a fleet, as expected numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Devices that failed.
    pub failures: Estimate,
    /// Events that damaged sectors.
    pub errors: Estimate,
    /// Damaged sectors that pass their checksum: silent corruption.
    pub silent: Estimate,
    /// Groups that lost more devices than they have parity.
    pub lost_devices: Estimate,
    /// Groups that lost sectors: found damaged with nothing left to repair them from.
    pub lost_sectors: Estimate,
}
