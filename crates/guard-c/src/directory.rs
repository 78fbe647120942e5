//! A guard that a program has open, and the sums that its files have.

use std::ffi::c_char;
use std::sync::Arc;

use guard::sum::BLOCK;
use guard::{Pair, Store};

use crate::status::{CallError, call, path_of, rotproof_guard_status};

/// The guard of a directory. All functions that take it may be called from several threads at once.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct rotproof_guard {
    pub(crate) store: Arc<Store>,
}

/// How often blocks were verified in this process, and what came of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct rotproof_guard_counts {
    /// Blocks verified by the light sum.
    pub light: u64,
    /// Blocks verified by the strong sum.
    pub strong: u64,
    /// Blocks handed out that nothing vouches for.
    pub unvouched: u64,
    /// Verifications before data went to the file system below.
    pub boundary: u64,
    /// Blocks that failed a verification at first.
    pub mismatches: u64,
    /// Of these: mended, from the disk, the cache, the mirror, or the other sum.
    pub mended: u64,
    /// Of these: could not be mended, and were refused.
    pub refused: u64,
}

/// The guard behind a pointer from C.
///
/// # Safety
/// `guard` is NULL or was given by `rotproof_guard_open` and is not freed during `'a`.
pub(crate) unsafe fn guard_of<'a>(guard: *const rotproof_guard) -> Result<&'a rotproof_guard, CallError> {
    // SAFETY: as the caller promises.
    unsafe { guard.as_ref() }.ok_or_else(|| CallError::invalid("the guard is NULL"))
}

/// How many blocks of a file a stretch touches: that many sums belong to it, one for each block or part of one, in their
/// order.
#[unsafe(no_mangle)]
pub extern "C" fn rotproof_guard_pieces(offset: u64, length: usize) -> usize {
    let within = (offset % BLOCK as u64) as usize;
    within.saturating_add(length).div_ceil(BLOCK) - usize::from(length == 0 && within > 0)
}

/// The parts of a stretch that lie in one block each.
pub(crate) fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let first = (BLOCK - (offset % BLOCK as u64) as usize).min(data.len());
    let (head, rest) = data.split_at(first);
    std::iter::once(head).filter(|head| !head.is_empty()).chain(rest.chunks(BLOCK))
}

/// The light sum of what lies in one block.
pub(crate) fn sum_of(pair: Pair, data: &[u8]) -> u64 {
    pair.light.of(data).word()
}

/// Opens the guard of `directory`, which `rotproof guard init` made. `store` is where its sums are; NULL is in the directory
/// itself. `guard` gets it, or NULL; it is freed with `rotproof_guard_free`.
///
/// # Safety
/// `directory` is a text that ends with zero, `store` NULL or one too; `guard` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_open(
    directory: *const c_char,
    store: *const c_char,
    guard: *mut *mut rotproof_guard,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let out =
            unsafe { guard.as_mut() }.ok_or_else(|| CallError::invalid("the place for the guard is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let (directory, store) = unsafe { (path_of(directory), path_of(store)) };
        let directory = directory.ok_or_else(|| CallError::invalid("the directory is NULL"))?;
        let store = Store::open(directory, store)?;
        *out = Box::into_raw(Box::new(rotproof_guard { store }));
        Ok(())
    })
}

/// Frees a guard. Files that were opened in it may be used on. NULL is nothing to free.
///
/// # Safety
/// `guard` is NULL, or was given by `rotproof_guard_open` and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_free(guard: *mut rotproof_guard) {
    if !guard.is_null() {
        // SAFETY: it came from `Box::into_raw`, says the caller, and nobody uses it any more.
        let guard = unsafe { Box::from_raw(guard) };
        let _ = call(|| {
            drop(guard);
            Ok(())
        });
    }
}

