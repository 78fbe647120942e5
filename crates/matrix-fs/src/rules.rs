//! A fault as a rule, for a block that lies at an offset now.

use std::time::Duration;

use rotproof_block::{Error, ErrorKind, Result};
use rotproof_fault::{ResolvedRule, Rule, RuleEntry};
use rotproof_matrix::{Fault, When};

/// How long a hanging request is gone. Nothing here has a patience of its own, so this is waited for.
pub(crate) const HANG: Duration = Duration::from_secs(3);

/// Whether a fault has to be there before what it hits is written.
pub(crate) fn is_before_writes(fault: Fault) -> bool {
    matches!(fault, Fault::Lost | Fault::Misdirected | Fault::Torn | Fault::Stale)
}

/// The rule for blocks at these offsets; `other` is a block in use that a misdirected write may land on.
pub(crate) fn rule_of(fault: Fault, when: When, offsets: &[u64], other: u64) -> Result<ResolvedRule> {
    let at: Vec<String> = offsets.iter().map(|offset| format!("{offset}..{}", offset + 4096)).collect();
    let (at, is_rest, hang) = (at.join("|"), when == When::Rest, HANG.as_secs());
    let text = match fault {
        Fault::BitFlip if is_rest => format!("read, offset={at}, until_rewritten: bit_flip(byte=100, bit=3)"),
        Fault::BitFlip => format!("offset={at}: bit_flip(byte=100, bit=3)"),
        Fault::Zeros if is_rest => format!("read, offset={at}, until_rewritten: zeros"),
        Fault::Zeros => format!("offset={at}: zeros"),
        Fault::Stale => format!("read, offset={at}: stale_read"),
        Fault::Lost => format!("write, offset={at}: lost_write"),
        Fault::Misdirected => format!("write, offset={at}: misdirected_write(to={other})"),
        Fault::Torn => format!("write, offset={at}: torn_write(new=first, sectors=3)"),
        Fault::Error if is_rest => format!("read, offset={at}, until_rewritten: medium_error"),
        Fault::Error => format!("offset={at}: medium_error"),
        Fault::Hang => format!("any, offset={at}, once: hang({hang}s)"),
        Fault::Slow => format!("any, offset={at}: delay(50ms)"),
        Fault::Gone if is_rest => "any: gone".to_owned(),
        Fault::Gone => "any, after=40: gone".to_owned(),
    };
    let entry: RuleEntry = serde_json::from_value(serde_json::Value::String(text.clone()))
        .map_err(|error| Error::new(ErrorKind::Internal, format!("the rule `{text}`: {error}")))?;
    Ok(ResolvedRule::from(Rule::from(entry)))
}
