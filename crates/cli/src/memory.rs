//! What happens where there is no memory left (`ulimit -v`): the command is asked to end in order, as by SIGTERM, with addresses
//! that were kept for that, and says why. Otherwise it would die where it stands, and leave what it has created.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::exit::Exit;

/// Addresses that are kept for the end: they hold no memory until then.
const RESERVE_BYTES: usize = 8 << 20;

/// What must be left beside it, or there is no reserve: for the stack to grow, which dies without a word where it cannot.
const STACK_BYTES: usize = 4 << 20;

/// How far the stack of the first thread is grown at the beginning. It grows by itself too, but where there is no room for that
/// the kernel ends the process with SIGSEGV. Of a command that is built without optimisation some 400 KiB have been seen.
const FIRST_STACK_BYTES: usize = 768 << 10;

/// What to say where a defect of ours would be told of otherwise.
pub const ADVICE: &str = "There is no memory left for this process: end something else, raise its limit (`ulimit -v`), or ask \
                          for less.";
const SHORT: &str = "error: no memory is left for this process; what it had begun is taken down. End something else, raise its \
                     limit (`ulimit -v`), or ask for less\n";
const NONE: &str = "error: no memory is left for this process; `rotproof clean` removes what it had created. End something else, \
                    raise its limit (`ulimit -v`), or ask for less\n";

const TOO_LITTLE: &str = "error: there is no memory for this process to begin with. End something else, or raise its limit (`ulimit -v`)\n";

static RESERVE: AtomicPtr<libc::c_void> = AtomicPtr::new(null_mut());
/// The reserve has been used.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
/// Something could not be given at first.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, which asks the command to end where there is nothing left to give.
pub struct Careful;

#[global_allocator]
static ALLOCATOR: Careful = Careful;

// SAFETY: it gives what the system's allocator gives, for the layouts that it is asked for.
unsafe impl GlobalAlloc for Careful {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: handed on to our caller.
        given(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: handed on to our caller.
        given(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: handed on to our caller; where it gives nothing, what was there stays as it is.
        given(|| unsafe { System.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: handed on to our caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[inline]
fn given(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let given = allocate();
    if given.is_null() { given_of_reserve(allocate) } else { given }
}

#[cold]
fn given_of_reserve(allocate: impl Fn() -> *mut u8) -> *mut u8 {
    // Before there is room again, by which others would be misled.
    HAS_FAILED.store(true, Ordering::Relaxed);
    let reserve = RESERVE.swap(null_mut(), Ordering::Relaxed);
    if reserve.is_null() {
        // A caller that can do without goes on; for any other the library ends the process.
        return null_mut();
    }
    // SAFETY: it was mapped with this length, and nothing is in it.
    unsafe { libc::munmap(reserve, RESERVE_BYTES) };
    let given = allocate();
    if given.is_null() {
        // More than the reserve is asked for at once. Whoever can do without gets to know, and the reserve is there again.
        keep_reserve();
        return given;
    }
    IS_SHORT.store(true, Ordering::Relaxed);
    say(SHORT);
    // SAFETY: sends a signal to this very process.
    unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
    given
}

/// Prepares for the end of memory, as the first thing of all; where it is there already, the process ends here.
pub fn prepare() {
    if !has_room(2 * FIRST_STACK_BYTES) {
        say(TOO_LITTLE);
        // SAFETY: nothing has begun that would have to be ended in order.
        unsafe { libc::_exit(Exit::Machine.code().into()) };
    }
    grow_stack();
    keep_reserve();
    // SAFETY: the handler reads atomics, tries a mapping, writes, and ends the process, all of which is async-signal-safe.
    // Without it, the process ends as the library has it.
    let _ = unsafe {
        signal_hook::low_level::register(signal_hook::consts::SIGABRT, || {
            if is_short() {
                say(NONE);
                libc::_exit(Exit::Machine.code().into());
            }
        })
    };
}

/// Has the stack reach that far once, where it may: the compiler touches every page of what is on it.
#[inline(never)]
fn grow_stack() {
    // SAFETY: all zeros are a value of it, and the call fills it in.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a value of ours of this type.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    if is_known && limit.rlim_cur >= 2 * FIRST_STACK_BYTES as libc::rlim_t {
        reach_down();
    }
}

#[inline(never)]
fn reach_down() {
    let stack = std::mem::MaybeUninit::<[u8; FIRST_STACK_BYTES]>::uninit();
    std::hint::black_box(&stack);
}

/// Keeps addresses for the end. Without them the process ends as it would.
fn keep_reserve() {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let bytes = RESERVE_BYTES + STACK_BYTES;
    // SAFETY: a new mapping of nothing, wherever there is room.
    let reserve = unsafe { libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if reserve != libc::MAP_FAILED {
        // SAFETY: the end of what has just been mapped.
        unsafe { libc::munmap(reserve.byte_add(RESERVE_BYTES), STACK_BYTES) };
        RESERVE.store(reserve, Ordering::Relaxed);
    }
}

/// Whether no memory is left, or was at some time, so that a panic is no defect. The libraries below have their own ways to fail
/// then, of which nothing is told here; so it is tried.
pub fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed) || HAS_FAILED.load(Ordering::Relaxed) || !has_room(STACK_BYTES)
}

fn has_room(bytes: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping of nothing, wherever there is room, which is gone at once.
    unsafe {
        let mapped = libc::mmap(null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        mapped != libc::MAP_FAILED && libc::munmap(mapped, bytes) == 0
    }
}

/// The exit of a command, in view of what memory it found.
pub fn exit_of(exit: Exit) -> Exit {
    let is_short = IS_SHORT.load(Ordering::Relaxed) || exit == Exit::Internal && is_short();
    if is_short { Exit::Machine } else { exit }
}

/// Without a buffer or a lock, for which there may be no room.
fn say(text: &str) {
    // SAFETY: the text lives across the call and has that length. Where it cannot be written, there is nowhere to complain.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}
