//! A library that goes before the C library of User Mode Linux where the processor's state is larger than that knows.
//!
//! User Mode Linux 6.1 keeps the vector registers of its processes in 2,696 bytes, the state of AVX-512 and protection keys. On a
//! processor with more (AMX) the kernel takes only the whole state back, and refuses that (`xstateregs_set`,
//! arch/x86/kernel/fpu/regset.c), so the first process of the guest dies. Here what is asked to be set is put into the whole state as it
//! is. What lies beyond, tiles, no process of a guest uses: its kernel does not know of them.

#![no_std]

use core::ffi::{c_int, c_long, c_void};
use core::mem::size_of;

const SYS_PTRACE: c_long = 101;
const PTRACE_PEEKTEXT: c_long = 1;
const PTRACE_PEEKUSER: c_long = 3;
const PTRACE_GETREGSET: c_long = 0x4204;
const PTRACE_SETREGSET: c_long = 0x4205;
const NT_X86_XSTATE: usize = 0x202;
/// The state of every processor so far fits: with AMX it is 11 KiB.
const STATE_BYTES: usize = 64 << 10;

#[repr(C)]
struct IoVec {
    base: *mut c_void,
    length: usize,
}

#[repr(C, align(64))]
struct State([u8; STATE_BYTES]);

/// One thread alone calls `ptrace`: that of the guest's kernel, on stacks that are too small for it.
static mut STATE: State = State([0; STATE_BYTES]);

#[link(name = "c")]
unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
}

/// As ptrace(2). On x86-64 the arguments of a function that takes as many as one likes come as those of any other.
///
/// # Safety
///
/// As for `ptrace`: what `data` points to must suit the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(request: c_int, pid: c_int, address: usize, data: usize) -> c_long {
    let request = c_long::from(request);
    let (pid, is_peek) = (c_long::from(pid), (PTRACE_PEEKTEXT..=PTRACE_PEEKUSER).contains(&request));
    if is_peek {
        let mut word: c_long = 0;
        // SAFETY: the kernel writes one word, which lives across the call; the C library keeps an errno for each thread.
        unsafe {
            let done = syscall(SYS_PTRACE, request, pid, address, &raw mut word);
            if done < 0 {
                return done;
            }
            *__errno_location() = 0;
        }
        return word;
    }
    let is_state = matches!(request, PTRACE_GETREGSET | PTRACE_SETREGSET) && address == NT_X86_XSTATE;
    if !is_state {
        // SAFETY: passed on as it came.
        return unsafe { syscall(SYS_PTRACE, request, pid, address, data) };
    }
    // SAFETY: the caller's vector is one (its promise), the buffer is used by one thread alone (above), and no more than its length or
    // that of the caller's is copied.
    unsafe {
        let buffer = (&raw mut STATE).cast::<c_void>();
        let mut whole = IoVec { base: buffer, length: size_of::<State>() };
        let done = syscall(SYS_PTRACE, PTRACE_GETREGSET, pid, address, &raw mut whole);
        if done < 0 {
            return done;
        }
        let given = &mut *(data as *mut IoVec);
        let bytes = if given.length < whole.length { given.length } else { whole.length };
        if request == PTRACE_GETREGSET {
            memcpy(given.base, buffer, bytes);
            given.length = bytes;
            return 0;
        }
        memcpy(buffer, given.base, bytes);
        syscall(SYS_PTRACE, PTRACE_SETREGSET, pid, address, &raw mut whole)
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
