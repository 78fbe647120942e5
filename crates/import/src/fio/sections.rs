//! A job file as sections of options, each where it stands.

use std::sync::Arc;

use rotproof_document::{Diagnostic, Location, Source};

/// Jobs that a file may have; a load has no more workers.
const JOBS_MAX: usize = 256;

/// One job, with the options of the global sections before it in front of its own.
pub(super) struct Section {
    pub(super) name: String,
    pub(super) place: Location,
    pub(super) options: Vec<Setting>,
}

/// An option and its value, which is empty for a switch.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) place: Location,
}

/// The jobs of a file; what is no section and no option is reported.
pub(super) fn read(source: &Arc<Source>, diagnostics: &mut Vec<Diagnostic>) -> Vec<Section> {
    let mut global: Vec<Setting> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut is_global = false;
    let mut start = 0;
    for line in source.text.split_inclusive('\n') {
        // fio cuts a line at the first of these two, wherever it stands (`strip_blank_end` of its parse.c).
        let text = line.split(['#', ';']).next().unwrap_or_default().trim();
        let begin = start + (line.len() - line.trim_start().len());
        start += line.len();
        if text.is_empty() {
            continue;
        }
        let place = Location::new(source, begin..begin + text.len());
        let mut report = |message: &str, help: &str| {
            diagnostics.push(Diagnostic {
                message: message.to_owned(),
                help: Some(help.to_owned()),
                place: Some(place.clone()),
                path: String::new(),
            });
        };
        if let Some(rest) = text.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']') else {
                report("a section without its bracket", "write [name] alone on its line");
                continue;
            };
            if name.trim().is_empty() {
                report("a section without a name", "write [name] alone on its line");
                continue;
            }
            is_global = name.trim() == "global";
            if is_global {
                continue;
            }
            if sections.len() == JOBS_MAX {
                report("more than 256 jobs", "a load has 256 workers at the most");
                break;
            }
            sections.push(Section { name: name.trim().to_owned(), place, options: global.clone() });
            continue;
        }
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let setting = Setting {
            name: name.trim().to_lowercase(),
            value: value.trim().to_owned(),
            place: place.clone(),
        };
        match sections.last_mut() {
            _ if is_global => global.push(setting),
            Some(section) => section.options.push(setting),
            None => {
                report("an option before the first section", "write [global] or the name of a job before it");
            }
        }
    }
    sections
}
