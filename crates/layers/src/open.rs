//! The one factory: from the description of a stack to its devices, opened bottom to top.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rotproof_block::hash::mix;
use rotproof_block::{Device, Error, ErrorKind, Result};
use rotproof_fault::{Engine, EngineOptions, Sites};
use rotproof_spec::{Path, Problems};
use rotproof_volume::live::LiveVolume;
use serde::Serialize;

use crate::checksum::ChecksumLayerReport;
use crate::dedup::DedupReport;
use crate::device_spec::DeviceSpec;
use crate::faults::FaultsSpec;
use crate::kind::{Below, Kind};
use crate::mirror::MirrorReport;
use crate::record_spec::StackRecording;
use crate::stack_spec::{Chain, SiteNames, StackSpec};
use crate::stats::StatsReport;
use crate::volume::VolumeReport;

/// What a stack needs besides its description.
#[derive(Clone, Debug)]
pub struct StackEnvironment {
    /// Root of everything that chance decides.
    pub seed: u64,
    /// Put a faults layer above each [disk](Chain::disk) if the description names no place for any.
    pub needs_faults: bool,
    /// Open files and block devices at the bottom for reading only.
    pub read_only: bool,
    /// Nanoseconds since 1970 at time zero of its runtimes, for what carries the time of day; 0 where a run is to repeat.
    pub epoch_ns: u64,
    /// The folder for recordings that have no path of their own, if there is one.
    pub recordings: Option<PathBuf>,
}

/// An open stack.
pub struct Stack {
    /// The devices that it is to whoever uses it, in the order of the description; at least one.
    pub devices: Vec<NamedDevice>,
    /// The places where faults act, still without rules.
    pub sites: Sites,
    /// Of each place, the way up from it.
    routes: Vec<Route>,
    reporters: Vec<Reporter>,
    checks: Vec<Check>,
    volumes: Vec<Arc<LiveVolume>>,
    recordings: Vec<StackRecording>,
}

/// A device of a stack.
#[derive(Clone)]
pub struct NamedDevice {
    /// Its name, if the stack has several.
    pub name: Option<String>,
    /// Itself.
    pub device: Arc<dyn Device>,
}

type Reporter = Box<dyn Fn() -> LayerReport + Send + Sync>;
type Check = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// What one layer has to report.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum LayerReport {
    /// What passed a stats layer.
    Stats(StatsReport),
    /// What a dedup layer has saved.
    Dedup(DedupReport),
    /// What a checksum layer has found and mended.
    Checksum(ChecksumLayerReport),
    /// What a mirror has done.
    Mirror(MirrorReport),
    /// What a volume has done.
    Volume(VolumeReport),
}

/// The devices above a place, from below, each with the number and the sizes of those that it stands on.
#[derive(Default)]
struct Route {
    steps: Vec<(DeviceSpec, usize, Vec<u64>)>,
    /// The number of the device on top.
    top: usize,
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.devices.iter().map(|named| (&named.name, named.device.info()))).finish()
    }
}

/// A stack on its way to be open: what its devices need from it, and give it.
pub struct Opening {
    environment: StackEnvironment,
    names: SiteNames,
    /// What the next faults layer is called, as its chain and its description say.
    site: (Option<String>, Option<String>),
    sites: Sites,
    routes: Vec<Route>,
    reporters: Vec<Reporter>,
    checks: Vec<Check>,
    volumes: Vec<Arc<LiveVolume>>,
    recordings: Vec<StackRecording>,
    recordings_named: usize,
    stats_layers: usize,
    identities: u64,
    mirrors: usize,
}

