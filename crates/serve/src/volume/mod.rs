//! A volume that is served: what is done to it meanwhile, what happens to it, and who is told.
//!
//! The [`Keeper`] has two threads of its own. One does the tasks that a client asks for, or that are due by themselves, one after
//! the other. The other looks at the volume some times a second, and tells what has become different ([`events`]) to a command
//! of the user's (`hook`). Neither is on the path of a request.

mod describe;
pub mod events;
mod hook;
mod keeper;
mod member;
mod perform;
mod reshape;
mod task;
mod versions;

pub use describe::status_json;
pub use hook::HookReport;
pub use keeper::{Keeper, KeeperFigures, KeeperOptions};
pub use member::{candidate, identity, member_to_fill, refuse_member};
pub use perform::{Doer, time_ns};
pub use task::{TaskReport, TaskState, VolumeTask};
pub(crate) use versions::with_versions;
