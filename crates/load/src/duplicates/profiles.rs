//! Built-in distributions at 4 KiB, with the figures that Borges and Paulo give of the data sets of AchillesBench
//! (*Realistic Assessment of Faults in Storage Systems*).
//!
//! Of `kernels` the share of the blocks by number of duplicates is published; of the others three figures are: what could
//! be saved, what has no duplicate, and the most duplicates of a content. Between those the shape is ours: shares of
//! blocks that fall by the same factor from one doubling of the duplicates to the next.

use super::Distribution;

/// A built-in distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Sources of kernels: 60.9% can be saved, 22.6% have no duplicate, at most 557 duplicates.
    Kernels,
    /// Personal files: 17.2%, 76.6%, at most 225,165.
    Personal,
    /// Archives: 6.6%, 89.7%, at most 1,183,820.
    Archival,
    /// Storage of a computing cluster: 25.0%, 68.5%, at most 64,309,767.
    HighPerformance,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kernels, Self::Personal, Self::Archival, Self::HighPerformance];

    /// The words they are written with.
    pub const WORDS: [&'static str; 4] = ["kernels", "personal", "archival", "high_performance"];

    /// The word it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Personal => "personal",
            Self::Archival => "archival",
            Self::HighPerformance => "high_performance",
        }
    }

    /// The profile with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.word() == word)
    }

    /// Its contents by duplicates.
    pub fn distribution(self) -> Distribution {
        let lines = match self {
            Self::Kernels => KERNELS,
            Self::Personal => PERSONAL,
            Self::Archival => ARCHIVAL,
            Self::HighPerformance => HIGH_PERFORMANCE,
        };
        Distribution::from_pairs(lines.iter().copied())
    }
}

const KERNELS: &[(u64, u64)] = &[
    (0, 946_021),
    (1, 280_457),
    (2, 133_950),
    (3, 70_114),
    (4, 55_380),
    (5, 46_150),
    (6, 16_953),
    (7, 14_834),
    (8, 18_255),
    (10, 14_936),
    (12, 12_638),
    (15, 10_269),
    (16, 5848),
    (20, 4734),
    (25, 3824),
    (31, 3107),
    (40, 1940),
    (80, 491),
    (160, 128),
    (320, 35),
    (557, 14),
];

const PERSONAL: &[(u64, u64)] = &[
    (0, 6_579_889_897),
    (1, 272_118_860),
    (2, 132_417_516),
    (3, 72_491_110),
    (5, 35_275_367),
    (11, 12_874_181),
    (23, 4_698_591),
    (47, 1_714_809),
    (95, 625_841),
    (191, 228_408),
    (383, 83_360),
    (767, 30_423),
    (1535, 11_103),
    (3071, 4052),
    (6143, 1479),
    (12_287, 540),
    (24_575, 197),
    (49_151, 72),
    (98_303, 26),
    (225_165, 8),
];

const ARCHIVAL: &[(u64, u64)] = &[
    (0, 123_282_741_264),
    (1, 3_193_296_861),
    (2, 1_168_427_770),
    (3, 480_968_871),
    (5, 175_986_577),
    (11, 48_295_135),
    (23, 13_253_398),
    (47, 3_637_065),
    (95, 998_102),
    (191, 273_904),
    (383, 75_166),
    (767, 20_627),
    (1535, 5661),
    (3071, 1553),
    (6143, 426),
    (12_287, 117),
    (24_575, 32),
    (49_151, 9),
    (98_303, 2),
    (196_607, 1),
    (393_215, 1),
    (1_183_820, 1),
];

const HIGH_PERFORMANCE: &[(u64, u64)] = &[
    (0, 376_582_732_513),
    (1, 16_496_805_699),
    (2, 8_909_627_583),
    (3, 5_413_420_529),
    (5, 2_923_690_910),
    (11, 1_184_274_595),
    (23, 479_704_031),
    (47, 194_309_629),
    (95, 78_707_348),
    (191, 31_881_316),
    (383, 12_913_893),
    (767, 5_230_921),
    (1535, 2_118_845),
    (3071, 858_262),
    (6143, 347_649),
    (12_287, 140_819),
    (24_575, 57_040),
    (49_151, 23_105),
    (98_303, 9359),
    (196_607, 3791),
    (393_215, 1536),
    (786_431, 622),
    (1_572_863, 252),
    (3_145_727, 102),
    (6_291_455, 41),
    (12_582_911, 17),
    (25_165_823, 7),
    (64_309_767, 2),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duplicates::distribution::blocks;

    #[test]
    fn each_profile_has_its_published_figures() {
        for (profile, savable, unique, most) in [
            (Profile::Kernels, 0.609, 0.226, 557),
            (Profile::Personal, 0.172, 0.766, 225_165),
            (Profile::Archival, 0.066, 0.897, 1_183_820),
            (Profile::HighPerformance, 0.25, 0.685, 64_309_767),
        ] {
            let distribution = profile.distribution();
            assert!(
                (distribution.savable() - savable).abs() < 5e-4,
                "{profile:?} {}",
                distribution.savable()
            );
            assert!((distribution.unique() - unique).abs() < 5e-4, "{profile:?} {}", distribution.unique());
            assert_eq!(distribution.most(), most);
            assert_eq!(Profile::from_word(profile.word()), Some(profile));
        }
    }

    #[test]
    fn the_kernels_have_the_published_share_of_blocks_at_each_number_of_duplicates() {
        let kernels = Profile::Kernels.distribution();
        let share = |range: std::ops::RangeInclusive<u64>| {
            let lines = kernels.lines().filter(|(duplicates, _)| range.contains(duplicates));
            let within: u128 = lines.map(|(duplicates, contents)| blocks(duplicates, contents)).sum();
            100.0 * within as f64 / kernels.blocks() as f64
        };
        for (range, wanted) in [
            (1..=1, 13.4),
            (2..=2, 9.6),
            (3..=3, 6.7),
            (4..=7, 18.9),
            (8..=15, 15.7),
            (16..=31, 9.5),
            (32..=557, 3.8),
        ] {
            assert!((share(range.clone()) - wanted).abs() < 0.1, "{range:?}: {}", share(range.clone()));
        }
    }
}
