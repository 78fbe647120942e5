//! Locks that keep a read-modify-write of a partly covered block apart from every other change of that block.
//!
//! The device's bytes are cut into regions of 1 MiB that share 1024 stripes. A change of whole blocks takes its
//! stripes *shared*: one atomic addition where nobody writes parts of blocks, which is nearly always. A change of
//! parts of blocks takes them *exclusive* and awaits those under way. Stripes are taken in ascending order and held
//! until the change is complete, so there is no circle; nobody blocks a thread, and a change elsewhere never waits.
//!
//! All exports of one device in this process share its stripes, so programs that reach it in different ways are kept
//! apart as well.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rotproof_block::Device;

const STRIPES: u64 = 1024;
const REGION_BYTES_LOG2: u32 = 20;
/// Somebody holds the stripe exclusive, or will when the shared ones have left; the other bits count these.
const EXCLUSIVE: u32 = 1 << 31;

/// One set of locks for a device, shared by all threads that write to it.
#[derive(Clone)]
pub(crate) struct SharedStripes(Arc<[Stripe]>);

/// The devices that have stripes at present. A device's address is not given to another as long as it is in here.
static DEVICES: Mutex<Vec<Known>> = Mutex::new(Vec::new());

struct Known {
    device: Weak<dyn Device>,
    stripes: Weak<[Stripe]>,
}

impl Known {
    fn is(&self, address: *const ()) -> bool {
        self.device.as_ptr().cast::<()>() == address
    }
}

/// A thread's handle to them; its clones cost no atomic operation.
#[derive(Clone)]
pub(crate) struct Stripes(Rc<SharedStripes>);

#[derive(Default)]
struct Stripe {
    state: AtomicU32,
    /// All are woken at every release that may let one of them in, and look again.
    waiting: Mutex<Vec<Waker>>,
}

impl Stripe {
    fn try_shared(&self) -> bool {
        if self.state.fetch_add(1, Ordering::Acquire) & EXCLUSIVE == 0 {
            return true;
        }
        self.release_shared();
        false
    }

    fn try_exclusive(&self) -> bool {
        self.state.fetch_or(EXCLUSIVE, Ordering::Acquire) & EXCLUSIVE == 0
    }

    fn is_drained(&self) -> bool {
        self.state.load(Ordering::Acquire) == EXCLUSIVE
    }

    fn release_shared(&self) {
        if self.state.fetch_sub(1, Ordering::Release) == EXCLUSIVE + 1 {
            self.wake();
        }
    }

