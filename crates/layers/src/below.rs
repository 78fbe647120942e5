//! Which abilities of the device below a layer has as well.

use rotproof_block::Device;
use rotproof_block::ability::{Ability, Wanted};
use rotproof_volume::copies::Copies;

/// The ability of the device below, unless it is a way to the data that leads past the layer.
pub(crate) fn ability_below(below: &dyn Device, wanted: Wanted) -> Option<Ability> {
    if wanted.is::<dyn Copies>() { None } else { below.ability(wanted) }
}
