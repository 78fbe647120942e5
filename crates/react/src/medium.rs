//! The device under a cell: an image, what was written over it, the one thing that is wrong with it, and a list of what
//! was asked of it while somebody wanted to know.
//!
//! It stays the same device from cell to cell, so the export over it and the loop device over that stay too.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;
use rotproof_block::{
    Device, DeviceInfo, Error, Features, Operation, Queue, Request, Result, Runtime, Submission,
};

use crate::image::{BLOCK_BYTES, Block, Image};

/// What is wrong with some blocks from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// They hold this.
    Stored(Vec<(u64, Block)>),
    /// Reading them fails until they are rewritten.
    ReadError(HashSet<u64>),
    /// Writing them fails.
    WriteError(HashSet<u64>),
    /// Writes to them are not done.
    Lost(HashSet<u64>),
    /// Writes to them go to the second block.
    Misdirected(HashMap<u64, u64>),
}

/// Something that was asked of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Touch {
    pub(crate) block: u64,
    pub(crate) is_write: bool,
}

/// See the head of the module.
pub(crate) struct Medium(Arc<Shared>);

struct Shared {
    size: u64,
    state: Mutex<State>,
}

struct State {
    base: Arc<Image>,
    written: HashMap<u64, Option<Block>>,
    harm: Option<Harm>,
    touches: Option<Vec<Touch>>,
}

impl Medium {
    pub(crate) fn new(size: u64) -> Arc<Self> {
        let base = Arc::new(Image::zeros(size));
        let state = State { base, written: HashMap::new(), harm: None, touches: None };
        Arc::new(Self(Arc::new(Shared { size, state: Mutex::new(state) })))
    }

    /// Shows an image from now on, with nothing wrong.
    pub(crate) fn show(&self, image: &Arc<Image>) {
        let mut state = self.0.state.lock();
        *state = State { base: Arc::clone(image), written: HashMap::new(), harm: None, touches: None };
    }

    /// Something is wrong from now on, and what is asked is noted.
    pub(crate) fn arm(&self, harm: Option<Harm>) {
        let mut state = self.0.state.lock();
        if let Some(Harm::Stored(blocks)) = &harm {
            state.written.extend(blocks.iter().map(|(number, block)| (*number, Some(Arc::clone(block)))));
        }
        state.harm = harm;
        state.touches = Some(Vec::new());
    }

    /// What was asked since it was armed; no longer noted from now on. What fails writes fails none any more: whoever was
    /// to meet it has met it. What is stored wrong stays.
    pub(crate) fn rest(&self) -> Vec<Touch> {
        let mut state = self.0.state.lock();
        if matches!(state.harm, Some(Harm::WriteError(_) | Harm::Lost(_) | Harm::Misdirected(_))) {
            state.harm = None;
        }
        state.touches.take().unwrap_or_default()
    }

    /// What it holds now.
    pub(crate) fn image(&self) -> Image {
        let state = self.0.state.lock();
        let mut image = (*state.base).clone();
        for (number, block) in &state.written {
            match block {
                Some(block) => image.blocks.insert(*number, Arc::clone(block)),
                None => image.blocks.remove(number),
            };
        }
        image
    }
}

impl State {
    fn holds(&self, number: u64) -> Option<&Block> {
        match self.written.get(&number) {
            Some(written) => written.as_ref(),
            None => self.base.block(number),
        }
    }

    fn note(&mut self, block: u64, is_write: bool) {
        if let Some(touches) = &mut self.touches {
            touches.push(Touch { block, is_write });
        }
    }

