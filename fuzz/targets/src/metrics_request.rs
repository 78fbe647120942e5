//! What a client asks of the metrics server, in the pieces in which it arrives.

use rotproof_serve::metrics::{Head, read_head};

/// Once there is an answer nothing that comes behind changes it, and there is one at the latest when the head is full.
pub fn check(data: &[u8]) {
    let mut answer = Head::Incomplete;
    // Every prefix of a long input would take the square of its length.
    for end in (0..=data.len()).filter(|&end| end < 256 || end % 64 == 0 || end == data.len()) {
        let found = read_head(&data[..end]);
        assert!(answer == Head::Incomplete || found == answer, "{answer:?} became {found:?}");
        answer = found;
    }
    assert!(data.len() < 8192 || answer != Head::Incomplete);
    if let Head::Refused(why) = answer {
        assert!(why.is_ascii() && why.as_bytes()[..3].iter().all(u8::is_ascii_digit));
    }
}

/// What scrapers send, and what they should not.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\nAccept: text/plain;version=0.0.4\r\n\r\n",
        "GET /metrics?name=x HTTP/1.0\n\n",
        "HEAD /metrics HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "GET /metrics HTTP/2\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
