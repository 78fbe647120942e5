//! A trial as a picture in 80 columns: the stack from the load down to the leaf, the faults, and what is expected.

use rotproof_fault::{DrawnModel, FaultEntry, Match, Plan, Rule};
use rotproof_layers::{Chain, DeviceSpec, FaultsSpec};
use rotproof_load::personality::Personality;
use rotproof_load::{BlockSizes, Command, JobSpec, LoadSpec, Pace, Trace};
use rotproof_spec::{Bytes, Percent};
use rotproof_subject::{ExportSpec, SubjectSpec};
use rotproof_trial::file::TrialFile;

use crate::output::Paint;
use crate::table::clip;
use crate::trials::Trial;
use crate::units::counted;

/// Rules that are listed one by one; a plan may have thousands.
const RULES_MAX: usize = 20;

/// Columns of the first word of each line, and of a line.
const WORD_WIDTH: usize = 10;
const WIDTH: usize = 80;

/// The whole picture, without a line break at its end.
pub fn render(trial: &Trial, paint: Paint) -> String {
    let file = &trial.file;
    // Without the size of the device, models are drawn when it is opened.
    let plan = file.plan().ok();
    let mut lines = vec![
        format!("{}  {}", paint.bold(clip(&file.name, WIDTH)), paint.dim(trial.path.display())),
        String::new(),
    ];
    lines.extend(path_of_requests(file, plan.as_ref(), paint));
    if !file.faults.is_empty() {
        lines.extend([String::new(), paint.bold("Faults").to_string()]);
        lines.extend(faults(&file.faults, plan.as_ref()));
    }
    lines.extend([String::new(), paint.bold("Expected").to_string()]);
    lines.extend(file.expect.wanted().iter().map(|(name, wanted)| format!("  {name:13} {wanted}")));
    for gate in &file.expect.gates {
        let limits = gate.wanted().into_iter();
        let limits = limits.map(|(figure, wanted)| format!("  {} {figure} {}", gate.subject(), wanted.text));
        lines.extend(limits.map(|line| clip(&line, 80)));
    }
    let probes = file.probes_spec().map_or(String::new(), |spec| {
        let names: Vec<&str> = spec.machines.keys().map(String::as_str).collect();
        let also = if names.is_empty() { String::new() } else { format!(", also of {}", names.join(", ")) };
        format!(", probes every {}{also}", spec.interval)
    });
    lines.extend([String::new(), format!("Seed {}, runtime {}{probes}.", file.seed, file.runtime.word())]);
    lines.join("\n")
}

/// From the load down to the leaf.
fn path_of_requests(file: &TrialFile, plan: Option<&Plan>, paint: Paint) -> Vec<String> {
    let mut floors = vec![("load".to_owned(), load(&file.load))];
    let device = match file.export {
        ExportSpec::Loop => "a loop device over the exported stack",
        ExportSpec::Ublk => "a ublk device that is the exported stack",
    };
    let subject = match file.subject.on_top() {
        SubjectSpec::Raw | SubjectSpec::Volume(_) => vec!["the stack itself, in process".to_owned()],
        SubjectSpec::Fat => vec!["files on FAT, by a library in process over the stack".to_owned()],
        SubjectSpec::Device => vec![device.to_owned()],
        SubjectSpec::Guard(guard) => {
            vec![format!(
                "files through a mount of the guard, mode {}, over {}",
                guard.mode.word(),
                guard.over
            )]
        }
        SubjectSpec::Machine(_) => {
            let on_memory = file.faults.iter().filter(|entry| entry.is_on_memory()).count() as u64;
            let mut lines = vec![format!("files in a {}", file.subject.on_top())];
            lines.extend((on_memory > 0).then(|| format!("{} on its memory", counted(on_memory, "rule"))));
            lines
        }
        SubjectSpec::Zfs(_) => {
            vec![format!("files on {}, by zfs-fuse on the exported stack", file.subject.on_top())]
        }
        SubjectSpec::FileSystem(spec) => {
            let mut lines = vec![format!("files on {}, on {device}", spec.kind)];
            if !spec.mkfs.is_empty() {
                lines.push(format!("mkfs {}", spec.mkfs.join(" ")));
            }
            if !spec.mount.is_empty() {
                lines.push(format!("mount {}", spec.mount.join(",")));
            }
            lines
        }
    };
    floors.push((file.subject.on_top().name().to_owned(), subject));
    let count = match plan {
        Some(plan) => counted(plan.rules.len() as u64, "rule"),
        None => counted(file.faults.len() as u64, "rule or model").replace("models", "models, not drawn yet"),
    };
    // Where the file names no place, faults act above each leaf and the write cache on it.
    let in_stack = file.faults.iter().filter(|entry| !entry.is_on_memory()).count();
    let is_implicit = !file.stack.has_site() && in_stack > 0;
    let stack = file.whole_stack();
    match stack.only() {
        Some(chain) => floors.extend(floors_of(chain, is_implicit, &count)),
        None => {
            let chains = stack.0.0.iter();
            floors.extend(chains.map(|(name, chain)| {
                (name.clone().unwrap_or_default(), vec![in_a_line(chain, is_implicit)])
            }));
        }
    }
    let mut lines = Vec::new();
    for (index, (word, description)) in floors.iter().enumerate() {
        let is_last = index + 1 == floors.len();
        for (number, text) in description.iter().enumerate() {
            let first = match (number, is_last) {
                (0, _) => paint.bold(format!("{word:WORD_WIDTH$}")).to_string(),
                (_, false) => paint.dim(format!("{:WORD_WIDTH$}", "  │")).to_string(),
                (_, true) => " ".repeat(WORD_WIDTH),
            };
            lines.push(format!("  {first}{}", clip(text, WIDTH - 2 - WORD_WIDTH)).trim_end().to_owned());
        }
        if !is_last {
            lines.push(paint.dim("    │").to_string());
        }
    }
    lines
}

