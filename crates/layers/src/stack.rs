//! The one factory: from the description of a stack to its devices, opened bottom to top.

use std::fmt;
use std::sync::Arc;

use rotproof_block::leaf::{FileDevice, FileOptions, MemoryDevice, NbdDevice, SimulatedDisk};
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_fault::{Engine, EngineOptions};
use rotproof_spec::{Path, Problems};
use serde::Serialize;

use crate::dedup::{DedupDevice, DedupReport};
use crate::disk_spec::DiskSpec;
use crate::fault::FaultDevice;
use crate::stack_spec::{DeviceSpec, FileSpec, MemorySpec, NbdSpec, StackSpec};
use crate::stats::{StatsDevice, StatsReport};

/// What a stack needs besides its description.
#[derive(Clone, Copy, Debug)]
pub struct StackEnvironment {
    /// Root of everything that chance decides.
    pub seed: u64,
    /// Put a faults layer just above the leaf if the description names no place for it.
    pub needs_faults: bool,
    /// Open a file or block device at the bottom for reading only.
    pub read_only: bool,
}

/// An open stack.
pub struct Stack {
    /// The device at the top.
    pub device: Arc<dyn Device>,
    /// The engine of the faults layer, still without rules, if there is such a layer.
    pub engine: Option<Arc<Engine>>,
    /// The layers that have something to report, bottom to top.
    reporters: Vec<Reporter>,
    /// The leaf, if it is something real, which may fail by itself.
    ground: Option<Ground>,
}

/// A leaf that may fail by itself.
#[derive(Clone)]
enum Ground {
    File(Arc<FileDevice>),
    Nbd(Arc<NbdDevice>),
}

impl Ground {
    fn check(&self) -> Result<()> {
        match self {
            Self::File(file) => file.check(),
            Self::Nbd(export) => export.check(),
        }
    }
}

enum Reporter {
    Stats(Arc<StatsDevice>),
    Dedup(Arc<DedupDevice>),
}

/// What one layer has to report.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum LayerReport {
    /// What passed a stats layer.
    Stats(StatsReport),
    /// What a dedup layer has saved.
    Dedup(DedupReport),
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stack({:?})", self.device.info())
    }
}

/// Opens every device of `spec`. The leaf creates and enlarges files as it is told; whether that is permitted is for
/// the caller to know. Rules are given to the engine later ([`Engine::add_rules`]), when their targets are known.
///
/// Fails with [`ErrorKind::Invalid`] on a description that [`StackSpec::validate`] complains about, and as the leaf
/// fails.
pub fn open(spec: &StackSpec, environment: &StackEnvironment) -> Result<Stack> {
    let mut problems = Problems::default();
    spec.validate(&Path::root().key("stack"), &mut problems);
    if let Some(problem) = problems.iter().next() {
        return Err(Error::new(ErrorKind::Invalid, format!("{}: {}", problem.path, problem.message)));
    }
    let Some((leaf, layers)) = spec.0.split_first() else {
        return Err(Error::new(ErrorKind::Invalid, "the stack is empty; begin with a leaf"));
    };
    let (device, ground) = open_leaf(leaf, environment.read_only)?;
    let mut stack = Stack { device, engine: None, reporters: Vec::new(), ground };
    if environment.needs_faults && !layers.contains(&DeviceSpec::Faults) {
        stack.add_faults(environment);
    }
    let mut stats_layers = 0;
    for layer in layers {
        match layer {
            DeviceSpec::Faults => stack.add_faults(environment),
            DeviceSpec::Stats(stats) => {
                let name = stats.name_or_default(stats_layers);
                stats_layers += 1;
                let layer = StatsDevice::new(Arc::clone(&stack.device), name);
                stack.reporters.push(Reporter::Stats(Arc::clone(&layer)));
                stack.device = layer;
            }
            DeviceSpec::Dedup(dedup) => {
                let layer = DedupDevice::new(Arc::clone(&stack.device), dedup.options())?;
                stack.reporters.push(Reporter::Dedup(Arc::clone(&layer)));
                stack.device = layer;
            }
            DeviceSpec::Memory(_) | DeviceSpec::File(_) | DeviceSpec::Disk(_) | DeviceSpec::Nbd(_) => {
                return Err(Error::new(ErrorKind::Invalid, "a stack has one leaf, its first entry"));
            }
        }
    }
    Ok(stack)
}

impl Stack {
    /// What each layer that counts something has to report so far, bottom to top.
    pub fn reports(&self) -> Vec<LayerReport> {
        let report = |layer: &Reporter| match layer {
            Reporter::Stats(layer) => LayerReport::Stats(layer.report()),
            Reporter::Dedup(layer) => LayerReport::Dedup(layer.report()),
        };
        self.reporters.iter().map(report).collect()
    }

