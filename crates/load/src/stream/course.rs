//! How far a worker has come with its load: first what is not recorded, then the load proper, which ends with the first
//! of its ends, then the cool-down. Counted in requests and bytes; what ends by time, the engine sees to.

/// So many requests, and so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl Amount {
    /// More than can be reached.
    pub(crate) const ENDLESS: Self = Self { requests: u64::MAX, bytes: u64::MAX };

    fn add(&mut self, bytes: u64) {
        self.requests += 1;
        self.bytes += bytes;
    }

    fn reaches_all_of(&self, other: &Self) -> bool {
        self.requests >= other.requests && self.bytes >= other.bytes
    }

    fn reaches_any_of(&self, other: &Self) -> bool {
        self.requests >= other.requests || self.bytes >= other.bytes
    }
}

/// What a worker is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// What comes first and counts towards nothing: until all of it is reached.
    pub(crate) ramp_up: Amount,
    /// The end: as soon as any of it is reached.
    pub(crate) end: Amount,
    /// What comes after the end: until all of it is reached, or until the engine ends it.
    pub(crate) cool_down: Amount,
}

impl Plan {
    /// Nothing but a load without an end.
    pub(crate) const ENDLESS: Self = Self {
        ramp_up: Amount { requests: 0, bytes: 0 },
        end: Amount::ENDLESS,
        cool_down: Amount { requests: 0, bytes: 0 },
    };

    /// Nothing at all.
    pub(crate) const NOTHING: Self = Self { end: Amount { requests: 0, bytes: 0 }, ..Self::ENDLESS };
}

/// Counts a worker's requests against its plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    plan: Plan,
    ramped_up: Amount,
    done: Amount,
    cooled_down: Amount,
    stretch: Stretch,
}

/// What a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    RampUp,
    Load,
    CoolDown,
}

impl Course {
    pub(super) fn new(plan: Plan) -> Self {
        let zero = Amount::default();
        Self { plan, ramped_up: zero, done: zero, cooled_down: zero, stretch: Stretch::Load }
    }

    /// Whether no request is to come.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.next() == Stretch::CoolDown && self.cooled_down.reaches_all_of(&self.plan.cool_down)
    }

    /// Counts the next request.
    #[inline]
    pub(super) fn count(&mut self, bytes: u64) {
        self.stretch = self.next();
        match self.stretch {
            Stretch::RampUp => self.ramped_up.add(bytes),
            Stretch::Load => self.done.add(bytes),
            Stretch::CoolDown => self.cooled_down.add(bytes),
        }
    }

    /// What the next request belongs to.
    #[inline]
    fn next(&self) -> Stretch {
        if !self.ramped_up.reaches_all_of(&self.plan.ramp_up) {
            Stretch::RampUp
        } else if !self.done.reaches_any_of(&self.plan.end) {
            Stretch::Load
        } else {
            Stretch::CoolDown
        }
    }

    /// Whether the first requests are a ramp-up.
    pub(super) fn has_ramp_up(&self) -> bool {
        self.plan.ramp_up != Amount::default()
    }

    /// Whether the last request counted belongs to the ramp-up.
    pub(super) fn is_ramping_up(&self) -> bool {
        self.stretch == Stretch::RampUp
    }

    /// Whether the last request counted came after the end.
    pub(super) fn is_cooling_down(&self) -> bool {
        self.stretch == Stretch::CoolDown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Requests of the ramp-up, of the load and of the cool-down.
    fn lengths(plan: Plan, sizes: &[u64]) -> [usize; 3] {
        let mut course = Course::new(plan);
        let mut found = [0; 3];
        for &bytes in sizes {
            if course.has_ended() {
                break;
            }
            course.count(bytes);
            let stretch = if course.is_ramping_up() {
                0
            } else if course.is_cooling_down() {
                2
            } else {
                1
            };
            found[stretch] += 1;
        }
        found
    }

    fn amount(requests: u64, bytes: u64) -> Amount {
        Amount { requests, bytes }
    }

    #[test]
    fn the_first_of_several_ends_counts_and_a_ramp_up_comes_before_it() {
        let sizes = [10; 100];
        let plan = |ramp_up, end, cool_down| Plan { ramp_up, end, cool_down };
        let none = amount(0, 0);
        assert_eq!(lengths(plan(none, amount(5, u64::MAX), none), &sizes), [0, 5, 0]);
        assert_eq!(lengths(plan(none, amount(5, 31), none), &sizes), [0, 4, 0]);
        assert_eq!(lengths(plan(none, amount(3, 31), none), &sizes), [0, 3, 0]);
        assert_eq!(lengths(plan(amount(0, 15), amount(u64::MAX, 30), none), &sizes), [2, 3, 0]);
        assert_eq!(lengths(plan(amount(2, 0), amount(3, 30), amount(0, 11)), &sizes), [2, 3, 2]);
        assert_eq!(lengths(Plan::NOTHING, &sizes), [0; 3]);
        assert_eq!(lengths(Plan::ENDLESS, &sizes), [0, 100, 0]);
    }

    proptest! {
        #[test]
        fn a_course_is_what_sums_over_the_requests_say(
            ramp_up in (0u64..6, 0u64..60), end in (0u64..9, 0u64..90), cool_down in (0u64..6, 0u64..60),
            sizes in prop::collection::vec(0u64..20, 0..60),
        ) {
            let plan = Plan {
                ramp_up: amount(ramp_up.0, ramp_up.1),
                end: amount(end.0, end.1),
                cool_down: amount(cool_down.0, cool_down.1),
            };
            // Slow and obvious: the shortest beginning that is long enough.
            let take = |from: usize, is_enough: &dyn Fn(u64, u64) -> bool| {
                let left = &sizes[from..];
                (0..=left.len())
                    .find(|&count| is_enough(count as u64, left[..count].iter().sum()))
                    .unwrap_or(left.len())
            };
            let first = take(0, &|count, bytes| count >= ramp_up.0 && bytes >= ramp_up.1);
            let second = take(first, &|count, bytes| count >= end.0 || bytes >= end.1);
            let third = take(first + second, &|count, bytes| count >= cool_down.0 && bytes >= cool_down.1);
            prop_assert_eq!(lengths(plan, &sizes), [first, second, third]);
        }
    }
}
