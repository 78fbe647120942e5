//! What the options of `rotproof load` mean as a load, and which of them makes no sense.

use rotproof_block::{Error, ErrorKind};
use rotproof_load::personality::Personality;
use rotproof_load::{Arrivals, LoadSpec, Pattern, Rate, Retry, ThinkAfter, ThinkTime, Trace};
use rotproof_measure::load::RecordOptions;
use rotproof_probe::{Probes, ProbesSpec};
use rotproof_record::statistics::SteadySpec;
use rotproof_record::{IntervalLength, RecordSpec};
use rotproof_spec::{Path, Percent, Problems, Span};

use super::args::{Access, LoadArgs};

impl LoadArgs {
    /// The load that is meant, checked.
    pub fn spec(&self) -> Result<LoadSpec, Error> {
        let is_random = matches!(self.rw, Access::Randread | Access::Randwrite | Access::Randrw);
        let pattern = match (&self.random_distribution, is_random) {
            (Some(_), false) => {
                return Err(invalid("--random-distribution", "is for randread, randwrite and randrw"));
            }
            (Some(pattern), true) => pattern.clone(),
            (None, true) => Pattern::Random,
            (None, false) => Pattern::Sequential,
        };
        if self.percentage_random.is_some() && !is_random {
            return Err(invalid("--percentage-random", "is for randread, randwrite and randrw"));
        }
        if let Some(file) = &self.trace {
            return self.replay(file);
        }
        if self.mix.is_some() {
            return self.checked(LoadSpec {
                pattern: Pattern::default(),
                reads: Percent(0.0),
                ..self.common()
            });
        }
        let reads = match self.rw {
            Access::Read | Access::Randread => Percent(1.0),
            Access::Write | Access::Randwrite => Percent(0.0),
            Access::Rw | Access::Randrw => self.rwmixread,
        };
        self.checked(LoadSpec {
            pattern,
            sequential: self.percentage_random.map(|random| Percent(1.0 - random.0)),
            reads,
            block_size: self.bs.clone().or_else(|| self.bssplit.clone()).unwrap_or_default(),
            ..self.common()
        })
    }

    /// A trace instead of a description.
    fn replay(&self, file: &std::path::Path) -> Result<LoadSpec, Error> {
        let default = Trace::of(file);
        let speed = self.speed.or(self.replay_time_scale.map(|percent| percent / 100.0));
        let mut trace = Trace {
            format: self.trace_format.map(Into::into),
            columns: self.trace_columns.clone(),
            time_unit: self.trace_time_unit,
            pace: self.pace.unwrap_or_default(),
            speed: speed.unwrap_or(default.speed),
            depth: self.iodepth.unwrap_or(default.depth),
            skip: self.replay_skip.clone(),
            malformed_max: self.malformed_max.unwrap_or(default.malformed_max),
            ..default
        };
        trace.locate(std::path::Path::new("")).map_err(|error| error.while_doing("--trace"))?;
        self.checked(LoadSpec { trace: Some(trace), queue_depth: 1, ..self.common() })
    }

    /// Everything but what the requests are.
    fn common(&self) -> LoadSpec {
        LoadSpec {
            mix: self.mix,
            align: self.blockalign,
            queue_depth: self.iodepth.unwrap_or(1),
            workers: self.numjobs.saturating_mul(self.clients.len().max(1) as u32),
            rate: self.rate_iops.map(|requests| Rate {
                requests,
                arrivals: if self.poisson { Arrivals::Poisson } else { Arrivals::Even },
            }),
            think_time: self.thinktime.map(|pause| ThinkTime { pause, after: self.think_after() }),
            burst: self.burst,
            flush_every: self.fsync,
            fua: self.fua,
            total: self.io_size,
            requests: self.number_ios,
            duration: self.runtime,
            until_steady: self.until_steady(),
            ramp_up: self.ramp_time,
            retry: self.retry.map(|count| Retry { count, delay: Span::default(), on: Vec::new() }),
            hung_after: self.hung_after,
            fixed_buffers: self.fixedbufs,
            polled: self.hipri,
            prefill: Some(self.prefill),
            duplicates: self.duplicates.clone().unwrap_or_default(),
            compressible: self.compressible.unwrap_or_default(),
            ..LoadSpec::default()
        }
    }

