//! The rules as they were at one moment. What is decided on a request and what is done when it has come back go by
//! the same set, so that a rule which comes or goes meanwhile concerns the next request and never half of this one.

use std::rc::Rc;
use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use crate::index::Index;

/// The rules that a request goes by, from its decision to its end. As cheap to copy as a pointer within its thread.
#[derive(Clone, Debug)]
pub(crate) struct RuleSet(Rc<Held>);

#[derive(Debug)]
struct Held(Arc<Index>);

impl RuleSet {
    pub(crate) fn index(&self) -> &Index {
        &self.0.0
    }
}

/// The newest set, as one queue has seen it last: looking for a newer one costs a load and a comparison.
#[derive(Debug)]
pub(crate) struct Newest {
    cache: Cache<Arc<ArcSwap<Index>>, Arc<Index>>,
    set: RuleSet,
}

impl Newest {
    pub(crate) fn new(index: &Arc<ArcSwap<Index>>) -> Self {
        let mut cache = Cache::new(Arc::clone(index));
        let set = RuleSet(Rc::new(Held(Arc::clone(cache.load()))));
        Self { cache, set }
    }

    pub(crate) fn load(&mut self) -> &RuleSet {
        let index = self.cache.load();
        if !Arc::ptr_eq(index, &self.set.0.0) {
            self.set = RuleSet(Rc::new(Held(Arc::clone(index))));
        }
        &self.set
    }
}
