//! A witness tells of the failure that it stands for, also where whatever is lost or kept makes the state fail in another way.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Result, Tag};
use rotproof_crash::recording::{Header, Reader, Recorder, RecorderOptions};
use rotproof_crash::{
    Check, Contents, Crash, Finding, ImageDevice, Reference, StateDescription, Survivor, Way, point_at,
    reduce, story,
};

const HEADER: Header = Header { size: 1 << 20, block_size: 512, atomic_write_bytes: 4096, id: 1 };

/// Of four blocks that are written together the first without the second is what is looked for. None of them is another failure, and so are
/// all of them.
struct Picky(Arc<ImageDevice>);

impl Check for Picky {
    fn image(&self) -> &Arc<ImageDevice> {
        &self.0
    }

    fn check(&mut self, _: &Crash<'_>) -> Result<Vec<Finding>> {
        let mut bytes = [0; 4 * 4096];
        self.0.read_at(0, &mut bytes)?;
        let there: Vec<bool> = bytes.chunks(4096).map(|block| block[0] != 0).collect();
        let kind = match there[..] {
            [false, false, ..] => "mount",
            [true, false, ..] => "lost",
            [true, true, true, true] => "late",
            _ => return Ok(Vec::new()),
        };
        Ok(vec![Finding::new(kind, "seen")])
    }
}

fn record(path: &Path) -> Vec<u64> {
    let recorder = Recorder::create(path, HEADER, RecorderOptions::default()).expect("a new file");
    let mut write = |block: u64| {
        let position = recorder.write(0, block * 4096, false, Tag::NONE, &[1; 4096]);
        recorder.done(0, position, true);
        position
    };
    let positions = (0..4).map(&mut write).collect();
    recorder.finish().expect("there is room");
    positions
}

#[test]
fn a_witness_shows_the_kind_of_failure_that_it_stands_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("r");
    let positions = record(&path);
    let contents = Arc::new(Contents::open(&path, HEADER, None).expect("a recording"));
    let reader = Reader::open(&path).expect("a recording");
    let point = point_at(reader, Arc::clone(&contents), 8, 4096).expect("so long");
    let mut check = Picky(ImageDevice::new(contents, 1 << 20));
    let of = |kept: &[usize]| kept.iter().map(|&at| Survivor::whole(positions[at])).collect::<Vec<_>>();
    for (kept, kind) in [(&[0, 2][..], "lost"), (&[][..], "mount"), (&[0, 1, 2, 3], "late"), (&[2], "mount")]
    {
        let state = StateDescription {
            recording: String::new(),
            way: Way::Subsets,
            position: 8,
            epoch: 0,
            marks: 0,
            unit_bytes: 4096,
            volatile: 4,
            survivors: of(kept),
        };
        check.image().show(point.build(&state.survivors).snapshot);
        let findings = check.check(&Crash { state: &state, marks: &[] }).expect("it can be looked at");
        assert_eq!(findings[0].kind, kind);
        let witness = reduce(&point, &state, &findings, &[], &mut check, 100).expect("it can be looked at");
        assert_eq!(witness.reference, Reference::Neither, "whatever is lost or kept, something is wrong");
        assert_eq!(witness.findings[0].kind, kind);
        let told = story(&witness, &point, &[]);
        assert!(told.contains(&format!("{kind}: seen")), "{told}");
        check.image().show(point.build(&witness.state.survivors).snapshot);
        let again = check.check(&Crash { state: &witness.state, marks: &[] }).expect("it can be looked at");
        assert_eq!(again, witness.findings, "the state is the one that is told of");
    }
}
