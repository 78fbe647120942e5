//! A file of a guarded directory: reads and writes that take and give sums.

use std::ffi::c_char;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use guard::GuardedFile;

use crate::directory::{bytes, guard_of, numbers_mut, rotproof_guard, rotproof_guard_pieces};
use crate::status::{CallError, call, path_of, rotproof_guard_status};

/// An open file of a guarded directory. All functions that take it may be called from several threads at once, and by other
/// processes and other doors to the same file.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct rotproof_guard_file {
    file: Arc<GuardedFile>,
}

/// # Safety
/// `file` is NULL or was given by a function of this library and is not freed during `'a`.
unsafe fn file_of<'a>(file: *const rotproof_guard_file) -> Result<&'a GuardedFile, CallError> {
    // SAFETY: as the caller promises.
    unsafe { file.as_ref() }.map(|file| &*file.file).ok_or_else(|| CallError::invalid("the file is NULL"))
}

/// Opens the file at `path`. Of `flags` count those of `open(2)` for access (`O_RDONLY`, `O_WRONLY`, `O_RDWR`), `O_CREAT`,
/// `O_EXCL`, `O_TRUNC` and `O_NOFOLLOW`; `mode` is that of a file that is made. `file` gets it, or NULL; it is freed with
/// `rotproof_guard_file_close`. A file that is not the guard's is refused.
///
/// # Safety
/// `guard` was given by `rotproof_guard_open`; `path` is a text that ends with zero; `file` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_file_open(
    guard: *const rotproof_guard,
    path: *const c_char,
    flags: i32,
    mode: u32,
    file: *mut *mut rotproof_guard_file,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let out =
            unsafe { file.as_mut() }.ok_or_else(|| CallError::invalid("the place for the file is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let (guard, path) = unsafe { (guard_of(guard)?, path_of(path)) };
        let path = path.ok_or_else(|| CallError::invalid("the path is NULL"))?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let mut options = OpenOptions::new();
        // The guard reads what it writes, and cuts by itself.
        options.read(true).write(writes).mode(mode);
        options.custom_flags(flags & libc::O_NOFOLLOW);
        match flags & (libc::O_CREAT | libc::O_EXCL) {
            both if both == libc::O_CREAT | libc::O_EXCL => options.create_new(true),
            libc::O_CREAT => options.create(true),
            _ => &mut options,
        };
        if flags & libc::O_CREAT != 0 && !writes {
            return Err(CallError::invalid("a file that is made is opened for writing too"));
        }
        let below = options
            .open(path)
            .map_err(|error| CallError::of_io(&error, &format!("opening {}", path.display())))?;
        let opened = attach(guard, below.as_raw_fd(), writes, path.to_owned())?;
        if flags & libc::O_TRUNC != 0 && writes {
            opened.set_size(0)?;
        }
        *out = Box::into_raw(Box::new(rotproof_guard_file { file: opened }));
        Ok(())
    })
}

/// The file that an open descriptor stands for. The descriptor stays the caller's, who may close it. What was read from or
/// written to the file otherwise than through a door of the guard is not guarded.
///
/// # Safety
/// `guard` was given by `rotproof_guard_open`; `file` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_file_attach(
    guard: *const rotproof_guard,
    descriptor: i32,
    writes: bool,
    file: *mut *mut rotproof_guard_file,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let out =
            unsafe { file.as_mut() }.ok_or_else(|| CallError::invalid("the place for the file is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let guard = unsafe { guard_of(guard) }?;
        let name = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).unwrap_or_default();
        let opened = attach(guard, descriptor, writes, name)?;
        *out = Box::into_raw(Box::new(rotproof_guard_file { file: opened }));
        Ok(())
    })
}

