//! Looks at the bytes of a state in process: nothing is mounted or served, so no kernel takes part and no right is needed.

use std::sync::Arc;

use rotproof_block::Result;
use rotproof_crash::{Check, Contents, Crash, Finding, ImageDevice};

/// Looks at the bytes of a state.
pub trait ImageOracle: Send {
    /// What is wrong with the bytes that `image` shows; an error if that cannot be known. The device is this oracle's alone: it may ask
    /// [`ImageDevice::take_changed`] what differs from the last state.
    fn look(&mut self, image: &ImageDevice, crash: &Crash<'_>) -> Result<Vec<Finding>>;
}

/// See the head of the module.
pub struct ImageCheck {
    image: Arc<ImageDevice>,
    oracle: Box<dyn ImageOracle>,
}

impl ImageCheck {
    /// A check of states of a recording with these contents.
    pub fn new(contents: Arc<Contents>, oracle: Box<dyn ImageOracle>) -> Self {
        // Nobody writes to a state.
        Self { image: ImageDevice::new(contents, 0), oracle }
    }
}

impl Check for ImageCheck {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.image
    }

    fn check(&mut self, crash: &Crash<'_>) -> Result<Vec<Finding>> {
        self.oracle.look(&self.image, crash)
    }
}