impl Opening {
    /// Whether leaves are opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.environment.read_only
    }

    /// Nanoseconds since 1970 at time zero of the runtimes.
    pub fn epoch_ns(&self) -> u64 {
        self.environment.epoch_ns
    }

    /// Takes note of a volume, for whoever looks after it.
    pub(crate) fn has_volume(&mut self, volume: Arc<LiveVolume>) {
        self.volumes.push(volume);
    }

    /// The folder for recordings without a path.
    pub(crate) fn recordings_folder(&self) -> Option<PathBuf> {
        self.environment.recordings.clone()
    }

    /// How many recordings lie there so far, with this one counted from now on.
    pub(crate) fn count_recordings(&mut self) -> usize {
        self.recordings_named += 1;
        self.recordings_named - 1
    }

    /// Takes note of a recorder, for whoever sets marks and ends it.
    pub(crate) fn has_recording(&mut self, recording: StackRecording) {
        self.recordings.push(recording);
    }

    /// An identity for something that is made on a device of this stack: its own for each, the same with the same seed.
    pub(crate) fn identity(&mut self) -> u128 {
        self.identities += 1;
        let half = |stream| u128::from(mix(self.environment.seed, stream, self.identities));
        half(0x6964) << 64 | half(0x6965)
    }

    /// The one device below a layer that stands on one.
    pub fn one(&self, below: &mut Vec<Arc<dyn Device>>) -> Result<Arc<dyn Device>> {
        below.pop().ok_or_else(|| Error::new(ErrorKind::Invalid, "a layer stands on a device"))
    }

    /// Takes note of what the layer has to report, whenever somebody asks.
    pub fn reports(&mut self, report: impl Fn() -> LayerReport + Send + Sync + 'static) {
        self.reporters.push(Box::new(report));
    }

    /// Takes note of a leaf that is something real, which may fail by itself: `check` is Ok as long as it has not.
    pub fn may_fail(&mut self, check: impl Fn() -> Result<()> + Send + Sync + 'static) {
        self.checks.push(Arc::new(check));
    }

    /// How many stats layers there are so far, with this one counted from now on.
    pub(crate) fn count_stats(&mut self) -> usize {
        self.stats_layers += 1;
        self.stats_layers - 1
    }

    /// The name of the next mirror in reports.
    pub(crate) fn count_mirror(&mut self) -> String {
        self.mirrors += 1;
        if self.mirrors == 1 { "mirror".to_owned() } else { format!("mirror-{}", self.mirrors) }
    }

    /// A place where faults act, over a device of so many bytes.
    pub(crate) fn site(&mut self, device_size: u64) -> Result<Arc<Engine>> {
        let (chain, given) = &self.site;
        let name = self.names.next(given.as_deref(), chain.as_deref());
        let engine = self.sites.add(&name, EngineOptions { seed: self.environment.seed, device_size })?;
        self.routes.push(Route::default());
        Ok(engine)
    }

    /// Opens a chain; gives the device on top and its places for faults.
    fn chain(
        &mut self,
        name: Option<&str>,
        chain: &Chain,
        is_implicit: bool,
    ) -> Result<(Arc<dyn Device>, Vec<usize>)> {
        let mut top: Option<Arc<dyn Device>> = None;
        let mut sites: Vec<usize> = Vec::new();
        for (number, device) in chain.0.iter().enumerate() {
            // Of each device below, its places.
            let mut sites_below = vec![std::mem::take(&mut sites)];
            let mut below: Vec<Arc<dyn Device>> = top.take().into_iter().collect();
            if let Some(legs) = device.legs() {
                let opened = legs.0.iter().map(|(name, leg)| self.chain(name.as_deref(), leg, is_implicit));
                (below, sites_below) = opened.collect::<Result<Vec<_>>>()?.into_iter().unzip();
            }
            let sizes: Vec<u64> = below.iter().map(|device| device.info().size).collect();
            let is_site = matches!(device, DeviceSpec::Faults(_));
            if let DeviceSpec::Faults(FaultsSpec { name: given }) = device {
                self.site = (name.map(ToOwned::to_owned), given.clone());
            }
            let mut opened = device.open(below, self)?;
            for (leg, below) in sites_below.into_iter().enumerate() {
                for site in below {
                    self.routes[site].steps.push((device.clone(), leg, sizes.clone()));
                    sites.push(site);
                }
            }
            let has_place = is_implicit && chain.disk() == Some(number);
            if has_place {
                self.site = (name.map(ToOwned::to_owned), None);
                opened = FaultsSpec::default().open(vec![opened], self)?;
            }
            if is_site || has_place {
                sites.push(self.routes.len() - 1);
            }
            top = Some(opened);
        }
        let top =
            top.ok_or_else(|| Error::new(ErrorKind::Invalid, "the stack is empty; begin with a leaf"))?;
        Ok((top, sites))
    }
}

