//! One figure of a machine over time: the neutral form that results, reports and displays take.

use crate::rates::Metric;

/// Samples of one figure of one thing.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeSeries {
    /// Whose: the name of the machine.
    pub machine: String,
    /// What is measured.
    pub metric: Metric,
    /// Of which device, interface, resource or process; empty for the machine as a whole.
    pub instance: String,
    /// Whether that is a block device of the subject.
    pub is_of_subject: bool,
    /// When, in nanoseconds since the run began, as in the ledger. A figure per second, and a share, is that of the time
    /// since the sample before; any other is of this moment.
    pub times_ns: Vec<u64>,
    /// What; as many as times.
    pub values: Vec<f64>,
}

impl ProbeSeries {
    /// Makes one sample of each two: their mean, by the time that each stands for. The last of an odd number stays.
    pub(crate) fn halve(&mut self) {
        let mut before = None;
        let pairs = self.times_ns.chunks(2).zip(self.values.chunks(2));
        let (times_ns, values) = pairs
            .map(|(times, values)| {
                let (&[first, .., last], &[one, .., other]) = (times, values) else {
                    return (times[0], values[0]);
                };
                // How long the very first sample stands for is not known here; as long as the next.
                let span = last.saturating_sub(first) as f64;
                let first_span = before.map_or(span, |before| first.saturating_sub(before) as f64);
                before = Some(last);
                let all = first_span + span;
                let mean =
                    if all > 0.0 { (one * first_span + other * span) / all } else { (one + other) / 2.0 };
                (last, mean)
            })
            .unzip();
        (self.times_ns, self.values) = (times_ns, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates;

    #[test]
    fn two_samples_become_their_mean_by_the_time_they_stand_for() {
        let mut series = ProbeSeries {
            machine: "local".into(),
            metric: rates::CPU_UTILISATION,
            instance: String::new(),
            is_of_subject: false,
            times_ns: vec![10, 20, 30, 60, 70],
            values: vec![1.0, 3.0, 1.0, 5.0, 9.0],
        };
        series.halve();
        assert_eq!(series.times_ns, [20, 60, 70]);
        assert_eq!(series.values, [2.0, 4.0, 9.0], "10 ns at 1 and 30 ns at 5 are 4 on average");
        series.halve();
        assert_eq!(series.times_ns, [60, 70]);
    }
}
