//! What `zpool status -v` says of a pool.

use std::collections::BTreeMap;

/// The state of a pool, as far as it tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Of the pool and of what it consists of: what is wrong with it, in words such as `m0: 3 checksum errors`. Empty where all is well.
    pub complaints: Vec<String>,
    /// Files and objects that it says to have lost for good, as `zpool status -v` names them.
    pub lost: Vec<String>,
    /// Errors that the last scrub could not put right, where there was one.
    pub scrub_errors: Option<u64>,
    /// A scrub or resilver is under way.
    pub in_progress: bool,
    /// The pool takes no more writes: it is faulted, suspended or not to be had.
    pub is_stopped: bool,
}

const COUNTED: [&str; 3] = ["read errors", "write errors", "checksum errors"];

impl Status {
    /// Reads what the program prints.
    pub fn read(said: &str) -> Self {
        let mut status = Self { in_progress: said.contains("in progress"), ..Self::default() };
        let state = said.lines().find_map(|line| line.trim_start().strip_prefix("state: "));
        status.is_stopped =
            state.is_some_and(|state| ["FAULTED", "SUSPENDED", "UNAVAIL"].contains(&state.trim()));
        for line in said.lines().skip_while(|line| !line.trim_start().starts_with("NAME")).skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, state, counts @ ..] = &words[..] else { break };
            if counts.len() < COUNTED.len() {
                break;
            }
            let name = name.rsplit('/').next().unwrap_or(name);
            if *state != "ONLINE" {
                status.complaints.push(format!("{name}: {state}"));
            }
            let counts = counts.iter().zip(COUNTED).filter(|(count, _)| **count != "0");
            status.complaints.extend(counts.map(|(count, what)| format!("{name}: {count} {what}")));
        }
        let scrub = said.lines().find_map(|line| line.split_once(" with ")?.1.split_once(" errors"));
        status.scrub_errors = scrub.and_then(|(count, _)| count.parse().ok());
        let lost = said.lines().skip_while(|line| !line.starts_with("errors: Permanent")).skip(1);
        status.lost = lost.map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        status
    }

    /// How many kinds of errors it tells of, over all devices, and one more if a scrub left some.
    pub fn errors(&self) -> u64 {
        self.complaints.len() as u64 + u64::from(self.scrub_errors.is_some_and(|errors| errors > 0))
    }

    /// All that it says to be wrong, each once.
    pub fn words(&self) -> Vec<String> {
        let mut words: BTreeMap<String, ()> = BTreeMap::new();
        words.extend(self.lost.iter().map(|lost| (format!("permanent errors: {lost}"), ())));
        let mut all = self.complaints.clone();
        all.extend(words.into_keys());
        all.extend(
            self.scrub_errors
                .filter(|errors| *errors > 0)
                .map(|errors| format!("the scrub left {errors} errors")),
        );
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(state: &str, sums: &str, errors: &str, lost: &str) -> String {
        format!(
            "  pool: pool\n state: ONLINE\n scrub: scrub completed after 0h0m with {errors} errors on Mon\nconfig:\n\n\
             \tNAME        STATE     READ WRITE CKSUM\n\tpool        ONLINE       0     0     0\n\
             \t  mirror-0  ONLINE       0     0     0\n\t    /m0     {state}   0     0     {sums}\n\n{lost}\n"
        )
    }

    #[test]
    fn what_is_wrong_with_a_pool_is_told_and_counted() {
        let well = "errors: No known data errors";
        assert_eq!(
            Status::read(&said("ONLINE", "0", "0", well)),
            Status { scrub_errors: Some(0), ..Status::default() }
        );
        let sums = Status::read(&said("ONLINE", "1.2K", "0", well));
        assert_eq!((sums.errors(), sums.words()), (1, vec!["m0: 1.2K checksum errors".to_owned()]));
        let gone = Status::read(&said("UNAVAIL", "0", "3", well));
        assert_eq!(gone.errors(), 2);
        assert_eq!(gone.words(), ["m0: UNAVAIL", "the scrub left 3 errors"]);
        let lost = "errors: Permanent errors have been detected in the following files:\n\n        /mount/a\n        pool:<0x0>\n";
        let lost = Status::read(&said("ONLINE", "2", "1", lost));
        assert_eq!(lost.lost, ["/mount/a", "pool:<0x0>"]);
        assert_eq!(
            lost.words(),
            [
                "m0: 2 checksum errors",
                "permanent errors: /mount/a",
                "permanent errors: pool:<0x0>",
                "the scrub left 1 errors"
            ]
        );
        assert!(Status::read("  pool: pool\n state: FAULTED\n").is_stopped && !gone.is_stopped);
        assert!(Status::read(" scrub: scrub in progress for 0h0m, 1.00% done").in_progress);
    }
}
