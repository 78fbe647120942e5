//! Those who use the volume: each reads, writes, discards blocks of its own, flushes, and looks at versions.

use std::time::Duration;

use rotproof_block::hash::mix;
use rotproof_block::{Buffer, Context, Error, ErrorKind, Queue, Request};

use super::{WORKERS, World};
use crate::oracle::BLOCK;

impl World {
    /// Goes on until it is over.
    pub(super) async fn work(&self, worker: usize, from: u64) -> Result<(), String> {
        let queue = match self.live().present().open_queue(&self.runtime) {
            Ok(queue) => queue,
            Err(error) => return self.excuse("opening a queue", &error).await,
        };
        let mut index = from;
        while !self.is_over.get() {
            index += 1;
            let draw = |stream: u64| mix(self.draw(40 + worker as u64, index), stream, 0);
            self.runtime.sleep(Duration::from_micros(draw(0) % 400)).await;
            let of = self.model.borrow().blocks().div_ceil(WORKERS);
            let block = (draw(1) % of as u64) as usize * WORKERS + worker;
            if self.is_over.get() || block >= self.model.borrow().blocks() {
                continue;
            }
            match draw(2) % 20 {
                0..=7 => self.write(&*queue, block, (draw(3) % 255) as u8 + 1).await?,
                8 | 9 => self.write(&*queue, block, 0).await?,
                10 | 11 => self.flush(&*queue).await?,
                12 => self.read_version(draw(4), block).await?,
                _ => self.read(&*queue, block).await?,
            }
            self.life.borrow_mut().operations += 1;
        }
        Ok(())
    }

    /// Writes a byte, or discards for 0.
    async fn write(&self, queue: &dyn Queue, block: usize, byte: u8) -> Result<(), String> {
        let offset = self.offsets.borrow()[block];
        let number = self.model.borrow_mut().begins(block, byte);
        let request = match byte {
            0 => Request::discard(offset, BLOCK as u64, Context::default()),
            _ => Request::write(offset, Buffer::copy_of(&[byte; BLOCK]), Context::default()),
        };
        match queue.submit(request).await.result {
            Ok(()) => self.model.borrow_mut().acknowledged(block, number),
            Err(error) => self.excuse("a write", &error).await?,
        }
        Ok(())
    }

    async fn flush(&self, queue: &dyn Queue) -> Result<(), String> {
        let floors = self.model.borrow().floors();
        match queue.submit(Request::flush(Context::default())).await.result {
            Ok(()) => self.model.borrow_mut().flushed(&floors),
            Err(error) => self.excuse("a flush", &error).await?,
        }
        Ok(())
    }

    async fn read(&self, queue: &dyn Queue, block: usize) -> Result<(), String> {
        let (offset, before) = (self.offsets.borrow()[block], self.model.borrow().held(block));
        let read = queue.submit(Request::read(offset, Buffer::stale(BLOCK), Context::default())).await;
        if let Err(error) = read.result {
            return self.excuse("a read", &error).await;
        }
        let (is, model) = (read.buffer, self.model.borrow());
        let is_allowed = before.contains(&is[0]) || model.allows(block, is[0]);
        if !is_allowed || is.iter().any(|byte| *byte != is[0]) {
            return Err(format!("block {block} holds {}, not {}", is[0], model.allowed(block)));
        }
        Ok(())
    }

    async fn read_version(&self, draw: u64, block: usize) -> Result<(), String> {
        let id = {
            let model = self.model.borrow();
            let known: Vec<u64> =
                model.versions.keys().copied().filter(|id| !model.doubtful.contains(id)).collect();
            let Some(nth) = draw.checked_rem(known.len() as u64) else { return Ok(()) };
            let id = known[nth as usize];
            if block >= model.versions[&id].len() {
                return Ok(());
            }
            id
        };
        let live = self.live();
        let looked = self.look_at_version(&live, id, block).await;
        // It may be given up meanwhile, or all copies of something go.
        let is_known = {
            let model = self.model.borrow();
            !model.doubtful.contains(&id) && model.versions.contains_key(&id)
        };
        match looked {
            Err(why) if is_known => self.excuse("a version", &Error::new(ErrorKind::Medium, why)).await,
            _ => Ok(()),
        }
    }
}
