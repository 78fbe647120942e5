//! The ledger as anybody can read it: lines of JSON. Nothing of the engine is used to read it.

use serde_json::Value;

/// A block as a line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub offset: u64,
    pub content: u128,
}

/// What a hit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Data,
    Error,
    Delay,
}

/// One hit.
#[derive(Clone, Debug)]
pub struct Line {
    pub rule: usize,
    pub operation: String,
    pub offset: u64,
    pub length: u64,
    pub effect: String,
    pub harm: Harm,
    pub time: u64,
    pub phase: String,
    pub before: Option<u128>,
    pub after: Option<u128>,
    /// All whole blocks of a request that failed.
    pub blocks: Vec<Named>,
    pub repaired_at: Option<u64>,
    pub served_at: Option<u64>,
    pub replaced_at: Option<u64>,
    pub of_load: Option<bool>,
    /// What the rule aimed at, if anything: a place, or a content.
    pub aim: Option<u64>,
    /// It was stored, or left the place bad.
    pub lasts: bool,
}

impl Line {
    /// Reads a ledger. `stays` says of each rule whether its places stay bad.
    pub fn all(text: &str, stays: &[bool]) -> Vec<Self> {
        text.lines().map(|line| Self::of(&serde_json::from_str(line).expect("JSON"), stays)).collect()
    }

    fn of(line: &Value, stays: &[bool]) -> Self {
        let number = |key: &str| line[key].as_u64();
        let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let list = |key: &str| {
            let named = |block: &Value| Named {
                offset: block["offset"].as_u64().expect("an offset"),
                content: hash(&block["content"]).expect("a hash"),
            };
            line[key].as_array().into_iter().flatten().map(named).collect::<Vec<_>>()
        };
        let effect = text("effect");
        let harm = match effect.split('(').next().unwrap_or_default() {
            "delay" | "bandwidth" | "hang" => Harm::Delay,
            "error" | "no_space" | "read_only" | "gone" | "medium_error" | "power_cut" => Harm::Error,
            _ => Harm::Data,
        };
        let rule = number("rule").expect("a rule") as usize;
        let aim = line["target"]["offset"].as_u64().or_else(|| {
            // Its last 64 bits, as the lines of a fault need only be told apart.
            hash(&line["target"]["content"]["hash"]).map(|hash| hash as u64)
        });
        Self {
            rule,
            lasts: stays[rule] || text("operation") != "read",
            operation: text("operation"),
            offset: number("offset").expect("an offset"),
            length: number("length").expect("a length"),
            effect,
            harm,
            time: number("time_ns").expect("a time"),
            phase: text("phase"),
            before: hash(&line["before"]),
            after: hash(&line["after"]),
            blocks: [list("blocks"), list("neighbours")].concat(),
            repaired_at: number("repaired_at_ns"),
            served_at: number("served_at_ns"),
            replaced_at: number("replaced_at_ns"),
            of_load: line["of_load"].as_bool(),
            aim,
        }
    }

    /// The block of an effect on data.
    pub fn block(&self) -> u64 {
        self.offset / 4096
    }

    /// What it is called together with all other hits of the same fault, as `docs/fates.md` counts faults.
    pub fn place(&self) -> u64 {
        let is_on_data = self.harm == Harm::Data || self.effect.starts_with("medium_error");
        self.aim.filter(|_| !is_on_data).unwrap_or(self.offset / 4096 * 4096)
    }

    /// Every block of the device that suffered.
    pub fn suffered(&self) -> std::ops::Range<u64> {
        let end = (self.offset + self.length).div_ceil(4096);
        let (first, last) = self.blocks.iter().fold((self.block(), end), |(first, last), block| {
            (first.min(block.offset / 4096), last.max(block.offset / 4096 + 1))
        });
        first..last
    }

    /// Every content that suffered.
    pub fn truths(&self) -> impl Iterator<Item = u128> + '_ {
        self.before.into_iter().chain(self.blocks.iter().map(|block| block.content))
    }

    /// From then on nothing is served, and what was volatile may be lost.
    pub fn is_dark(&self) -> bool {
        self.effect.starts_with("power_cut")
    }

    /// Since when nothing of it is left.
    pub fn gone(&self) -> Option<u64> {
        self.repaired_at.or(self.replaced_at)
    }

    /// It left the block as it was.
    pub fn is_idle(&self) -> bool {
        self.harm == Harm::Data && self.before.is_some() && self.before == self.after
    }
}

/// A hash as results write it.
pub fn hash(value: &Value) -> Option<u128> {
    u128::from_str_radix(value.as_str()?, 16).ok()
}
