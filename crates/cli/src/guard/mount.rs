//! `rotproof guard mount`: serves the mount until somebody ends it.

use std::time::Duration;

use rotproof_attach::NamedFuseMount;
use rotproof_block::{Error, ErrorKind};
use rotproof_guard::Store;
use rotproof_guard::copies::VolumeCopies;
use rotproof_guard_fuse::{GuardMount, MountOptions};
use rotproof_machine::registry::{CleanupStack, Registry, Undo};

use super::args::MountArgs;
use super::{mirror_of, volume_of};
use crate::exit::Exit;
use crate::fail::CommandError;
use crate::output::Output;
use crate::signals::cancel_on_signals;

/// How often is looked whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Mounts, waits, unmounts.
pub fn mount(args: &MountArgs, output: Output) -> Result<Exit, CommandError> {
    let store = Store::open(&args.place.directory, args.place.store.as_deref())?;
    store.set_mirror(mirror_of(args.mirror.as_deref())?);
    store.set_copies(volume_of(args.volume.as_deref())?.map(VolumeCopies::new));
    if args.mode == "e2e" {
        store.compare_end_to_end()?;
    }
    let mountpoint = args.mountpoint.canonicalize().map_err(|error| {
        Error::from_io(error, format!("looking at the mountpoint {}", args.mountpoint.display()))
    })?;
    // Started by a trial it is called `exe`, after the link by which it was found. Nothing hangs on it if that fails.
    let _ = std::fs::write("/proc/self/comm", "rotproof");
    let cancel = cancel_on_signals()?;
    let options = MountOptions {
        threads: args.threads.into(),
        is_cached: args.cache,
        allow_other: args.allow_other,
        is_guarded: args.mode != "plain",
    };
    let run = Registry::of_user()?.begin()?;
    let mut cleanup = CleanupStack::new(&run);
    let (ended, has_ended) = std::sync::mpsc::channel();
    let (resource, serving) = NamedFuseMount::new(mountpoint.clone());
    cleanup.create(resource, || {
        let mount = GuardMount::new(&store, &mountpoint, options)?;
        serving.begin();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        // Watches for an unmount by somebody else.
        let server = std::thread::spawn(move || {
            use std::sync::mpsc::RecvTimeoutError::Timeout;
            while stopped.recv_timeout(LOOK_EVERY) == Err(Timeout) {
                if !mount.is_served() {
                    let _ = ended.send(());
                    break;
                }
            }
            mount.unmount()
        });
        let undo: Undo = Box::new(move || {
            drop(stop);
            let ended = server
                .join()
                .unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the mount's thread panicked")));
            if ended.is_ok() {
                // What is mounted there from now on is somebody else's.
                serving.end();
            }
            ended
        });
        Ok(((), undo))
    })?;
    output.note(format!("{} is mounted at {}", store.root().display(), mountpoint.display()));
    while !cancel.is_cancelled() && has_ended.try_recv().is_err() {
        std::thread::sleep(LOOK_EVERY);
    }
    let failed = cleanup.undo_all().into_iter().chain(run.finish()).next();
    match (failed, cancel.signal()) {
        (Some(error), _) => Err(error.into()),
        (None, Some(signal)) => Ok(Exit::of_signal(signal)),
        (None, None) => Ok(Exit::Pass),
    }
}
