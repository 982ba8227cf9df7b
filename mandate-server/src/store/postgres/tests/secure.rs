//! TLS to the database: real handshakes with a cluster that has certificates.

use std::thread;

use mandate_tests::Cluster;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

use crate::store::postgres::address::Address;
use crate::store::postgres::connection_worker::ConnectionWorker;
use crate::store::tx::Tx;

/// Whether the connection that asks is encrypted.
const ENCRYPTED: &str = "SELECT count(*) FROM pg_stat_ssl WHERE pid = pg_backend_pid() AND ssl";

/// A certificate for a name and its key, and the authority that has signed it. All are PEM.
struct Issued {
    certificate: String,
    key: String,
    authority: String,
}

/// A certificate for a host of this name, whose common name it is too.
fn issue(name: &str) -> Issued {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    parameters.distinguished_name.push(DnType::CommonName, name);
    let signed = parameters.signed_by(&key, &authority).unwrap();
    Issued { certificate: signed.pem(), key: key.serialize_pem(), authority: authority.pem() }
}

/// For each URL: whether the connection is encrypted, or why there is none. All are tried at once, since a
/// failing one is retried for seconds.
fn connect_all<'a>(urls: impl IntoIterator<Item = &'a str>) -> Vec<Result<bool, String>> {
    thread::scope(|scope| {
        let trying: Vec<_> = urls.into_iter().map(|url| scope.spawn(move || connect(url))).collect();
        trying.into_iter().map(|connected| connected.join().unwrap()).collect()
    })
}

fn connect(url: &str) -> Result<bool, String> {
    let mut worker = ConnectionWorker::new(Address::parse(url).unwrap()).unwrap();
    let encrypted = worker.read(&|tx: &mut Tx<'_>| tx.row(ENCRYPTED, &[])?.unwrap().integer());
    encrypted.and_then(|read| read).map(|count| count == 1).map_err(|fault| fault.to_string())
}

#[test]
fn the_database_is_who_its_certificate_says_as_far_as_the_url_demands() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let issued = issue("localhost");
    let (trusted, stranger) =
        (file("trusted.pem", &issued.authority), file("stranger.pem", &issue("localhost").authority));
    let mut cluster = Cluster::start();
    let plain = cluster.url("postgres");
    let demanding = ["require", "verify-ca", "verify-full"]
        .map(|mode| format!("{plain}?sslmode={mode}&sslrootcert={trusted}"));
    for (url, connected) in demanding.iter().zip(connect_all(demanding.iter().map(String::as_str))) {
        assert!(
            connected.as_ref().is_err_and(|why| why.contains("does not support TLS")),
            "{url}: {connected:?}"
        );
    }
    assert_eq!(connect(&format!("{plain}?sslmode=prefer")), Ok(false));

    cluster.secure(&issued.certificate, &issued.key);
    let by_address = cluster.url("postgres");
    let by_name = by_address.replace("@127.0.0.1", "@localhost");
    let cases: [(String, Result<(), &str>); 12] = [
        // On this machine TLS is used if the database has it.
        (by_name.clone(), Ok(())),
        (format!("{by_name}?sslmode=prefer"), Ok(())),
        (format!("{by_name}?sslmode=require"), Ok(())),
        (format!("{by_address}?sslmode=require"), Ok(())),
        (format!("{by_address}?sslmode=require&sslrootcert={stranger}"), Err("invalid peer certificate")),
        (format!("{by_address}?sslmode=verify-ca&sslrootcert={trusted}"), Ok(())),
        (format!("{by_address}?sslmode=verify-ca&sslrootcert={stranger}"), Err("invalid peer certificate")),
        (format!("{by_name}?sslmode=verify-full&sslrootcert={trusted}"), Ok(())),
        (format!("{by_address}?sslmode=verify-full&sslrootcert={trusted}"), Err("not valid for name")),
        (format!("{by_name}?sslmode=verify-full&sslrootcert={stranger}"), Err("invalid peer certificate")),
        // Only the system's authorities are trusted.
        (format!("{by_name}?sslmode=verify-full"), Err("invalid peer certificate")),
        // The cluster refuses connections without TLS.
        (format!("{by_name}?sslmode=disable"), Err("no encryption")),
    ];
    for ((url, wanted), connected) in cases.iter().zip(connect_all(cases.iter().map(|(url, _)| url.as_str())))
    {
        match (connected, wanted) {
            (Ok(encrypted), Ok(())) => assert!(encrypted, "{url}"),
            (Err(why), Err(wanted)) => assert!(why.contains(wanted), "{url}: {why}"),
            (connected, _) => panic!("{url}: {connected:?}"),
        }
    }
}

#[test]
fn a_database_that_asks_for_a_certificate_is_shown_the_one_that_the_url_names() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // The role that the tests connect as.
    let (host, role) = (issue("localhost"), issue("mandate"));
    let other = issue("mandate");
    let (trusted, certificate, key) = (
        file("trusted.pem", &host.authority),
        file("role.pem", &role.certificate),
        file("role.key", &role.key),
    );
    let (stranger, its_key) = (file("stranger.pem", &other.certificate), file("stranger.key", &other.key));
    let mut cluster = Cluster::start();
    cluster.secure_with(&host.certificate, &host.key, Some(&role.authority));
    let by_name = cluster.url("postgres").replace("@127.0.0.1", "@localhost");
    let verified = format!("{by_name}?sslmode=verify-full&sslrootcert={trusted}");
    let cases: [(String, Option<&str>); 5] = [
        (format!("{verified}&sslcert={certificate}&sslkey={key}"), None),
        (format!("{by_name}?sslmode=require&sslcert={certificate}&sslkey={key}"), None),
        (
            format!("{by_name}?sslmode=verify-ca&sslrootcert={trusted}&sslkey={key}&sslcert={certificate}"),
            None,
        ),
        (verified.clone(), Some("certificate")),
        (format!("{verified}&sslcert={stranger}&sslkey={its_key}"), Some("")),
    ];
    for ((url, wanted), connected) in cases.iter().zip(connect_all(cases.iter().map(|(url, _)| url.as_str())))
    {
        match (connected, wanted) {
            (Ok(encrypted), None) => assert!(encrypted, "{url}"),
            (Err(why), Some(wanted)) => assert!(why.contains(wanted), "{url}: {why}"),
            (connected, _) => panic!("{url}: {connected:?}"),
        }
    }
    for (parameters, wanted) in [
        (format!("sslcert={certificate}"), "sslcert needs sslkey"),
        (format!("sslkey={key}"), "sslkey needs sslcert"),
        (format!("sslcert={certificate}&sslkey={its_key}"), "database: sslkey: "),
        (format!("sslcert={key}&sslkey={key}"), "there is no certificate in it"),
        (format!("sslcert={certificate}&sslkey={certificate}"), "database: sslkey: "),
    ] {
        let refused = Address::parse(&format!("{by_name}?{parameters}")).unwrap_err().to_string();
        assert!(refused.contains(wanted), "{parameters}: {refused}");
    }
}
