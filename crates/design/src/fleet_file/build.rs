//! From fault models to numbers of a fleet, and everything in them that a fleet cannot use.

use rotproof_fault::{BLOCK_BYTES, Effect, FaultEntry, Model, ModelEntry, Rule, SiteList, validate_plan};
use rotproof_model::SECONDS_PER_YEAR;
use rotproof_model::fleet::{Death, FRONT, Hazard, Source};
use rotproof_spec::{Bytes, Path, Problems, Span};

use super::DeviceFaults;
use super::form::FleetForm;

/// Days of a year of the models' rates. A year of the fleet is a little longer.
const MODEL_YEAR_DAYS: f64 = 365.0;

/// Smallest and largest capacity in bytes.
const CAPACITY: (u64, u64) = (1 << 20, 1 << 60);

/// How many times a year of the models goes into one of the fleet.
fn model_years() -> f64 {
    SECONDS_PER_YEAR / (MODEL_YEAR_DAYS * 86_400.0)
}

fn years(span: Span) -> f64 {
    span.0.as_secs_f64() / SECONDS_PER_YEAR
}

fn blocks(bytes: Bytes) -> f64 {
    bytes.0 as f64 / BLOCK_BYTES as f64
}

/// What the file says, as far as it makes sense; what does not is in `problems`.
pub fn build(form: &FleetForm, undetected: f64, problems: &mut Problems) -> DeviceFaults {
    let root = Path::root();
    if !(CAPACITY.0..=CAPACITY.1).contains(&form.capacity.0) {
        problems.add(
            &root.key("capacity"),
            format!(
                "{} is no capacity of a device; give from {} to {}, such as 16TiB",
                form.capacity,
                Bytes(CAPACITY.0),
                Bytes(CAPACITY.1)
            ),
        );
    }
    let list = root.key("faults");
    if form.faults.is_empty() {
        problems.add_with_help(
            &list,
            "there are no models",
            "give at least one, such as model: latent_sector_errors",
        );
    }
    validate_plan(&form.faults, &list, &SiteList::unnamed(None), problems);
    let faults = DeviceFaults {
        failures: None,
        death: None,
        sources: Vec::new(),
        sectors: blocks(form.capacity),
        unused: Vec::new(),
    };
    let mut builder = Builder { form, undetected, problems, faults };
    for (index, entry) in form.faults.iter().enumerate() {
        let path = list.index(index);
        let name = entry.name_or_default(index);
        match entry {
            FaultEntry::Rule(_) => builder.problems.add_with_help(
                &path,
                "a rule; a fleet knows models only",
                "a rule is about single requests; of devices and years speak the models, such as model: bit_rot",
            ),
            FaultEntry::Model(entry) => builder.model(entry, &name, &path),
        }
    }
    let is_model = |entry: &FaultEntry, word: &str| matches!(entry, FaultEntry::Model(entry) if entry.model.word() == word);
    let has_failures = form.faults.iter().any(|entry| is_model(entry, "whole_disk_failure"));
    for (index, _) in form.faults.iter().enumerate().filter(|(_, entry)| is_model(entry, "dying_disk")) {
        if !has_failures {
            builder.problems.add_with_help(
                &list.index(index),
                "dying_disk says how a disk dies, not how many do",
                "add `- model: whole_disk_failure` with its afr",
            );
        }
    }
    builder.faults
}

struct Builder<'a> {
    form: &'a FleetForm,
    undetected: f64,
    problems: &'a mut Problems,
    faults: DeviceFaults,
}

