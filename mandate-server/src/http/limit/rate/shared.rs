//! Rates where several servers share a database. Once a second each server writes what it has admitted and
//! reads what the others have admitted. It also compares its clock with the database's.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};
use tracing::{info, warn};

use super::{Rates, SLOTS, Window};
use crate::clock::{Clock, Entropy, SKEW_WARNS_MILLIS, Skew};
use crate::error::Fault;
use crate::service::rates::{self, Report};
use crate::store::Store;

/// How often servers exchange what they have admitted, in milliseconds.
const EVERY_MILLIS: u64 = 1_000;
/// How long a server waits for the database before it goes on without it.
const PATIENCE: Duration = Duration::from_secs(2);
/// After how long without a report a server counts as gone, in milliseconds. Its last report still counts.
const GONE_MILLIS: i64 = 5_000;
/// Keys in a report: the busiest. One takes 9 bytes, and 5 for each second with requests.
const MAX_KEYS_REPORTED: usize = 4_096;

/// An exchange with the database that is under way.
type Exchange = JoinHandle<Result<Vec<Report>, Fault>>;

/// A server among others on one database.
pub(crate) struct Shared {
    pub(crate) rates: Arc<Rates>,
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    /// The machine's clock, which is compared with the database's.
    own: Arc<dyn Clock>,
    skew: Arc<Skew>,
    server: [u8; 16],
    under_way: Option<Exchange>,
    /// Whether the last exchange failed.
    alone: bool,
    /// The state of the clock that was logged last.
    logged: ClockState,
}

/// The state of the clock, compared with the database's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockState {
    Right,
    Off,
}

impl Shared {
    pub(crate) fn new(
        rates: Arc<Rates>,
        (clock, own, skew): (Arc<dyn Clock>, Arc<dyn Clock>, Arc<Skew>),
        store: Store,
        entropy: &dyn Entropy,
    ) -> Self {
        let mut server = [0; 16];
        entropy.fill(&mut server);
        let (under_way, alone, logged) = (None, false, ClockState::Right);
        Self { rates, store, clock, own, skew, server, under_way, alone, logged }
    }

    /// Exchanges reports before the first request, so that the rates of other servers count for it, and the
    /// clock is checked.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn begin(&mut self) -> Result<(), Fault> {
        let (own, skew) = (Arc::clone(&self.own), Arc::clone(&self.skew));
        self.store.read(move |tx| rates::compare(tx, &*own, &skew)).await??;
        self.exchange().await;
        Ok(())
    }

    /// Exchanges reports until `stop` changes. The last report says that this server ends.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(Duration::from_millis(EVERY_MILLIS));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.changed() => break,
            }
            tokio::select! {
                () = self.exchange() => {}
                _ = stop.changed() => break,
            }
        }
        self.end().await;
    }

    /// Exchanges reports once. Without the database each server counts alone, so that no request waits for it.
    pub(crate) async fn exchange(&mut self) {
        let under_way = self.under_way.take().unwrap_or_else(|| self.begin_exchange());
        let received = wait_for(under_way).await;
        self.log_clock_state();
        match received {
            Ok(Ok(reports)) => {
                if std::mem::take(&mut self.alone) {
                    info!("request rates are shared with the other servers again");
                }
                self.rates.merge(&reports, self.clock.now().seconds());
            }
            Ok(Err(fault)) => self.go_on_alone(&fault.to_string()),
            Err(under_way) => {
                self.under_way = Some(under_way);
                self.go_on_alone("the database does not answer in time");
            }
        }
    }

    fn begin_exchange(&self) -> Exchange {
        let (store, server) = (self.store.clone(), self.server);
        let (own, skew) = (Arc::clone(&self.own), Arc::clone(&self.skew));
        let report = self.rates.report(self.clock.now().seconds());
        tokio::spawn(async move {
            let written = store.write(move |tx| {
                rates::compare(tx, &*own, &skew)?;
                Ok(rates::exchange(tx, server, &report)?)
            });
            written.await?.map_err(|refusal| Fault::new(refusal.message))
        })
    }

    /// A running report must be written before the last one, or never.
    async fn end(mut self) {
        if let Some(under_way) = self.under_way.take() {
            let _ = wait_for(under_way).await;
        }
        let (server, report) = (self.server, self.rates.report(self.clock.now().seconds()));
        let ending = self.store.write(move |tx| Ok(rates::end(tx, server, &report)?));
        if !matches!(timeout(PATIENCE, ending).await, Ok(Ok(Ok(())))) {
            warn!("the last report of request rates could not be written to the other servers");
        }
    }

    /// Logs once when the clock is wrong, and once when it is right again.
    fn log_clock_state(&mut self) {
        let ahead_millis = self.skew.ahead_millis();
        let state = if ahead_millis.abs() >= SKEW_WARNS_MILLIS { ClockState::Off } else { ClockState::Right };
        if std::mem::replace(&mut self.logged, state) == state {
            return;
        }
        match state {
            ClockState::Right => info!("the clock agrees with the database's again"),
            ClockState::Off => warn!(ahead_millis, "the clock differs from the database's: check NTP"),
        }
    }

    fn go_on_alone(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.alone, true) {
            warn!(reason, "request rates are not shared with the other servers");
        }
        self.rates.renew();
    }
}

