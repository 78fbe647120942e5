//! Optional abilities of a device: small traits beside [`Device`], looked up by their type.
//!
//! An ability is a trait object, such as `dyn Power`, that says what else can be done to a device than to send it requests. A
//! device gives its own in [`Device::ability`]; a layer that has no answer of its own hands the question down.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::Device;

/// The question for one ability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted(TypeId);

/// An ability that was found.
pub struct Ability(Box<dyn Any>);

impl Wanted {
    /// Whether it is the ability `A` that is wanted.
    pub fn is<A: ?Sized + 'static>(self) -> bool {
        self.0 == TypeId::of::<A>()
    }

    /// Gives the ability `provider` if it is the one that is wanted.
    pub fn offer<A: ?Sized + 'static>(self, provider: impl FnOnce() -> Arc<A>) -> Option<Ability> {
        self.is::<A>().then(|| Ability(Box::new(provider())))
    }
}

/// The ability `A` of a device, or of the nearest below it that has one; `None` if none has.
pub fn find<A: ?Sized + 'static>(device: &dyn Device) -> Option<Arc<A>> {
    let Ability(found) = device.ability(Wanted(TypeId::of::<A>()))?;
    found.downcast::<Arc<A>>().ok().map(|found| *found)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::{DeviceInfo, Queue, Result, Runtime, leaf::MemoryDevice};

    trait Colour: Send + Sync {
        fn colour(&self) -> &'static str;
    }

    trait Weight: Send + Sync {}

    struct Red;

    impl Colour for Red {
        fn colour(&self) -> &'static str {
            "red"
        }
    }

    struct Painted(Arc<MemoryDevice>);

    impl Device for Painted {
        fn info(&self) -> DeviceInfo {
            self.0.info()
        }

        fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
            self.0.open_queue(runtime)
        }

        fn ability(&self, wanted: Wanted) -> Option<Ability> {
            wanted.offer::<dyn Colour>(|| Arc::new(Red)).or_else(|| self.0.ability(wanted))
        }
    }

    #[test]
    fn an_ability_is_found_by_its_trait_and_no_other() {
        let memory = MemoryDevice::new(1 << 20, 512).expect("a size that fits");
        assert!(find::<dyn Colour>(&*memory).is_none());
        let painted = Painted(memory);
        assert_eq!(find::<dyn Colour>(&painted).map(|found| found.colour()), Some("red"));
        assert!(find::<dyn Weight>(&painted).is_none());
    }
}
