//! The rules of one device: made, changed and looked at from any thread.

use std::ffi::{CString, c_char};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Arc;

use fault::{Engine, EngineOptions, RuleState};

use crate::rules::parse;
use crate::status::{CallError, guard, rotproof_status};
use crate::text::{optional, required};

/// The rules at work on one device, what they have done, and the ledger of it. All functions that take it may be
/// called from several threads at once.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct rotproof_engine {
    pub(crate) engine: Arc<Engine>,
    pub(crate) block_bytes: u32,
}

/// What an engine must know of the device that the faults act on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rotproof_geometry {
    /// Size of the device in bytes, a multiple of `block_bytes`.
    pub device_bytes: u64,
    /// What offsets and lengths of requests are multiples of: a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// Root of everything that chance decides.
    pub seed: u64,
}

/// Whether a rule acts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum rotproof_rule_state {
    /// It acts.
    Active = 0,
    /// It neither acts nor counts, until it is active again.
    Paused = 1,
    /// It never acts again, and its name is free.
    Removed = 2,
}

impl rotproof_rule_state {
    const ACTIVE: u32 = Self::Active as u32;
    const PAUSED: u32 = Self::Paused as u32;
    const REMOVED: u32 = Self::Removed as u32;
}

/// Sizes whose sums with a length cannot overflow.
const DEVICE_BYTES_MAX: u64 = 1 << 60;

/// The engine behind a pointer from C.
///
/// # Safety
/// `engine` is NULL or was given by `rotproof_engine_new` and is not freed during `'a`.
pub(crate) unsafe fn engine_of<'a>(engine: *const rotproof_engine) -> Result<&'a rotproof_engine, CallError> {
    // SAFETY: as the caller promises.
    unsafe { engine.as_ref() }.ok_or_else(|| CallError::invalid("the engine is NULL"))
}

/// Makes an engine. `rules` may be NULL for none; they are a list in YAML or JSON, by itself or under the key
/// `faults`, or short forms, one a line (docs/faults.md). `engine` gets what is to be freed with
/// `rotproof_engine_free`, or NULL.
///
/// # Safety
/// `geometry` and `engine` point to valid objects; `rules` is NULL or a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_engine_new(
    geometry: *const rotproof_geometry,
    rules: *const c_char,
    engine: *mut *mut rotproof_engine,
) -> rotproof_status {
    guard(|| {
        // SAFETY: valid or NULL, says the caller.
        let out = unsafe { engine.as_mut() }
            .ok_or_else(|| CallError::invalid("the place for the engine is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as above.
        let geometry =
            unsafe { geometry.as_ref() }.ok_or_else(|| CallError::invalid("the geometry is NULL"))?;
        let rotproof_geometry { device_bytes, block_bytes, seed } = *geometry;
        if !block_bytes.is_power_of_two() || !(512..=4096).contains(&block_bytes) {
            return Err(CallError::invalid(format!(
                "blocks of {block_bytes} bytes; give 512, 1024, 2048 or 4096"
            )));
        }
        let is_whole = device_bytes.is_multiple_of(block_bytes.into());
        if device_bytes == 0 || device_bytes > DEVICE_BYTES_MAX || !is_whole {
            return Err(CallError::invalid(format!(
                "a device of {device_bytes} bytes; give a multiple of {block_bytes} up to {DEVICE_BYTES_MAX}"
            )));
        }
        // SAFETY: NULL or a text, says the caller.
        let rules = unsafe { optional(rules, "the text of the rules") }?.unwrap_or_default();
        let rules = parse(rules, device_bytes)?;
        let made = Engine::new(Vec::new(), EngineOptions { seed, device_size: device_bytes });
        made.add_rules(rules)?;
        *out = Box::into_raw(Box::new(rotproof_engine { engine: made, block_bytes }));
        Ok(())
    })
}

/// Frees an engine. Its queues and their requests stay good, and keep what they need of it. NULL is nothing to free.
///
/// # Safety
/// `engine` is NULL, or was given by `rotproof_engine_new`, has not been freed, and is in no other call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_engine_free(engine: *mut rotproof_engine) {
    if !engine.is_null() {
        guard(|| {
            // SAFETY: it came from `Box::into_raw`, says the caller, and nobody uses it any more.
            drop(unsafe { Box::from_raw(engine) });
            Ok(())
        });
    }
}

/// Adds rules, all of them or none. They act on every request that begins from now on, and on none before.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `rules` is a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_rules_add(
    engine: *const rotproof_engine,
    rules: *const c_char,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (engine, rules) = unsafe { (engine_of(engine)?, required(rules, "the text of the rules")?) };
        let rules = parse(rules, engine.engine.device_size())?;
        engine.engine.add_rules(rules)?;
        Ok(())
    })
}