/// Waits for the running exchange, or returns it if that takes too long.
async fn wait_for(mut under_way: Exchange) -> Result<Result<Vec<Report>, Fault>, Exchange> {
    match timeout(PATIENCE, &mut under_way).await {
        Ok(reports) => Ok(reports.unwrap_or_else(|e| Err(Fault::new(e.to_string())))),
        Err(_) => Err(under_way),
    }
}

impl Rates {
    /// The requests admitted here until `second`: for each key its number, how many seconds follow, and for
    /// each of these its age and its number of requests.
    fn report(&self, second: i64) -> Vec<u8> {
        let mut counts = self.counts();
        let mut busy: Vec<(i64, Window)> = counts
            .own
            .iter_mut()
            .filter_map(|(key, window)| {
                window.advance(second);
                (window.total > 0).then(|| (*key, window.clone()))
            })
            .collect();
        drop(counts);
        busy.sort_unstable_by_key(|(_, window)| std::cmp::Reverse(window.total));
        let mut report = Vec::new();
        for (key, window) in busy.iter().take(MAX_KEYS_REPORTED) {
            let seconds = || (0_u8..).zip(window.counts).filter(|(_, count)| *count > 0);
            report.extend(key.to_be_bytes());
            report.push(u8::try_from(seconds().count()).unwrap_or(u8::MAX));
            seconds().for_each(|(age, count)| {
                report.push(age);
                report.extend(count.to_be_bytes());
            });
        }
        report
    }

    /// Counts the reports of the other servers at `second`, and begins a round.
    fn merge(&self, reports: &[Report], second: i64) {
        let mut others: std::collections::HashMap<i64, Window> = std::collections::HashMap::new();
        for Report { age_millis, rates, .. } in reports {
            let passed = usize::try_from(age_millis / 1000).unwrap_or(0);
            let mut rest = rates.as_slice();
            while let Some((key, seconds)) = read(&mut rest) {
                let window = others.entry(key).or_insert_with(|| Window::at(second));
                for (age, count) in seconds {
                    window.add(passed.saturating_add(age), count);
                }
            }
        }
        let there = reports.iter().filter(|report| !report.ended && report.age_millis < GONE_MILLIS).count();
        let mut counts = self.counts();
        counts.others = others;
        counts.servers = u32::try_from(there).unwrap_or(u32::MAX).saturating_add(1);
        counts.round += 1;
    }

    /// Begins a round without reports.
    fn renew(&self) {
        self.counts().round += 1;
    }
}

