//! Reading a ledger file back, whoever has edited it since, and saying what is wrong with it.

use std::io::BufRead;

use rotproof_block::{Error, ErrorKind, Result};

use crate::BLOCK_BYTES;
use crate::effect::{Bits, Effect};
use crate::matching::OperationKind;
use crate::record::Injection;

/// All records of a ledger file. Fails with [`ErrorKind::Invalid`], naming the line, if it is not a ledger that could
/// have been written.
pub fn read_ledger(input: impl BufRead) -> Result<Vec<Injection>> {
    let mut records = Vec::new();
    for (index, line) in input.lines().enumerate() {
        let number = index + 1;
        let line =
            line.map_err(|error| Error::from_io(error, format!("reading line {number} of the ledger")))?;
        if line.trim().is_empty() {
            continue;
        }
        let wrong =
            |what: String| Error::new(ErrorKind::Invalid, format!("line {number} of the ledger: {what}"));
        let record: Injection = serde_json::from_str(&line).map_err(|error| wrong(error.to_string()))?;
        validate(&record, records.last()).map_err(wrong)?;
        records.push(record);
    }
    Ok(records)
}

fn validate(record: &Injection, before: Option<&Injection>) -> Result<(), String> {
    let Injection { sequence, offset, length, operation, effect, .. } = record;
    // Injections may be taken out, but not put in another order or in twice.
    if let Some(before) = before.filter(|before| before.sequence >= *sequence) {
        return Err(format!(
            "sequence is {sequence}, but the record before it has {}; they must rise",
            before.sequence
        ));
    }
    let end = offset.checked_add(*length).ok_or_else(|| "offset and length reach beyond 2^64".to_owned())?;
    match operation {
        OperationKind::Flush if (*offset, *length) != (0, 0) => {
            return Err("a flush has no offset and no length; both must be 0".to_owned());
        }
        OperationKind::Read | OperationKind::Write | OperationKind::Discard if *length == 0 => {
            return Err("length is 0; only a flush concerns no bytes".to_owned());
        }
        _ => {}
    }
    validate_visit(record)?;
    if effect.is_on_data() {
        if !matches!(operation, OperationKind::Read | OperationKind::Write) {
            return Err(format!("{} acts on data, which a {operation:?} does not carry", effect.word()));
        }
        if effect.is_on_writes_alone() && *operation != OperationKind::Write {
            return Err(format!("only a write can be hit by {}", effect.word()));
        }
        if offset / BLOCK_BYTES != (end - 1) / BLOCK_BYTES {
            return Err(format!(
                "{} acts on one block, but {length} bytes at {offset} are in several",
                effect.word()
            ));
        }
        if let Effect::BitFlip(Bits::At { byte, bit }) = effect {
            let position = offset / BLOCK_BYTES * BLOCK_BYTES + u64::from(*byte);
            if *bit > 7 || !(*offset..end).contains(&position) {
                return Err(format!("bit {bit} of byte {byte} is not among the {length} bytes at {offset}"));
            }
        }
        if *effect != effect.resolved(0) && effect.draw().is_none() {
            return Err(format!("a record says what chance decided: {}", effect.resolved(0)));
        }
        if record.before.is_some() != record.after.is_some() && *effect != Effect::MediumError {
            return Err("`before` and `after` come together".to_owned());
        }
        if !record.blocks.is_empty() {
            return Err(format!("`blocks` belong to errors and delays, not to {}", effect.word()));
        }
    } else if record.before.is_some() || record.after.is_some() {
        return Err(format!("`before` and `after` belong to effects on data, not to {}", effect.word()));
    }
    for block in &record.blocks {
        let block_end = block.offset.checked_add(BLOCK_BYTES);
        if !block.offset.is_multiple_of(BLOCK_BYTES)
            || block.offset < *offset
            || block_end.is_none_or(|at| at > end)
        {
            return Err(format!("the block at {} is not one of the request's whole blocks", block.offset));
        }
    }
    if !record.neighbours.is_empty() && record.effect != Effect::MediumError {
        return Err(format!("`neighbours` belong to medium_error, not to {}", record.effect.word()));
    }
    if record.repaired_at_ns.is_some_and(|time| time < record.time_ns) {
        return Err("it was repaired before it happened".to_owned());
    }
    Ok(())
}