    /// When the load is to end before its other ends, if it is to.
    pub fn until_steady(&self) -> Option<SteadySpec> {
        let window = self.ss_dur.unwrap_or(SteadySpec::default().window);
        let interval = match self.interval.unwrap_or_default().resolved(None) {
            IntervalLength::Every(span) => span.0,
            IntervalLength::End | IntervalLength::Auto => window.0,
        };
        self.steadystate.map(|steady| steady.spec(window, self.ss_ramp.unwrap_or_default(), interval))
    }

    /// What is looked at meanwhile, if anything is.
    pub fn probes_spec(&self) -> Result<Option<ProbesSpec>, Error> {
        let mut spec = match &self.probes {
            None if self.machines.is_empty() => return Ok(None),
            None => ProbesSpec::default(),
            Some(Probes::On(spec)) => spec.clone(),
            Some(Probes::Off) if self.machines.is_empty() => return Ok(None),
            Some(Probes::Off) => {
                return Err(invalid("--probe", "looks at a machine, and --probes=off at none"));
            }
        };
        for (name, command) in &self.machines {
            if spec.machines.insert(name.clone(), command.clone()).is_some() {
                return Err(invalid("--probe", &format!("names `{name}` twice")));
            }
        }
        spec.checked().map(Some).map_err(|why| invalid("--probe", &why))
    }

    fn think_after(&self) -> ThinkAfter {
        match (self.thinktime_iotime, self.thinktime_blocks) {
            (Some(span), _) => ThinkAfter::Time(span),
            (None, Some(requests)) => ThinkAfter::Requests(requests),
            (None, None) => ThinkAfter::default(),
        }
    }

    /// The load of files that is meant, checked; none if it is one of blocks.
    pub fn personality(&self) -> Result<Option<Personality>, Error> {
        let Some(personality) = self.personality else { return Ok(None) };
        let load = LoadSpec {
            personality: Some(personality),
            duration: self.runtime,
            until_steady: self.until_steady(),
            hung_after: self.hung_after,
            ..LoadSpec::default()
        };
        let mut problems = Problems::default();
        load.validate(&Path::root(), &mut problems);
        if let Some(problem) = problems.into_iter().next() {
            let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
            let option = match problem.path.as_str() {
                "hung_after" => "--hung-after",
                path if path.starts_with("until_steady") => "--ss-dur",
                _ => "--personality",
            };
            return Err(invalid(option, &format!("{}{help}", problem.message)));
        }
        Ok(Some(personality))
    }

    /// What is to be recorded, and where it is kept.
    pub fn record(&self) -> Result<Option<RecordOptions>, Error> {
        if self.results.is_none() && self.steadystate.is_none() {
            return match self.interval {
                None => Ok(None),
                Some(_) => Err(invalid("--interval", "is for --results, or --steadystate")),
            };
        }
        let spec = RecordSpec {
            interval: self.interval.unwrap_or_default(),
            samples: self.samples,
            ..RecordSpec::default()
        };
        let (mut problems, path) = (Problems::default(), Path::root());
        spec.validate(&path, &mut problems);
        let is_sensible = problems.iter().next().is_none();
        if let Some(steady) = self.until_steady().filter(|_| is_sensible) {
            steady.validate_live(spec.interval.nanoseconds(), &path, &mut problems);
        }
        match problems.into_iter().next() {
            None => Ok(Some(RecordOptions { spec, results: self.results.clone() })),
            Some(problem) => {
                let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
                let option = if problem.path.as_str() == "window" { "--ss-dur" } else { "--interval" };
                Err(invalid(option, &format!("{}{help}", problem.message)))
            }
        }
    }

    fn checked(&self, spec: LoadSpec) -> Result<LoadSpec, Error> {
        let mut problems = Problems::default();
        spec.validate(&Path::root(), &mut problems);
        match problems.into_iter().next() {
            None => Ok(spec),
            Some(problem) => {
                let option = option_of(problem.path.as_str());
                let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
                Err(invalid(option, &format!("{}{help}", problem.message)))
            }
        }
    }
}

