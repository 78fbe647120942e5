//! A list that is nearly always empty or has one element, in eight bytes: millions of blocks may each have some.

/// Elements in the order in which they were pushed.
#[derive(Debug)]
pub(crate) struct Few<T>(Option<Box<Node<T>>>);

#[derive(Debug)]
struct Node<T> {
    first: T,
    #[expect(clippy::box_collection, reason = "eight bytes where there is none, which is nearly always")]
    more: Option<Box<Vec<T>>>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Few<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn push(&mut self, element: T) {
        match &mut self.0 {
            None => self.0 = Some(Box::new(Node { first: element, more: None })),
            Some(node) => node.more.get_or_insert_default().push(element),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|node| std::iter::once(&node.first).chain(node.more.iter().flat_map(|m| &**m)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().flat_map(|node| {
            std::iter::once(&mut node.first).chain(node.more.iter_mut().flat_map(|more| &mut **more))
        })
    }

    pub(crate) fn last(&self) -> Option<&T> {
        let node = self.0.as_deref()?;
        node.more.as_ref().and_then(|more| more.last()).or(Some(&node.first))
    }

    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        let node = self.0.as_deref_mut()?;
        match node.more.as_deref_mut().and_then(|more| more.last_mut()) {
            Some(last) => Some(last),
            None => Some(&mut node.first),
        }
    }

    /// Keeps those of which `keep` says so.
    pub(crate) fn retain_mut(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        let Some(node) = &mut self.0 else { return };
        let keeps_first = keep(&mut node.first);
        if let Some(more) = &mut node.more {
            more.retain_mut(keep);
        }
        node.more.take_if(|more| more.is_empty());
        if keeps_first {
            return;
        }
        match &mut node.more {
            Some(more) => node.first = more.remove(0),
            None => self.0 = None,
        }
    }

    /// All of them; none is left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.0.take().into_iter().flat_map(|node| {
            let Node { first, more } = *node;
            std::iter::once(first).chain(more.map_or_else(Vec::new, |more| *more))
        })
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        elements.into_iter().for_each(|element| self.push(element));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u8),
        /// Keeps what is not a multiple.
        Drop(u8),
        ChangeLast,
        Take,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<u8>().prop_map(Step::Push),
            2 => (1u8..5).prop_map(Step::Drop),
            1 => Just(Step::ChangeLast),
            1 => Just(Step::Take),
        ];
        prop::collection::vec(step, 0..30)
    }

    proptest! {
        #[test]
        fn it_is_a_list(steps in steps()) {
            let (mut few, mut plain) = (Few::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Push(number) => {
                        few.push(number);
                        plain.push(number);
                    }
                    Step::Drop(of) => {
                        few.retain_mut(|number| !number.is_multiple_of(of));
                        plain.retain(|number| !number.is_multiple_of(of));
                    }
                    Step::ChangeLast => {
                        few.last_mut().into_iter().for_each(|last| *last = last.wrapping_add(1));
                        plain.last_mut().into_iter().for_each(|last| *last = last.wrapping_add(1));
                    }
                    Step::Take => prop_assert!(few.take().eq(std::mem::take(&mut plain))),
                }
                prop_assert!(few.iter().eq(&plain));
                prop_assert!(few.iter_mut().eq(plain.iter_mut()));
                prop_assert_eq!((few.last(), few.is_empty()), (plain.last(), plain.is_empty()));
            }
        }
    }
}
