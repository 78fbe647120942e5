//! The tag that the running code works under, for a library in between that knows nothing of tags: the application
//! opens a scope, whoever makes the requests asks for the tag of it. FISPDK carries it in thread-local storage past
//! Blobstore; here a scope belongs to the task, not to the thread: it is entered anew for each poll, so it survives
//! every await, and no other task that runs meanwhile sees it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;

use crate::Tag;

thread_local! {
    static CURRENT: Cell<Tag> = const { Cell::new(Tag::NONE) };
}

/// Goes back to the scope around it when dropped, in a panic too.
pub(crate) struct Entered {
    outer: Tag,
}

impl Entered {
    /// Makes `tag` the current one of this thread.
    #[inline]
    pub(crate) fn new(tag: Tag) -> Self {
        Self { outer: CURRENT.replace(tag) }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}

impl Tag {
    /// The tag of the innermost scope that the caller runs in; [`Tag::NONE`] outside of all.
    #[inline]
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Runs `work` under this tag: for code that blocks.
    ///
    /// A runtime that `work` blocks on polls other tasks meanwhile; they do not see the tag.
    pub fn scope<T>(self, work: impl FnOnce() -> T) -> T {
        let _entered = Entered::new(self);
        work()
    }

    /// Runs `future` under this tag, through all its awaits. What it spawns is a task of its own, outside of the
    /// scope; give it the tag by a scope of its own: `Tag::current().scope_async(..)`.
    pub async fn scope_async<F: Future>(self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|task| {
            let _entered = Entered::new(self);
            future.as_mut().poll(task)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::Runtime;

    fn tags() -> [Tag; 2] {
        ["focal.img", "bionic.img"].map(Tag::intern)
    }

    #[test]
    fn scopes_nest_and_end_also_in_a_panic() {
        let [focal, bionic] = tags();
        assert_eq!(Tag::current(), Tag::NONE);
        focal.scope(|| {
            assert_eq!(bionic.scope(Tag::current), bionic);
            assert_eq!(Tag::current(), focal);
            assert!(catch_unwind(AssertUnwindSafe(|| bionic.scope(|| panic!("on purpose")))).is_err());
            assert_eq!(Tag::current(), focal);
        });
        assert_eq!(Tag::current(), Tag::NONE);
    }

    #[test]
    fn a_scope_survives_awaits_and_no_other_task_sees_it() {
        let runtime = Runtime::simulated(1);
        let seen = Rc::new(RefCell::new(Vec::new()));
        // Each sleeps while others run, and looks after each sleep.
        let observe = |milliseconds: u64| {
            let (runtime, seen) = (runtime.clone(), Rc::clone(&seen));
            async move {
                for _ in 0..20 {
                    runtime.sleep(Duration::from_millis(milliseconds)).await;
                    runtime.yield_now().await;
                    seen.borrow_mut().push((milliseconds, Tag::current()));
                }
            }
        };
        let [focal, bionic] = tags();
        let tasks = [
            runtime.spawn(focal.scope_async(observe(2))),
            runtime.spawn(bionic.scope_async(observe(3))),
            runtime.spawn(observe(5)),
        ];
        runtime
            .block_on(async {
                for task in tasks {
                    task.await;
                }
            })
            .expect("nothing stalls");
        assert_eq!(seen.borrow().len(), 60);
        for (milliseconds, tag) in seen.borrow().iter() {
            let wanted = match milliseconds {
                2 => focal,
                3 => bionic,
                _ => Tag::NONE,
            };
            assert_eq!(*tag, wanted, "the task that sleeps {milliseconds} ms");
        }
    }

    #[test]
    fn tasks_that_run_while_a_scope_blocks_do_not_see_it() {
        let runtime = Runtime::simulated(1);
        let seen = Rc::new(Cell::new(None));
        let (other_seen, sleeping) = (Rc::clone(&seen), runtime.clone());
        runtime.spawn_detached(async move {
            sleeping.sleep(Duration::from_millis(1)).await;
            other_seen.set(Some(Tag::current()));
        });
        let [focal, _] = tags();
        let own = focal.scope(|| {
            runtime.block_on(async {
                runtime.sleep(Duration::from_millis(2)).await;
                Tag::current()
            })
        });
        assert_eq!(own.expect("a timer is set"), focal);
        assert_eq!(seen.get(), Some(Tag::NONE));
    }

    #[test]
    fn what_a_scope_spawns_is_outside_of_it() {
        let runtime = Runtime::simulated(1);
        let [focal, _] = tags();
        let spawning = runtime.clone();
        let (plain, given) = runtime
            .block_on(focal.scope_async(async move {
                let plain = spawning.spawn(async { Tag::current() });
                let given = spawning.spawn(Tag::current().scope_async(async { Tag::current() }));
                (plain.await, given.await)
            }))
            .expect("nothing stalls");
        assert_eq!((plain, given), (Tag::NONE, focal));
    }
}