/// The devices of a chain from the top down, each with what it is.
fn floors_of(chain: &Chain, is_implicit: bool, rules: &str) -> Vec<(String, Vec<String>)> {
    let mut floors = Vec::new();
    let place = chain.disk().filter(|_| is_implicit);
    for (number, device) in chain.0.iter().enumerate().rev() {
        if place == Some(number) {
            floors.push(("faults".to_owned(), vec![rules.to_owned()]));
        }
        let mut description = match device {
            DeviceSpec::Faults(FaultsSpec { name: None }) => vec![rules.to_owned()],
            DeviceSpec::Faults(FaultsSpec { name: Some(name) }) => vec![format!("{name}, of {rules}")],
            other => vec![other.describe()],
        };
        for (name, leg) in device.legs().map_or(&[][..], |legs| &legs.0) {
            let name = name.as_ref().map_or(String::new(), |name| format!("{name}: "));
            description.push(format!("{name}{}", in_a_line(leg, is_implicit)));
        }
        floors.push((device.word().to_owned(), description));
    }
    floors
}

/// A chain that is one of several: what stands on what.
fn in_a_line(chain: &Chain, is_implicit: bool) -> String {
    let place = chain.disk().filter(|_| is_implicit);
    let parts = chain.0.iter().enumerate().rev().flat_map(|(number, device)| {
        let faults = (place == Some(number)).then(|| "faults".to_owned());
        let own = match device {
            DeviceSpec::Faults(FaultsSpec { name: Some(name) }) => format!("faults ({name})"),
            layer if !layer.begins() => layer.word().to_owned(),
            other => other.describe(),
        };
        faults.into_iter().chain([own])
    });
    parts.collect::<Vec<_>>().join(", ")
}

fn load(load: &LoadSpec) -> Vec<String> {
    if let Some(command) = &load.command {
        return command_lines(command);
    }
    let jobs = load.jobs();
    let mut lines = Vec::new();
    lines.extend(load.mix.map(|mix| format!("mix {mix}")));
    if let Some(trace) = &load.trace {
        lines.extend(trace_lines(trace, load.workers));
    }
    if let Some(personality) = &load.personality {
        lines.extend(personality_lines(personality));
    }
    let described = if load.trace.is_some() || load.personality.is_some() { &[][..] } else { &jobs };
    for (index, job) in described.iter().enumerate() {
        let own = job_lines(job);
        if jobs.len() == 1 {
            lines.extend(own);
        } else {
            let name = job.name.clone().unwrap_or_else(|| (index + 1).to_string());
            let space = job.space.map_or(String::new(), |space| format!(", {space} of the space"));
            lines.push(format!("job {name}{space}"));
            lines.extend(own.into_iter().map(|line| format!("  {line}")));
        }
    }
    let end = end_of(load);
    let ramp_up = load.ramp_up.map_or(String::new(), |ramp_up| format!(", after {ramp_up} not recorded"));
    let before = if load.prefill.unwrap_or_else(|| load.reads_anything()) {
        ", everything written once before"
    } else {
        ""
    };
    lines.push(end + &ramp_up + before);
    let mut rest = Vec::new();
    if !load.duplicates.is_none() {
        rest.push(load.duplicates.to_string());
    }
    if load.compressible.0 > 0.0 {
        rest.push(format!("compressible by {}", load.compressible));
    }
    if let (Some(writes), true) = (load.flush_every, load.jobs.is_empty()) {
        rest.push(format!("a flush after {}", counted(writes, "write")));
    }
    rest.extend(load.retry.as_ref().map(ToString::to_string));
    if !rest.is_empty() {
        lines.push(rest.join(", "));
    }
    if let Some(files) = &load.files {
        lines.push(format!("{} of {}", counted(files.count.into(), "file"), files.size));
    }
    lines
}

