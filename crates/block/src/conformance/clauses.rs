//! The list of the clauses: what each says of a device, to which devices it applies, and where it is checked.

use super::Clause;
use super::{content, history, page, refusals, together};
use crate::DeviceInfo;

pub(super) const ALL: &[Clause] = &[
    Clause { says: "the information page fits together", applies: always, body: page::information },
    Clause { says: "what was never written reads as zeros", applies: always, body: content::fresh_is_zero },
    Clause {
        says: "a completed write is what later reads return",
        applies: writable,
        body: content::reads_back,
    },
    Clause {
        says: "the first and the last block can be used",
        applies: writable,
        body: content::first_and_last,
    },
    Clause {
        says: "the buffer of a write comes back unchanged",
        applies: writable,
        body: content::write_buffer,
    },
    Clause {
        says: "the buffer comes back whatever the result",
        applies: always,
        body: refusals::buffer_comes_back,
    },
    Clause {
        says: "a request beyond the end is out of range and touches nothing",
        applies: always,
        body: refusals::bounds,
    },
    Clause {
        says: "a request off the blocks is misaligned and touches nothing",
        applies: has_blocks,
        body: refusals::alignment,
    },
    Clause {
        says: "a request whose length is not its buffer's is refused and touches nothing",
        applies: always,
        body: refusals::wrong_length,
    },
    Clause {
        says: "a request of length zero succeeds without effect",
        applies: always,
        body: content::length_zero,
    },
    Clause { says: "the context comes back as it was", applies: always, body: page::context_passes },
    Clause {
        says: "a read-only device refuses mutations",
        applies: read_only,
        body: refusals::refuses_mutations,
    },
    Clause { says: "flush and fua always succeed", applies: writable, body: content::flush_and_fua },
    Clause {
        says: "discarded and zeroed ranges read as zeros, and only they",
        applies: writable,
        body: content::clearing,
    },
    Clause {
        says: "an operation the device lacks is unsupported and touches nothing",
        applies: writable,
        body: refusals::unsupported,
    },
    Clause {
        says: "requests in flight together do not disturb each other",
        applies: writable,
        body: together::in_flight,
    },
    Clause {
        says: "overlapping writes tear each other between atomic units only",
        applies: writable,
        body: together::overlapping,
    },
    Clause { says: "what one queue wrote another reads", applies: writable, body: together::between_queues },
    Clause {
        says: "queues on several threads do not disturb each other",
        applies: writable,
        body: together::threads,
    },
    Clause {
        says: "a request completes though its queue has gone",
        applies: writable,
        body: together::queue_gone,
    },
    Clause { says: "a dropped submission does no harm", applies: writable, body: together::dropped },
    Clause {
        says: "any history of requests ends as a plain array would",
        applies: writable,
        body: history::replay,
    },
];

fn always(_: &DeviceInfo) -> bool {
    true
}

fn writable(info: &DeviceInfo) -> bool {
    !info.read_only
}

fn read_only(info: &DeviceInfo) -> bool {
    info.read_only
}

fn has_blocks(info: &DeviceInfo) -> bool {
    info.block_size > 1
}
