//! Probes that stand by themselves, without a run: what `rotproof probe` does.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rotproof_machine::Cancel;

use crate::look::Looks;
use crate::machine::Machine;
use crate::protocol::Sample;
use crate::spec::ProbesSpec;

/// How often the wish to stop is asked for.
const CANCEL_EVERY: Duration = Duration::from_millis(100);

/// Looks at this machine at the interval of `spec`, and gives each sample to `take`, until that says `false`, `asked` is
/// closed, or `cancel` asks to stop. Whatever comes from `asked` ends a phase: then there is a sample at once. What this
/// process itself does is no part of it.
pub fn look_on(
    spec: &ProbesSpec,
    asked: &Receiver<()>,
    cancel: &Cancel,
    take: &mut dyn FnMut(&Sample) -> bool,
) {
    let mut looks = Looks::begin(Machine::local(spec).without_ourselves(), spec.interval.0);
    let (mut phase, mut missed, mut notes) = (0, 0, 0);
    loop {
        let word = next_word(&looks, asked, cancel);
        let mut sample = Sample { phase, ..Sample::default() };
        let seen = looks.look(&mut |metric, instance, value| {
            sample.values.push((metric, instance.to_owned(), value));
        });
        if let Some((_, span)) = seen {
            sample.span = span;
            sample.missed = std::mem::take(&mut missed);
            sample.notes = looks.machine.notes()[notes..].to_vec();
            notes = looks.machine.notes().len();
            if !take(&sample) {
                return;
            }
        }
        match word {
            Word::Due => missed += looks.plan_next(),
            Word::Phase => phase += 1,
            Word::End => return,
        }
    }
}

enum Word {
    Due,
    Phase,
    End,
}

fn next_word(looks: &Looks, asked: &Receiver<()>, cancel: &Cancel) -> Word {
    let due = Instant::now() + looks.until_next();
    loop {
        if cancel.is_cancelled() {
            return Word::End;
        }
        let wait = due.saturating_duration_since(Instant::now());
        match asked.recv_timeout(wait.min(CANCEL_EVERY)) {
            Ok(()) => return Word::Phase,
            Err(RecvTimeoutError::Disconnected) => return Word::End,
            Err(RecvTimeoutError::Timeout) if Instant::now() >= due => return Word::Due,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use rotproof_spec::Span;

    use super::*;
    use crate::machine::OWN_NAME;

    #[test]
    fn samples_come_by_the_interval_and_at_the_end_of_each_phase_and_have_nothing_of_the_prober() {
        let spec = ProbesSpec { interval: Span(Duration::from_millis(100)), ..ProbesSpec::default() };
        let (words, asked) = channel();
        let mut words = Some(words);
        let mut samples = Vec::new();
        look_on(&spec, &asked, &Cancel::new(), &mut |sample| {
            samples.push(sample.clone());
            match samples.len() {
                2 => {
                    std::thread::sleep(Duration::from_millis(60));
                    words.iter().for_each(|words| words.send(()).expect("it listens"));
                }
                4 => words = None,
                _ => {}
            }
            true
        });
        let phases: Vec<u64> = samples.iter().map(|sample| sample.phase).collect();
        assert_eq!(phases[..4], [0, 0, 0, 1], "the third comes because it was asked for: {phases:?}");
        assert!(samples.iter().all(|sample| sample.span >= Duration::from_millis(50)));
        assert!(samples[0].values.iter().any(|(metric, _, _)| metric.name == "cpu.utilisation"));
        assert!(
            samples.iter().flat_map(|sample| &sample.values).all(|(_, instance, _)| instance != OWN_NAME)
        );
        for sample in &samples {
            let read = Sample::parse(sample.to_line().as_bytes()).expect("it can be read");
            assert_eq!(
                (read.phase, read.span, read.values.len()),
                (sample.phase, sample.span, sample.values.len())
            );
        }
    }

    #[test]
    fn a_reader_that_has_gone_and_a_wish_to_stop_end_it() {
        let spec = ProbesSpec { interval: Span(Duration::from_millis(100)), ..ProbesSpec::default() };
        let (_words, asked) = channel();
        let mut samples = 0;
        look_on(&spec, &asked, &Cancel::new(), &mut |_| {
            samples += 1;
            false
        });
        assert_eq!(samples, 1);
        let cancel = Cancel::new();
        cancel.cancel(15);
        look_on(&ProbesSpec::default(), &asked, &cancel, &mut |_| true);
    }
}