impl Builder<'_> {
    fn unused(&mut self, name: &str, what: &str) {
        self.faults.unused.push(format!("{name}: {what}"));
    }

    fn model(&mut self, entry: &ModelEntry, name: &str, path: &Path) {
        if entry.during != Rule::new(Effect::MediumError).during {
            self.unused(name, "`during` is of the parts of a trial; a fleet has none");
        }
        let at = path.key("model").key(entry.model.word());
        let tebibytes = self.form.capacity.0 as f64 / (1u64 << 40) as f64;
        match &entry.model {
            Model::LatentSectorErrors(model) => {
                self.times_of_a_run(name, model.life, model.over);
                let source = Source {
                    further: model.further.0,
                    spread_years: years(model.spread),
                    single: model.single.0,
                    run: blocks(model.run),
                    front: model.front.0,
                    // The device itself reports them.
                    ..Source::singles(
                        name,
                        model.rate.0 * model.acceleration.0 * tebibytes * model_years(),
                        0.0,
                    )
                };
                self.source(source);
            }
            Model::BitRot(model) => {
                self.times_of_a_run(name, model.life, model.over);
                let rate = model.rate.0 * model.acceleration.0 * tebibytes * model_years();
                self.source(Source::singles(name, rate, self.undetected));
            }
            Model::UndetectedDiskErrors(model) => {
                if model.near_off_track.0 > 0.0 {
                    self.problems.add_with_help(
                        &at.key("near_off_track"),
                        "a fleet cannot use near_off_track: it is of places, not of time",
                        "how often such a place is rewritten and then read decides; say it as dropped, of the blocks written",
                    );
                }
                for (key, probability, used) in [
                    ("dropped", model.dropped, self.form.written_per_year),
                    ("far_off_track", model.far_off_track, self.form.written_per_year),
                    ("read", model.read, self.form.read_per_year),
                ] {
                    let probability = (probability.0 * model.acceleration.0).min(1.0);
                    if probability <= 0.0 {
                        continue;
                    }
                    let Some(used) = used else {
                        let (needed, done) = if key == "read" {
                            ("read_per_year", "read from")
                        } else {
                            ("written_per_year", "written to")
                        };
                        self.problems.add_with_help(
                            &at.key(key),
                            format!(
                                "`{key}` is of the blocks that are {done} a device, and nothing says how many"
                            ),
                            format!("add `{needed}: 100TiB` at the top of the file"),
                        );
                        continue;
                    };
                    let source =
                        Source::singles(format!("{name}.{key}"), probability * blocks(used), self.undetected);
                    self.source(match key {
                        // What should have been overwritten, and what was instead.
                        "far_off_track" => Source { single: 0.0, run: 2.0, front: FRONT, ..source },
                        "read" => Source { is_transient: true, ..source },
                        _ => source,
                    });
                }
            }
            Model::WholeDiskFailure(model) => {
                self.times_of_a_run(name, model.life, model.over);
                if self.faults.failures.is_some() {
                    self.problems
                        .add(&at, "whole_disk_failure a second time; a device has one time to failure");
                }
                let first_year = -(-model.afr.0).ln_1p() * model.acceleration.0;
                let hazard = Hazard {
                    first_year: first_year * model_years().powf(model.shape.0),
                    shape: model.shape.0,
                };
                self.faults.failures = Some((hazard, years(model.age)));
            }
            Model::DyingDisk(model) => {
                if self.faults.death.is_some() {
                    self.problems.add(&at, "dying_disk a second time; a device dies in one way");
                }
                let Some(over) = model.over else {
                    self.problems.add_with_help(
                        &at,
                        "how long does a disk take to die?",
                        "give it as `over`, such as over: 30d; in a fleet that is time of the device's life",
                    );
                    return;
                };
                self.faults.death = Some(Death {
                    years: years(over),
                    errors: model.errors.0,
                    growth: model.growth.0,
                    spares: model.spares.0.into(),
                });
                if !model.delay_to.0.is_zero() || !model.delay_from.0.is_zero() {
                    self.unused(name, "its delays lose nothing");
                }
            }
            Model::FailSlow(_) => {
                self.unused(
                    name,
                    "fail_slow loses nothing; for what it costs give a longer --rebuild and --scrub",
                );
            }
        }
    }

    fn source(&mut self, source: Source) {
        self.faults.sources.push(source);
    }

    fn times_of_a_run(&mut self, name: &str, life: Span, over: Option<Span>) {
        let is_year = (life.0.as_secs_f64() - MODEL_YEAR_DAYS * 86_400.0).abs() < 1.0;
        if !is_year || over.is_some() {
            self.unused(name, "`life` and `over` lay years out over a run; a fleet lives for --years");
        }
    }
}
