//! TLS to the database: how strictly its certificate is checked, and the certificate by which it knows this program.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};

use crate::error::Fault;

/// What is checked of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Nothing: the connection is encrypted, but the server is not verified.
    Anything,
    /// A trusted authority has signed it, for any name.
    Authority,
    /// A trusted authority has signed it, for the name that is connected to.
    Name,
}

/// Which authorities are trusted, and for what.
#[derive(Debug)]
pub(super) struct Roots {
    pub(super) trust: Trust,
    /// The authorities' certificates, PEM. None: the system's.
    pub(super) file: Option<String>,
}

/// The certificate by which the database knows this program.
#[derive(Debug)]
pub(super) struct Identity {
    /// The file of the certificate and those between it and its authority, PEM.
    pub(super) certificate: String,
    /// The file of its key, PEM.
    pub(super) key: String,
}

/// The TLS configuration for the database.
pub(super) fn client(roots: &Roots, identity: Option<&Identity>) -> Result<ClientConfig, Fault> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let unusable = |e: &dyn fmt::Display| Fault::new(format!("database: TLS cannot be used: {e}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&e))?;
    // As in libpq: if authorities are named, they are checked in any mode.
    if roots.trust == Trust::Anything && roots.file.is_none() {
        let verifier = Arc::new(LenientVerifier { provider, chain: None });
        return known_by(builder.dangerous().with_custom_certificate_verifier(verifier), identity);
    }
    let store = Arc::new(read(roots.file.as_deref())?);
    if roots.trust == Trust::Name {
        return known_by(builder.with_root_certificates(store), identity);
    }
    let chain = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider)).build();
    let verifier = Arc::new(LenientVerifier { provider, chain: Some(chain.map_err(|e| unusable(&e))?) });
    known_by(builder.dangerous().with_custom_certificate_verifier(verifier), identity)
}

/// Adds the certificate that is shown to the database, if there is one. The files are read now.
fn known_by(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, Fault> {
    let Some(Identity { certificate, key: file }) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("sslcert", certificate)?;
    let unusable = |e: &dyn fmt::Display| Fault::new(format!("database: sslkey: {file}: {e}"));
    let key = PrivateKeyDer::from_pem_file(Path::new(file)).map_err(|e| unusable(&e))?;
    builder.with_client_auth_cert(chain, key).map_err(|e| unusable(&e))
}

fn read(file: Option<&str>) -> Result<RootCertStore, Fault> {
    const PARAMETER: &str = "sslrootcert";
    let mut store = RootCertStore::empty();
    let Some(file) = file else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(store);
    };
    for certificate in certificates(PARAMETER, file)? {
        store.add(certificate).map_err(|e| Fault::new(format!("database: {PARAMETER}: {file}: {e}")))?;
    }
    Ok(store)
}

/// The certificates in the file that a parameter names: one at least.
fn certificates(parameter: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let unusable = |e: &dyn fmt::Display| Fault::new(format!("database: {parameter}: {file}: {e}"));
    let read = CertificateDer::pem_file_iter(Path::new(file)).map_err(|e| unusable(&e))?;
    let read = read.collect::<Result<Vec<_>, _>>().map_err(|e| unusable(&e))?;
    if read.is_empty() { Err(unusable(&"there is no certificate in it")) } else { Ok(read) }
}

/// Accepts a certificate for another name or, if no authorities are given, any certificate.
#[derive(Debug)]
struct LenientVerifier {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for LenientVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