/// Opens every device of `spec`. Leaves create and enlarge files as they are told; whether that is permitted is for
/// the caller to know. Rules are given to the places later ([`Sites::add_rules`]), when their targets are known.
///
/// Fails with [`ErrorKind::Invalid`] on a description that [`StackSpec::validate`] complains about, and as the leaves
/// fail.
pub fn open(spec: &StackSpec, environment: &StackEnvironment) -> Result<Stack> {
    let mut problems = Problems::default();
    spec.validate(&Path::root().key("stack"), &mut problems);
    if let Some(problem) = problems.iter().next() {
        return Err(Error::new(ErrorKind::Invalid, format!("{}: {}", problem.path, problem.message)));
    }
    let mut opening = Opening {
        environment: environment.clone(),
        names: SiteNames::of(spec),
        site: (None, None),
        sites: Sites::default(),
        routes: Vec::new(),
        reporters: Vec::new(),
        checks: Vec::new(),
        volumes: Vec::new(),
        recordings: Vec::new(),
        recordings_named: 0,
        stats_layers: 0,
        identities: 0,
        mirrors: 0,
    };
    let is_implicit = environment.needs_faults && !spec.has_site();
    let mut devices = Vec::new();
    for (number, (name, chain)) in spec.0.0.iter().enumerate() {
        let (device, sites) = opening.chain(name.as_deref(), chain, is_implicit)?;
        for site in sites {
            opening.routes[site].top = number;
        }
        devices.push(NamedDevice { name: name.clone(), device });
    }
    let Opening { sites, routes, reporters, checks, volumes, recordings, .. } = opening;
    Ok(Stack { devices, sites, routes, reporters, checks, volumes, recordings })
}

