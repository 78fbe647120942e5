//! The one place where an error becomes an errno: here a request leaves Rotproof.
//!
//! | kind | errno |
//! |---|---|
//! | `Medium` | `EIO` |
//! | `OutOfRange`, `Misaligned`, `Invalid` | `EINVAL` |
//! | `NoSpace` | `ENOSPC` |
//! | `ReadOnly` | `EROFS` |
//! | `Unsupported` | `EOPNOTSUPP` |
//! | `Gone` | `ENODEV` |
//! | `TimedOut` | `ETIMEDOUT` |
//! | `Cancelled` | `ECANCELED` |
//! | `Refused` | `EPERM` |
//! | `Os(n)` | `n`; `EOPNOTSUPP` for `ENOSYS`; `EIO` where `n` is no errno of user space (1 to 511) |
//! | `Missing`, `Stalled`, `Internal` | `EIO` |
//!
//! `ENOSYS` must not leave: the kernel takes it as "this operation does not exist" and never asks again, so that
//! after one failed flush every later `fsync` would succeed without reaching the device.
//!
//! A loop device on top passes on the class that the block layer has for an errno: `EIO`, `ENOSPC`, `ENODATA`,
//! `ETIMEDOUT`, `ENOLINK`, `EREMOTEIO`, `EILSEQ` and `ENOMEM` arrive unchanged, the others as `EIO`.

use rotproof_block::nbd::ERRORS;
use rotproof_block::{Error, ErrorKind};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_UNSUPP};

/// The largest errno the kernel accepts in an answer; from 512 on they are its own.
const LARGEST: i32 = 511;

/// The errno, a positive number, that a program sees for an error of a device.
pub fn errno_of(error: &Error) -> i32 {
    match error.kind() {
        ErrorKind::OutOfRange | ErrorKind::Misaligned | ErrorKind::Invalid => libc::EINVAL,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::ReadOnly => libc::EROFS,
        ErrorKind::Unsupported | ErrorKind::Os(libc::ENOSYS) => libc::EOPNOTSUPP,
        ErrorKind::Gone => libc::ENODEV,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Cancelled => libc::ECANCELED,
        ErrorKind::Refused => libc::EPERM,
        ErrorKind::Os(number @ 1..=LARGEST) => number,
        // Medium, Missing, Stalled, Internal, numbers that are no errno, and kinds not known here.
        _ => libc::EIO,
    }
}

/// The error of the NBD protocol that says most of an errno: itself where the protocol has it.
///
/// | errno | NBD |
/// |---|---|
/// | `EPERM`, `EIO`, `ENOMEM`, `EINVAL`, `ENOSPC`, `EOVERFLOW`, `EOPNOTSUPP`, `ESHUTDOWN` | the same |
/// | `EROFS` | `EPERM` |
/// | `EDQUOT`, `EFBIG` | `ENOSPC` |
/// | all others | `EIO` |
pub fn nbd_error(errno: i32) -> u32 {
    let error = match errno {
        libc::EROFS => libc::EPERM,
        libc::EDQUOT | libc::EFBIG => libc::ENOSPC,
        same if ERRORS.contains(&same) => same,
        _ => libc::EIO,
    };
    error.unsigned_abs()
}

/// The status of a virtio block device (`VIRTIO_BLK_S_*`) that says most of an errno; it has but two.
///
/// | errno | status |
/// |---|---|
/// | `EOPNOTSUPP` | `UNSUPP`, which Linux makes `EOPNOTSUPP` again |
/// | all others | `IOERR`, which Linux makes `EIO` |
pub fn virtio_status(errno: i32) -> u8 {
    if errno == libc::EOPNOTSUPP { VIRTIO_BLK_S_UNSUPP as u8 } else { VIRTIO_BLK_S_IOERR as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_sees_what_is_not_supported_and_errors() {
        assert_eq!(virtio_status(libc::EOPNOTSUPP), 2);
        for errno in [libc::EIO, libc::ENOSPC, libc::EROFS, libc::ETIMEDOUT, 0] {
            assert_eq!(virtio_status(errno), 1);
        }
    }

    #[test]
    fn an_nbd_client_sees_the_error_that_says_most() {
        for (errno, expected) in [
            (libc::EIO, libc::EIO),
            (libc::ENOSPC, libc::ENOSPC),
            (libc::EDQUOT, libc::ENOSPC),
            (libc::EROFS, libc::EPERM),
            (libc::EOPNOTSUPP, libc::EOPNOTSUPP),
            (libc::ENOMEM, libc::ENOMEM),
            (libc::EINVAL, libc::EINVAL),
            (libc::ETIMEDOUT, libc::EIO),
            (libc::ENODATA, libc::EIO),
            (libc::ENODEV, libc::EIO),
            (0, libc::EIO),
        ] {
            assert_eq!(nbd_error(errno), expected.unsigned_abs(), "{errno}");
        }
    }

    #[test]
    fn every_kind_has_the_errno_of_the_table() {
        for (kind, expected) in [
            (ErrorKind::Medium, libc::EIO),
            (ErrorKind::OutOfRange, libc::EINVAL),
            (ErrorKind::Misaligned, libc::EINVAL),
            (ErrorKind::NoSpace, libc::ENOSPC),
            (ErrorKind::ReadOnly, libc::EROFS),
            (ErrorKind::Unsupported, libc::EOPNOTSUPP),
            (ErrorKind::Gone, libc::ENODEV),
            (ErrorKind::TimedOut, libc::ETIMEDOUT),
            (ErrorKind::Cancelled, libc::ECANCELED),
            (ErrorKind::Invalid, libc::EINVAL),
            (ErrorKind::Missing, libc::EIO),
            (ErrorKind::Refused, libc::EPERM),
            (ErrorKind::Stalled, libc::EIO),
            (ErrorKind::Os(libc::EILSEQ), libc::EILSEQ),
            (ErrorKind::Internal, libc::EIO),
        ] {
            assert_eq!(errno_of(&Error::new(kind, "")), expected, "{kind:?}");
        }
    }

    #[test]
    fn numbers_that_the_kernel_would_refuse_or_misread_never_leave() {
        for (number, expected) in [
            (0, libc::EIO),
            (-5, libc::EIO),
            (511, 511),
            (512, libc::EIO),
            (i32::MIN, libc::EIO),
            (libc::ENOSYS, libc::EOPNOTSUPP),
        ] {
            assert_eq!(errno_of(&Error::new(ErrorKind::Os(number), "")), expected, "{number}");
        }
    }
}
