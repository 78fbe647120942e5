//! The leaf on an export of an NBD server, as a stack has it: `nbd: { uri: "nbd://localhost/" }`.

use std::sync::Arc;

use rotproof_block::leaf::{NbdDevice, NbdUri};
use rotproof_block::{Device, Result};
use rotproof_spec::{Path, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Kind, Stands};
use crate::open::Opening;

/// A leaf on an export of an NBD server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NbdSpec {
    /// Where it is: nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH.
    pub uri: String,
}

impl Kind for NbdSpec {
    const WORD: &'static str = "nbd";
    const EXAMPLE: &'static str = "{ nbd: { uri: \"nbd+unix:///?socket=disk.sock\" } }";
    const SUMMARY: &'static str = "an export of an NBD server";
    const STANDS: Stands = Stands::Alone;

    /// As large as the server says.
    fn size(&self, _below: &[Option<u64>]) -> Option<u64> {
        None
    }

    fn validate(&self, _below: &[Option<u64>], path: &Path, problems: &mut Problems) {
        if let Err(error) = self.uri.parse::<NbdUri>() {
            problems.add(&path.key("uri"), error.context());
        }
    }

    fn describe(&self) -> String {
        self.uri.clone()
    }

    fn open(&self, _below: Vec<Arc<dyn Device>>, opening: &mut Opening) -> Result<Arc<dyn Device>> {
        let export = NbdDevice::connect(&self.uri.parse()?)?;
        let watched = Arc::clone(&export);
        opening.may_fail(move || watched.check());
        Ok(export)
    }
}