fn invalid(option: &str, message: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{option}: {message}"))
}

/// The option that sets a key of a load.
fn option_of(path: &str) -> &'static str {
    match path {
        "trace.depth" => return "--iodepth",
        "trace.speed" => return "--speed",
        "trace.skip" => return "--replay-skip",
        _ => {}
    }
    match path.split(['.', '[']).next().unwrap_or_default() {
        "mix" => "--mix",
        "pattern" => "--random-distribution",
        "sequential" => "--percentage-random",
        "block_size" => "--bs",
        "align" => "--blockalign",
        "queue_depth" => "--iodepth",
        "workers" => "--numjobs",
        "rate" => "--rate-iops",
        "think_time" => "--thinktime",
        "burst" => "--burst",
        "duplicates" => "--duplicates",
        "compressible" => "--compressible",
        "flush_every" => "--fsync",
        "fua" => "--fua",
        "total" => "--io-size",
        "requests" => "--number-ios",
        "duration" => "--runtime",
        "until_steady" => "--ss-dur",
        "ramp_up" => "--ramp-time",
        "retry" => "--retry",
        "hung_after" => "--hung-after",
        "fixed_buffers" => "--fixedbufs",
        "polled" => "--hipri",
        _ => "the load",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn spec(line: &str) -> Result<LoadSpec, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.load.spec().map_err(|error| error.to_string())
    }

    fn record(line: &str) -> Result<Option<RecordOptions>, String> {
        let words = std::iter::once("load").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.load.record().map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_of_fio_means_what_it_means_there() {
        let found = spec(
            "/dev/x --rw=randrw --rwmixread=70 --bs 4k --iodepth 32 --numjobs 2 --runtime 10 --ramp_time=2s",
        );
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "70%", "block_size": "4KiB", "queue_depth": 32, "workers": 2,
                 "duration": "10s", "ramp_up": "2s", "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let several = spec("x --runtime 5s --io-size 1g --number_ios=99 --ramp-time 64MiB").expect("a load");
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "100%", "duration": "5s", "total": "1GiB", "requests": 99,
                 "ramp_up": "64MiB", "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(several, wanted, "the first one reached");
        let steady = spec("x --steadystate=iops:5% --ss_dur=20 --ss-ramp 5s --runtime 5min").expect("a load");
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": "random", "reads": "100%", "duration": "5min", "prefill": false,
                 "until_steady": { "window": "20s", "range": "10%", "slope": "100%", "of": "iops", "after": "5s" } }"#,
        )
        .expect("a load");
        assert_eq!(steady, wanted);
        let plain = spec("x --steadystate").expect("a load").until_steady;
        assert_eq!(plain, Some(SteadySpec::default()));
        let found = spec("x --rw=write --bssplit 4k/60:64k/40 --io_size=1g --fsync 8 --ba=4k --retry 3");
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "block_size": { "4KiB": "60%", "64KiB": "40%" }, "total": "1GiB", "flush_every": 8, "align": "4KiB",
                 "retry": 3, "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found = spec(
            "x --rw=randread --random_distribution=zipf:1.1 --percentage_random=80 --rate_iops=500 --poisson",
        );
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": { "zipf": { "theta": 1.1 } }, "sequential": 0.19999999999999996, "reads": "100%",
                 "rate": { "requests": 500, "arrivals": "poisson" }, "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found = spec(
            "x --rw=randwrite --random_distribution=zoned:60/10:40/90 --dedupe_percentage=30 --burst 8/5ms",
        );
        let wanted: LoadSpec = serde_json::from_str(
            r#"{ "pattern": { "zoned": [{ "requests": "60%", "space": "10%" }, { "requests": "40%", "space": "90%" }] },
                 "duplicates": "30%", "burst": { "requests": 8, "every": "5ms" }, "prefill": false }"#,
        )
        .expect("a load");
        assert_eq!(found, Ok(wanted));
        let found =
            spec("x --rw=write --duplicates kernels --buffer_compress_percentage=40").expect("a load");
        assert_eq!(
            (found.duplicates.to_string(), found.compressible),
            ("duplicates as in kernels (60.9%)".into(), Percent(0.4))
        );
        for same in ["pareto:0.2", "pareto:20", "pareto:20%"] {
            let found = spec(&format!("x --random_distribution={same}")).expect(same).pattern;
            assert_eq!(found, Pattern::Pareto { hot: Percent(0.2) }, "{same}");
        }
        let mixed = spec("x --mix darc_oltp --iodepth 8").expect("a load");
        assert_eq!((mixed.mix.map(|mix| mix.to_string()), mixed.queue_depth), (Some("darc_oltp".into()), 8));
        let line = Line::try_parse_from(["load", "x", "--personality", "varmail:files=99", "--runtime", "5"]);
        let files =
            line.expect("well-formed").load.personality().expect("makes sense").expect("one of files");
        assert_eq!(files.to_string(), "varmail:files=99");
        assert!(spec("x --ioengine=psync").is_ok() && spec("x --ioengine=mmap").is_ok());
        assert!(spec("x --ioengine=libaio").is_err());
        assert_eq!(spec("x").expect("a load").reads, Percent(1.0), "nothing is written unless told");
        let sizes = spec("x --rw=randrw --bs=4k,64k").expect("a load").block_size;
        assert_eq!(sizes.to_string(), "reads of 4KiB; writes of 64KiB");
    }

    #[test]
    fn mistakes_name_the_option() {
        for (line, wanted) in [
            ("x --bs 6k", "--bs: a request of 6KiB is not possible"),
            ("x --iodepth 0", "--iodepth: the number of requests in flight is 0"),
            ("x --rw=read --random-distribution zipf:1", "--random-distribution: is for randread"),
            ("x --rw=randwrite --bssplit 4k/60", "--bs: the sizes share out 60%"),
            ("x --bssplit 4k", "has no percentage"),
            ("x --random-distribution zipf", "needs a number"),
            ("x --random-distribution warp:1", "there is no distribution `warp`"),
            ("x --ramp-time 5s", "--ramp-time: a ramp-up by time"),
            ("x --fsync 3", "--fsync: a load that only reads"),
            ("x --rwmixread 120", "not between 0% and 100%"),
            ("memory", "has no size"),
            ("memory:64", "did you mean `memory:64MiB`?"),
            ("x --mix darc_otlp", "did you mean `darc_oltp`?"),
            ("x --mix darc_oltp --bs 4k", "cannot be used with"),
            ("x --personality varmail --bs 4k", "cannot be used with"),
            ("x --personality varmial", "did you mean `varmail`?"),
            ("x --duplicates kernel", "did you mean kernels?"),
            ("x --duplicates file:/nonexistent", "No such file"),
            ("x --compressible 99", "--compressible: 99% of a block cannot be saved"),
            ("x --burst 32", "is no burst"),
            ("x --personality varmail --burst 8/1ms", "cannot be used with"),
            ("x --personality varmail --hung-after 0s", "--hung-after: no request comes back in no time"),
            ("x --personality varmail --compressible 5", "cannot be used with"),
            ("x --burst 0/1ms", "--burst: "),
            ("x --random-distribution zoned:60/10:30/90", "--random-distribution: "),
            ("x --mix spc1 --iodepth 4", "--mix: spc1 has streams of its own"),
            ("x --steadystate=cpu:5%", "bw, iops and lat"),
            ("x --steadystate=iops:5", "no share of the mean"),
            ("x --ss-dur 5s", "--steadystate"),
            ("x --steadystate --runtime 5", "--ss-dur: a load that runs for 5s cannot be found steady"),
            ("x --steadystate --interval 5s", "--ss-dur: 10s are too few intervals"),
            ("x --steadystate --interval end", "--ss-dur: 10s are too few intervals"),
            ("x --interval 5s", "--interval: is for --results"),
            ("x --results y --interval 5ms", "--interval: an interval of 5ms is not possible"),
        ] {
            let found = spec(line).and_then(|load| record(line).map(|_| load)).expect_err(line);
            assert!(found.contains(wanted), "{line}: {found}");
        }
    }
}
