//! Every benchmark of the project, behind `./bench`. Figures are ratios against a peer measured in the same run, as
//! machines differ and are noisy.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

mod achilles;
mod content;
mod crash;
mod dedisbench;
mod device_recording;
mod export_fuse;
mod export_nbd;
mod export_vhost;
mod failing_device;
mod failures;
mod fault_decisions;
mod fault_overhead;
mod figure;
mod fio;
mod fispdk;
mod fuse_peers;
mod guard;
mod guard_loads;
mod idle_rules;
mod load;
mod load_memory;
mod machine;
mod memory;
mod model;
mod nbd_peers;
mod recording;
mod served;
mod soak;
mod volume;
mod volume_peers;

// The client of the vhost-user server is the driver of its tests.
#[expect(dead_code, reason = "the tests need more of it")]
#[path = "../../crates/export/tests/vhost/driver.rs"]
mod driver;
#[expect(dead_code, reason = "the tests need more of it")]
#[path = "../../crates/export/tests/vhost/frontend.rs"]
mod frontend;
mod server {
    /// How long a server may take to answer.
    pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
}

use std::process::ExitCode;

use clap::Parser;
use rotproof_block::Result;

use figure::Figure;

/// Measures, against a peer in the same run.
#[derive(Parser)]
#[command(name = "./bench", disable_version_flag = true)]
struct Arguments {
    /// Which benchmark; see --list.
    #[arg(required_unless_present_any = ["list", "load", "trial"])]
    name: Option<String>,
    /// Names the benchmarks.
    #[arg(long)]
    list: bool,
    /// Fewer and shorter rounds: for a look, not for a figure to quote.
    #[arg(long)]
    quick: bool,
    /// One array of objects with the keys name, ours, peer, ratio, interval, unit, bar, holds.
    #[arg(long)]
    json: bool,
    /// A side of a benchmark that runs as a process of its own: a folder and a load.
    #[arg(long, num_args = 2, hide = true)]
    load: Option<Vec<std::path::PathBuf>>,
    /// The same of a trial whose device fails: a folder, a rule, and how many blocks there are.
    #[arg(long, num_args = 3, hide = true)]
    trial: Option<Vec<String>>,
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Pairs of measurements; the figures are medians over them.
    pub rounds: usize,
    /// Seconds of one measurement.
    pub seconds: f64,
    /// What takes minutes is cut to a part of it.
    pub is_quick: bool,
}

struct Benchmark {
    name: &'static str,
    about: &'static str,
    run: fn(Effort, &mut dyn FnMut(Figure)) -> Result<()>,
}

const BENCHMARKS: &[Benchmark] = &[
    Benchmark {
        name: "fault-overhead",
        about: "the fault layer with 0 and 10,000 rules that do not match, against none",
        run: fault_overhead::run,
    },
    Benchmark {
        name: "fault-decisions",
        about: "decisions a second on one core where no rule matches, against 20 million or the hash",
        run: fault_decisions::run,
    },
    Benchmark {
        name: "fispdk",
        about: "contexts and faults by file: seven set-ups, and the experiment with three files",
        run: fispdk::run,
    },
    Benchmark {
        name: "export-nbd",
        about: "the NBD server against nbdkit and QEMU's storage daemon; idle fault rules over it",
        run: export_nbd::run,
    },
    Benchmark {
        name: "export-fuse",
        about: "the FUSE file under a loop device, by both ways of requests, against five others",
        run: export_fuse::run,
    },
    Benchmark {
        name: "export-vhost",
        about: "the vhost-user-blk server against that of QEMU's storage daemon",
        run: export_vhost::run,
    },
    Benchmark {
        name: "load",
        about: "CPU for one request of a load against fio's; memory over 100 million requests",
        run: load::run,
    },
    Benchmark {
        name: "memory",
        about: "a block found in memory by its content, against memmem; how long a change of it takes; trials an hour",
        run: memory::run,
    },
    Benchmark {
        name: "failures",
        about: "what a read that fails costs beyond one that does not; the memory of a trial with a million failing blocks",
        run: failures::run,
    },
    Benchmark {
        name: "recording",
        about: "a load with intervals, probes and samples kept, and a watched device, against the same without",
        run: recording::run,
    },
    Benchmark {
        name: "achilles",
        about: "the trials of examples/achilles: throughput and failures against no fault",
        run: achilles::run,
    },
    Benchmark {
        name: "content",
        about: "content that can be verified, with duplicates: CPU per request against fio's, rate against DEDISbench's",
        run: content::run,
    },
    Benchmark {
        name: "crash",
        about: "recorded devices, states of a power loss against a plain loop",
        run: crash::run,
    },
    Benchmark {
        name: "crash-memory",
        about: "memory of a recording and its states, by how long the recording is",
        run: crash::run_memory,
    },
    Benchmark {
        name: "guard",
        about: "guarded reads, writes, loads of files, mounts and scans, against the same file system without",
        run: guard::run,
    },
    Benchmark {
        name: "guard-small",
        about: "of `guard`: small files and the loads of files alone",
        run: guard::run_small,
    },
    Benchmark {
        name: "guard-large",
        about: "of `guard`: the modes, writes and scans of large files alone",
        run: guard::run_large,
    },
    Benchmark {
        name: "soak",
        about: "ten thousand lives of volumes, and the states that a loss of power leaves of one, drawn from seeds",
        run: soak::run,
    },
    Benchmark {
        name: "volume",
        about: "what checksums and versions cost a volume; its scrub, its opening, its tables",
        run: volume::run,
    },
    Benchmark {
        name: "model",
        about: "the reliability model: a contour of five systems, device-years of a fleet a second",
        run: model::run,
    },
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        for benchmark in BENCHMARKS {
            println!("{:<16} {}", benchmark.name, benchmark.about);
        }
        return ExitCode::SUCCESS;
    }
    if let Some([folder, load]) = arguments.load.as_deref() {
        return match guard_loads::serve(folder, &load.to_string_lossy()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("./bench: {error}");
                ExitCode::from(3)
            }
        };
    }
    if let Some([folder, rule, blocks]) = arguments.trial.as_deref() {
        return match failing_device::serve(folder.as_ref(), rule, blocks) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("./bench: {error}");
                ExitCode::from(3)
            }
        };
    }
    let name = arguments.name.unwrap_or_default();
    let Some(benchmark) = BENCHMARKS.iter().find(|benchmark| benchmark.name == name) else {
        eprintln!("./bench: there is no benchmark `{name}`; ./bench --list names them");
        return ExitCode::from(2);
    };
    let effort = if arguments.quick {
        Effort { rounds: 3, seconds: 0.3, is_quick: true }
    } else {
        Effort { rounds: 11, seconds: 1.0, is_quick: false }
    };
    if !arguments.json {
        println!("{}", machine::describe());
        println!("{}: {} rounds of {} s each", benchmark.name, effort.rounds, effort.seconds);
        println!("{}", Figure::header());
    }
    let mut figures = Vec::new();
    let result = (benchmark.run)(effort, &mut |figure| {
        if !arguments.json {
            println!("{figure}");
        }
        figures.push(figure);
    });
    if arguments.json {
        match serde_json::to_string_pretty(&figures) {
            Ok(text) => println!("{text}"),
            Err(error) => eprintln!("./bench: writing JSON: {error}"),
        }
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("./bench: {error}");
            ExitCode::from(3)
        }
    }
}
