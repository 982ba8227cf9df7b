//! TLS: certificates of roots that the machine trusts, and of no others.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::harness::{Ran, mandate, organization_key};
use crate::issuer::{IAT, jwks, token};

/// What a listener does with the connections that come.
enum Says {
    /// TLS, and then this body, once.
    Body(String),
    /// Something else than TLS, this many times.
    Nonsense(usize),
}

/// A listener under a certificate of its own. Gives its address, the certificate, and a thread that ends with it.
fn listen(says: Says) -> (String, String, JoinHandle<()>) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let thread = std::thread::spawn(move || match says {
        Says::Body(body) => {
            let (stream, _) = listener.accept().unwrap();
            answer(stream, Arc::new(config), &body);
        }
        Says::Nonsense(times) => {
            for _ in 0..times {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
                // Waits for the client, so that nothing is lost to a reset.
                let _ = stream.read_to_end(&mut Vec::new());
            }
        }
    });
    (address, certified.cert.pem(), thread)
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>, body: &str) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let mut request = Vec::new();
    let mut byte = [0];
    // A client that does not trust the certificate sends no request.
    while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        request.push(byte[0]);
    }
    let length = body.len();
    let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
}

#[test]
fn a_trusted_certificate_is_needed() {
    for trusted in [true, false] {
        let (address, certificate, thread) = listen(Says::Body(jwks()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.pem");
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
        std::fs::write(&file, if trusted { certificate } else { other }).unwrap();
        let mut command = mandate(&[
            "verify",
            "--signature-only",
            &token(json!({"iss": address})),
            "--allow-sandbox",
            "--issuer",
            &address,
        ]);
        let ran: Ran =
            command.args(["--at", &IAT.to_string()]).env("SSL_CERT_FILE", file).output().unwrap().into();
        if trusted {
            ran.code(0).shows(&format!("issuer       {address}\n"));
        } else {
            ran.code(19).says("the key set cannot be fetched").says("certificate");
        }
        thread.join().unwrap();
    }
}

#[test]
fn what_does_not_speak_tls_is_unreachable() {
    let (address, _, thread) = listen(Says::Nonsense(1));
    let ran: Ran = mandate(&["verify", "a.b.c", "--issuer", &address]).output().unwrap().into();
    ran.code(19).says("the key set cannot be fetched").says("does not speak TLS");
    thread.join().unwrap();

    // It would say the same again: there is one attempt.
    let (address, _, thread) = listen(Says::Nonsense(1));
    let mut command = mandate(&["agent", "create", "buyer", "--base-url", &format!("{address}/v1")]);
    let ran: Ran = command.env("MANDATE_ORGANIZATION_KEY", organization_key()).output().unwrap().into();
    ran.code(37).says("cannot be reached").says("does not speak TLS: check scheme and port");
    thread.join().unwrap();
}

#[test]
fn the_doctor_reports_a_certificate_that_is_not_trusted() {
    for trusted in [true, false] {
        let (address, certificate, thread) = listen(Says::Body(jwks()));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("root.pem");
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
        std::fs::write(&file, if trusted { certificate } else { other }).unwrap();
        let mut command = mandate(&["doctor", "--issuer", &address]);
        let ran = Ran::from(command.env("SSL_CERT_FILE", file).output().unwrap());
        if trusted {
            ran.code(0).shows("answers, over TLS, with a certificate that is trusted");
        } else {
            ran.code(25).shows("verdicts     fail").shows("check the certificate");
        }
        thread.join().unwrap();
    }
}
