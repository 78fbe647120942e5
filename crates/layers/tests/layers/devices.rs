//! Devices for tests of layers.

use std::rc::Rc;
use std::sync::Arc;

use rotproof_block::{Completion, Device, DeviceInfo, Phase, Queue, Request, Result, Runtime, Submission};
use rotproof_fault::{Engine, EngineOptions, Rule};
use rotproof_layers::FaultDevice;

/// Passes every request on as one of the phase *run*, in which rules are awake.
pub struct Awake(pub Arc<dyn Device>);

impl Device for Awake {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn open_queue(&self, runtime: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(AwakeQueue(self.0.open_queue(runtime)?)))
    }
}

struct AwakeQueue(Rc<dyn Queue>);

impl Queue for AwakeQueue {
    fn submit(&self, mut request: Request) -> Submission {
        let context = request.context;
        request.context.phase = Phase::Run;
        let submission = self.0.submit(request);
        Submission::pending(async move { Completion { context, ..submission.await } })
    }
}

/// Faults by these rules over `below`.
pub fn with_faults(below: Arc<dyn Device>, rules: &[String]) -> (Arc<dyn Device>, Arc<Engine>) {
    let rules = rules
        .iter()
        .map(|text| text.parse::<Rule>().unwrap_or_else(|error| panic!("{text}: {error}")).into())
        .collect();
    let engine = Engine::new(rules, EngineOptions { seed: 1, device_size: below.info().size });
    (FaultDevice::new(below, Arc::clone(&engine)), engine)
}
