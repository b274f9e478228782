//! TLS of a server: certificates and keys from files. rustls does the rest.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

/// What the server presents, and what it requires of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Its certificate, and those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// The key of the certificate (PEM).
    pub key: PathBuf,
    /// Authorities of clients (PEM): every client that uses TLS must present a certificate from one of them. `None`: none is
    /// required.
    pub client_ca: Option<PathBuf>,
    /// Refuse clients that do not use TLS.
    pub required: bool,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct TlsError {
    path: PathBuf,
    why: String,
}

/// Reads the files that `options` names.
pub(crate) fn configuration(options: &TlsOptions) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let refuse = |path: &Path, why: String| TlsError { path: path.to_owned(), why };
    let chain = certificates(&options.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&options.key)
        .map_err(|error| refuse(&options.key, format!("no private key can be read from it: {error}")))?;
    let verifier = match &options.client_ca {
        None => WebPkiClientVerifier::no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| refuse(path, error.to_string()))?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| refuse(path, error.to_string()))?
        }
    };
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_client_cert_verifier(verifier))
        .and_then(|builder| builder.with_single_cert(chain, key))
        .map(Arc::new)
        .map_err(|error| {
            refuse(&options.certificate, format!("it cannot be used with {}: {error}", options.key.display()))
        })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refuse = |why: String| TlsError { path: path.to_owned(), why };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(refuse("there is no certificate in it (PEM)".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(refuse(format!("no certificate can be read from it: {error}"))),
    }
}