fn attach(
    guard: &rotproof_guard,
    descriptor: RawFd,
    writes: bool,
    name: PathBuf,
) -> Result<Arc<GuardedFile>, CallError> {
    let name = name.canonicalize().unwrap_or(name);
    if !name.starts_with(guard.store.root()) || name.starts_with(guard.store.folder()) {
        let root = guard.store.root().display();
        return Err(CallError::invalid(format!("{} is no file of the guard of {root}", name.display())));
    }
    Ok(GuardedFile::open(&guard.store, descriptor, writes, &name)?)
}

/// Closes it. What was not made durable is on its way to the disk, as after `close(2)`. NULL is nothing to close.
///
/// # Safety
/// `file` is NULL, or was given by a function of this library and has not been closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_file_close(file: *mut rotproof_guard_file) {
    if !file.is_null() {
        // SAFETY: it came from `Box::into_raw`, says the caller, and nobody uses it any more.
        let file = unsafe { Box::from_raw(file) };
        let _ = call(|| {
            drop(file);
            Ok(())
        });
    }
}

/// Its bytes; 0 of NULL.
///
/// # Safety
/// `file` is NULL or was given by a function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_file_size(file: *const rotproof_guard_file) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { file.as_ref() }.map_or(0, |file| file.file.size())
}

/// Reads from `offset` into `data`, verified after it has arrived there. `done` gets how many bytes: fewer than `length` only
/// at the end of the file, or before a block that cannot be trusted; if that is the first, the function fails. `sums` gets
/// the light sum of each piece of what was read (`rotproof_guard_pieces`), for who verifies it once more where it is used;
/// NULL if nobody does.
///
/// # Safety
/// `file` was given by a function of this library; `data` is valid for writes of `length` bytes, and nobody else uses it;
/// `sums` is NULL or valid for writes of `room` numbers; `done` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_read(
    file: *const rotproof_guard_file,
    data: *mut u8,
    length: usize,
    offset: u64,
    sums: *mut u64,
    room: usize,
    done: *mut usize,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, done) = unsafe { (file_of(file)?, out_of(done)?) };
        *done = 0;
        let room = if sums.is_null() { 0 } else { room };
        // SAFETY: as the caller promises.
        let sums = unsafe { numbers_mut(sums, room) }?;
        let wanted = rotproof_guard_pieces(offset, length);
        if !sums.is_empty() && room < wanted {
            return Err(CallError::invalid(format!(
                "there is room for {room} sums, and there may be {wanted}"
            )));
        }
        if length == 0 {
            return Ok(());
        }
        if data.is_null() || length > isize::MAX as usize {
            return Err(CallError::invalid("the place for the data is NULL, or its length makes no sense"));
        }
        // SAFETY: as the caller promises; bytes of any value are bytes.
        let data = unsafe { std::slice::from_raw_parts_mut(data, length) };
        let mut rest = sums.iter_mut();
        *done = file.read_with_sums(data, offset, &mut |sum| {
            if let Some(place) = rest.next() {
                *place = sum;
            }
        })?;
        Ok(())
    })
}

/// Writes `data` at `offset`. With `sums`, the light sums that their writer made of each piece (`rotproof_guard_sums`), data
/// that do not have them are refused before they are written: `ROTPROOF_GUARD_STATUS_BOUNDARY`. `done` gets how many bytes were
/// written, which are fewer than `length` if there was no space for more, or if data of a later stretch of 64 blocks were
/// refused; writing the rest again then says why.
///
/// # Safety
/// `file` was given by a function of this library; `data` is valid for reads of `length` bytes, `sums` is NULL or valid for
/// reads of `sums_length` numbers; `done` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_write(
    file: *const rotproof_guard_file,
    data: *const u8,
    length: usize,
    offset: u64,
    sums: *const u64,
    sums_length: usize,
    done: *mut usize,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, data, done) = unsafe { (file_of(file)?, bytes(data, length)?, out_of(done)?) };
        *done = 0;
        let wanted = rotproof_guard_pieces(offset, length);
        if !sums.is_null() && sums_length != wanted {
            return Err(CallError::invalid(format!("there are {sums_length} sums for {wanted} pieces")));
        }
        // SAFETY: as the caller promises, of the length that was compared.
        let sums = (!sums.is_null()).then(|| unsafe { std::slice::from_raw_parts(sums, wanted) });
        *done = file.write_with_sums(data, offset, sums)?;
        Ok(())
    })
}