impl Stack {
    /// The first device: of a stack that is one device, that.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.devices[0].device
    }

    /// Where a byte is to be seen that lies at `offset` of the device below a place for faults: the number of a device of
    /// the stack, and the offset there. `None` if that can be anywhere, or there is no such place.
    pub fn seen_at(&self, site: &str, offset: u64) -> Option<(usize, u64)> {
        let number = self.sites.engines().iter().position(|engine| **engine.site() == *site)?;
        let route = self.routes.get(number)?;
        let up = |offset: u64, (device, leg, sizes): &(DeviceSpec, usize, Vec<u64>)| {
            device.up(*leg, offset, sizes)
        };
        route.steps.iter().try_fold(offset, up).map(|offset| (route.top, offset))
    }

    /// Whether the byte at `offset` of the device of the stack that stands on that place for faults may lie below it.
    pub fn lies_below(&self, site: &str, offset: u64) -> bool {
        let number = self.sites.engines().iter().position(|engine| **engine.site() == *site);
        let Some(route) = number.and_then(|number| self.routes.get(number)) else { return true };
        let mut offset = offset;
        for (device, leg, sizes) in route.steps.iter().rev() {
            match device.down(*leg, offset, sizes) {
                Below::At(below) => offset = below,
                Below::Elsewhere => return false,
                Below::Anywhere => return true,
            }
        }
        true
    }

    /// The volumes in it, for whoever looks after them.
    pub fn volumes(&self) -> &[Arc<LiveVolume>] {
        &self.volumes
    }

    /// The recorders in it, bottom to top.
    pub fn recordings(&self) -> &[StackRecording] {
        &self.recordings
    }

    /// Sets a mark in every recording: something that holds from now on.
    pub fn mark(&self, text: &str) {
        for recording in &self.recordings {
            recording.recorder.mark(recording.recorder.time_ns(), text);
        }
    }

    /// Ends every recording. Fails if any of it could not be written.
    pub fn finish_recordings(&self) -> Result<()> {
        let finish = |recording: &StackRecording| {
            let doing = || format!("the recording {}", recording.path.display());
            recording.recorder.finish().map(drop).map_err(|error| error.while_doing(doing()))
        };
        self.recordings.iter().try_for_each(finish)
    }

    /// What each layer that counts something has to report so far, bottom to top.
    pub fn reports(&self) -> Vec<LayerReport> {
        self.reporters.iter().map(|report| report()).collect()
    }

    /// What [`Stack::check_leaves`] does, for another thread; `None` where no leaf can fail by itself.
    pub fn leaf_check(&self) -> Option<impl Fn() -> Result<()> + Send + use<>> {
        let checks = self.checks.clone();
        (!checks.is_empty()).then_some(move || checks.iter().try_for_each(|check| check()))
    }

    /// Ok as long as no leaf has failed by itself: see [`FileDevice::check`] and [`NbdDevice::check`].
    ///
    /// [`FileDevice::check`]: rotproof_block::leaf::FileDevice::check
    /// [`NbdDevice::check`]: rotproof_block::leaf::NbdDevice::check
    pub fn check_leaves(&self) -> Result<()> {
        self.checks.iter().try_for_each(|check| check())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(json: &str, needs_faults: bool) -> Result<Stack> {
        let spec: StackSpec = serde_json::from_str(json).expect(json);
        open(
            &spec,
            &StackEnvironment { seed: 1, needs_faults, read_only: false, epoch_ns: 0, recordings: None },
        )
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
            assert_eq!(!stack.sites.is_empty(), has_engine, "{layers}");
            assert_eq!(stack.device().info().size, 1 << 20);
        }
    }

    #[test]
    fn a_write_cache_on_a_leaf_lies_below_the_faults_that_nobody_has_placed() {
        let memory = r#"{"memory":{"size":"1MiB"}}"#;
        for (layers, is_direct) in [
            (r#","write_cache","stats""#, true),
            (r#","write_cache","faults""#, true),
            (r#","faults","write_cache""#, false),
            (r#","stats","write_cache""#, false),
        ] {
            let text = format!("[{memory}{layers}]");
            let spec: StackSpec = serde_json::from_str(&text).expect("a stack");
            assert_eq!(spec.keeps_offsets(), is_direct, "{layers}");
            let stack = opened(&text, true).expect("opens");
            assert_eq!(stack.seen_at("faults", 4096), is_direct.then_some((0, 4096)), "{layers}");
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
            LayerReport::Checksum(checksum) => checksum.name,
            LayerReport::Mirror(mirror) => mirror.name,
            LayerReport::Volume(volume) => volume.name,
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
        assert_eq!(stack.device().info().size, 1 << 20);
        assert_eq!(file("made.img", "").expect("is there now").device().info().size, 1 << 20);
    }

    #[test]
    fn a_description_without_sense_is_refused_with_its_place() {
        let error = opened(r#"[{"memory":{"size":1000}}]"#, false).expect_err("no multiple");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().starts_with("stack[0].memory.size: "), "{error}");
    }

    #[test]
    fn places_are_named_and_what_lies_there_is_found_on_top() {
        let stack = opened(
            r#"{"a":[{"concat":{"of":{"left":[{"memory":{"size":"1MiB"}},"faults"],
                 "right":[{"memory":{"size":"2MiB"}},{"faults":{"name":"far"}},"stats"]}}},"faults","stats"],
                "b":[{"memory":{"size":"1MiB"}},"faults","dedup"]}"#,
            true,
        )
        .expect("opens");
        let names: Vec<_> = stack.sites.engines().iter().map(|engine| engine.site().to_string()).collect();
        assert_eq!(names, ["left", "far", "a", "b"]);
        for (site, offset, seen) in [
            ("left", 4096, Some((0, 4096))),
            ("far", 4096, Some((0, (1 << 20) + 4096))),
            ("a", 4096, Some((0, 4096))),
            ("b", 4096, None),
            ("c", 4096, None),
        ] {
            assert_eq!(stack.seen_at(site, offset), seen, "{site}");
            assert!(seen.is_none_or(|(_, offset)| stack.lies_below(site, offset)), "{site}");
        }
        assert!(!stack.lies_below("left", 1 << 20) && !stack.lies_below("far", 4096));
        assert!(stack.lies_below("b", 0), "nobody can say where dedup has put it");
        let tops: Vec<_> =
            stack.devices.iter().map(|top| (top.name.as_deref(), top.device.info().size)).collect();
        assert_eq!(tops, [(Some("a"), 3 << 20), (Some("b"), 1 << 20)]);
        assert_eq!(stack.reports().len(), 3);
    }

    #[test]
    fn places_below_stripes_and_mirrors_are_found_on_top() {
        let leg =
            |name: &str| format!(r#"[{{"memory":{{"size":"1MiB"}}}},{{"faults":{{"name":"{name}"}}}}]"#);
        let mirror = |a: &str, b: &str| format!(r#"[{{"mirror":{{"of":[{},{}]}}}}]"#, leg(a), leg(b));
        let text =
            format!(r#"[{{"stripe":{{"chunk":"64KiB","of":[{},{}]}}}}]"#, mirror("a", "b"), mirror("c", "d"));
        let spec: StackSpec = serde_json::from_str(&text).expect("a stack");
        assert!(spec.keeps_copies() && spec.keeps_offsets());
        let stack = opened(&text, true).expect("opens");
        assert_eq!(stack.device().info().size, 2 << 20);
        assert_eq!(spec.sizes(&|_| None), [Some(2 << 20)]);
        for (site, offset, seen) in [
            ("a", 4096, 4096),
            ("b", 4096, 4096),
            ("c", 4096, 69_632),
            ("d", 65_536, 196_608),
            ("a", 65_536, 131_072),
        ] {
            assert_eq!(stack.seen_at(site, offset), Some((0, seen)), "{site} {offset}");
            let below: Vec<&str> =
                ["a", "b", "c", "d"].into_iter().filter(|site| stack.lies_below(site, seen)).collect();
            assert_eq!(below, if "ab".contains(site) { ["a", "b"] } else { ["c", "d"] });
        }
        let names: Vec<String> = stack
            .reports()
            .into_iter()
            .map(|report| match report {
                LayerReport::Mirror(mirror) => mirror.name,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(names, ["mirror", "mirror-2"]);
    }

    #[test]
    fn without_a_place_each_leaf_has_one() {
        let tree =
            r#"[{"concat":{"of":[[{"memory":{"size":"1MiB"}}],[{"memory":{"size":"1MiB"}}]]}},"stats"]"#;
        let stack = opened(tree, true).expect("opens");
        let names: Vec<_> = stack.sites.engines().iter().map(|engine| engine.site().to_string()).collect();
        assert_eq!(names, ["faults", "faults-2"]);
        assert_eq!(stack.seen_at("faults-2", 0), Some((0, 1 << 20)));
        let spec: StackSpec = serde_json::from_str(tree).expect("a stack");
        let described = spec.sites(&|_| None);
        assert_eq!(described, stack.sites.list(), "as it was described");
        assert!(opened(tree, false).expect("opens").sites.is_empty());
    }
}
