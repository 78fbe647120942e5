//! The fault matrix: each fault at each place of a volume, at rest and under load, and what became of it.
//!
//! [`volume_cell`] does a cell on a volume in virtual time: members of RAM, below each a place where Rotproof's own faults act.
//! [`table`] shows the cells. [`life`] is the life of a volume with whatever may come, [`life_in_use`]
//! that of one that changes while it is used, [`power_loss`] the states that a loss of power may leave of one. Nothing here knows files, mounts or trials.

mod awake;
mod bench;
mod cell;
mod in_use;
mod life;
mod oracle;
mod plug;
mod power;
mod rules;
mod show;
mod volume;

pub use cell::{Cell, Fate, Fault, Place, When, all_cells};
pub use in_use::{LifeInUse, life_in_use};
pub use life::{Life, life};
pub use oracle::{BLOCK, Oracle, block_of};
pub use power::{PowerLoss, power_loss};
pub use show::{table, table_of_several};
pub use volume::volume_cell;

#[cfg(test)]
mod tests;
