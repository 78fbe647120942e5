//! A job that replays a log of requests, as a load that replays a trace.

use rotproof_document::Diagnostic;
use rotproof_load::{Duplicates, FileEngine, LoadSpec, RampUp};
use serde_json::json;

use super::job::Job;

/// To fio a log ends when all of it has been done, or `runtime` is over.
const ENDS: &str = "A log that is replayed is the end of the load, unless `runtime` is: `size` and `number_ios` say nothing beside it.";

/// The load that replays the log of `job`, or none if it has none. What the job says of which requests there are, the log
/// does; what has no counterpart beside a trace stands in the load all the same, where [`LoadSpec::validate`] finds it.
pub(super) fn of_log(
    job: &Job,
    notes: &mut Vec<String>,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<LoadSpec> {
    let trace = job.trace.as_ref()?;
    if job.spec.workers > 1 {
        diagnostics.push(Diagnostic {
            message: "clones that replay one log each (`numjobs`) have no counterpart: workers share it"
                .to_owned(),
            help: Some("take `numjobs` out, and give the load `workers` if they shall share it".to_owned()),
            place: Some(job.place.clone()),
            path: String::new(),
        });
    }
    let is_ended_otherwise = job.size.is_some() || job.total.is_some() || job.requests.is_some();
    if is_ended_otherwise && !notes.iter().any(|note| note == ENDS) {
        notes.push(ENDS.to_owned());
    }
    let described = json!({
        "file": trace.file,
        "format": "fio",
        "pace": if trace.asap { "asap" } else { "timed" },
        "speed": trace.speed.unwrap_or(1.0),
        "depth": job.spec.queue_depth,
        "skip": trace.skips,
    });
    Some(LoadSpec {
        trace: serde_json::from_value(described).ok(),
        duration: job.duration,
        ramp_up: job.ramp_up.map(RampUp::Time),
        until_steady: job.until_steady,
        buffered: job.buffered,
        ioengine: if job.mapped { FileEngine::Mmap } else { FileEngine::default() },
        fixed_buffers: job.fixed_buffers,
        duplicates: Duplicates::Share(job.duplicates.unwrap_or_default()),
        compressible: job.compressible.unwrap_or_default(),
        rate: job.spec.rate,
        think_time: job.spec.think_time,
        flush_every: job.spec.flush_every,
        fua: job.spec.fua,
        ..LoadSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use crate::{Brought, Format, parse_bytes};
    use serde_json::json;

    fn load_of(options: &str) -> Result<serde_json::Value, String> {
        let text = format!("[a]\nread_iolog=x.log\n{options}");
        match parse_bytes("jobs.fio", text.as_bytes(), Some(Format::Fio)) {
            Ok(Brought::Load(load)) => Ok(json!(load)),
            Ok(_) => panic!("a job file is a load"),
            Err(mistakes) => Err(mistakes.list.iter().map(|mistake| mistake.message.as_str()).collect()),
        }
    }

    #[test]
    fn a_log_keeps_as_many_in_flight_and_ends_as_with_fio() {
        for (options, pointer, value) in [
            ("", "/load/trace/depth", json!(1)),
            ("iodepth=16\n", "/load/trace/depth", json!(1)),
            ("iodepth=16\nioengine=libaio\n", "/load/trace/depth", json!(16)),
            ("runtime=5\n", "/load/duration", json!("5s")),
            ("number_ios=5\nsize=1m\n", "/load/requests", json!(null)),
            ("number_ios=5\nsize=1m\n", "/load/total", json!(null)),
            ("replay_time_scale=50\n", "/load/trace/speed", json!(0.5)),
        ] {
            let load = load_of(options).expect(options);
            assert_eq!(load.pointer(pointer).unwrap_or(&json!(null)), &value, "{options}");
        }
        let notes = load_of("number_ios=5\n").expect("it ends with the log")["notes"].to_string();
        assert!(notes.contains("number_ios"), "{notes}");
        assert!(!load_of("runtime=5\n").expect("it ends")["notes"].to_string().contains("time_based"));
    }

    #[test]
    fn what_a_trace_has_no_room_for_is_a_mistake() {
        for (options, word) in [
            ("numjobs=4\n", "numjobs"),
            ("rate_iops=100\n", "`rate`"),
            ("thinktime=5s\n", "`think_time`"),
            ("fsync=8\n", "`flush_every`"),
            ("sync=1\n", "`fua`"),
        ] {
            let mistakes = load_of(options).expect_err(options);
            assert!(mistakes.contains(word), "{options}: {mistakes}");
        }
    }
}
