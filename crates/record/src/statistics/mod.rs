//! What can be said of numbers that vary: how sure a mean is, whether two differ, what a fault took away, and whether a
//! load has become steady.
//!
//! Everything here is a function of the numbers given to it.

mod change;
mod compare;
mod degradation;
mod distribution;
mod series;
mod steady;
mod summary;
mod window_figures;

pub use change::{Change, Level};
pub use compare::{Comparison, MannWhitney, Welch, compare, mann_whitney, ratio_of_means, welch};
pub use degradation::{Degradation, DetectedBy, Effect, Levels, Recovery, Window, degradation};
pub use distribution::{normal_survival, student_quantile, student_survival};
pub use series::{Point, series, variation};
pub use steady::{SteadyEnd, SteadyMeasure, SteadySpec, SteadyState, SteadyWatch, steady_state};
pub use summary::{Range, Summary};
pub use window_figures::{OperationFigures, SpanFigures, WindowFigures, window_figures};
