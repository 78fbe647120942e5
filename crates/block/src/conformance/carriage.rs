//! Whether a layer passes the context on: what arrives below it, seen by a witness in place of its lower device.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Breach, Finding, On, Stand, ensure, pattern};
use crate::leaf::MemoryDevice;
use crate::{
    Buffer, Context, Device, DeviceInfo, Error, Origin, Phase, Queue, Request, Result, Runtime, Submission,
    Tag,
};

/// Puts the layer over a device.
pub type MakeLayer<'a> = &'a dyn Fn(Arc<dyn Device>) -> Result<Arc<dyn Device>>;

/// The clause of the contract that a layer is held against here.
const CLAUSE: &str = "the context is passed down unchanged, or to children";

/// Ids of requests that layers make are far above those that origins count.
const LAYER_IDS: u64 = 1 << 32;

/// Checks that every request which arrives below the layer has the context of one that the layer was given: the same,
/// or that of a child with an id of its own. Requests are of all kinds and lengths, in all phases.
pub fn check_layer(on: On, make: MakeLayer<'_>) -> Result<(), Breach> {
    let broken = |error: Error| Breach {
        clause: CLAUSE,
        seen: format!("the device or its queue cannot be opened: {error}"),
    };
    let arrived = Arc::new(Mutex::default());
    let memory = MemoryDevice::new(4 << 20, 512).map_err(broken)?;
    let device = make(Arc::new(Witness { memory, arrived: Arc::clone(&arrived) })).map_err(broken)?;
    let runtime = on.runtime().map_err(broken)?;
    let queue = device.open_queue(&runtime).map_err(broken)?;
    // What it has read and written to open is of no request.
    arrived.lock().clear();
    let stand = Stand { on, device, runtime, queue };
    let finding = compare(&stand, &arrived);
    stand.runtime.abandon_tasks();
    finding.map_err(|seen| Breach { clause: CLAUSE, seen })
}

fn compare(stand: &Stand, arrived: &Mutex<Vec<Context>>) -> Finding {
    let block = stand.block();
    let mut children = HashSet::new();
    // A layer may hold a request back and send it later.
    let mut given = Vec::new();
    let mut count = 0;
    for phase in Phase::ALL {
        let origins = [Origin::Host, Origin::Rebuild, Origin::Scrub, Origin::Sync];
        for (origin, length) in origins.into_iter().zip([block, 3 * block, 16 * block, 64 * block]) {
            let offset = (length + block) as u64;
            let data = pattern(length as u64, length);
            for kind in 0..7 {
                count += 1;
                let sent = Context {
                    id: count,
                    parent: count + 1_000_000,
                    submitted: stand.runtime.now(),
                    tag: Tag::intern(["focal.img", "bionic.img", "jammy.img"][count as usize % 3]),
                    queue: count as u16,
                    origin,
                    phase,
                };
                let request = match kind {
                    0 => Request::write(offset, Buffer::copy_of(&data), sent),
                    1 => Request::read(offset, Buffer::stale(length), sent),
                    // The same data again, elsewhere and over part of the first.
                    2 => Request::write(offset + block as u64, Buffer::copy_of(&data), sent),
                    3 => Request::read(0, Buffer::stale(length), sent),
                    4 => Request::discard(offset, block as u64, sent),
                    5 => Request::write_zeroes(offset, length as u64, sent),
                    _ => Request::flush(sent),
                };
                // Some fail on some layers, which is their right.
                stand.complete(request)?;
                given.push(sent);
                for found in arrived.lock().drain(..) {
                    // A child's parent may be one that the layer has made and not sent.
                    let is_of = |sent: &Context| {
                        let parent = if found.parent >= LAYER_IDS { found.parent } else { sent.id };
                        found == *sent || found == Context { id: found.id, parent, ..*sent }
                    };
                    ensure(given.iter().rev().any(is_of), || format!("{sent:?} arrived below as {found:?}"))?;
                    ensure(given.contains(&found) || children.insert((found.parent, found.id)), || {
                        format!("two children of {sent:?} have the id {}", found.id)
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// Memory that remembers the context of every request.
struct Witness {
    memory: Arc<MemoryDevice>,
    arrived: Arc<Mutex<Vec<Context>>>,
}

impl Device for Witness {
    fn info(&self) -> DeviceInfo {
        self.memory.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        let below = self.memory.open_queue(runtime)?;
        Ok(Rc::new(WitnessQueue { below, arrived: Arc::clone(&self.arrived) }))
    }
}

struct WitnessQueue {
    below: Rc<dyn Queue>,
    arrived: Arc<Mutex<Vec<Context>>>,
}

impl Queue for WitnessQueue {
    fn submit(&self, request: Request) -> Submission {
        self.arrived.lock().push(request.context);
        self.below.submit(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes the context of every request, down and up.
    struct Changing {
        below: Arc<dyn Device>,
        down: fn(Context) -> Context,
    }

    struct ChangingQueue {
        below: Rc<dyn Queue>,
        down: fn(Context) -> Context,
    }

    impl Device for Changing {
        fn info(&self) -> DeviceInfo {
            self.below.info()
        }

        fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
            Ok(Rc::new(ChangingQueue { below: self.below.open_queue(runtime)?, down: self.down }))
        }
    }

    impl Queue for ChangingQueue {
        fn submit(&self, request: Request) -> Submission {
            self.below.submit(Request { context: (self.down)(request.context), ..request })
        }
    }

    #[test]
    fn a_layer_that_forgets_or_invents_part_of_a_context_is_found() {
        let check = |down: fn(Context) -> Context| {
            check_layer(On::Simulated, &|below| Ok(Arc::new(Changing { below, down })))
        };
        check(|context| context).expect("it passes everything on");
        check(|context| context.child(context.id + 1_000)).expect("a child is as good");
        for (name, down) in [
            ("the tag is lost", (|context| Context { tag: Tag::NONE, ..context }) as fn(Context) -> Context),
            ("the phase is lost", |context| Context { phase: Phase::Setup, ..context }),
            ("the queue is lost", |context| Context { queue: 0, ..context }),
            ("the origin is lost", |context| Context { origin: Origin::Host, ..context }),
            ("all is lost", |_| Context::default()),
            ("a child without a parent", |context| Context { id: context.id + 1_000, ..context }),
            ("a child whose parent is another", |context| context.child(context.id + 1_000).child(5)),
        ] {
            let breach = check(down).expect_err(name);
            assert!(breach.seen.contains("arrived below"), "{name}: {breach}");
        }
    }
}
