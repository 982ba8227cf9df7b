//! Proxies: one that cannot be used is never passed by, and one that fails is not taken for the service.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

use crate::harness::{Ran, mandate, organization_key};

/// A listener that the command must not connect to, and its address.
fn untouched() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    (listener, address)
}

/// Asserts that there was no connection.
fn is_untouched(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

/// Runs an organization's command against `address`, with these variables.
fn organization(address: &str, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = mandate(args);
    command
        .env("MANDATE_BASE_URL", format!("{address}/v1"))
        .env("MANDATE_ORGANIZATION_KEY", organization_key());
    command.envs(variables.iter().copied()).output().unwrap().into()
}

/// A port that nothing listens on.
fn dead() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A proxy that refuses each of so many connections. Gives its port, and the first line of each request.
fn refusing(times: usize) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let each = (0..times).map(|_| {
            let mut reader = BufReader::new(listener.accept().unwrap().0);
            let mut lines = Vec::new();
            while lines.last().is_none_or(|line: &String| line != "\r\n") {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                lines.push(line);
            }
            reader.get_mut().write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").unwrap();
            lines.swap_remove(0).trim_end().to_owned()
        });
        each.collect()
    });
    (port, thread)
}

#[test]
fn a_proxy_that_cannot_be_used_is_not_passed_by() {
    let (listener, address) = untouched();
    for value in [
        "socks5://someone:secret@127.0.0.1:9",
        "socks4://someone:secret@127.0.0.1:9",
        "ftp://someone:secret@127.0.0.1:9",
        "http://",
        "http://someone:secret@127.0.0.1:9 ",
    ] {
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"] {
            let ran = organization(&address, &["agent", "create", "buyer"], &[(name, value)]);
            let ran = ran.code(2).says(&format!("{name} does not name a usable proxy"));
            assert!(!ran.err.contains("someone") && !ran.err.contains("secret"), "{ran:#?}");
        }
    }
    // The first that is set counts, also when another one could be used.
    let (port, usable) = (dead(), "http://127.0.0.1");
    let both = [("ALL_PROXY", "socks5://127.0.0.1:9"), ("HTTPS_PROXY", &format!("{usable}:{port}"))];
    organization(&address, &["agent", "list"], &both).code(2).says("ALL_PROXY does not name a usable proxy");
    // Every command that fetches refuses it too, before it connects.
    let socks = [("HTTPS_PROXY", "socks5://127.0.0.1:9")];
    organization(&address, &["verify", "a.b.c", "--issuer", &address], &socks).code(2).says("HTTPS_PROXY");
    let doctor = organization(&address, &["doctor"], &socks)
        .code(25)
        .shows("HTTPS_PROXY does not name a usable proxy");
    assert!(doctor.out.contains("not sent to the service"), "{doctor:#?}");
    is_untouched(&listener);
}

#[test]
fn a_proxy_that_does_not_answer_is_named() {
    let (listener, address) = untouched();
    let port = dead();
    let proxy = format!("http://someone:secret@127.0.0.1:{port}");
    let named = format!("the proxy 127.0.0.1:{port} (HTTPS_PROXY)");
    let through = [("HTTPS_PROXY", proxy.as_str())];
    let ran =
        organization(&address, &["enforcement", "get"], &through).code(37).says(&named).says("NO_PROXY");
    assert!(!ran.err.contains("someone") && !ran.err.contains("secret"), "{ran:#?}");
    let ran = organization(&address, &["doctor"], &through).code(25).shows(&format!("check {named}"));
    assert!(!ran.out.contains("someone") && !ran.out.contains("secret"), "{ran:#?}");
    organization(&address, &["verify", "a.b.c", "--issuer", &address], &through).code(19).says(&named);
    is_untouched(&listener);
}

#[test]
fn a_proxy_gets_the_requests_to_hosts_that_are_not_exempt() {
    let (listener, address) = untouched();
    let place = address.strip_prefix("https://").unwrap();
    for exempt in [None, Some(""), Some("example.com,.localhost"), Some(place)] {
        let (port, received) = refusing(1);
        let proxy = format!("127.0.0.1:{port}");
        let mut variables = vec![("HTTPS_PROXY", proxy.as_str())];
        variables.extend(exempt.map(|hosts| ("NO_PROXY", hosts)));
        organization(&address, &["enforcement", "get"], &variables)
            .code(37)
            .says(&format!("the proxy {proxy} (HTTPS_PROXY)"));
        assert_eq!(received.join().unwrap(), [format!("CONNECT {place} HTTP/1.1")]);
    }
    is_untouched(&listener);
    // An exempt host is connected to directly: the error names the host, not the proxy.
    let gone = format!("https://localhost:{}", dead());
    for (name, exempt) in
        [("NO_PROXY", "*"), ("no_proxy", "localhost"), ("NO_PROXY", "a, localhost"), ("NO_PROXY", "local*")]
    {
        let variables = [("HTTPS_PROXY", "socks5://127.0.0.1:9"), (name, exempt)];
        let ran = organization(&gone, &["verify", "a.b.c", "--issuer", &gone], &variables).code(19);
        assert!(!ran.err.contains("proxy"), "{ran:#?}");
    }
}

#[test]
fn missing_root_certificates_are_reported_with_their_place() {
    let (_listener, address) = untouched();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.pem");
    let file = file.to_str().unwrap();
    let found = format!("no root certificates were found at {file} (SSL_CERT_FILE)");
    let roots = [("SSL_CERT_FILE", file)];
    organization(&address, &["enforcement", "get"], &roots).code(37).says(&found).says("PEM");
    organization(&address, &["doctor"], &roots).code(25).shows(&found);
    organization(&address, &["verify", "a.b.c", "--issuer", &address], &roots).code(19).says(&found);
}
