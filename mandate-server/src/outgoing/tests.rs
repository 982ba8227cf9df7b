//! Answers over TLS are read to their end, or to the same limits; and how many connections are kept.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;

const HOST: &str = "hooks.example";
const LONG: Duration = Duration::from_secs(30);

/// Every name resolves to this machine.
struct Here;

impl Names for Here {
    fn look_up(&self, _: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        std::future::ready(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]).boxed()
    }
}

/// A server at [`HOST`], and a client that trusts its certificate.
struct Other {
    listener: TcpListener,
    tls: TlsAcceptor,
    client: Client,
}

impl Other {
    async fn new() -> Self {
        let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
        let key = made.signing_key.serialize_der().try_into().unwrap();
        Self::with(made.cert.der().clone(), key, made.cert.der().clone()).await
    }

    /// One that shows this certificate to a client that trusts this authority.
    async fn with(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        trusted: CertificateDer<'static>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(trusted).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let client = Client::trusting(Arc::new(Here), LONG, 1, roots).unwrap();
        Self { listener, tls: TlsAcceptor::from(Arc::new(config)), client }
    }

    async fn post(&self, host: &str) -> Result<(u16, Result<Bytes, NoAnswer>), NoAnswer> {
        let url = format!("https://{host}:{}/in", self.listener.local_addr().unwrap().port());
        let answered = self.client.post_jwt(&url, "token".to_owned()).await?;
        Ok((answered.status.as_u16(), answered.body))
    }

    async fn accept(&self) -> TlsStream<TcpStream> {
        let (stream, _) = self.listener.accept().await.unwrap();
        self.tls.accept(stream).await.unwrap()
    }
}

async fn read_request(stream: &mut TlsStream<TcpStream>) {
    let mut request = Vec::new();
    while !request.ends_with(b"token") {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn a_connection_through_tls_is_used_again() {
    let other = Other::new().await;
    let body = "x".repeat(MAX_BODY_BYTES);
    let answering = async {
        let mut stream = other.accept().await;
        for _ in 0..4 {
            read_request(&mut stream).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    };
    let asking = async {
        for _ in 0..4 {
            assert_eq!(other.post(HOST).await, Ok((200, Ok(Bytes::from(body.clone())))));
        }
    };
    tokio::join!(answering, asking);
}

/// Answers every request on each connection, and reports the number of each that is closed.
async fn answer(listener: TcpListener, closed: mpsc::UnboundedSender<usize>) {
    for number in 0.. {
        let ((mut stream, _), closed) = (listener.accept().await.unwrap(), closed.clone());
        tokio::spawn(async move {
            let mut request = Vec::new();
            while stream.read_buf(&mut request).await.is_ok_and(|read| read > 0) {
                if request.ends_with(b"token") {
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                    request.clear();
                }
            }
            closed.send(number)
        });
    }
}

#[tokio::test]
async fn of_connections_to_many_hosts_only_so_many_are_kept() {
    const KEPT: usize = 4;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, mut closed) = mpsc::unbounded_channel();
    tokio::spawn(answer(listener, sender));
    let client = Client::trusting(Arc::new(Here), LONG, KEPT, RootCertStore::empty()).unwrap();
    for host in 0..KEPT + 3 {
        let url = format!("http://host-{host}.example:{port}/in");
        assert_eq!(client.post_jwt(&url, "token".to_owned()).await.unwrap().status, StatusCode::OK);
    }
    // Those for which there is no place are closed behind their answers. The others would be the first to be idle for
    // too long.
    let mut first = BTreeSet::new();
    while first.len() < 3 {
        first.insert(closed.recv().await.unwrap());
    }
    assert_eq!(first, BTreeSet::from([KEPT, KEPT + 1, KEPT + 2]));
}

#[tokio::test]
async fn an_endless_answer_over_tls_is_read_up_to_the_limit() {
    let begun = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (beginning, piece, expected) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n", Err(NoAnswer::TooLong)),
        (begun, "1\r\nx\r\n", Ok((200, Err(NoAnswer::TooLong)))),
    ] {
        let other = Other::new().await;
        let answering = async {
            let mut stream = other.accept().await;
            read_request(&mut stream).await;
            stream.write_all(beginning.as_bytes()).await.unwrap();
            let mut pieces = 0;
            while stream.write_all(piece.as_bytes()).await.is_ok() && stream.flush().await.is_ok() {
                pieces += 1;
            }
            pieces
        };
        let (pieces, answered) = tokio::join!(answering, other.post(HOST));
        assert_eq!(answered, expected, "{piece}");
        assert!(pieces > 100, "{pieces} of {piece}");
    }
}

#[tokio::test]
async fn a_peer_without_a_certificate_for_the_name_receives_nothing() {
    let other = Other::new().await;
    let answering = async {
        let (stream, _) = other.listener.accept().await.unwrap();
        assert!(other.tls.accept(stream).await.is_err());
    };
    let ((), answered) = tokio::join!(answering, other.post("elsewhere.example"));
    assert_eq!(answered, Err(NoAnswer::AnotherName));
}

/// Who has signed a certificate.
#[derive(Debug, Clone, Copy)]
enum Signer {
    Trusted,
    Stranger,
    Itself,
    /// As `openssl req -x509` makes one: an authority that is its own server.
    ItselfAsAuthority,
}

#[tokio::test]
async fn what_is_wrong_with_a_certificate_is_said() {
    let authority = |name: &str| {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
    };
    let (trusted, stranger) = (authority("trusted"), authority("stranger"));
    for (signer, years, name, wrong, said) in [
        (Signer::Trusted, [2020, 2090], HOST, None, ""),
        (Signer::Trusted, [2020, 2021], HOST, Some(NoAnswer::Expired), "has expired"),
        (Signer::Trusted, [2089, 2090], HOST, Some(NoAnswer::NotValidYet), "is not valid yet"),
        (Signer::Trusted, [2020, 2090], "a.example", Some(NoAnswer::AnotherName), "is for another name"),
        (Signer::Stranger, [2020, 2090], HOST, Some(NoAnswer::Untrusted), "leads to no trusted authority"),
        (Signer::Itself, [2020, 2090], HOST, Some(NoAnswer::SelfSigned), "is self-signed"),
        (Signer::ItselfAsAuthority, [2020, 2090], HOST, Some(NoAnswer::SelfSigned), "is self-signed"),
    ] {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
        [parameters.not_before, parameters.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
        parameters.distinguished_name.push(DnType::CommonName, "a receiver");
        let made = match signer {
            Signer::Trusted => parameters.signed_by(&key, &trusted),
            Signer::Stranger => parameters.signed_by(&key, &stranger),
            Signer::Itself => parameters.self_signed(&key),
            Signer::ItselfAsAuthority => {
                parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
                parameters.self_signed(&key)
            }
        };
        let key = key.serialize_der().try_into().unwrap();
        let other = Other::with(made.unwrap().der().clone(), key, trusted.der().clone()).await;
        let answering = async {
            let (stream, _) = other.listener.accept().await.unwrap();
            if let Ok(mut stream) = other.tls.accept(stream).await {
                read_request(&mut stream).await;
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
                stream.flush().await.unwrap();
            }
        };
        let ((), answered) = tokio::join!(answering, other.post(HOST));
        assert_eq!(answered.as_ref().err(), wrong.as_ref(), "{signer:?} {years:?} {name}");
        if let Some(wrong) = wrong {
            let whole = format!("no TLS connection could be made: the certificate {said}");
            assert_eq!(wrong.to_string(), whole);
        }
    }
}
