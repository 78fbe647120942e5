//! A fault at some offsets as a rule of Rotproof's own.

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::{ResolvedRule, Rule, RuleEntry};

use crate::cell::{Fault, When};

/// How long a hanging request is gone: far longer than anybody waits.
const HANG: &str = "60s";
/// How much longer a slow one takes: less than is waited for.
const SLOW: &str = "50ms";

/// Whether a fault acts on writes, and so must be there before what it is to hit is written. A stale read needs to know what was
/// there before.
pub(crate) fn is_before_writes(fault: Fault) -> bool {
    matches!(fault, Fault::Lost | Fault::Misdirected | Fault::Torn | Fault::Stale)
}

/// The rule, in the short form, for blocks at these offsets; `other` is a block in use that a misdirected write may land on.
pub(crate) fn rule_of(fault: Fault, when: When, offsets: &[u64], other: u64) -> Result<ResolvedRule> {
    let at =
        offsets.iter().map(|offset| format!("{offset}..{}", offset + 4096)).collect::<Vec<_>>().join("|");
    let is_rest = when == When::Rest;
    let text = match fault {
        Fault::BitFlip if is_rest => format!("read, offset={at}, until_rewritten: bit_flip(byte=100, bit=3)"),
        Fault::BitFlip => format!("offset={at}, every=2: bit_flip(byte=100, bit=3)"),
        Fault::Zeros if is_rest => format!("read, offset={at}, until_rewritten: zeros"),
        Fault::Zeros => format!("offset={at}, every=2: zeros"),
        Fault::Stale if is_rest => format!("read, offset={at}: stale_read"),
        Fault::Stale => format!("read, offset={at}, every=2: stale_read"),
        Fault::Lost if is_rest => format!("write, offset={at}: lost_write"),
        Fault::Lost => format!("write, offset={at}, every=2: lost_write"),
        Fault::Misdirected if is_rest => format!("write, offset={at}: misdirected_write(to={other})"),
        Fault::Misdirected => format!("write, offset={at}, every=3: misdirected_write(to={other})"),
        Fault::Torn if is_rest => format!("write, offset={at}: torn_write(new=first, sectors=3)"),
        Fault::Torn => format!("write, offset={at}, every=2: torn_write(new=first, sectors=3)"),
        Fault::Error if is_rest => format!("read, offset={at}, until_rewritten: medium_error"),
        Fault::Error => format!("offset={at}, every=2: medium_error"),
        Fault::Hang if is_rest => format!("any, offset={at}: hang({HANG})"),
        Fault::Hang => format!("any, offset={at}, every=3: hang({HANG})"),
        Fault::Slow => format!("any, offset={at}: delay({SLOW})"),
        Fault::Gone if is_rest => "any: gone".to_owned(),
        Fault::Gone => "any, after=40: gone".to_owned(),
    };
    let entry: RuleEntry = serde_json::from_value(serde_json::Value::String(text.clone()))
        .map_err(|error| Error::new(ErrorKind::Internal, format!("the rule `{text}`: {error}")))?;
    Ok(ResolvedRule::from(Rule::from(entry)))
}
