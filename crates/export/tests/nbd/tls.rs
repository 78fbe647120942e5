//! TLS: nothing is served without it, and with client certificates only to those who have one.

use std::path::Path;

use rotproof_block::ErrorKind;
use rotproof_block::leaf::{MemoryDevice, NbdDevice};
use rotproof_block::nbd::{option, option_reply};
use rotproof_export::{NbdOptions, nbd_tls};

use crate::client::{Client, info_request};
use crate::server::{Served, export, output, run};

/// A folder with an authority and certificates of server and client signed by it, as QEMU and nbdkit lay it out.
fn certificates(folder: &Path) {
    let path = |name: &str| folder.join(name).to_str().expect("UTF-8").to_owned();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let mut authority = vec!["req", "-x509", "-subj", "/CN=authority", "-days", "30"];
    authority.extend(key);
    let (ca_key, ca_cert) = (path("ca-key.pem"), path("ca-cert.pem"));
    authority.extend(["-keyout", &ca_key, "-out", &ca_cert]);
    authority.extend(["-addext", "keyUsage=critical,keyCertSign"]);
    run("openssl", &authority);
    for who in ["server", "client"] {
        let (key_path, cert) = (path(&format!("{who}-key.pem")), path(&format!("{who}-cert.pem")));
        let mut request = vec!["req", "-x509", "-subj", "/CN=localhost", "-days", "30"];
        request.extend(key);
        request.extend(["-keyout", &key_path, "-out", &cert, "-CA", &ca_cert, "-CAkey", &ca_key]);
        request.extend(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
        request.extend(["-addext", "basicConstraints=critical,CA:FALSE"]);
        run("openssl", &request);
    }
}

fn served(folder: &Path, verify_clients: bool) -> Served {
    let tls = nbd_tls(folder, verify_clients).expect("certificates that fit");
    let device = MemoryDevice::new(4 << 20, 512).expect("sizes that fit");
    Served::new(vec![export("", device)], NbdOptions { tls: Some(tls), ..NbdOptions::default() })
}

fn nbdsh(uri: &str, certificates: Option<&Path>) -> std::process::Output {
    let with = certificates
        .map_or(String::new(), |folder| format!("h.set_tls_certificates('{}')\n", folder.display()));
    let script = format!(
        "import nbd\nh = nbd.NBD()\nh.set_uri_allow_local_file(True)\n{with}h.set_tls_verify_peer(False)\n\
         h.connect_uri('{uri}')\nassert h.get_tls_negotiated()\nh.pwrite(b'secret' * 100000, 77)\n\
         assert h.pread(600000, 77) == b'secret' * 100000\nh.flush()\nh.shutdown()\n"
    );
    output("/usr/bin/python3", &["-c", &script])
}

#[test]
fn a_foreign_client_reads_and_writes_through_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let served = served(folder.path(), false);
    assert!(served.uri().starts_with("nbds+unix:"));
    let output = nbdsh(&served.uri(), Some(folder.path()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    served.server.stop().expect("a clean end");
}

#[test]
fn with_verification_only_clients_of_the_authority_are_let_in() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let served = served(folder.path(), true);
    let known = nbdsh(&served.uri(), Some(folder.path()));
    assert!(known.status.success(), "{}", String::from_utf8_lossy(&known.stderr));
    // The same authority's certificate to check the server by, but none of its own.
    let bare = tempfile::tempdir().expect("a folder");
    std::fs::copy(folder.path().join("ca-cert.pem"), bare.path().join("ca-cert.pem")).expect("copied");
    assert!(!nbdsh(&served.uri(), Some(bare.path())).status.success());
    served.server.stop().expect("what clients do wrong is no failure of the server");
}

#[test]
fn without_tls_nothing_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let served = served(folder.path(), false);
    let mut client = Client::connect(&served.socket());
    for option in [option::LIST, option::STRUCTURED_REPLY, option::EXTENDED_HEADERS, 77] {
        assert_eq!(client.option(option, &[])[0].0, option_reply::TLS_REQUIRED);
    }
    assert_eq!(client.option(option::GO, &info_request("", &[]))[0].0, option_reply::TLS_REQUIRED);
    let uri = format!("nbd+unix:///?socket={}", served.socket().display()).parse().expect("a URI");
    assert_eq!(NbdDevice::connect(&uri).expect_err("needs TLS").kind(), ErrorKind::Unsupported);
    client.send_option(option::EXPORT_NAME, b"");
    assert!(client.is_cut_off());
}

#[test]
fn certificates_that_are_missing_or_none_are_told_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = nbd_tls(folder.path(), false).expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert!(error.to_string().contains("server-key.pem"), "{error}");
    certificates(folder.path());
    std::fs::write(folder.path().join("server-cert.pem"), "nothing").expect("written");
    let error = nbd_tls(folder.path(), false).expect_err("no certificate");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("server-cert.pem"), "{error}");
}