    fn release_exclusive(&self) {
        self.state.fetch_and(!EXCLUSIVE, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for waker in waiting {
            waker.wake();
        }
    }

    /// Ready when `attempt` succeeds. The waker is in the list before the last attempt, and a release changes the
    /// state before it takes the list, so none is missed.
    fn poll(&self, context: &Context<'_>, mut attempt: impl FnMut() -> bool) -> Poll<()> {
        if attempt() {
            return Poll::Ready(());
        }
        self.waiting.lock().push(context.waker().clone());
        if attempt() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl SharedStripes {
    /// Those of `device`: for every export of it the same.
    pub(crate) fn of(device: &Arc<dyn Device>) -> Self {
        let mut devices = DEVICES.lock();
        devices.retain(|known| known.stripes.strong_count() > 0);
        let address = Arc::as_ptr(device).cast::<()>();
        let known = devices.iter().find(|known| known.is(address));
        if let Some(stripes) = known.and_then(|known| known.stripes.upgrade()) {
            return Self(stripes);
        }
        let stripes = Self::new();
        devices.push(Known { device: Arc::downgrade(device), stripes: Arc::downgrade(&stripes.0) });
        stripes
    }

    fn new() -> Self {
        Self((0..STRIPES).map(|_| Stripe::default()).collect())
    }

    pub(crate) fn on_this_thread(&self) -> Stripes {
        Stripes(Rc::new(self.clone()))
    }
}

/// Stripes held; given back when dropped.
pub(crate) struct Held {
    stripes: Stripes,
    first_region: u64,
    /// How many stripes the change needs.
    needed: u64,
    /// How many of them are held, in ascending order.
    taken: u64,
    exclusive: bool,
}

impl Stripes {
    /// The stripes of a change of whole blocks, if nobody holds or wants one of them exclusive.
    pub(crate) fn try_shared(&self, offset: u64, length: u64) -> Option<Held> {
        let mut held = Held::nothing_yet(self, offset, length, false);
        while held.taken < held.needed {
            if !held.stripe(held.taken).try_shared() {
                return None;
            }
            held.taken += 1;
        }
        Some(held)
    }

    /// The stripes of a change of whole blocks.
    pub(crate) async fn shared(&self, offset: u64, length: u64) -> Held {
        let mut held = Held::nothing_yet(self, offset, length, false);
        while held.taken < held.needed {
            let stripe = held.stripe(held.taken);
            poll_fn(|context| stripe.poll(context, || stripe.try_shared())).await;
            held.taken += 1;
        }
        held
    }

    /// The stripes of a change of parts of blocks, when every other change there is complete.
    pub(crate) async fn exclusive(&self, offset: u64, length: u64) -> Held {
        let mut held = Held::nothing_yet(self, offset, length, true);
        while held.taken < held.needed {
            let stripe = held.stripe(held.taken);
            poll_fn(|context| stripe.poll(context, || stripe.try_exclusive())).await;
            // From here on it is ours to give back, also if we are dropped while the shared ones leave.
            held.taken += 1;
            let stripe = held.stripe(held.taken - 1);
            poll_fn(|context| stripe.poll(context, || stripe.is_drained())).await;
        }
        held
    }
}

impl Held {
    fn nothing_yet(stripes: &Stripes, offset: u64, length: u64, exclusive: bool) -> Self {
        let first_region = offset >> REGION_BYTES_LOG2;
        let last_region = offset.saturating_add(length.saturating_sub(1)) >> REGION_BYTES_LOG2;
        // So many regions have every stripe.
        let needed = (last_region - first_region + 1).min(STRIPES);
        Self { stripes: stripes.clone(), first_region, needed, taken: 0, exclusive }
    }

    /// The `index`-th of the needed stripes in ascending order. Regions follow each other round the stripes, so
    /// those that have gone round come first.
    fn stripe(&self, index: u64) -> &Stripe {
        let first = self.first_region % STRIPES;
        let gone_round = (first + self.needed).saturating_sub(STRIPES);
        let number = if index < gone_round { index } else { first + index - gone_round };
        &self.stripes.0.0[usize::try_from(number).expect("below 1024")]
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for index in 0..self.taken {
            let stripe = self.stripe(index);
            if self.exclusive { stripe.release_exclusive() } else { stripe.release_shared() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;

    use rotproof_block::leaf::MemoryDevice;

    fn is_pending<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[test]
    fn exports_of_one_device_share_its_stripes_and_those_of_two_do_not() {
        let device = || MemoryDevice::new(1 << 20, 512).expect("sizes that fit");
        let (one, other): (Arc<dyn Device>, Arc<dyn Device>) = (device(), device());
        let of_one = SharedStripes::of(&one);
        let again = SharedStripes::of(&Arc::clone(&one));
        assert!(Arc::ptr_eq(&of_one.0, &again.0));
        assert!(!Arc::ptr_eq(&of_one.0, &SharedStripes::of(&other).0));
        let entries = |address: *const ()| DEVICES.lock().iter().filter(|known| known.is(address)).count();
        let address = Arc::as_ptr(&one).cast::<()>();
        assert_eq!(entries(address), 1);
        drop((of_one, again));
        let _forgets_the_dead = SharedStripes::of(&other);
        assert_eq!(entries(address), 0);
    }

    #[test]
    fn changes_of_whole_blocks_go_beside_each_other() {
        let stripes = SharedStripes::new().on_this_thread();
        let _one = stripes.try_shared(0, 4096).expect("free");
        let _two = stripes.try_shared(0, 4096).expect("shared");
    }

    #[test]
    fn a_partial_change_waits_for_those_under_way_and_keeps_others_out() {
        let stripes = SharedStripes::new().on_this_thread();
        let under_way = stripes.try_shared(4096, 4096).expect("free");
        let mut partial = pin!(stripes.exclusive(100, 10));
        assert!(is_pending(partial.as_mut()), "another change is under way");
        assert!(stripes.try_shared(0, 4096).is_none(), "none may pass it, or it would starve");
        assert!(stripes.try_shared(1 << 20, 4096).is_some(), "elsewhere nobody waits");
        drop(under_way);
        let Poll::Ready(held) = partial.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("nobody is left to wait for");
        };
        assert!(stripes.try_shared(0, 4096).is_none());
        drop(held);
        assert!(stripes.try_shared(0, 4096).is_some());
    }

    #[test]
    fn giving_up_the_wait_gives_back_what_was_taken() {
        let stripes = SharedStripes::new().on_this_thread();
        let under_way = stripes.try_shared(2 << 20, 4096).expect("free");
        {
            let mut partial = pin!(stripes.exclusive((1 << 20) + 5, 1 << 20));
            assert!(is_pending(partial.as_mut()));
            assert!(stripes.try_shared(1 << 20, 512).is_none(), "the first of its two stripes is taken");
        }
        assert!(stripes.try_shared(1 << 20, 2 << 20).is_some());
        drop(under_way);
    }

    #[test]
    fn ranges_round_the_end_of_the_stripes_need_each_stripe_once() {
        let stripes = SharedStripes::new().on_this_thread();
        for (offset, length) in [
            (1023 << 20, 2 << 20),
            (5 << 20, 1024 << 20),
            (5 << 20, 5000 << 20),
            ((1023 << 20) + 1, 1 << 20),
            (7, u64::MAX),
        ] {
            let held = stripes.try_shared(offset, length).expect("free");
            let mut numbers: Vec<_> =
                (0..held.needed).map(|index| std::ptr::from_ref(held.stripe(index))).collect();
            assert!(numbers.is_sorted(), "{offset}+{length}");
            numbers.dedup();
            assert_eq!(numbers.len() as u64, held.needed);
            drop(held);
            assert!(stripes.0.0.iter().all(|stripe| stripe.state.load(Ordering::Relaxed) == 0));
        }
    }

    #[test]
    fn threads_that_change_parts_of_the_same_blocks_never_meet_inside() {
        let shared = SharedStripes::new();
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (shared, inside) = (shared.clone(), &inside);
                scope.spawn(move || {
                    let stripes = shared.on_this_thread();
                    let runtime =
                        rotproof_block::Runtime::uring(rotproof_block::runtime::RuntimeOptions::new(thread))
                            .expect("this machine has io_uring");
                    runtime
                        .block_on(async {
                            for round in 0..2000u64 {
                                if (round + thread) % 3 == 0 {
                                    let _held = stripes.exclusive((1 << 20) - 7, 14).await;
                                    assert_eq!(inside.swap(1000, Ordering::SeqCst), 0);
                                    runtime.yield_now().await;
                                    assert_eq!(inside.swap(0, Ordering::SeqCst), 1000);
                                } else {
                                    let _held = stripes.shared(0, 2 << 20).await;
                                    assert!(inside.fetch_add(1, Ordering::SeqCst) < 1000);
                                    runtime.yield_now().await;
                                    assert!(inside.fetch_sub(1, Ordering::SeqCst) < 1000);
                                }
                            }
                        })
                        .expect("no wake is lost");
                });
            }
        });
    }
}
