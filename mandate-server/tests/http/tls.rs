//! TLS by the server itself: real handshakes, and certificates that change.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mandate_server::app::App;
use mandate_server::clock::{SystemEntropy, TestClock};
use mandate_server::config::{Config, Settings, TlsFiles};
use mandate_server::model::master_key::MasterKey;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::wire::exchange;
use crate::world::World;

/// A certificate of its own authority, for `localhost`, from this year to that one.
fn certificate(years: [i32; 2]) -> (CertificateDer<'static>, String, String) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
    [parameters.not_before, parameters.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
    let made = parameters.self_signed(&key).unwrap();
    (made.der().clone(), made.pem(), key.serialize_pem())
}

/// A folder with a certificate and its key, and what clients trust.
struct Files {
    folder: TempDir,
    trusted: CertificateDer<'static>,
}

impl Files {
    fn new() -> Self {
        let (trusted, pem, key) = certificate([2020, 2090]);
        let files = Self { folder: tempfile::tempdir().unwrap(), trusted };
        files.write(&pem, &key);
        files
    }

    fn write(&self, certificate: &str, key: &str) {
        let TlsFiles { certificate: at, key: key_at } = self.names();
        std::fs::write(at, certificate).unwrap();
        std::fs::write(key_at, key).unwrap();
    }

    fn names(&self) -> TlsFiles {
        let at = |name: &str| self.folder.path().join(name);
        TlsFiles { certificate: at("tls.pem"), key: at("tls.key") }
    }
}

async fn connect(
    at: SocketAddr,
    trusted: &CertificateDer<'static>,
    versions: &[&'static SupportedProtocolVersion],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, TcpStream::connect(at).await.unwrap()).await
}

const BOTH: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

#[tokio::test]
async fn the_api_and_the_public_listener_speak_tls() {
    let (files, public) = (Files::new(), Files::new());
    let server = World::start_with(|settings| {
        settings.tls = Some(files.names());
        settings.public_tls = Some(public.names());
    })
    .await;
    let urls = &server.running.urls;
    assert_eq!(urls.base, format!("https://{}/v1", server.running.api));
    assert_eq!(urls.verdicts, format!("https://{}", server.running.public));
    for (at, trusted, path, status) in [
        (server.running.api, &files.trusted, "/v1/agents", "401"),
        (server.running.public, &public.trusted, "/.well-known/jwks.json", "200"),
    ] {
        for (version, spoken) in BOTH.into_iter().zip([ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3]) {
            let mut stream = connect(at, trusted, &[version]).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            let session = stream.get_ref().1;
            assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(session.protocol_version(), Some(spoken));
        }
    }
    assert!(connect(server.running.api, &public.trusted, &BOTH).await.is_err(), "each shows its own");
    let answer = exchange(server.running.ops, "GET", "/metrics", "", b"").await.body;
    assert!(answer.contains("mandate_tls_certificate_expiry_timestamp_seconds 3786912000.0\n"), "{answer}");
}

/// A client that has sent its request may end its half of the session and of the connection.
#[tokio::test]
async fn a_client_that_closes_its_half_of_a_session_gets_its_answer() {
    let files = Files::new();
    let server = World::start_with(|settings| settings.tls = Some(files.names())).await;
    let (at, key) = (server.running.api, &server.organization_key);
    for (version, name) in BOTH.into_iter().zip(["a", "b"]) {
        let body = format!(r#"{{"name":"{name}"}}"#);
        let mut stream = connect(at, &files.trusted, &[version]).await.unwrap();
        let request = format!(
            "POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("agent_key"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_taken_and_a_bad_one_is_not() {
    let files = Files::new();
    let server = World::start_with(|settings| settings.tls = Some(files.names())).await;
    let at = server.running.api;
    let (renewed, pem, key) = certificate([2020, 2091]);
    files.write(&pem, &key);
    server.running.renew_certificates();
    until(async || connect(at, &renewed, &BOTH).await.is_ok()).await;
    assert!(connect(at, &files.trusted, &BOTH).await.is_err());

    let (other, other_pem, _) = certificate([2020, 2092]);
    let failures = async || {
        let metrics = exchange(server.running.ops, "GET", "/metrics", "", b"").await.body;
        let count = metrics.lines().find_map(|line| line.strip_prefix("mandate_tls_reload_failures_total "));
        count.unwrap().parse::<u32>().unwrap()
    };
    // The files may have been looked at while they were being written.
    let before = failures().await;
    files.write(&other_pem, &key);
    server.running.renew_certificates();
    until(async || failures().await > before).await;
    assert!(connect(at, &other, &BOTH).await.is_err());
    assert!(connect(at, &renewed, &BOTH).await.is_ok(), "the old one stays");
}

/// Waits until `condition` holds, for as long as a test may take.
async fn until(condition: impl AsyncFn() -> bool) {
    let waiting = async { while !condition().await {} };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
}

/// Why a server with these contents in its files does not start.
async fn refused(certificate: &str, key: &str) -> String {
    let files = Files::new();
    files.write(certificate, key);
    let message = start(&files.names(), files.folder.path()).await;
    message.replace(files.folder.path().to_str().unwrap(), "")
}

async fn start(files: &TlsFiles, folder: &Path) -> String {
    let settings = Settings {
        database: format!("sqlite://{}/test.db", folder.display()),
        tls: Some(files.clone()),
        ..Settings::default()
    };
    let clock = TestClock::at(mandate_core::Timestamp::parse("2026-06-15T12:00:00Z").unwrap());
    let config = Config { settings, master_key: MasterKey::from_bytes([7; 32]) };
    App::start(config, Arc::new(clock), Arc::new(SystemEntropy)).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_pair_that_is_of_no_use_is_refused_at_the_start() {
    let (_, pem, key) = certificate([2020, 2090]);
    let (_, expired, expired_key) = certificate([2020, 2021]);
    let (_, future, future_key) = certificate([2088, 2089]);
    for (certificate, secret, message) in [
        (&expired, &expired_key, "/tls.pem: the certificate has expired, on 2021-01-01T00:00:00.000Z"),
        (&future, &future_key, "/tls.pem: the certificate is not valid before 2088-01-01T00:00:00.000Z"),
        (&pem, &expired_key, "/tls.key is not the key of the certificate in /tls.pem"),
        (&String::new(), &key, "/tls.pem holds no certificate"),
        (&key, &key, "/tls.pem holds no certificate"),
        (&pem, &String::new(), "/tls.key holds no private key in PEM"),
    ] {
        assert_eq!(refused(certificate, secret).await, message);
    }
    let files = Files::new();
    std::fs::remove_file(files.names().key).unwrap();
    let message = start(&files.names(), files.folder.path()).await;
    assert!(message.contains("tls.key cannot be read: No such file"), "{message}");
}
