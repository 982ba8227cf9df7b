//! TLS for the listeners: certificates from files, which are read again when they change.

#[cfg(test)]
mod tests;

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use mandate_core::Timestamp;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, ServerConfig};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use crate::clock::Clock;
use crate::config::TlsFiles;
use crate::error::Fault;
use crate::metrics::Metrics;

/// How often the files of certificates and keys are checked for changes, in seconds.
const LOOK_SECONDS: u64 = 10;
/// The protocol inside TLS (RFC 7301). HTTP/2 would gain nothing: requests are small and connections many.
const HTTP_1_1: &[u8] = b"http/1.1";
/// The permissions of users other than the owner and the group.
const OTHERS: u32 = 0o007;

/// A certificate with its key, as they are in their files now.
pub(crate) struct Identity {
    files: TlsFiles,
    current: RwLock<Pair>,
    seen: Mutex<Seen>,
}

/// What was found in the files.
struct Seen {
    /// The fingerprint of the pair in use.
    used: Fingerprint,
    /// The files that were last refused, and why. They are checked again each time: a certificate may become valid.
    refused: Option<(Option<Fingerprint>, String)>,
}

/// A hash over a certificate and its key.
type Fingerprint = [u8; 32];

#[derive(Clone)]
struct Pair {
    key: Arc<CertifiedKey>,
    ends: Timestamp,
}

/// A key is a secret.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair().key)
    }
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read or holds no certificate or key, the two do not match, or the certificate is not valid at `now`.
    pub(crate) fn read(files: TlsFiles, now: Timestamp) -> Result<Self, Fault> {
        let contents = Contents::read(&files)?;
        let current = RwLock::new(contents.pair(&files, now)?);
        warn_of_readers(&files);
        let seen = Mutex::new(Seen { used: contents.fingerprint(), refused: None });
        Ok(Self { files, current, seen })
    }

    /// Accepts TLS 1.2 and 1.3 with the certificate that is current at the time of a handshake.
    ///
    /// # Errors
    /// The library was built without these versions.
    pub(crate) fn acceptor(self: Arc<Self>) -> Result<TlsAcceptor, Fault> {
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(|e| Fault::new(e.to_string()))?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(self);
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// When the certificate ends.
    pub(crate) fn ends(&self) -> Timestamp {
        self.pair().ends
    }

    fn pair(&self) -> Pair {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the files, and uses them if they have changed. Returns whether it does. The same reason why the same contents
    /// are refused is given once.
    fn renew(&self, now: Timestamp) -> Result<bool, Fault> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = Contents::read(&self.files);
        let fingerprint = contents.as_ref().ok().map(Contents::fingerprint);
        if fingerprint == Some(seen.used) {
            seen.refused = None;
            return Ok(false);
        }
        match contents.and_then(|contents| Ok((contents.fingerprint(), contents.pair(&self.files, now)?))) {
            Ok((used, pair)) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = pair;
                *seen = Seen { used, refused: None };
            }
            Err(fault) => {
                let refused = Some((fingerprint, fault.to_string()));
                if seen.refused == refused {
                    return Ok(false);
                }
                seen.refused = refused;
                return Err(fault);
            }
        }
        warn_of_readers(&self.files);
        Ok(true)
    }
}

/// Checks the files of `identities` until `stop` changes: at intervals, and when `look` is notified.
pub(crate) async fn follow(
    identities: Vec<Arc<Identity>>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    look: Arc<Notify>,
    mut stop: watch::Receiver<bool>,
) {
    let mut tick = tokio::time::interval(Duration::from_secs(LOOK_SECONDS));
    while !identities.is_empty() {
        if let Some(first) = identities.iter().map(|identity| identity.ends()).min() {
            metrics.certificates_end(first);
        }
        tokio::select! {
            _ = tick.tick() => {}
            () = look.notified() => {}
            _ = stop.changed() => return,
        }
        for identity in &identities {
            let (renewing, now) = (Arc::clone(identity), clock.now());
            let certificate = identity.files.certificate.display();
            match spawn_blocking(move || renewing.renew(now)).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => info!(%certificate, ends = %identity.ends(), "a new certificate is in use"),
                Ok(Err(fault)) => {
                    metrics.reload_failed();
                    error!(kind = fault.kind(), reason = %fault, "the new certificate is not used; the old one stays");
                }
                Err(e) => error!(error = %e, "a certificate could not be checked"),
            }
        }
    }
}

fn warn_of_readers(files: &TlsFiles) {
    let mode = files.key.metadata().map_or(0, |metadata| metadata.permissions().mode());
    if mode & OTHERS != 0 {
        warn!(key = %files.key.display(), "every user of this machine can read the TLS key; remove that right with chmod o=");
    }
}

/// What a pair of files holds.
struct Contents {
    certificate: Vec<u8>,
    key: Zeroizing<Vec<u8>>,
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, Fault> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|e| Fault::new(format!("{} cannot be read: {e}", path.display())))
        };
        Ok(Self { certificate: read(&files.certificate)?, key: Zeroizing::new(read(&files.key)?) })
    }

    fn fingerprint(&self) -> Fingerprint {
        let length = u64::try_from(self.certificate.len()).unwrap_or(u64::MAX);
        let hash = Sha256::new().chain_update(length.to_be_bytes());
        hash.chain_update(&self.certificate).chain_update(&self.key).finalize().into()
    }

    fn pair(&self, files: &TlsFiles, now: Timestamp) -> Result<Pair, Fault> {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|e| Fault::new(format!("{certificate} is no PEM file: {e}")))?;
        let leaf = chain.first().ok_or_else(|| Fault::new(format!("{certificate} holds no certificate")))?;
        let ends =
            valid_until(leaf, now).map_err(|problem| Fault::new(format!("{certificate}: {problem}")))?;
        let secret = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| Fault::new(format!("{key} holds no private key in PEM")))?;
        let pair = CertifiedKey::from_der(chain, secret, &aws_lc_rs::default_provider());
        let pair = pair.map_err(|e| match e {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                Fault::new(format!("{key} is not the key of the certificate in {certificate}"))
            }
            e => Fault::new(format!("{key} cannot be used with {certificate}: {e}")),
        })?;
        Ok(Pair { key: Arc::new(pair), ends })
    }
}

/// When a certificate ends that is valid at `now` (RFC 5280, section 4.1.2.5).
fn valid_until(certificate: &CertificateDer<'_>, now: Timestamp) -> Result<Timestamp, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|e| format!("the first certificate cannot be read: {e}"))?;
    let at =
        |time: x509_parser::time::ASN1Time| Timestamp::from_millis(time.timestamp().saturating_mul(1000));
    let (begins, ends) = (at(parsed.validity().not_before), at(parsed.validity().not_after));
    if now > ends {
        return Err(format!("the certificate has expired, on {ends}"));
    }
    if now < begins {
        return Err(format!("the certificate is not valid before {begins}"));
    }
    Ok(ends)
}