/// The next key of a report, and its seconds. None at the end, or if the report is invalid.
fn read(rest: &mut &[u8]) -> Option<(i64, Vec<(usize, u32)>)> {
    let key = i64::from_be_bytes(take(rest)?);
    let [seconds] = take(rest)?;
    let mut read = Vec::with_capacity(SLOTS);
    for _ in 0..seconds {
        let [age] = take(rest)?;
        read.push((usize::from(age), u32::from_be_bytes(take(rest)?)));
    }
    Some((key, read))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::Timestamp;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + second)
    }

    /// One server reads the reports of all others.
    fn exchange(servers: &[Rates], reports: &mut [Vec<u8>], of: usize, now: Timestamp) {
        reports[of] = servers[of].report(now.seconds());
        let others = reports.iter().enumerate().filter(|(number, _)| *number != of);
        let received: Vec<_> =
            others.map(|(_, rates)| Report { age_millis: 0, ended: false, rates: rates.clone() }).collect();
        servers[of].merge(&received, now.seconds());
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let (one, other) = (Rates::new(), Rates::new());
        for (second, key) in [(0, 7), (0, 7), (3, 7), (3, -1)] {
            one.admit(key, 100, at(second)).unwrap();
        }
        let rates = one.report(at(5).seconds());
        other.merge(&[Report { age_millis: 2_999, ended: false, rates: rates.clone() }], at(100).seconds());
        let counts = other.counts();
        assert_eq!((counts.servers, counts.others[&7].total, counts.others[&-1].total), (2, 3, 1));
        assert_eq!((counts.others[&7].counts[4], counts.others[&7].counts[7]), (1, 2));
        drop(counts);
        for cut in 0..rates.len() {
            other.merge(
                &[Report { age_millis: 0, ended: false, rates: rates[..cut].to_vec() }],
                at(100).seconds(),
            );
        }
        for (age_millis, ended) in [(GONE_MILLIS, false), (0, true)] {
            other.merge(&[], at(100).seconds());
            other.merge(&[Report { age_millis, ended, rates: rates.clone() }], at(100).seconds());
            let counts = other.counts();
            assert_eq!((counts.servers, counts.others.len()), (1, 2), "gone, and not forgotten");
        }
        one.admit(7, 100, at(200)).unwrap();
        assert_eq!(one.report(at(200).seconds()).len(), 14, "what has left the window is not reported");
    }

    #[test]
    fn a_server_alone_admits_the_rate_at_once_and_two_their_shares() {
        let rates = Rates::new();
        rates.merge(&[], at(0).seconds());
        assert_eq!((0..20).filter(|_| rates.admit(1, 10, at(0)).is_ok()).count(), 10);
        rates.merge(&[Report { age_millis: 0, ended: false, rates: Vec::new() }], at(0).seconds());
        assert_eq!((0..20).filter(|_| rates.admit(2, 10, at(0)).is_ok()).count(), 5);
        assert_eq!(rates.admit(2, 10, at(0)), Err(super::super::Exceeded { retry_after_seconds: 2 }));
        // The database is unreachable: half of what is left, again and again.
        for left in [3, 1, 1, 0, 0] {
            rates.renew();
            assert_eq!((0..20).filter(|_| rates.admit(2, 10, at(0)).is_ok()).count(), left);
        }
    }

    /// Any number of servers exchange reports once a second in any order, with any requests between. In no 60
    /// seconds do they admit more than one and a half times the rate, and one more each.
    #[test]
    fn servers_together_stay_within_the_bound() {
        let mut seed = 11_u64;
        let mut draw = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let mut most = 0.0_f64;
        for count in [1, 2, 3, 5, 8] {
            let rate = 120;
            let servers: Vec<_> = (0..count).map(|_| Rates::new()).collect();
            let mut reports = vec![Vec::new(); count];
            // All servers know each other.
            (0..2 * count).for_each(|turn| exchange(&servers, &mut reports, turn % count, at(0)));
            let mut admitted = Vec::new();
            for second in 1..400 {
                // Each server reports once a second, with requests before, between and after.
                let mut order: Vec<_> = (0..count).collect();
                (0..count).for_each(|place| order.swap(place, draw(count)));
                let greed = [0, 1, 3, 200][draw(4)];
                for server in order {
                    for rates in &servers {
                        (0..draw(greed + 1)).for_each(|_| {
                            if rates.admit(1, rate, at(second)).is_ok() {
                                admitted.push(second);
                            }
                        });
                    }
                    exchange(&servers, &mut reports, server, at(second));
                }
            }
            let bound = usize::try_from(rate).unwrap() * 3 / 2 + count;
            assert!(admitted.len() > 500, "{count} servers admitted {}", admitted.len());
            assert!(admitted.windows(bound + 1).all(|run| run[bound] - run[0] >= 60), "{count} servers");
            let in_a_minute =
                |from: i64| admitted.iter().filter(|at| (from..from + 60).contains(*at)).count();
            let busiest = (1..400).map(in_a_minute).max().unwrap();
            most = most.max(f64::from(u32::try_from(busiest).unwrap()) / f64::from(rate));
        }
        println!("at most {most} times the rate");
    }
}
