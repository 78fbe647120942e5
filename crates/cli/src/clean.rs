//! `rotproof clean`: removes what killed runs have left.

use std::fmt::Write;

use rotproof_machine::registry::{self, CleanReport, Outcome};
use serde_json::json;

use crate::args::CleanArgs;
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::{Output, Paint};

/// Cleans, and says what was removed. What could not be removed is for the user to look at: exit 3.
pub fn clean(args: &CleanArgs, output: Output) -> Result<Exit, CommandError> {
    let reports = registry::clean(&rotproof_attach::KINDS, args.dry_run)?;
    if args.json {
        output.json(&json!({ "dry_run": args.dry_run, "runs": reports }));
    } else {
        output.result(render(&reports, output.stdout_paint()));
    }
    Ok(if reports.iter().all(CleanReport::is_settled) { Exit::Pass } else { Exit::Machine })
}

/// Says of runs that were killed and are stuck in the kernel, before anything is begun that may come to wait for them.
pub fn tell_stuck(output: Output) {
    for stuck in registry::stuck_runs(&rotproof_attach::KINDS) {
        output.note(format_args!("{} {stuck}", output.stderr_paint().notable("note:")));
    }
}

fn render(reports: &[CleanReport], paint: Paint) -> String {
    if reports.is_empty() {
        return "Nothing to clean: no run has left anything.".into();
    }
    let mut text = String::new();
    for report in reports {
        let outcome = match &report.outcome {
            Outcome::Cleaned => paint.good("cleaned").to_string(),
            Outcome::WouldClean => paint.notable("would be cleaned").to_string(),
            Outcome::WouldBeIncomplete => {
                paint.bad("would be cleaned, but for what could not be removed").to_string()
            }
            Outcome::Incomplete => paint.bad("not all of it could be removed").to_string(),
            Outcome::Living => "alive, left alone".to_owned(),
            Outcome::Busy => paint
                .notable(
                    "busy, as it was killed and waits in the kernel, or is being cleaned; try again later",
                )
                .to_string(),
            Outcome::Unreadable(why) => format!("{} {why}", paint.bad("unreadable record:")),
        };
        let process = report.pid.map_or(String::new(), |pid| format!(" (process {pid})"));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}{process}: {outcome}", paint.bold(format_args!("run {}", report.run)));
        for resource in &report.resources {
            let _ = match &resource.error {
                None => writeln!(text, "  {}", resource.what),
                Some(error) => writeln!(text, "  {}\n    {}", resource.what, paint.bad(error)),
            };
        }
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use rotproof_machine::registry::CleanedResource;

    use super::*;
    use crate::args::ColorChoice;

    #[test]
    fn every_run_is_named_with_what_was_removed_and_what_was_not() {
        let resource = |what: &str, error: Option<&str>| CleanedResource {
            what: what.into(),
            error: error.map(str::to_owned),
        };
        let report =
            |run: &str, pid, outcome, resources| CleanReport { run: run.into(), pid, outcome, resources };
        let reports = [
            report(
                "20260131T235959Z-7-0",
                Some(7),
                Outcome::Cleaned,
                vec![
                    resource("the mount of ext4 at /run/rotproof/20260131T235959Z-7-0/mount", None),
                    resource("the loop device /dev/loop3", None),
                ],
            ),
            report(
                "20260131T235959Z-8-0",
                Some(8),
                Outcome::Incomplete,
                vec![resource(
                    "the loop device /dev/loop4",
                    Some("detaching /dev/loop4: Device or resource busy"),
                )],
            ),
            report("20260131T235959Z-9-0", Some(9), Outcome::Living, vec![]),
            report("20260131T235959Z-10-0", None, Outcome::Unreadable("no first line".into()), vec![]),
        ];
        insta::assert_snapshot!(render(&reports, Output::new(ColorChoice::Never).stdout_paint()), @r"
        run 20260131T235959Z-7-0 (process 7): cleaned
          the mount of ext4 at /run/rotproof/20260131T235959Z-7-0/mount
          the loop device /dev/loop3
        run 20260131T235959Z-8-0 (process 8): not all of it could be removed
          the loop device /dev/loop4
            detaching /dev/loop4: Device or resource busy
        run 20260131T235959Z-9-0 (process 9): alive, left alone
        run 20260131T235959Z-10-0: unreadable record: no first line
        ");
        assert_eq!(
            render(&[], Output::new(ColorChoice::Never).stdout_paint()),
            "Nothing to clean: no run has left anything."
        );
    }
}
