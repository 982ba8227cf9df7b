//! What `--output` and `--state` name: files, links to files, and what is no file.

use std::fs::{self, File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};

use super::*;

/// A log with a token, and a folder to write into.
struct Written {
    folder: tempfile::TempDir,
    site: Site,
    log: TestLog,
    token: String,
}

impl Written {
    fn new() -> Self {
        let site = Site::new();
        let (mut log, token) = (TestLog::at(&site), token_of(&site, 1));
        log.push(&decision(&token));
        log.publish(&site);
        log.publish_proof(&site, &token);
        Self { folder: tempfile::tempdir().unwrap(), site, log, token }
    }

    /// Writes the token's proof to this name.
    fn proof_to(&self, name: &str) -> Ran {
        let (key, path) = (self.log.verifier(), self.folder.path().join(name));
        let args = ["proof", &self.token, "--issuer", self.site.address(), "--log-key", &key];
        ran(log(self.folder.path(), &[&args[..], &["-o", path.to_str().unwrap()]].concat()))
    }

    fn look(&self, state: &Path) -> Ran {
        let (at, key) = (self.site.log(), self.log.verifier());
        let args = ["monitor", "--log", &at, "--log-key", &key, "--state", state.to_str().unwrap()];
        ran(log(self.folder.path(), &args))
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.folder.path().join(name)).unwrap().permissions().mode() & 0o777
    }
}

/// A device is no different: both are written into. A test that runs as root must not risk one.
#[test]
fn what_is_no_file_is_written_into() {
    let written = Written::new();
    let pipe = written.folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    symlink("pipe", written.folder.path().join("link")).unwrap();
    // Open for both, it does not block, and it holds what was written.
    let mut reader = File::options().read(true).write(true).open(&pipe).unwrap();
    for name in ["pipe", "link"] {
        written.proof_to(name).code(0);
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo(), "{name}");
        let expected = written.log.proof_of(&written.token);
        let mut read = vec![0; expected.len()];
        reader.read_exact(&mut read).unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected);
    }
    let folder = written.folder.path().join("folder");
    fs::create_dir(&folder).unwrap();
    written.proof_to("folder").code(3).says("cannot be written");
}

#[test]
fn a_link_stays_and_a_file_keeps_its_mode() {
    let written = Written::new();
    let path = |name: &str| written.folder.path().join(name);
    let expected = written.log.proof_of(&written.token);
    fs::create_dir(path("kept")).unwrap();
    fs::write(path("kept/proof"), "an older one, which is longer or shorter").unwrap();
    fs::set_permissions(path("kept/proof"), Permissions::from_mode(0o644)).unwrap();
    symlink("kept/proof", path("link")).unwrap();
    // The file of this one is made: nothing was there.
    symlink("kept/later", path("ahead")).unwrap();
    for (name, to, mode) in
        [("link", "kept/proof", 0o644), ("ahead", "kept/later", 0o600), ("new", "new", 0o600)]
    {
        written.proof_to(name).code(0);
        assert_eq!(fs::read_to_string(path(to)).unwrap(), expected, "{name}");
        assert_eq!(written.mode(to), mode, "{name}");
        assert_eq!(path(name).is_symlink(), name != to, "{name}");
    }
    // So does the state of a monitor, which is written at each look.
    symlink("kept/state", path("state")).unwrap();
    written.look(&path("state")).code(0);
    fs::set_permissions(path("kept/state"), Permissions::from_mode(0o640)).unwrap();
    written.look(&path("state")).code(0);
    assert!(path("state").is_symlink());
    assert_eq!(written.mode("kept/state"), 0o640);
    // Nothing else was left behind.
    let mut names: Vec<_> =
        fs::read_dir(path("kept")).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["later", "proof", "state"]);
}
