//! What another machine says of itself to the probes of a run.

use rotproof_probe::ProbesSpec;
use rotproof_probe::protocol::{Hello, LINE_BYTES_MAX, Sample, arguments, read_line, unescaped};

/// Lines are read to the end, no longer than they may be; what is taken can be said again, and is then the same; and a
/// name of a process comes through a command line as it was.
pub fn check(data: &[u8]) {
    let (mut input, mut line) = (data, Vec::new());
    while let Ok(true) = read_line(&mut input, &mut line) {
        assert!(line.len() <= LINE_BYTES_MAX && !line.contains(&b'\n'));
        if let Ok(hello) = Hello::parse(&line) {
            assert_eq!(Hello::parse(hello.to_line().as_bytes()), Ok(hello));
        }
        if let Ok(sample) = Sample::parse(&line) {
            assert!(sample.values.iter().all(|(_, _, value)| value.is_finite() && *value >= 0.0));
            let again = Sample::parse(sample.to_line().as_bytes()).expect("what was taken can be said");
            assert_eq!((again.phase, again.span, again.missed), (sample.phase, sample.span, sample.missed));
            assert_eq!((again.values.len(), again.notes), (sample.values.len(), sample.notes));
        }
    }
    if let Ok(name) = std::str::from_utf8(data) {
        let spec = ProbesSpec { processes: vec![name.to_owned()], ..ProbesSpec::default() };
        let words = arguments(&spec);
        let escaped = words.last().and_then(|word| word.strip_prefix("--processes=")).expect("the last one");
        assert!(escaped.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/%".contains(&byte)));
        assert_eq!(unescaped(escaped).as_deref(), Ok(name));
        // Whatever it holds, it is a name or refused.
        let _ = unescaped(name);
    }
}

/// What `rotproof probe --json` says, and what it does not.
pub fn seeds() -> Vec<Vec<u8>> {
    // Not this machine, so that the mutations are the same on all.
    let hello = Hello {
        rotproof_probe: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "target".to_owned(),
        boot: "0f3c".to_owned(),
        processors: 4,
        interval_ns: 1_000_000_000,
    };
    let hello = hello.to_line();
    let sample = r#"{"phase":1,"span_ns":1000000000,"missed":2,"values":[["cpu.user","",0.25],["disk.read","sda",5e8]],
                     "notes":["/proc/stat: it ends too early"]}"#;
    let sample = sample.replace('\n', "");
    vec![
        format!("{hello}\n{sample}\n{sample}\n").into_bytes(),
        format!("{sample}\n").into_bytes(),
        b"Welcome\n{\"phase\":0,\"span_ns\":1,\"values\":[]}\nno end".to_vec(),
        b"jbd2*%2a, kworker/u8:1".to_vec(),
    ]
}