/// When a load ends: the first of what is said of it, or what goes without saying.
fn end_of(load: &LoadSpec) -> String {
    let loops = load.personality.and_then(|load| load.options.loops);
    let said: Vec<String> = [
        load.total.map(|bytes| format!("{bytes} in all")),
        load.requests.map(|requests| format!("{} in all", counted(requests, "request"))),
        loops.map(|loops| match loops {
            1 => "once through its operations".into(),
            _ => format!("{loops} times through its operations"),
        }),
        load.duration.map(|span| format!("for {span}")),
        load.until_steady.map(|steady| format!("once it is steady for {}", steady.window)),
    ]
    .into_iter()
    .flatten()
    .collect();
    match said.as_slice() {
        [] if load.trace.is_some() => "all of the trace".into(),
        [] if load.personality.is_some() => "for 60s".into(),
        [] => "as many bytes as the target has".into(),
        [one] => one.clone(),
        several => format!("{}, whatever comes first", several.join(" or ")),
    }
}

/// What is run, and what before and after it.
fn command_lines(command: &Command) -> Vec<String> {
    let lines =
        [("first ", command.prepare.clone()), ("", Some(command.main().0)), ("then ", command.check.clone())];
    let lines = lines.into_iter().filter_map(|(word, line)| Some(format!("{word}{}", line?)));
    let mut lines: Vec<String> = lines.map(|line| clip(&line.replace('\n', " "), WIDTH - 12)).collect();
    lines.push(format!("a program, without an oracle; {} at the most", command.timeout));
    lines
}

/// What files, and how many threads.
fn personality_lines(personality: &Personality) -> Vec<String> {
    let figures = personality.figures();
    vec![
        format!("personality {}", personality.kind.word()),
        format!(
            "{} of {}, {}",
            counted(figures.files.into(), "file"),
            Bytes(figures.file_size),
            counted(u64::from(figures.threads) + u64::from(figures.writers), "thread")
        ),
    ]
}

/// Which trace, and when its requests begin.
fn trace_lines(trace: &Trace, workers: u32) -> Vec<String> {
    let name = trace.file.file_name().unwrap_or(trace.file.as_os_str()).to_string_lossy();
    let format = trace.format.map_or(String::new(), |format| format!(", {} format", format.name()));
    let pace = match trace.pace {
        Pace::Timed if trace.speed == 1.0 => "as fast as it was recorded".to_owned(),
        Pace::Timed => format!("{} times as fast as it was recorded", trace.speed),
        Pace::Asap => "as fast as possible".to_owned(),
    };
    let mut lines = vec![
        clip(&format!("trace {name}{format}"), WIDTH - 12),
        pace,
        format!(
            "{}, {} in flight each at the most",
            counted(workers.into(), "worker"),
            counted(trace.depth.into(), "request")
        ),
    ];
    if !trace.skip.is_empty() {
        let skipped: Vec<&str> = trace.skip.iter().map(|operation| operation.word()).collect();
        lines.push(format!("without {}", skipped.join(", ")));
    }
    lines
}

/// What a job does, and how many at once.
fn job_lines(job: &JobSpec) -> Vec<String> {
    let pattern = match job.sequential {
        Some(share) if share.0 > 0.0 => format!("{}, {share} sequential", job.pattern.describe()),
        _ => job.pattern.describe(),
    };
    let mix = match job.reads {
        Percent(reads) if reads <= 0.0 => "writes".to_owned(),
        Percent(reads) if reads >= 1.0 => "reads".to_owned(),
        reads => format!("{reads} reads and {} writes", Percent(1.0 - reads.0)),
    };
    let mut lines = Vec::new();
    if job.block_size.is_one() {
        lines.push(format!("{pattern}, {mix} of {} each", job.block_size));
    } else {
        lines.push(format!("{pattern}, {mix}"));
        match &job.block_size {
            BlockSizes::All(sizes) => lines.push(format!("of {sizes}")),
            BlockSizes::Split { reads, writes } => {
                lines.extend([format!("reads of {reads}"), format!("writes of {writes}")]);
            }
        }
    }
    lines.push(format!(
        "{}, {} in flight each",
        counted(job.workers.into(), "worker"),
        counted(job.queue_depth.into(), "request")
    ));
    let mut pace = Vec::new();
    pace.extend(job.align.map(|align| format!("at multiples of {align}")));
    pace.extend(job.rate.map(|rate| rate.to_string()));
    pace.extend(job.burst.map(|burst| format!("bursts of {} every {}", burst.requests, burst.every)));
    pace.extend(job.think_time.map(|think| think.to_string()));
    pace.extend(job.fua.filter(|share| share.0 > 0.0).map(|share| format!("{share} of the writes durable")));
    if !pace.is_empty() {
        lines.push(pace.join(", "));
    }
    lines
}