    /// What [`Stack::check_leaf`] does, for another thread; `None` where the leaf cannot fail by itself.
    pub fn leaf_check(&self) -> Option<impl Fn() -> Result<()> + Send + use<>> {
        let ground = self.ground.clone()?;
        Some(move || ground.check())
    }

    /// Ok as long as the leaf has not failed by itself: see [`FileDevice::check`] and [`NbdDevice::check`].
    pub fn check_leaf(&self) -> Result<()> {
        self.ground.as_ref().map_or(Ok(()), Ground::check)
    }

    fn add_faults(&mut self, environment: &StackEnvironment) {
        let device_size = self.device.info().size;
        let engine = Engine::new(Vec::new(), EngineOptions { seed: environment.seed, device_size });
        self.device = FaultDevice::new(Arc::clone(&self.device), Arc::clone(&engine));
        self.engine = Some(engine);
    }
}

type Leaf = (Arc<dyn Device>, Option<Ground>);

fn open_leaf(leaf: &DeviceSpec, read_only: bool) -> Result<Leaf> {
    Ok(match leaf {
        DeviceSpec::Memory(MemorySpec { size, block_size }) => {
            // Validated to be 4096 at the most.
            (MemoryDevice::new(size.0, u32::try_from(block_size.0).unwrap_or(u32::MAX))?, None)
        }
        DeviceSpec::File(FileSpec { path, size, direct }) => {
            let options = FileOptions {
                size_bytes: size.map(|size| size.0),
                direct: *direct,
                read_only,
                create: size.is_some() && !read_only,
                ..FileOptions::default()
            };
            let file = FileDevice::open(path, options)?;
            (Arc::<FileDevice>::clone(&file), Some(Ground::File(file)))
        }
        DeviceSpec::Nbd(NbdSpec { uri }) => {
            let export = NbdDevice::connect(&uri.parse()?)?;
            (Arc::<NbdDevice>::clone(&export), Some(Ground::Nbd(export)))
        }
        DeviceSpec::Disk(disk) => {
            let (size, model) = (disk.size.0, disk.model());
            let device = match disk.write_cache {
                None => SimulatedDisk::new(size, DiskSpec::BLOCK_SIZE, model),
                Some(cache) => SimulatedDisk::with_write_cache(size, DiskSpec::BLOCK_SIZE, model, cache.0),
            };
            (device?, None)
        }
        DeviceSpec::Faults | DeviceSpec::Stats(_) | DeviceSpec::Dedup(_) => {
            return Err(Error::new(ErrorKind::Invalid, format!("{} is no leaf", leaf.word())));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(json: &str, needs_faults: bool) -> Result<Stack> {
        let spec: StackSpec = serde_json::from_str(json).expect(json);
        open(&spec, &StackEnvironment { seed: 1, needs_faults, read_only: false })
    }

    #[test]
    fn faults_are_where_the_description_says_or_above_the_leaf_if_they_are_needed() {
        let memory = r#"{"memory":{"size":"1MiB"}}"#;
        for (layers, needs_faults, has_engine) in [
            ("", false, false),
            ("", true, true),
            (r#","faults""#, false, true),
            (r#","stats","faults""#, true, true),
        ] {
            let stack = opened(&format!("[{memory}{layers}]"), needs_faults).expect("opens");
            assert_eq!(stack.engine.is_some(), has_engine, "{layers}");
            assert_eq!(stack.device.info().size, 1 << 20);
        }
    }

    #[test]
    fn layers_report_from_the_bottom_and_stats_without_a_name_are_numbered() {
        let stack = opened(
            r#"[{"disk":{"profile":"nvme","size":"1MiB"}},"stats","dedup",{"stats":{"name":"top"}},"stats"]"#,
            true,
        )
        .expect("opens");
        let name = |report| match report {
            LayerReport::Stats(stats) => stats.name,
            LayerReport::Dedup(dedup) => dedup.name,
        };
        let names: Vec<String> = stack.reports().into_iter().map(name).collect();
        assert_eq!(names, ["stats-1", "dedup", "top", "stats-3"]);
    }

    #[test]
    fn a_file_is_made_where_a_size_is_given_and_missed_where_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, size: &str| {
            let path = folder.path().join(name).display().to_string();
            opened(&format!(r#"[{{"file":{{"path":"{path}","direct":false{size}}}}}]"#), false)
        };
        assert_eq!(file("absent.img", "").expect_err("not there").kind(), ErrorKind::Missing);
        let stack = file("made.img", r#","size":"1MiB""#).expect("is made");
        assert_eq!(stack.device.info().size, 1 << 20);
        assert_eq!(file("made.img", "").expect("is there now").device.info().size, 1 << 20);
    }

    #[test]
    fn a_description_without_sense_is_refused_with_its_place() {
        let error = opened(r#"[{"memory":{"size":1000}}]"#, false).expect_err("no multiple");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("stack[0].memory.size: "), "{error}");
    }
}
