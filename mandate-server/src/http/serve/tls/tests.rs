//! Which certificates are read from the files, when, and what is logged.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use mandate_core::Timestamp;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;

use super::{Identity, TlsFiles};

/// A pair of files in a folder.
struct Files(TempDir);

impl Files {
    fn names(&self) -> TlsFiles {
        let at = |name: &str| self.0.path().join(name);
        TlsFiles { certificate: at("tls.pem"), key: at("tls.key") }
    }

    /// Writes a certificate that is valid between these two years.
    fn hold(&self, years: [i32; 2]) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        [parameters.not_before, parameters.not_after] = years.map(|year| date_time_ymd(year, 1, 1));
        let pem = parameters.self_signed(&key).unwrap().pem();
        std::fs::write(self.names().certificate, pem).unwrap();
        std::fs::write(self.names().key, key.serialize_pem()).unwrap();
    }

    /// Files with a certificate that is valid now, and the identity read from them.
    fn read() -> (Self, Identity) {
        let files = Self(tempfile::tempdir().unwrap());
        files.hold([2020, 2090]);
        let identity = Identity::read(files.names(), year(2026)).unwrap();
        (files, identity)
    }
}

fn year(year: i32) -> Timestamp {
    Timestamp::parse(&format!("{year}-06-15T12:00:00Z")).unwrap()
}

#[test]
fn a_certificate_that_is_not_valid_yet_is_taken_when_it_is() {
    let (files, identity) = Files::read();
    files.hold([2027, 2091]);
    let early = identity.renew(year(2026)).unwrap_err().to_string();
    assert!(
        early.ends_with("tls.pem: the certificate is not valid before 2027-01-01T00:00:00.000Z"),
        "{early}"
    );
    assert!(!identity.renew(year(2026)).unwrap(), "reported once");
    assert_eq!(identity.ends(), Timestamp::parse("2090-01-01T00:00:00Z").unwrap());
    assert!(identity.renew(year(2027)).unwrap());
    assert_eq!(identity.ends(), Timestamp::parse("2091-01-01T00:00:00Z").unwrap());
    assert!(!identity.renew(year(2027)).unwrap(), "it is in use");
}

#[test]
fn each_reason_for_refusing_a_pair_is_reported_once() {
    let (files, identity) = Files::read();
    let renew = |now| identity.renew(now).map_err(|fault| fault.to_string());
    let good = std::fs::read(files.names().key).unwrap();
    for bad in ["", "x", ""] {
        std::fs::write(files.names().key, bad).unwrap();
        let reason = renew(year(2026)).unwrap_err();
        assert!(reason.ends_with("tls.key holds no private key in PEM"), "{reason}");
        assert_eq!(renew(year(2026)), Ok(false));
    }
    std::fs::remove_file(files.names().key).unwrap();
    assert!(renew(year(2026)).unwrap_err().contains("tls.key cannot be read"));
    assert_eq!(renew(year(2026)), Ok(false));
    std::fs::write(files.names().key, good).unwrap();
    assert_eq!(renew(year(2026)), Ok(false), "the pair in use is there again");
    std::fs::write(files.names().key, "").unwrap();
    assert!(renew(year(2026)).is_err(), "a pair that was good and is bad again is reported again");
    // A certificate that is not valid yet may have expired at the next look: that is another reason.
    files.hold([2027, 2028]);
    assert!(renew(year(2026)).unwrap_err().contains("is not valid before"));
    assert!(renew(year(2029)).unwrap_err().contains("has expired"));
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[test]
fn a_key_that_all_can_read_causes_a_warning_at_the_start_and_with_each_change() {
    use std::os::unix::fs::PermissionsExt as _;

    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let count = || {
            let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
            text.matches("every user of this machine can read the TLS key").count()
        };
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        let (files, _) = Files::read();
        std::fs::set_permissions(files.names().key, mode(0o644)).unwrap();
        let before = count();
        let identity = Identity::read(files.names(), year(2026)).unwrap();
        assert_eq!(count(), before + 1);
        assert!(!identity.renew(year(2026)).unwrap() && !identity.renew(year(2026)).unwrap());
        assert_eq!(count(), before + 1, "nothing has changed");
        files.hold([2021, 2091]);
        assert!(identity.renew(year(2026)).unwrap());
        assert_eq!(count(), before + 2);
        std::fs::set_permissions(files.names().key, mode(0o640)).unwrap();
        files.hold([2022, 2092]);
        assert!(identity.renew(year(2026)).unwrap());
        assert_eq!(count(), before + 2, "no other user can read it now");
    });
}
