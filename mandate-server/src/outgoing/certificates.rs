//! What is wrong with the certificate of another end, in words that its owner can use.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

use super::NoAnswer;

/// Verifies as rustls does. Of a certificate that no trusted authority has signed it also says whether it is signed by
/// itself: the error says what its owner must replace.
#[derive(Debug)]
pub(super) struct Verifier(Arc<WebPkiServerVerifier>);

/// The certificate that was refused is signed by itself.
#[derive(Debug, thiserror::Error)]
#[error("the certificate is self-signed")]
struct SelfSigned;

impl Verifier {
    /// One that trusts these authorities. None where there is no authority to trust.
    pub(super) fn new(roots: RootCertStore, provider: Arc<CryptoProvider>) -> Option<Self> {
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().ok().map(Self)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(certificate, intermediates, name, ocsp, now);
        verified.map_err(|error| match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::Other(_))
                if is_self_signed(certificate) =>
            {
                CertificateError::Other(OtherError(Arc::new(SelfSigned))).into()
            }
            error => error,
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// Whether a certificate names itself as its authority.
fn is_self_signed(certificate: &CertificateDer<'_>) -> bool {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    parsed.is_ok_and(|(_, parsed)| parsed.issuer() == parsed.subject())
}

/// Why a handshake failed at what the other end has said.
pub(super) fn refused(error: &io::Error) -> NoAnswer {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    let Some(Error::InvalidCertificate(why)) = error else { return NoAnswer::Tls };
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => NoAnswer::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => NoAnswer::NotValidYet,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            NoAnswer::AnotherName
        }
        CertificateError::UnknownIssuer => NoAnswer::Untrusted,
        CertificateError::Other(other) if other.0.is::<SelfSigned>() => NoAnswer::SelfSigned,
        _ => NoAnswer::Tls,
    }
}