    fn read(&mut self, first: u64, into: &mut [u8]) -> Result<()> {
        let numbers = first..first + into.len() as u64 / BLOCK_BYTES;
        numbers.clone().for_each(|number| self.note(number, false));
        if let Some(Harm::ReadError(blocks)) = &self.harm
            && numbers.clone().any(|number| blocks.contains(&number))
        {
            return Err(Error::medium());
        }
        for (number, part) in numbers.zip(into.chunks_exact_mut(BLOCK_BYTES as usize)) {
            match self.holds(number) {
                Some(block) => part.copy_from_slice(block),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    /// `data` is `None` for zeros.
    fn write(&mut self, first: u64, blocks: u64, data: Option<&[u8]>) -> Result<()> {
        let numbers = first..first + blocks;
        numbers.clone().for_each(|number| self.note(number, true));
        if let Some(Harm::WriteError(blocks)) = &self.harm
            && numbers.clone().any(|number| blocks.contains(&number))
        {
            return Err(Error::medium());
        }
        for (index, number) in numbers.enumerate() {
            let part = data.map(|data| &data[index * BLOCK_BYTES as usize..][..BLOCK_BYTES as usize]);
            let place = match &mut self.harm {
                Some(Harm::Lost(blocks)) if blocks.contains(&number) => continue,
                Some(Harm::Misdirected(places)) => places.get(&number).copied().unwrap_or(number),
                Some(Harm::ReadError(blocks)) => {
                    blocks.remove(&number);
                    number
                }
                _ => number,
            };
            let stored = part.filter(|part| part.iter().any(|&byte| byte != 0)).map(Block::from);
            self.written.insert(place, stored);
        }
        Ok(())
    }
}

impl Device for Medium {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            size: self.0.size,
            block_size: BLOCK_BYTES as u32,
            atomic_write_bytes: BLOCK_BYTES as u32,
            read_only: false,
            features: Features { flush: true, fua: true, discard: false, write_zeroes: true },
        }
    }

    fn open_queue(&self, _: &Runtime) -> Result<Rc<dyn Queue>> {
        Ok(Rc::new(MediumQueue(Arc::clone(&self.0), self.info())))
    }
}

struct MediumQueue(Arc<Shared>, DeviceInfo);

impl Queue for MediumQueue {
    fn submit(&self, mut request: Request) -> Submission {
        if let Err(error) = self.1.check(&request) {
            return Submission::ready(request.fail(error));
        }
        let (first, blocks) = (request.offset / BLOCK_BYTES, request.length / BLOCK_BYTES);
        let mut state = self.0.state.lock();
        let done = match request.operation {
            Operation::Read => state.read(first, &mut request.buffer),
            Operation::Write { .. } => {
                let buffer = &request.buffer[..];
                state.write(first, blocks, Some(buffer))
            }
            Operation::WriteZeroes | Operation::Discard => state.write(first, blocks, None),
            Operation::Flush => Ok(()),
        };
        drop(state);
        Submission::ready(match done {
            Ok(()) => request.succeed(),
            Err(error) => request.fail(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = BLOCK_BYTES as usize;

    fn shown() -> Arc<Medium> {
        let medium = Medium::new(8 * BLOCK_BYTES);
        let mut image = Image::zeros(8 * BLOCK_BYTES);
        image.blocks.insert(2, Block::from(vec![7; BYTES]));
        medium.show(&Arc::new(image));
        medium
    }

    fn read(medium: &Medium, block: u64) -> Result<u8> {
        let mut into = vec![0; BYTES];
        medium.0.state.lock().read(block, &mut into)?;
        assert!(into.iter().all(|&byte| byte == into[0]));
        Ok(into[0])
    }

    fn write(medium: &Medium, block: u64, byte: u8) -> Result<()> {
        medium.0.state.lock().write(block, 1, Some(&vec![byte; BYTES]))
    }

    #[test]
    fn what_is_written_is_read_and_the_image_stays_as_it_was() {
        let medium = shown();
        write(&medium, 3, 9).expect("written");
        assert_eq!(
            (read(&medium, 2).ok(), read(&medium, 3).ok(), read(&medium, 4).ok()),
            (Some(7), Some(9), Some(0))
        );
        let image = medium.image();
        assert_eq!(image.blocks.len(), 2);
        write(&medium, 2, 0).expect("written");
        assert_eq!((read(&medium, 2).ok(), medium.image().blocks.len()), (Some(0), 1));
        assert_eq!(image.block(2).map(|block| block[0]), Some(7));
    }

    #[test]
    fn every_harm_does_what_it_says_and_no_more() {
        let targets = HashSet::from([2]);
        let medium = shown();
        medium.arm(Some(Harm::Stored(vec![(2, Block::from(vec![1; BYTES]))])));
        assert_eq!(read(&medium, 2).ok(), Some(1));
        assert_eq!(medium.rest(), [Touch { block: 2, is_write: false }]);
        assert_eq!(read(&medium, 2).ok(), Some(1), "what is stored wrong stays");

        let medium = shown();
        medium.arm(Some(Harm::ReadError(targets.clone())));
        assert!(read(&medium, 2).is_err() && read(&medium, 3).is_ok());
        medium.rest();
        assert!(read(&medium, 2).is_err(), "until it is rewritten");
        write(&medium, 2, 5).expect("written");
        assert_eq!(read(&medium, 2).ok(), Some(5));

        let medium = shown();
        medium.arm(Some(Harm::WriteError(targets.clone())));
        assert!(write(&medium, 2, 5).is_err() && write(&medium, 3, 5).is_ok());
        assert_eq!(read(&medium, 2).ok(), Some(7));
        medium.rest();
        assert!(write(&medium, 2, 5).is_ok());

        let medium = shown();
        medium.arm(Some(Harm::Lost(targets)));
        write(&medium, 2, 5).expect("acknowledged");
        assert_eq!(read(&medium, 2).ok(), Some(7));

        let medium = shown();
        medium.arm(Some(Harm::Misdirected(HashMap::from([(2, 6)]))));
        write(&medium, 2, 5).expect("acknowledged");
        assert_eq!((read(&medium, 2).ok(), read(&medium, 6).ok()), (Some(7), Some(5)));
    }
}
