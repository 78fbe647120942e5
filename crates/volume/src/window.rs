//! Some pieces of work under way at once, whose results come in the order in which they were begun.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// A piece under way, and what it came to.
struct Piece<'a, T> {
    work: Pin<Box<dyn Future<Output = T> + 'a>>,
    done: Option<T>,
}

/// The pieces under way. Whoever drops them before their end gives them up.
pub(crate) struct Window<'a, T>(VecDeque<Piece<'a, T>>);

impl<'a, T> Window<'a, T> {
    pub(crate) fn new() -> Self {
        Self(VecDeque::new())
    }

    /// How many have been begun whose result nobody has taken.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Begins one more. It goes on while somebody waits for [`Window::next`].
    pub(crate) fn begin(&mut self, work: impl Future<Output = T> + 'a) {
        self.0.push_back(Piece { work: Box::pin(work), done: None });
    }

    /// What the one came to that was begun first; the others go on meanwhile. `None` if none is under way.
    pub(crate) async fn next(&mut self) -> Option<T> {
        poll_fn(|context| {
            for piece in self.0.iter_mut().filter(|piece| piece.done.is_none()) {
                if let Poll::Ready(done) = piece.work.as_mut().poll(context) {
                    piece.done = Some(done);
                }
            }
            let is_ready = self.0.front().is_none_or(|piece| piece.done.is_some());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.0.pop_front()?.done
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rotproof_block::Runtime;

    use super::*;

    #[test]
    fn pieces_go_on_at_once_and_end_in_their_order() {
        let runtime = Runtime::simulated(1);
        let clock = runtime.clone();
        let ended = runtime.block_on(async {
            let mut window = Window::new();
            for (number, ms) in [(0, 30u64), (1, 10), (2, 20)] {
                let clock = clock.clone();
                window.begin(async move {
                    clock.sleep(Duration::from_millis(ms)).await;
                    number
                });
            }
            let mut ended = Vec::new();
            while let Some(number) = window.next().await {
                ended.push((number, clock.now().0 / 1_000_000));
            }
            ended
        });
        assert_eq!(ended.expect("runs"), [(0, 30), (1, 30), (2, 30)]);
    }
}
