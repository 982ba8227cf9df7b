//! What a process and the machine have used so far, from Linux's /proc.

use std::fs::read_to_string;
use std::time::Duration;

use crate::Failure;

/// Clock ticks in a second: what Linux counts processor time in, whatever the machine (proc(5), `USER_HZ`).
const TICKS_PER_SECOND: u32 = 100;

/// Processor time: so far, or of one stretch of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    /// Of the server.
    pub(crate) server: Duration,
    /// Of this process.
    pub(crate) client: Duration,
    /// Of everything else that ran on the machine, kernel threads and interrupts included.
    pub(crate) others: Duration,
}

impl Usage {
    /// As of now, with the server of this process id.
    pub(crate) fn now(server: u32) -> Result<Self, Failure> {
        let (server, client) = (process_ticks(&server.to_string())?, process_ticks("self")?);
        let others = machine_ticks()?.saturating_sub(server + client);
        let time = |ticks: u64| Duration::from_secs(ticks) / TICKS_PER_SECOND;
        Ok(Self { server: time(server), client: time(client), others: time(others) })
    }

    /// What was used since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            server: self.server.saturating_sub(before.server),
            client: self.client.saturating_sub(before.client),
            others: self.others.saturating_sub(before.others),
        }
    }
}

/// The most memory that a process has held at a time, in bytes.
pub(crate) fn peak_bytes(process: u32) -> Result<u64, Failure> {
    let status = read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kibibytes.ok_or("/proc has no VmHWM")? * 1024)
}

/// User and system time: fields 14 and 15 of proc(5), counted from behind the name, which may hold spaces.
fn process_ticks(process: &str) -> Result<u64, Failure> {
    let stat = read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').ok_or("/proc/PID/stat has no name")?;
    let times: Vec<_> = fields.split_whitespace().skip(11).take(2).collect();
    times.iter().map(|time| Ok(time.parse::<u64>()?)).sum()
}

/// Everything but idle time and waiting for disks: fields 1 to 3 and 6 to 8 of the first line.
fn machine_ticks() -> Result<u64, Failure> {
    let stat = read_to_string("/proc/stat")?;
    let line = stat.lines().next().ok_or("/proc/stat is empty")?;
    let fields: Vec<_> = line.split_whitespace().skip(1).take(8).collect();
    let busy = fields.iter().enumerate().filter(|(place, _)| ![3, 4].contains(place));
    busy.map(|(_, field)| Ok(field.parse::<u64>()?)).sum()
}