/// Whether what was decided on is among what was hit.
fn validate_visit(record: &Injection) -> Result<(), String> {
    let Injection { operation, offset, length, .. } = record;
    let Some(visit) = record.visit else { return Ok(()) };
    if visit.number == 0 {
        return Err("visit.number is 0; the first visit is number 1".to_owned());
    }
    match (visit.offset, visit.content, operation) {
        (None, None, OperationKind::Flush) | (None, Some(_), OperationKind::Read | OperationKind::Write) => {
            Ok(())
        }
        (_, _, OperationKind::Flush) => Err("the visit of a flush has neither offset nor content".to_owned()),
        (_, Some(_), OperationKind::Discard) => Err("a discard has no content".to_owned()),
        (None, None, _) => Err("visit.offset is missing: the block that was decided on".to_owned()),
        (Some(_), Some(_), _) => {
            Err("visit.offset and visit.content are two; a visit is told by one".to_owned())
        }
        (Some(block), None, _) => {
            let touches = block.is_multiple_of(BLOCK_BYTES)
                && block.checked_add(BLOCK_BYTES).is_some_and(|end| end > *offset)
                && block - offset.min(&block) < *length;
            if touches {
                return Ok(());
            }
            Err(format!("visit.offset {block} is no block of the {length} bytes at {offset}"))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{BlockContent, TargetKey, Visit};
    use rotproof_block::{ContentHash, Phase};

    pub(crate) fn record(sequence: u64, offset: u64) -> Injection {
        Injection {
            sequence,
            rule: 0,
            name: "rot".into(),
            on: crate::record::unnamed(),
            target: Some(TargetKey::Offset(offset)),
            operation: OperationKind::Write,
            offset,
            length: 4096,
            effect: Effect::BitFlip(Bits::At { byte: 1, bit: 2 }),
            time_ns: 1_000,
            phase: Phase::Run,
            request: 7,
            visit: Some(Visit { offset: Some(offset), content: None, number: 1 }),
            tag: "a".into(),
            before: Some(ContentHash::of(b"before")),
            after: Some(ContentHash::of(b"after")),
            blocks: Vec::new(),
            repaired_at_ns: None,
            after_sectors: None,
            served_at_ns: None,
            replaced_at_ns: None,
            of_load: None,
            neighbours: Vec::new(),
        }
    }

    fn complaint(records: &[Injection]) -> String {
        let lines: Vec<String> =
            records.iter().map(|record| serde_json::to_string(record).expect("plain data")).collect();
        let error = read_ledger(lines.join("\n").as_bytes()).expect_err("invalid");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    }

    #[test]
    fn a_line_looks_as_documented() {
        let text = serde_json::to_string(&record(0, 4096)).expect("plain data");
        let (before, after) = (ContentHash::of(b"before"), ContentHash::of(b"after"));
        assert_eq!(
            text,
            format!(
                "{{\"sequence\":0,\"rule\":0,\"name\":\"rot\",\"target\":{{\"offset\":4096}},\"operation\":\"write\",\
                 \"offset\":4096,\"length\":4096,\"effect\":\"bit_flip(byte=1, bit=2)\",\"time_ns\":1000,\
                 \"phase\":\"run\",\"visit\":{{\"offset\":4096,\"number\":1}},\"request\":7,\"tag\":\"a\",\"before\":\"{before}\",\"after\":\"{after}\"}}"
            )
        );
    }

    fn edit_visit(record: &mut Injection, edit: fn(&mut Visit)) {
        edit(record.visit.as_mut().expect("it was decided on"));
    }

    #[test]
    fn records_may_be_taken_out_of_a_ledger() {
        let lines =
            [record(1, 0), record(5, 0)].map(|record| serde_json::to_string(&record).expect("plain data"));
        assert_eq!(read_ledger(lines.join("\n\n").as_bytes()).expect("a ledger").len(), 2);
    }

    #[test]
    fn an_edited_ledger_is_refused_with_its_line_and_the_reason() {
        for (first, second) in [(2, 0), (1, 1)] {
            let complaint = complaint(&[record(first, 0), record(second, 0)]);
            assert!(complaint.contains("line 2") && complaint.contains("must rise"), "{complaint}");
        }
        let edited = |edit: fn(&mut Injection)| {
            let mut record = record(0, 4096);
            edit(&mut record);
            complaint(&[record])
        };
        for (edit, part) in [
            ((|record| record.length = 0) as fn(&mut Injection), "only a flush"),
            (|record| record.offset = u64::MAX, "2^64"),
            (|record| record.length = 8192, "one block"),
            (|record| record.operation = OperationKind::Flush, "a flush has no offset"),
            (|record| record.operation = OperationKind::Discard, "does not carry"),
            (|record| record.effect = Effect::BitFlip(Bits::At { byte: 4096, bit: 0 }), "not among"),
            (
                |record| record.effect = "bit_flip(random=3)".parse().expect("an effect"),
                "what chance decided",
            ),
            (
                |record| (record.effect, record.operation) = (Effect::LostWrite, OperationKind::Read),
                "only a write",
            ),
            (|record| record.after = None, "come together"),
            (|record| edit_visit(record, |visit| visit.number = 0), "number 1"),
            (|record| edit_visit(record, |visit| visit.offset = None), "is missing"),
            (|record| edit_visit(record, |visit| visit.offset = Some(8192)), "is no block"),
            (|record| edit_visit(record, |visit| visit.content = Some(ContentHash(1))), "are two"),
            (|record| record.effect = Effect::ERROR, "not to error"),
            (|record| record.repaired_at_ns = Some(1), "before it happened"),
            (
                |record| {
                    record.blocks = vec![BlockContent { offset: 0, content: ContentHash(0), of_load: None }];
                },
                "belong to errors",
            ),
            (
                |record| {
                    record.neighbours =
                        vec![BlockContent { offset: 0, content: ContentHash(0), of_load: None }];
                },
                "belong to medium_error",
            ),
        ] {
            let complaint = edited(edit);
            assert!(complaint.contains(part) && complaint.contains("line 1"), "{complaint}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text: String) {
            let _ = read_ledger(text.as_bytes());
        }
    }
}
