//! What a server says to the NBD leaf: the handshake, and then replies to requests that are the same every time.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::{LazyLock, Mutex, PoisonError};

use rotproof_block::leaf::NbdDevice;
use rotproof_block::nbd::{self, info, option, option_reply, transmission_flag};
use rotproof_block::{Buffer, Context, Device, Request, Runtime};
use tempfile::TempDir;

/// Where the leaf finds the server. One at a time speaks there.
static PLACE: LazyLock<Mutex<(UnixListener, TempDir)>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
    Mutex::new((listener, folder))
});

/// Whatever the server says, every request completes, with a buffer of the size it came with.
pub fn check(words: &[u8]) {
    let place = PLACE.lock().unwrap_or_else(PoisonError::into_inner);
    let (listener, folder) = &*place;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("the leaf connects");
            // The leaf may have had enough before the end.
            let _ = client.write_all(words);
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        });
        let uri = format!("nbd+unix:///disk?socket={}", folder.path().join("s").display());
        let Ok(device) = NbdDevice::connect(&uri.parse().expect("a URI")) else { return };
        use_all(&*device);
    });
}

fn use_all(device: &dyn Device) {
    let runtime = Runtime::simulated(1);
    let info = device.info();
    let block_bytes = u64::from(info.block_size);
    assert!(info.size >= block_bytes && info.size.is_multiple_of(block_bytes));
    let queue = device.open_queue(&runtime).expect("the connection is there");
    let context = Context::default();
    let block = || Buffer::zeroed(block_bytes as usize);
    let requests = [
        Request::read(0, block(), context),
        Request::write(info.size - block_bytes, block(), context),
        Request::flush(context),
        Request::discard(0, block_bytes, context),
        Request::write_zeroes(0, block_bytes, context),
        Request::read(0, block(), context),
    ];
    runtime
        .block_on(async {
            for request in requests {
                let bytes = request.buffer.len();
                let completion = queue.submit(request).await;
                assert_eq!(completion.buffer.len(), bytes, "a buffer comes back as it was given");
            }
        })
        .expect("nothing stalls");
}

fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
    let mut words = nbd::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    words.extend(option::GO.to_be_bytes());
    words.extend(kind.to_be_bytes());
    words.extend((data.len() as u32).to_be_bytes());
    words.extend(data);
    words
}

/// Servers of several kinds, up to their replies.
pub fn seeds() -> Vec<Vec<u8>> {
    use transmission_flag as flag;
    let all = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_WRITE_ZEROES;
    let opening = [&nbd::MAGIC.to_be_bytes()[..], &nbd::OPTION_MAGIC.to_be_bytes(), &[0, 3]].concat();
    let server = |flags: u16, block_bytes: u32, errors: [u32; 6]| {
        let mut words = opening.clone();
        let size = 1u64 << 20;
        let export = [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat();
        words.extend(reply(option_reply::INFO, &export));
        let sizes: Vec<u8> = [block_bytes, 4096, 65536].iter().flat_map(|size| size.to_be_bytes()).collect();
        words.extend(reply(option_reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat()));
        words.extend(reply(option_reply::ACK, &[]));
        for (cookie, error) in (1u64..).zip(errors) {
            words.extend(nbd::SIMPLE_REPLY_MAGIC.to_be_bytes());
            words.extend(error.to_be_bytes());
            words.extend(cookie.to_be_bytes());
            // The first and the last are reads.
            if error == 0 && (cookie == 1 || cookie == 6) {
                words.resize(words.len() + block_bytes as usize, b'x');
            }
        }
        words
    };
    // Ends in the middle of what the first read brings.
    let broken_off = {
        let whole = server(all, 4096, [0, 5, 5, 5, 5, 5]);
        whole[..whole.len() - 5 * nbd::SIMPLE_REPLY_BYTES - 100].to_vec()
    };
    vec![
        broken_off,
        server(all, 512, [0; 6]),
        server(all | flag::CAN_MULTI_CONN, 4096, [0; 6]),
        server(all, 512, [5, 28, 22, 95, 108, u32::MAX]),
        server(flag::HAS_FLAGS | flag::READ_ONLY, 512, [0; 6]),
        [opening.clone(), reply(option_reply::UNKNOWN, b"no such export")].concat(),
        [opening.clone(), reply(option_reply::TLS_REQUIRED, b"")].concat(),
    ]
}
