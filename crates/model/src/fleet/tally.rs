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

/// Points in time at which losses are counted.
pub const COURSE_POINTS: usize = 50;

/// Groups that lost something by each of the points in time, evenly spread over the years, the last at their end.
#[derive(Clone, Debug, PartialEq)]
struct Course([Sum; COURSE_POINTS]);

impl Default for Course {
    fn default() -> Self {
        Self([Sum::default(); COURSE_POINTS])
    }
}

impl Course {
    fn merge(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(sum, other)| sum.merge(*other));
    }

    /// Adds what was lost when, in order.
    fn add(&mut self, losses: &[(f64, f64)], weight: f64, years: f64) {
        let mut losses = losses.iter().peekable();
        let mut lost = 0.0;
        for (point, sum) in (1..).zip(&mut self.0) {
            let at = years * f64::from(point) / COURSE_POINTS as f64;
            while let Some((_, so_far)) = losses.next_if(|(time, _)| *time <= at) {
                lost = *so_far;
            }
            if lost > 0.0 {
                sum.add(lost * weight);
            }
        }
    }

    fn estimates(&self, groups: f64) -> Vec<Estimate> {
        self.0.iter().map(|sum| sum.estimate(groups)).collect()
    }
}

/// Sums of a chunk of groups.
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// When groups lost devices.
    lost_devices_course: Course,
    /// When groups lost sectors.
    lost_sectors_course: Course,
}

/// What came of one group, with its weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupFate {
    /// By how much it counts.
    pub weight: f64,
    /// Failed devices.
    pub failures: f64,
    /// Events that damaged sectors.
    pub errors: f64,
    /// Expected number of damaged sectors that pass their checksum.
    pub silent: f64,
    /// When more devices were lost than there is parity, in years.
    pub lost_devices_at: Option<f64>,
    /// The probability that a damaged sector could not be repaired by then, each time that it grew.
    lost_sectors: Vec<(f64, f64)>,
}

impl GroupFate {
    /// At that time sectors are lost with that probability, or in as many stripes if that is more than one.
    pub fn lose_sectors(&mut self, at: f64, probability: f64) {
        let before = self.lost_sectors();
        let after = 1.0 - (1.0 - before) * (1.0 - probability.min(1.0));
        if before <= 0.0 && probability < 1.0 && probability > 0.0 {
            // Without the subtraction, so that what is rare keeps its digits.
            self.lost_sectors.push((at, probability));
        } else if after > before {
            self.lost_sectors.push((at, after));
        }
    }

    /// The probability that a damaged sector could not be repaired.
    pub fn lost_sectors(&self) -> f64 {
        self.lost_sectors.last().map_or(0.0, |&(_, probability)| probability)
    }
}

impl Tally {
    /// Of so many groups to which nothing has happened yet.
    pub fn of(groups: u64) -> Self {
        Self { groups, ..Self::default() }
    }

    /// Adds a group in which something happened in so many years.
    pub fn add(&mut self, fate: &GroupFate, years: f64) {
        let weigh = |value: f64| value * fate.weight;
        self.failures.add(weigh(fate.failures));
        self.errors.add(weigh(fate.errors));
        self.silent.add(weigh(fate.silent));
        if let Some(at) = fate.lost_devices_at {
            self.lost_devices.add(weigh(1.0));
            self.lost_devices_course.add(&[(at, 1.0)], fate.weight, years);
        }
        if !fate.lost_sectors.is_empty() {
            self.lost_sectors.add(weigh(fate.lost_sectors()));
            self.lost_sectors_course.add(&fate.lost_sectors, fate.weight, years);
        }
    }

    /// Adds the sums of another chunk.
    pub fn merge(&mut self, other: &Self) {
        self.groups += other.groups;
        self.failures.merge(other.failures);
        self.errors.merge(other.errors);
        self.silent.merge(other.silent);
        self.lost_devices.merge(other.lost_devices);
        self.lost_sectors.merge(other.lost_sectors);
        self.lost_devices_course.merge(&other.lost_devices_course);
        self.lost_sectors_course.merge(&other.lost_sectors_course);
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
            lost_devices_course: self.lost_devices_course.estimates(groups),
            lost_sectors_course: self.lost_sectors_course.estimates(groups),
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
#[derive(Clone, Debug, Default, PartialEq)]
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
    /// The groups of `lost_devices` by [`COURSE_POINTS`] times, evenly spread, the last of them the end of the years.
    pub lost_devices_course: Vec<Estimate>,
    /// The same of `lost_sectors`.
    pub lost_sectors_course: Vec<Estimate>,
}
