//! A box for futures whose memory comes from free lists of the current thread.
//!
//! A layer that must act after the one below has completed wraps it in a future; the concrete type is erased, so
//! it needs a box. With the general allocator that costs an allocation per request and layer; here it costs two
//! moves in a thread-local vector.

use std::alloc::{self, Layout};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

const ALIGNMENT: usize = 64;
const CLASS_BYTES: [usize; 4] = [256, 512, 1024, 2048];
/// Free boxes a thread keeps per class: far above any queue depth in use.
const KEPT: usize = 4096;

thread_local! {
    static FREE: RefCell<Lists> = const { RefCell::new(Lists([const { Vec::new() }; CLASS_BYTES.len()])) };
}

struct Lists([Vec<NonNull<u8>>; CLASS_BYTES.len()]);

impl Drop for Lists {
    fn drop(&mut self) {
        for (class, list) in self.0.iter_mut().enumerate() {
            for block in list.drain(..) {
                // SAFETY: the list holds only free memory of this class's layout.
                unsafe { alloc::dealloc(block.as_ptr(), class_layout(class)) };
            }
        }
    }
}

fn class_layout(class: usize) -> Layout {
    Layout::from_size_align(CLASS_BYTES[class], ALIGNMENT).expect("constant and valid")
}

fn class_of(layout: Layout) -> Option<usize> {
    if layout.align() > ALIGNMENT {
        return None;
    }
    CLASS_BYTES.iter().position(|&bytes| layout.size() <= bytes)
}

/// A pinned, owned, type-erased future.
pub(crate) struct PooledFuture<T>(NonNull<dyn Future<Output = T>>);

impl<T> PooledFuture<T> {
    pub(crate) fn new<F: Future<Output = T> + 'static>(future: F) -> Self {
        let layout = Layout::new::<F>();
        let memory = match class_of(layout) {
            Some(class) => {
                FREE.try_with(|free| free.borrow_mut().0[class].pop()).ok().flatten().unwrap_or_else(|| {
                    let layout = class_layout(class);
                    // SAFETY: the class's size is above zero.
                    NonNull::new(unsafe { alloc::alloc(layout) })
                        .unwrap_or_else(|| alloc::handle_alloc_error(layout))
                })
            }
            // SAFETY: larger than the largest class, hence above zero, or over-aligned and so not of size zero.
            None => NonNull::new(unsafe { alloc::alloc(padded(layout)) })
                .unwrap_or_else(|| alloc::handle_alloc_error(layout)),
        };
        let typed = memory.cast::<F>();
        // SAFETY: the memory is large and aligned enough for F, and owned by us.
        unsafe { typed.write(future) };
        Self(typed)
    }
}

/// The layout of memory outside the classes; never of size zero.
fn padded(layout: Layout) -> Layout {
    Layout::from_size_align(layout.size().max(1), layout.align()).expect("a valid layout grown to one byte")
}

impl<T> Future for PooledFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // SAFETY: the future lives at a fixed address until `drop`, so it is pinned; access is exclusive.
        unsafe { Pin::new_unchecked(self.0.as_mut()) }.poll(context)
    }
}

impl<T> Unpin for PooledFuture<T> {}

impl<T> Drop for PooledFuture<T> {
    fn drop(&mut self) {
        /// Frees the memory even when the future's own drop panics.
        struct Free(NonNull<u8>, Layout);
        impl Drop for Free {
            fn drop(&mut self) {
                let class = class_of(self.1);
                let kept = class.is_some_and(|class| {
                    FREE.try_with(|free| {
                        let list = &mut free.borrow_mut().0[class];
                        let room = list.len() < KEPT;
                        if room {
                            list.push(self.0);
                        }
                        room
                    })
                    .unwrap_or(false)
                });
                if !kept {
                    let layout = class.map_or_else(|| padded(self.1), class_layout);
                    // SAFETY: allocated in `new` with exactly this layout, and not in a free list.
                    unsafe { alloc::dealloc(self.0.as_ptr(), layout) };
                }
            }
        }
        // SAFETY: the future is alive until here.
        let layout = Layout::for_value(unsafe { self.0.as_ref() });
        let _free = Free(self.0.cast(), layout);
        // SAFETY: alive, dropped exactly once, its memory freed afterwards.
        unsafe { self.0.as_ptr().drop_in_place() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn poll_once<T>(future: &mut PooledFuture<T>) -> Poll<T> {
        Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn futures_of_every_size_run_and_are_dropped_once() {
        let witness = Rc::new(());
        for round in 0..3 {
            let small = Rc::clone(&witness);
            let mut small = PooledFuture::new(async move { Rc::strong_count(&small) });
            assert_eq!(poll_once(&mut small), Poll::Ready(2), "round {round}");
            drop(small);
            let large = (Rc::clone(&witness), [1u8; 5000]);
            let mut large = PooledFuture::new(async move {
                std::future::ready(()).await;
                large.1.len()
            });
            assert_eq!(poll_once(&mut large), Poll::Ready(5000));
        }
        assert_eq!(Rc::strong_count(&witness), 1);
    }

    #[test]
    fn a_future_that_was_never_polled_is_dropped_too() {
        let witness = Rc::new(());
        let inner = Rc::clone(&witness);
        drop(PooledFuture::new(async move { drop(inner) }));
        assert_eq!(Rc::strong_count(&witness), 1);
    }

    #[test]
    fn memory_is_reused() {
        let first = PooledFuture::new(std::future::ready(1u64));
        let address = first.0.cast::<u8>();
        drop(first);
        assert_eq!(PooledFuture::new(std::future::ready(2u64)).0.cast::<u8>(), address);
    }
}