/// Writes `data` at the end of the file, wherever that is then, also beside other writers; `offset` gets where that was. There
/// are no sums to give, as their pieces depend on that place.
///
/// # Safety
/// `file` was given by a function of this library; `data` is valid for reads of `length` bytes; `offset` and `done` point to
/// valid objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_append(
    file: *const rotproof_guard_file,
    data: *const u8,
    length: usize,
    offset: *mut u64,
    done: *mut usize,
) -> rotproof_guard_status {
    call(|| {
        // SAFETY: as the caller promises.
        let (file, data, done) = unsafe { (file_of(file)?, bytes(data, length)?, out_of(done)?) };
        // SAFETY: as above.
        let place = unsafe { offset.as_mut() }
            .ok_or_else(|| CallError::invalid("the place for the offset is NULL"))?;
        (*place, *done) = (0, 0);
        (*place, *done) = file.append(data, None)?;
        Ok(())
    })
}

/// Cuts the file, or lets it grow by a hole.
///
/// # Safety
/// `file` was given by a function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_set_size(
    file: *const rotproof_guard_file,
    size: u64,
) -> rotproof_guard_status {
    // SAFETY: as the caller promises.
    call(|| Ok(unsafe { file_of(file) }?.set_size(size)?))
}

/// Allocates space, or makes holes or zeros, as `fallocate(2)` with this mode.
///
/// # Safety
/// `file` was given by a function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_allocate(
    file: *const rotproof_guard_file,
    mode: i32,
    offset: u64,
    length: u64,
) -> rotproof_guard_status {
    // SAFETY: as the caller promises.
    call(|| Ok(unsafe { file_of(file) }?.allocate(mode, offset, length)?))
}

/// Makes data and sums durable, as `fsync(2)`, or with `data_only` as `fdatasync(2)`. Every block that was written since the
/// last time is verified first, as the cache has it. If one is not as it was written, this fails once with
/// `ROTPROOF_GUARD_STATUS_ROTTEN`; the block is refused to readers until it is written again.
///
/// # Safety
/// `file` was given by a function of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_sync(
    file: *const rotproof_guard_file,
    data_only: bool,
) -> rotproof_guard_status {
    // SAFETY: as the caller promises.
    call(|| Ok(unsafe { file_of(file) }?.sync(data_only)?))
}

/// The error table of the file: blocks that failed before they were durable, until a `rotproof_guard_sync` has told of them.
/// `failed` gets how many there are, `blocks` the first of them.
///
/// # Safety
/// `file` was given by a function of this library; `blocks` is NULL or valid for writes of `room` numbers; `failed` points to a
/// valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_guard_errors(
    file: *const rotproof_guard_file,
    blocks: *mut u64,
    room: usize,
    failed: *mut u64,
) -> rotproof_guard_status {
    call(|| {
        let room = if blocks.is_null() { 0 } else { room };
        // SAFETY: as the caller promises.
        let (file, blocks) = unsafe { (file_of(file)?, numbers_mut(blocks, room)?) };
        // SAFETY: as above.
        let out = unsafe { failed.as_mut() }
            .ok_or_else(|| CallError::invalid("the place for the number is NULL"))?;
        let (known, count) = file.errors();
        *out = count;
        blocks.iter_mut().zip(known).for_each(|(place, block)| *place = block);
        Ok(())
    })
}

/// # Safety
/// `done` is NULL or valid for `'a`.
unsafe fn out_of<'a>(done: *mut usize) -> Result<&'a mut usize, CallError> {
    // SAFETY: as the caller promises.
    unsafe { done.as_mut() }.ok_or_else(|| CallError::invalid("the place for the number of bytes is NULL"))
}