/// Every fault in a line, and of a model what it is drawn into.
fn faults(entries: &[FaultEntry], plan: Option<&Plan>) -> Vec<String> {
    let listed = &entries[..entries.len().min(RULES_MAX)];
    let name = |index: usize, entry: &FaultEntry| clip(&entry.name_or_default(index), 24);
    let width = listed.iter().enumerate().map(|(index, entry)| name(index, entry).chars().count()).max();
    let width = width.unwrap_or(0);
    let mut models = plan.iter().flat_map(|plan| &plan.models);
    let mut lines = Vec::new();
    for (index, entry) in listed.iter().enumerate() {
        let name = name(index, entry);
        match entry {
            FaultEntry::Rule(rule) => {
                lines.push(clip(&format!("  {name:width$}  {}", without_lists(rule)), WIDTH));
            }
            FaultEntry::Model(entry) => {
                let drawn = match (plan, models.next()) {
                    (Some(plan), Some(model)) => drawn(plan, model),
                    _ => "drawn when the device is opened, whose size is not known yet".into(),
                };
                let text = wrapped(&format!("model({})", entry.model), WIDTH - width - 4);
                let text = text.into_iter().chain(wrapped(&drawn, WIDTH - width - 4));
                let heads = std::iter::once(name.as_str()).chain(std::iter::repeat(""));
                lines.extend(text.zip(heads).map(|(text, head)| format!("  {head:width$}  {text}")));
            }
        }
    }
    if entries.len() > RULES_MAX {
        lines.push(format!("  and {} more", counted((entries.len() - RULES_MAX) as u64, "fault")));
    }
    lines
}

/// Lines of at most so many columns, but for words that are longer.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines
}

/// What chance makes of a model: "drawn into 12 rules: medium_error of 31 blocks".
fn drawn(plan: &Plan, model: &DrawnModel) -> String {
    let rules = plan.rules_of(model);
    if rules.is_empty() {
        return "drawn into nothing: with this seed, it does not come to that".into();
    }
    // Rules, and blocks where they name any, by effect.
    let mut effects: Vec<(&str, usize, usize)> = Vec::new();
    for rule in rules {
        let (word, blocks) = (rule.effect.word(), rule.matching.offset.0.len());
        match effects.iter_mut().find(|(known, ..)| *known == word) {
            Some((_, rules, all)) => (*rules, *all) = (*rules + 1, *all + blocks),
            None => effects.push((word, 1, blocks)),
        }
    }
    let effects: Vec<String> = effects
        .into_iter()
        .map(|(word, rules, blocks)| match blocks {
            0 => format!("{rules} {word}"),
            blocks => format!("{rules} {word} of {}", counted(blocks as u64, "place")),
        })
        .collect();
    format!("drawn into {}: {}", counted(rules.len() as u64, "rule"), effects.join(", "))
}

/// The short form of a rule without its name, and with the first element of each list only, so that the effect at
/// its end stays in sight.
fn without_lists(rule: &Rule) -> String {
    let mut rule = Rule { name: None, ..rule.clone() };
    let more = |list: usize, first: Option<String>| {
        let first = first.filter(|_| list > 1)?;
        Some((first.clone(), format!("{first} and {} more", list - 1)))
    };
    let Match { offset, content, .. } = &mut rule.matching;
    let shortened = [
        more(offset.0.len(), offset.0.first().map(ToString::to_string)),
        more(content.0.len(), content.0.first().map(ToString::to_string)),
    ];
    offset.0.truncate(1);
    content.0.truncate(1);
    let text = rule.to_string();
    shortened.into_iter().flatten().fold(text, |text, (first, all)| text.replacen(&first, &all, 1))
}
