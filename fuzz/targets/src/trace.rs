//! Block traces in every format.

use rotproof_trace::{Format, Limits, Operation, Reader, Remap, Summary, Writer};

/// Whatever a trace is, its accesses make sense: they have a length if they need one, lie on any device they are put on,
/// can be counted, and come out as they went in where the format has room for all of them.
fn check(format: Format, bytes: &[u8]) {
    Format::detect(bytes);
    let mut summary = Summary::default();
    let mut writer = Writer::new(Vec::new(), Format::Csv).expect("is written");
    let remap = Remap::new(1 << 30, 4096).expect("has blocks");
    let mut reader = Reader::new(bytes, format, Limits { malformed: 50 });
    let mut accesses = Vec::new();
    for access in reader.by_ref().map_while(Result::ok) {
        assert_eq!(access.length == 0, access.operation == Operation::Flush);
        let (offset, length) = remap.place(&access);
        assert!(offset + length <= 1 << 30);
        summary.add(&access);
        writer.write(&access).expect("memory takes it");
        accesses.push(access);
    }
    assert!(reader.shown().len() as u64 <= reader.malformed());
    assert_eq!(summary.figures().accesses, accesses.len() as u64);
    let written = writer.finish().expect("memory takes it");
    let again = Reader::new(&written[..], Format::Csv, Limits { malformed: 0 });
    for (again, access) in again.zip(&accesses) {
        let again = again.expect("what was written is read");
        let relevant =
            |a: &rotproof_trace::Access| (a.at_ns, a.operation, a.device, a.offset, a.length, a.took_ns);
        let expected = if access.length == 0 {
            (access.at_ns, access.operation, access.device, 0, 0, access.took_ns)
        } else {
            relevant(access)
        };
        assert_eq!(relevant(&again), expected);
    }
}

/// `spc`.
pub fn check_spc(bytes: &[u8]) {
    check(Format::Spc, bytes);
}

/// `msr`.
pub fn check_msr(bytes: &[u8]) {
    check(Format::Msr, bytes);
}

/// `blkparse`.
pub fn check_blkparse(bytes: &[u8]) {
    check(Format::Blkparse, bytes);
}

/// `blktrace`.
pub fn check_blktrace(bytes: &[u8]) {
    check(Format::Blktrace, bytes);
}

/// `fio`.
pub fn check_fio(bytes: &[u8]) {
    check(Format::Fio, bytes);
}

/// `disksim`.
pub fn check_disksim(bytes: &[u8]) {
    check(Format::Disksim, bytes);
}

/// `csv`, and the published traces of values.
pub fn check_csv(bytes: &[u8]) {
    for format in [Format::Csv, Format::Systor, Format::Tencent, Format::Alibaba, Format::Cloudphysics] {
        check(format, bytes);
    }
}

/// A beginning of each.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut record = vec![0x07, 0x74, 0x61, 0x65, 1, 0, 0, 0];
    record.extend([0; 16]);
    record.extend([0, 16, 0, 0, 1, 0, 2, 0]);
    record.extend([0; 16]);
    let texts = [
        "0,20941264,8192,W,0.551706\n0,20939840,8192,r,0.554041\n",
        "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,1,Write,2517565440,4096,900\n",
        "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [k]\n  8,0  0  2  0.000107204   697  Q FWS [k]\n",
        "fio version 2 iolog\n/a add\n/a open\n/a read 4096 512\n/a wait 150 0\n/a write 0 8192\n/a sync 0 0\n",
        "fio version 3 iolog\n131 /x read 61440 4096\n100884 /x trim 774144 4096\n",
        "0.0 0 100 8 1\n1.5 0 108 8 0x2\n",
        "time_us,op,offset,length,device,took_us\n1,read,0,512,a,3\n2,flush,,,b,\n",
        "Timestamp,Response,IOType,LUN,Offset,Size\n1455592215.5,0.0002,R,4,0,512\n1455592216.5,,W,4,0,512\n",
        "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n",
        "64,W,38654705664,4096,1577808000000046\n64,R,0,512,1577808000000047\n",
        "ts,lbn,op,len\n250,8,28,4096\n251,16,2a,512\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).chain([record]).collect()
}