/// A second copy of the directory, of which blocks are taken that went bad; only blocks with the right sums. NULL is none.
///
/// # Safety
/// `guard` was given by `rotproof_guard_open`; `mirror` is NULL or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_set_mirror(
    guard: *const rotproof_guard,
    mirror: *const c_char,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let (guard, mirror) = unsafe { (guard_of(guard)?, path_of(mirror)) };
        if let Some(mirror) = mirror.filter(|mirror| !mirror.is_dir()) {
            return Err(CallError::invalid(format!("the mirror {} is no directory", mirror.display())));
        }
        guard.store.set_mirror(mirror.map(ToOwned::to_owned));
        Ok(())
    })
}

/// Makes the light sums of data that are, or are to be, at `offset` of a file: `rotproof_guard_pieces` of them. A writer makes
/// them with its data, a reader compares them with those that it was given, as late as it likes.
///
/// # Safety
/// `guard` was given by `rotproof_guard_open`; `data` is valid for reads of `length` bytes, `sums` for writes of `room` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_sums(
    guard: *const rotproof_guard,
    data: *const u8,
    length: usize,
    offset: u64,
    sums: *mut u64,
    room: usize,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let (guard, data, sums) =
            unsafe { (guard_of(guard)?, bytes(data, length)?, numbers_mut(sums, room)?) };
        let pair = guard.store.settings().pair;
        let wanted = rotproof_guard_pieces(offset, length);
        if room < wanted {
            return Err(CallError::invalid(format!("there is room for {room} sums, and there are {wanted}")));
        }
        sums.iter_mut().zip(pieces(offset, data)).for_each(|(sum, piece)| *sum = sum_of(pair, piece));
        Ok(())
    })
}

/// What was verified in this process so far, by all its files of this guard.
///
/// # Safety
/// `guard` was given by `rotproof_guard_open`; `counts` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_count(
    guard: *const rotproof_guard,
    counts: *mut rotproof_guard_counts,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let guard = unsafe { guard_of(guard) }?;
        // SAFETY: as above.
        let out = unsafe { counts.as_mut() }
            .ok_or_else(|| CallError::invalid("the place for the counts is NULL"))?;
        let now = guard.store.counts.now();
        *out = rotproof_guard_counts {
            light: now.light,
            strong: now.strong,
            unvouched: now.unvouched,
            boundary: now.boundary,
            mismatches: now.mismatches,
            mended: now.from_disk + now.from_cache + now.from_mirror + now.from_copy + now.sums_mended,
            refused: now.refused,
        };
        Ok(())
    })
}

/// To be called in a child after `fork` before it uses files of the guard: it then shares them with its parent as any other
/// process does. Without effect on other processes.
///
/// # Safety
/// `guard` was given by `rotproof_guard_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_after_fork(guard: *const rotproof_guard) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        unsafe { guard_of(guard) }?.store.after_fork();
        Ok(())
    })
}

/// Bytes from C.
///
/// # Safety
/// `data` is valid for reads of `length` bytes for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const u8, length: usize) -> Result<&'a [u8], CallError> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(CallError::invalid("the data are NULL")),
        (_, length) if length > isize::MAX as usize => Err(CallError::invalid("the length makes no sense")),
        // SAFETY: as the caller promises.
        _ => Ok(unsafe { std::slice::from_raw_parts(data, length) }),
    }
}

/// Room for numbers from C.
///
/// # Safety
/// `numbers` is valid for writes of `room` numbers for `'a`, and nobody else uses them.
pub(crate) unsafe fn numbers_mut<'a>(numbers: *mut u64, room: usize) -> Result<&'a mut [u64], CallError> {
    match (numbers.is_null(), room) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(CallError::invalid("the place for the sums is NULL")),
        (_, room) if room > isize::MAX as usize / 8 => Err(CallError::invalid("the room makes no sense")),
        // SAFETY: as the caller promises.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(numbers, room) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pieces_are_told_as_there_are() {
        let data = vec![0; 3 * BLOCK];
        for offset in [0, 1, 100, 4095, 4096, 8191] {
            for length in [0, 1, 2, 4095, 4096, 4097, 8192, 3 * BLOCK] {
                let parts: Vec<&[u8]> = pieces(offset, &data[..length]).collect();
                assert_eq!(parts.len(), rotproof_guard_pieces(offset, length), "{offset} {length}");
                assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), length);
            }
        }
    }
}