/// Lets the rule with this name act, pauses it, or removes it for good. `state` is a `rotproof_rule_state`; as a number,
/// so that a wrong one is refused.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `name` is a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_rule_set_state(
    engine: *const rotproof_engine,
    name: *const c_char,
    state: u32,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (engine, name) = unsafe { (engine_of(engine)?, required(name, "the name of the rule")?) };
        let state = match state {
            rotproof_rule_state::ACTIVE => RuleState::Active,
            rotproof_rule_state::PAUSED => RuleState::Paused,
            rotproof_rule_state::REMOVED => RuleState::Removed,
            other => return Err(CallError::invalid(format!("{other} is no state of a rule; give 0 to 2"))),
        };
        Ok(engine.engine.set_state(name, state)?)
    })
}

/// Lets requests that hang come back: those of the rule with this name, or all if it is NULL. `released`, if it is not
/// NULL, gets how many.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `name` is NULL or a text that ends with zero; `released` is NULL or
/// points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_release(
    engine: *const rotproof_engine,
    name: *const c_char,
    released: *mut u64,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (engine, name) = unsafe { (engine_of(engine)?, optional(name, "the name of the rule")?) };
        let count = engine.engine.release(name.as_ref().map(std::slice::from_ref))?;
        // SAFETY: NULL or valid, says the caller.
        if let Some(released) = unsafe { released.as_mut() } {
            *released = count as u64;
        }
        Ok(())
    })
}

/// How often the newest rule with this name has met what it matches, and has hit. `matches` and `hits` may be NULL.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `name` is a text that ends with zero; `matches` and `hits` are NULL or
/// point to valid objects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_rule_hits(
    engine: *const rotproof_engine,
    name: *const c_char,
    matches: *mut u64,
    hits: *mut u64,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (engine, name) = unsafe { (engine_of(engine)?, required(name, "the name of the rule")?) };
        let reports = engine.engine.report();
        let report = reports.iter().rev().find(|report| report.name == name);
        let report = report.ok_or_else(|| CallError::invalid(format!("there is no rule called `{name}`")))?;
        // SAFETY: NULL or valid, says the caller.
        let (matches, hits) = unsafe { (matches.as_mut(), hits.as_mut()) };
        if let Some(matches) = matches {
            *matches = report.matches;
        }
        if let Some(hits) = hits {
            *hits = report.hits;
        }
        Ok(())
    })
}

/// All rules, removed ones too, as a JSON list: `name`, `rule`, `state`, `matches`, `hits`, `hanging`, `targets`.
/// `report` gets a text to be freed with `rotproof_text_free`, or NULL.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `report` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_report(
    engine: *const rotproof_engine,
    report: *mut *mut c_char,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let out =
            unsafe { report.as_mut() }.ok_or_else(|| CallError::invalid("the place for the text is NULL"))?;
        *out = std::ptr::null_mut();
        // SAFETY: as the caller promises.
        let engine = unsafe { engine_of(engine) }?;
        let text = serde_json::to_string(&engine.engine.report())
            .map_err(|error| CallError::os(format!("writing the report: {error}")))?;
        // JSON has no zero in it.
        *out = CString::new(text).unwrap_or_default().into_raw();
        Ok(())
    })
}

/// How many faults have been injected.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `length` points to a valid object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_ledger_length(
    engine: *const rotproof_engine,
    length: *mut u64,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let engine = unsafe { engine_of(engine) }?;
        // SAFETY: as above.
        let out = unsafe { length.as_mut() }
            .ok_or_else(|| CallError::invalid("the place for the length is NULL"))?;
        *out = engine.engine.ledger().len() as u64;
        Ok(())
    })
}

/// Writes every injected fault to a file, a line of JSON each (docs/results.md). A file that exists is replaced.
///
/// # Safety
/// `engine` was given by `rotproof_engine_new`; `path` is a text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rotproof_ledger_write(
    engine: *const rotproof_engine,
    path: *const c_char,
) -> rotproof_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (engine, path) = unsafe { (engine_of(engine)?, required(path, "the path of the ledger")?) };
        let written = File::create(path).and_then(|file| {
            let mut file = BufWriter::new(file);
            engine.engine.ledger().write_to(&mut file)?;
            file.flush()
        });
        written.map_err(|error| CallError::os(format!("writing the ledger {path}: {error}")))
    })
}
