//! What the operating system knows of this process; nothing where there is no `/proc`.

use std::fs;

const KIB: u64 = 1024;

/// The memory that is resident, in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(KIB)
}

/// How many files and sockets are open.
pub(super) fn open_files() -> Option<usize> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count())
}
