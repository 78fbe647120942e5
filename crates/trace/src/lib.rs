//! Block traces: what others have recorded of real machines, as a stream of [`Access`]es.
//!
//! Nothing here holds a trace in memory: [`Reader`] gives one access after the other from whatever it reads, and counts
//! what it cannot make sense of. Each format has a file of its own under `format`; start with [`Format`].

mod access;
mod compressed;
mod format;
mod number;
mod reader;
mod remap;
mod summary;
mod writer;

pub use access::{Access, Operation};
pub use compressed::Plain;
pub use format::{ColumnNames, Format, Reading, TimeUnit};
pub use reader::{Limits, Malformed, Reader, Stop};
pub use remap::Remap;
pub use summary::{Figures, Share, Summary};
pub use writer::{Unwritable, Writer};
