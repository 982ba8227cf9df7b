//! A process whose time of day is another one.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

const SHIFTED: &str = include_str!("../clocks/shifted.c");

/// A clock of its own, for processes that are started with it.
pub(crate) struct ShiftedClock {
    folder: TempDir,
}

impl ShiftedClock {
    /// A clock that is so many milliseconds ahead; behind where they are negative.
    pub(crate) fn ahead(millis: i64) -> Self {
        let clock = Self { folder: tempfile::tempdir().unwrap() };
        // A database's processes run as another user.
        std::fs::set_permissions(clock.folder.path(), Permissions::from_mode(0o755)).unwrap();
        let text = clock.folder.path().join("shifted.c");
        std::fs::write(&text, SHIFTED).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-O2", "-o"])
            .arg(clock.library())
            .arg(&text)
            .arg("-ldl");
        assert!(cc.status().expect("a C compiler is there: apt-get install gcc libc6-dev").success());
        clock.set(millis);
        clock
    }

    /// Sets it, while processes go by it.
    pub(crate) fn set(&self, millis: i64) {
        let (next, by) = (self.folder.path().join("next"), self.by());
        std::fs::write(&next, millis.to_string()).unwrap();
        std::fs::rename(next, by).unwrap();
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("shifted.so")
    }

    fn by(&self) -> PathBuf {
        self.folder.path().join("by")
    }

    /// What processes are to be started with.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.library()), ("SHIFTED_BY", self.by())]
    }
}
