//! Latent sector errors: sectors that turn unreadable while nobody looks, and are found when they are next read.
//!
//! Follows Bairavasundaram, Goodson, Pasupathy and Schindler, *An Analysis of Latent Sector Errors in Disk Drives*
//! (SIGMETRICS 2007: 1.53 million disks, 32 months), which finds that the errors of a disk are not independent but near
//! each other in place and in time; and Schroeder, Damouras and Gill, *Understanding Latent Sector Errors and How to
//! Protect Against Them* (FAST 2010, TOS 2010), which finds that fewer than 2.5% of the errors are runs of several
//! sectors, that most further errors lie within 100 sectors of the one before, that 20% to 50% of all, by drive
//! model, lie in the first 10% of the drive, and that they come in few short spans of time.

use rotproof_spec::{Bytes, Path, Percent, Problems, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DRAWN_MAX;
use super::bad_blocks::{BadBlock, rules_of};
use super::draws::Draws;
use super::form::{require_expected, require_share};
use super::number::Number;
use super::timeline::{self, YEAR, tebibytes, years};
use crate::BLOCK_BYTES;
use crate::rule::{Persistence, Rule};

/// Of the drive, the part at its beginning that has more errors.
const FRONT: f64 = 0.1;

/// Sectors that turn unreadable unnoticed, near each other in place and in time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "parameters such as rate and over")]
pub struct LatentSectorErrors {
    /// Clusters of errors for each TiB and year. Default 1, our choice.
    pub rate: Number,
    /// The rate is multiplied by this: what a small device takes to show any. Default 1.
    pub acceleration: Number,
    /// The span of the device's life that the run stands for. Default 365d.
    pub life: Span,
    /// The time of the run over which that span is laid out, from its first request on. Default: the `duration` of
    /// the load; without one, the errors are there when the run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<Span>,
    /// Share of the clusters that lie in the first tenth of the device. Default 35%: published are 20% to 50%.
    pub front: Percent,
    /// Further errors of a cluster, on average. Default 2, our choice.
    pub further: Number,
    /// Distance of a further error from the one before, on average. Default 24KiB, so that nine of ten lie within
    /// the published 100 sectors.
    pub distance: Bytes,
    /// Time from one error of a cluster to the next, on average. Default 1d, our choice.
    pub spread: Span,
    /// Share of the errors that are one block alone. Default 97.5%, as published of sectors.
    pub single: Percent,
    /// Length of the others, on average. Default 16KiB, our choice.
    pub run: Bytes,
}

impl Default for LatentSectorErrors {
    fn default() -> Self {
        Self {
            rate: Number(1.0),
            acceleration: Number(1.0),
            life: YEAR,
            over: None,
            // As they are read from text, so that they read back as the same.
            front: Percent(35.0 / 100.0),
            further: Number(2.0),
            distance: Bytes(24 << 10),
            spread: Span(std::time::Duration::from_secs(24 * 3600)),
            single: Percent(97.5 / 100.0),
            run: Bytes(16 << 10),
        }
    }
}

impl LatentSectorErrors {
    /// Clusters on a device of so many bytes, on average.
    fn clusters(&self, device_size: u64) -> f64 {
        self.rate.0 * self.acceleration.0 * tebibytes(device_size) * years(self.life)
    }

    /// Blocks of an error, on average.
    fn mean_length(&self) -> f64 {
        let run = (self.run.0 / BLOCK_BYTES) as f64;
        self.single.0 + (1.0 - self.single.0) * run
    }

    /// The blocks that go bad, in the order in which they are drawn; a cluster's follow each other.
    fn bad_blocks(&self, draws: &mut Draws, device_size: u64) -> Vec<Vec<BadBlock>> {
        let blocks = device_size.div_ceil(BLOCK_BYTES);
        let clusters = draws.count(self.clusters(device_size), DRAWN_MAX * 2);
        (0..clusters).map(|_| self.cluster(draws, blocks)).collect()
    }

    fn cluster(&self, draws: &mut Draws, blocks: u64) -> Vec<BadBlock> {
        let front = ((blocks as f64 * FRONT) as u64).clamp(1, blocks.max(1));
        let is_in_front = draws.comes_true(self.front.0) || front >= blocks;
        let mut block = if is_in_front { draws.below(front) } else { front + draws.below(blocks - front) };
        let mut share = draws.share();
        let mut bad = Vec::new();
        let further = draws.failures(self.further.0).min(DRAWN_MAX);
        for number in 0..=further {
            if number > 0 {
                block = self.neighbour(draws, block, blocks);
                share += draws.exponential(self.spread.0.as_secs_f64() / self.life.0.as_secs_f64());
            }
            let length = self.length(draws).min(blocks - block);
            // What goes bad after the span of life is no business of this run.
            if share > 1.0 {
                break;
            }
            bad.extend((block..block + length).map(|block| BadBlock { block, share }));
        }
        bad
    }

    /// A block near `block`, on either side of it.
    fn neighbour(&self, draws: &mut Draws, block: u64, blocks: u64) -> u64 {
        let mean = self.distance.0 as f64 / BLOCK_BYTES as f64;
        let distance = 1 + draws.failures((mean - 1.0).max(0.0));
        let (above, below) =
            (block.checked_add(distance).filter(|&one| one < blocks), block.checked_sub(distance));
        let (first, second) = if draws.comes_true(0.5) { (above, below) } else { (below, above) };
        // At the ends of the device there is one side only; on the smallest there may be none.
        first.or(second).unwrap_or(block)
    }

    /// Blocks in a row.
    fn length(&self, draws: &mut Draws) -> u64 {
        if draws.comes_true(self.single.0) {
            return 1;
        }
        let mean = self.run.0 as f64 / BLOCK_BYTES as f64;
        2 + draws.failures((mean - 2.0).max(0.0))
    }

    pub(super) fn rules(&self, draws: &mut Draws, device_size: u64) -> Vec<Rule> {
        let mut bad: Vec<BadBlock> = self.bad_blocks(draws, device_size).into_iter().flatten().collect();
        bad.truncate(DRAWN_MAX as usize * 2);
        rules_of(&bad, self.over, Persistence::UntilRewritten { spares: None }, 1)
    }

    pub(super) fn validate(&self, path: &Path, device_size: Option<u64>, problems: &mut Problems) {
        let before = problems.iter().count();
        timeline::validate(self.life, self.over, path, problems);
        self.rate.require(0.0..=1e6, &path.key("rate"), problems);
        self.acceleration.require(0.0..=1e12, &path.key("acceleration"), problems);
        self.further.require(0.0..=1000.0, &path.key("further"), problems);
        require_share(self.front, &path.key("front"), problems);
        require_share(self.single, &path.key("single"), problems);
        for (key, bytes, least) in [("distance", self.distance, 1), ("run", self.run, 2)] {
            if !(least * BLOCK_BYTES..=1 << 30).contains(&bytes.0) {
                problems.add_with_help(
                    &path.key(key),
                    format!("{bytes} is out of range"),
                    format!("give from {} to 1GiB", Bytes(least * BLOCK_BYTES)),
                );
            }
        }
        // Of what makes no sense nothing can be expected.
        if let Some(size) = device_size.filter(|_| problems.iter().count() == before) {
            let expected = self.clusters(size) * (1.0 + self.further.0) * self.mean_length();
            require_expected(expected, "bad blocks", "rate, acceleration or further", path, problems);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::draws::statistics::{assert_mean, assert_share};
    use super::*;

    const SIZE: u64 = 16 << 30;

    /// Half a million disks would take hours, four hundred of a thousandfold rate do not.
    fn many(model: &LatentSectorErrors) -> Vec<Vec<Vec<BadBlock>>> {
        (0..400)
            .map(|seed| model.bad_blocks(&mut Draws::new(seed, "media", "latent_sector_errors"), SIZE))
            .collect()
    }

    fn model() -> LatentSectorErrors {
        LatentSectorErrors { acceleration: Number(640.0), ..LatentSectorErrors::default() }
    }

    #[test]
    fn clusters_come_at_the_rate_that_was_asked_for() {
        // 1 a TiB and year, times 640, on a 64th of a TiB, for a year.
        let found: Vec<f64> = many(&model()).iter().map(|clusters| clusters.len() as f64).collect();
        assert_mean("clusters", &found, 10.0, 10f64.sqrt());
        let half = LatentSectorErrors { life: Span(YEAR.0 / 2), ..model() };
        let found: Vec<f64> = many(&half).iter().map(|clusters| clusters.len() as f64).collect();
        assert_mean("clusters of half a year", &found, 5.0, 5f64.sqrt());
    }

    #[test]
    fn the_front_of_the_device_has_its_share() {
        let firsts: Vec<u64> = many(&model()).iter().flatten().map(|cluster| cluster[0].block).collect();
        let front = SIZE / BLOCK_BYTES / 10;
        let hits = firsts.iter().filter(|&&block| block < front).count();
        assert_share("in front", hits, firsts.len(), 0.35);
    }

    #[test]
    fn a_further_error_is_near_the_one_before_in_place_and_in_time() {
        // Single blocks, so that errors can be told apart; a long life, so that none comes too late.
        let model = LatentSectorErrors {
            single: Percent(1.0),
            life: Span(YEAR.0 * 100),
            acceleration: Number(6.4),
            ..model()
        };
        let clusters: Vec<Vec<BadBlock>> = many(&model).into_iter().flatten().collect();
        let further: Vec<f64> = clusters.iter().map(|cluster| cluster.len() as f64 - 1.0).collect();
        // A cluster in the last days of a hundred years may be cut: far less than the error of the mean.
        assert_mean("further errors", &further, 2.0, 6f64.sqrt());
        let pairs: Vec<(u64, f64)> = clusters
            .iter()
            .flat_map(|cluster| cluster.windows(2))
            .map(|pair| (pair[0].block.abs_diff(pair[1].block), pair[1].share - pair[0].share))
            .collect();
        let distances: Vec<f64> = pairs.iter().map(|(distance, _)| *distance as f64).collect();
        assert_mean("distance in blocks", &distances, 6.0, 30f64.sqrt());
        // 100 sectors of 512 bytes are twelve and a half blocks; with a mean of six, 1 - (5/6)^12.
        let near = pairs.iter().filter(|(distance, _)| *distance <= 12).count();
        assert_share("within 100 sectors", near, pairs.len(), 1.0 - (5.0f64 / 6.0).powi(12));
        let days: Vec<f64> = pairs.iter().map(|(_, share)| share * 36_500.0).collect();
        assert_mean("days between", &days, 1.0, 1.0);
    }

    #[test]
    fn most_errors_are_single_blocks_and_the_others_have_their_mean_length() {
        let model = LatentSectorErrors { further: Number(0.0), ..model() };
        let lengths: Vec<f64> = many(&model).iter().flatten().map(|error| error.len() as f64).collect();
        let single = lengths.iter().filter(|length| **length == 1.0).count();
        assert_share("single", single, lengths.len(), 0.975);
        let longer: Vec<f64> = lengths.into_iter().filter(|length| *length > 1.0).collect();
        assert_mean("length of the others", &longer, 4.0, 6f64.sqrt());
    }

    #[test]
    fn all_stays_on_the_device_however_small_it_is() {
        for blocks in 1..20 {
            let size = blocks * BLOCK_BYTES - 512;
            let acceleration = Number(30.0 / tebibytes(size));
            let model =
                LatentSectorErrors { acceleration, single: Percent(0.5), ..LatentSectorErrors::default() };
            for seed in 0..50 {
                let bad = model.bad_blocks(&mut Draws::new(seed, "media", "x"), size);
                assert!(bad.iter().flatten().all(|bad| bad.block < blocks && bad.share <= 1.0));
            }
        }
    }
}
