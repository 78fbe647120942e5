//! A device that stores nothing: what a load or a layer costs by itself is measured on it.

use std::rc::Rc;
use std::sync::Arc;

use crate::{Device, DeviceInfo, Error, ErrorKind, Features, Queue, Request, Result, Runtime, Submission};

/// Completes every request inside `submit`; what a read returns is unspecified. So it keeps every clause of the contract
/// but that of visibility, and nothing that looks at data may stand on it.
#[derive(Clone, Copy, Debug)]
pub struct NullDevice(DeviceInfo);

impl NullDevice {
    /// A device of `size_bytes`, a multiple of 512 above zero; else it fails with [`ErrorKind::Invalid`].
    pub fn new(size_bytes: u64) -> Result<Arc<Self>> {
        if size_bytes == 0 || !size_bytes.is_multiple_of(512) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a device of {size_bytes} bytes; use a multiple of 512"),
            ));
        }
        Ok(Arc::new(Self(DeviceInfo {
            size: size_bytes,
            block_size: 512,
            atomic_write_bytes: 512,
            read_only: false,
            features: Features { flush: false, fua: true, discard: true, write_zeroes: true },
        })))
    }
}

impl Device for NullDevice {
    fn info(&self) -> DeviceInfo {
        self.0
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(*self))
    }
}

impl Queue for NullDevice {
    fn submit(&self, request: Request) -> Submission {
        match self.0.check(&request) {
            Ok(()) => request.succeed().into(),
            Err(error) => request.fail(error).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Context};

    #[test]
    fn everything_that_fits_succeeds_at_once_and_the_rest_is_refused() {
        assert_eq!(NullDevice::new(1000).expect_err("no multiple of 512").kind(), ErrorKind::Invalid);
        let runtime = Runtime::simulated(1);
        let queue = NullDevice::new(8192).expect("fits").open_queue(&runtime).expect("opens");
        let answer = |request: Request| queue.submit(request).try_take().expect("at once").result;
        assert!(answer(Request::write(4096, Buffer::zeroed(4096), Context::default())).is_ok());
        assert!(answer(Request::read(0, Buffer::stale(8192), Context::default())).is_ok());
        assert!(answer(Request::flush(Context::default())).is_ok());
        let beyond = answer(Request::read(8192, Buffer::stale(512), Context::default()));
        assert_eq!(beyond.expect_err("beyond its end").kind(), ErrorKind::OutOfRange);
    }
}
