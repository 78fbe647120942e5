//! Stacks with fault rules of which none matches, to be measured against the same stack without the fault layer.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rotproof_block::hash::mix;
use rotproof_block::{
    ContentHash, Device, DeviceInfo, Error, ErrorKind, Queue, Request, Result, Runtime, Submission,
};
use rotproof_fault::{Engine, EngineOptions, ResolvedRule, Rule, TargetContent};
use rotproof_layers::FaultDevice;

const BLOCK: u64 = 4096;

/// So many rules, and what they go by.
#[derive(Clone, Copy)]
pub enum Rules {
    /// Single blocks, apart from each other, over the whole second half of the device, which no load must use.
    Offset(u64),
    /// Contents of which only the hash is known, so that every block is hashed.
    Hash(u64),
    /// Contents that a load has worked out, so that their first bytes are known.
    Target(u64),
}

/// The fault layer with `rules`, none of which a load in the first half of the device meets.
pub fn with_layer(below: Arc<dyn Device>, rules: Rules) -> Result<Arc<dyn Device>> {
    let device_size = below.info().size;
    let rule = |text: String| -> Result<ResolvedRule> {
        let rule: Rule =
            text.parse().map_err(|error| Error::new(ErrorKind::Internal, format!("{text}: {error}")))?;
        Ok(rule.into())
    };
    let rules: Vec<ResolvedRule> = match rules {
        Rules::Offset(count) => (0..count)
            .map(|index| {
                let (half, stride) = (device_size / 2, device_size / 2 / count / BLOCK * BLOCK);
                rule(format!("offset={}: error", half + index * stride))
            })
            .collect::<Result<_>>()?,
        Rules::Hash(count) => (0..count)
            .map(|index| rule(format!("content={}: error", foreign_content(index))))
            .collect::<Result<_>>()?,
        Rules::Target(count) => {
            let mut rule = rule("target=unique: error".to_owned())?;
            rule.contents = (0..count)
                .map(|index| TargetContent {
                    content: foreign_content(index),
                    label: format!("content {index}"),
                    beginning: Some(mix(3, 0, index)),
                })
                .collect();
            vec![rule]
        }
    };
    let engine = Engine::new(rules, EngineOptions { seed: 1, device_size });
    Ok(FaultDevice::new(below, engine))
}

/// A content that no block of the load has.
fn foreign_content(index: u64) -> ContentHash {
    ContentHash(u128::from(mix(1, 0, index)) << 64 | u128::from(mix(2, 0, index)))
}

/// One leaf behind one export, with and without the layer, so that nothing else differs: where memory, threads and
/// queues happen to lie makes one instance up to a tenth faster than the next, for as long as it lives.
pub struct Switch {
    plain: Arc<dyn Device>,
    layered: Arc<dyn Device>,
    is_layered: Arc<AtomicBool>,
}

impl Switch {
    /// `plain`, alone and under `rules`; alone for now.
    pub fn new(plain: Arc<dyn Device>, rules: Rules) -> Result<Arc<Self>> {
        let layered = with_layer(Arc::clone(&plain), rules)?;
        Ok(Arc::new(Self { plain, layered, is_layered: Arc::default() }))
    }

    /// From now on requests go through the layer, or do not.
    pub fn set(&self, is_layered: bool) {
        self.is_layered.store(is_layered, Ordering::Relaxed);
    }
}

impl Device for Switch {
    fn info(&self) -> DeviceInfo {
        self.plain.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(SwitchQueue {
            plain: self.plain.open_queue(runtime)?,
            layered: self.layered.open_queue(runtime)?,
            is_layered: Arc::clone(&self.is_layered),
        }))
    }
}

struct SwitchQueue {
    plain: Rc<dyn Queue>,
    layered: Rc<dyn Queue>,
    is_layered: Arc<AtomicBool>,
}

impl Queue for SwitchQueue {
    fn submit(&self, request: Request) -> Submission {
        let queue = if self.is_layered.load(Ordering::Relaxed) { &self.layered } else { &self.plain };
        queue.submit(request)
    }
}
