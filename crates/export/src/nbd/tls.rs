//! The certificates of a server, from a folder laid out as QEMU and nbdkit have it.

use std::path::Path;
use std::sync::Arc;

use rotproof_block::{Error, ErrorKind, Result};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Reads `server-cert.pem` and `server-key.pem` in `folder`; with `verify_clients` also `ca-cert.pem`, and then only
/// clients with a certificate signed by it are let in. Fails with [`ErrorKind::Missing`] for files that are not there
/// and [`ErrorKind::Invalid`] for what they hold.
pub fn nbd_tls(folder: &Path, verify_clients: bool) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, "setting up TLS").caused_by(error))?;
    let builder = if verify_clients {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&folder.join("ca-cert.pem"))? {
            roots.add(certificate).map_err(|error| invalid(&folder.join("ca-cert.pem"), error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| invalid(&folder.join("ca-cert.pem"), error))?;
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key_path = folder.join("server-key.pem");
    let key = PrivateKeyDer::from_pem_file(&key_path).map_err(|error| unreadable(&key_path, error))?;
    let chain = certificates(&folder.join("server-cert.pem"))?;
    let config = builder.with_single_cert(chain, key).map_err(|error| invalid(folder, error))?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unreadable(path, error))?;
    if certificates.is_empty() {
        return Err(Error::new(ErrorKind::Invalid, format!("{} holds no certificate", path.display())));
    }
    Ok(certificates)
}

fn unreadable(path: &Path, error: rustls::pki_types::pem::Error) -> Error {
    match error {
        rustls::pki_types::pem::Error::Io(error) => {
            Error::from_io(error, format!("reading {}, which TLS needs", path.display()))
        }
        other => invalid(path, other),
    }
}

fn invalid(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::new(ErrorKind::Invalid, format!("{} is not what TLS needs", path.display())).caused_by(error)
}
