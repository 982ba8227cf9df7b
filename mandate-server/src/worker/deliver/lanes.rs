//! Who may have how many attempts under way: one receiver that is slow, dead or flooded holds up no other.
//!
//! A webhook that this server has leased is a lane. What is free is shared out among the lanes that want more, those with
//! the fewest under way first, within what one webhook, one host and one environment may have. No lane is kept for long:
//! after its turn a webhook goes to the end of the line.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use mandate_core::{EventId, Timestamp, WebhookId};
use url::Url;

use crate::service::deliveries::LEASE_SECONDS;
use crate::store::records::LeaseRecord;

/// How many attempts are under way at a time.
pub(super) const MAX_UNDER_WAY: usize = 512;
/// How many of them to webhooks of one environment.
pub(super) const MAX_OF_ENVIRONMENT: usize = 128;
/// How many of them to one host, whosever webhooks are there.
pub(super) const MAX_OF_HOST: usize = 64;
/// How many of them to one webhook.
pub(super) const MAX_OF_WEBHOOK: usize = 32;
/// How many webhooks are leased at a time.
pub(super) const MAX_LANES: usize = 512;
/// How long attempts to a webhook are begun before others have their turn, in seconds. Its lease holds well beyond the
/// end of the last.
const TURN_SECONDS: i64 = 30;

/// The environment and the webhook.
pub(super) type Key = (i64, WebhookId);

#[derive(Debug)]
struct Lane {
    lease: Arc<LeaseRecord>,
    host: String,
    under_way: BTreeSet<EventId>,
    /// Nothing more was due when it was last looked.
    drained: bool,
}

/// The lanes of one server.
#[derive(Debug, Default)]
pub(super) struct Lanes(BTreeMap<Key, Lane>);

/// What a lane may have under way beside what it has.
#[derive(Debug, Clone)]
pub(super) struct Share {
    pub(super) lease: Arc<LeaseRecord>,
    pub(super) more: usize,
    /// What it has: due as well, until it is written down what became of it.
    pub(super) under_way: BTreeSet<EventId>,
}

impl Lane {
    fn turn_is_over(&self, now: Timestamp) -> bool {
        now >= self.lease.until.plus_seconds(TURN_SECONDS - LEASE_SECONDS)
    }
}

impl Lanes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For how many more webhooks there is room.
    pub(super) fn room(&self) -> usize {
        MAX_LANES.saturating_sub(self.0.len())
    }

    /// Takes webhooks in hand. What is under way to one that was in hand already, under a lease that the clock has
    /// overthrown, stays under way.
    pub(super) fn open(&mut self, leases: Vec<LeaseRecord>) {
        for lease in leases {
            let url = Url::parse(&lease.url).ok();
            let host = url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
            let key = (lease.environment, lease.webhook);
            let under_way = self.0.remove(&key).map(|lane| lane.under_way).unwrap_or_default();
            self.0.insert(key, Lane { lease: Arc::new(lease), host, under_way, drained: false });
        }
    }

    pub(super) fn close(&mut self, leases: &[LeaseRecord]) {
        for lease in leases {
            self.0.remove(&(lease.environment, lease.webhook));
        }
    }

    pub(super) fn begin(&mut self, key: Key, event: EventId) {
        if let Some(lane) = self.0.get_mut(&key) {
            lane.under_way.insert(event);
        }
    }

    pub(super) fn end(&mut self, key: Key, event: EventId) {
        if let Some(lane) = self.0.get_mut(&key) {
            lane.under_way.remove(&event);
        }
    }

    /// Says of a lane that nothing more was due.
    pub(super) fn drained(&mut self, key: Key) {
        if let Some(lane) = self.0.get_mut(&key) {
            lane.drained = true;
        }
    }

    /// More may be due, in any of them.
    pub(super) fn look_again(&mut self) {
        self.0.values_mut().for_each(|lane| lane.drained = false);
    }

    /// The leases of lanes that have nothing under way, and nothing to begin.
    pub(super) fn over(&self, now: Timestamp) -> Vec<LeaseRecord> {
        let over = |lane: &&Lane| lane.under_way.is_empty() && (lane.drained || lane.turn_is_over(now));
        self.0.values().filter(over).map(|lane| (*lane.lease).clone()).collect()
    }

    /// All leases.
    pub(super) fn leases(&self) -> Vec<LeaseRecord> {
        self.0.values().map(|lane| (*lane.lease).clone()).collect()
    }

    /// How what is free is shared out.
    pub(super) fn shares(&self, now: Timestamp) -> Vec<Share> {
        let (mut hosts, mut environments) = (HashMap::new(), HashMap::new());
        let mut free = MAX_UNDER_WAY;
        for lane in self.0.values() {
            let count = lane.under_way.len();
            *hosts.entry(lane.host.as_str()).or_insert(0) += count;
            *environments.entry(lane.lease.environment).or_insert(0) += count;
            free = free.saturating_sub(count);
        }
        let wants = |lane: &&Lane| !lane.drained && !lane.turn_is_over(now);
        let mut lanes: Vec<_> = self.0.values().filter(wants).collect();
        lanes.sort_by_key(|lane| lane.under_way.len());
        let mut waiting = lanes.len();
        let mut shares = Vec::with_capacity(waiting);
        for lane in lanes {
            let of_host = hosts.entry(lane.host.as_str()).or_insert(0);
            let of_environment = environments.entry(lane.lease.environment).or_insert(0);
            let more = free
                .div_ceil(waiting)
                .min(MAX_OF_WEBHOOK.saturating_sub(lane.under_way.len()))
                .min(MAX_OF_HOST.saturating_sub(*of_host))
                .min(MAX_OF_ENVIRONMENT.saturating_sub(*of_environment));
            waiting -= 1;
            free -= more;
            *of_host += more;
            *of_environment += more;
            if more > 0 {
                let (lease, under_way) = (Arc::clone(&lane.lease), lane.under_way.clone());
                shares.push(Share { lease, more, under_way });
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mandate_core::EnvironmentKind;

    const NOW: i64 = 1_000_000;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(NOW + seconds)
    }

    fn webhook(number: u8) -> WebhookId {
        WebhookId::from_bytes([number; 16])
    }

    fn lease(environment: i64, number: u8, host: &str) -> LeaseRecord {
        LeaseRecord {
            environment,
            kind: EnvironmentKind::Sandbox,
            webhook: webhook(number),
            url: format!("https://{host}/in"),
            until: at(LEASE_SECONDS),
        }
    }

    fn begin(lanes: &mut Lanes, key: Key, count: usize) {
        for number in 0..count {
            let number = u128::try_from(number).unwrap();
            lanes.begin(key, EventId::from_bytes(number.to_be_bytes()));
        }
    }

    fn shares(lanes: &Lanes) -> Vec<(i64, WebhookId, usize)> {
        let shares = lanes.shares(at(0));
        shares.into_iter().map(|share| (share.lease.environment, share.lease.webhook, share.more)).collect()
    }

    #[test]
    fn one_webhook_has_its_share_and_no_more() {
        let mut lanes = Lanes::default();
        lanes.open(vec![lease(1, 1, "a.example")]);
        assert_eq!(shares(&lanes), [(1, webhook(1), MAX_OF_WEBHOOK)]);
        begin(&mut lanes, (1, webhook(1)), MAX_OF_WEBHOOK);
        assert_eq!(shares(&lanes), []);
        lanes.open(vec![lease(1, 2, "b.example")]);
        assert_eq!(shares(&lanes), [(1, webhook(2), MAX_OF_WEBHOOK)], "the other has as much");
    }

    #[test]
    fn one_host_and_one_environment_have_theirs() {
        let mut lanes = Lanes::default();
        lanes.open((1..=4).map(|number| lease(i64::from(number), number, "a.example")).collect());
        let sum = |lanes: &Lanes| shares(lanes).iter().map(|(.., more)| more).sum::<usize>();
        assert_eq!(sum(&lanes), MAX_OF_HOST);
        let mut lanes = Lanes::default();
        lanes.open((1..=16).map(|number| lease(1, number, &format!("{number}.example"))).collect());
        assert_eq!(sum(&lanes), MAX_OF_ENVIRONMENT);
    }

    #[test]
    fn whoever_has_least_comes_first_when_little_is_free() {
        let mut lanes = Lanes::default();
        lanes.open(
            (1..=20).map(|number| lease(i64::from(number), number, &format!("{number}.example"))).collect(),
        );
        for number in 1..=16 {
            begin(&mut lanes, (number.into(), webhook(number)), 31);
        }
        // 496 are under way, 16 are free: the four that have none come first.
        let first: Vec<_> = shares(&lanes).into_iter().take(4).map(|(environment, ..)| environment).collect();
        assert_eq!(first, [17, 18, 19, 20]);
        let sum: usize = shares(&lanes).iter().map(|(.., more)| more).sum();
        assert_eq!(sum, MAX_UNDER_WAY - 16 * 31);
    }

    #[test]
    fn a_lane_is_over_when_nothing_is_left_or_its_turn_has_passed() {
        let mut lanes = Lanes::default();
        lanes.open(vec![lease(1, 1, "a.example")]);
        let key = (1, webhook(1));
        assert_eq!(lanes.over(at(0)), []);
        begin(&mut lanes, key, 1);
        lanes.drained(key);
        assert_eq!((lanes.over(at(0)), lanes.shares(at(0)).len()), (vec![], 0), "one is under way");
        lanes.end(key, EventId::from_bytes([0; 16]));
        assert_eq!(lanes.over(at(0)), lanes.leases());
        lanes.look_again();
        assert_eq!((lanes.over(at(0)), lanes.shares(at(0)).len()), (vec![], 1));
        assert_eq!(lanes.over(at(TURN_SECONDS)), lanes.leases());
        assert!(lanes.shares(at(TURN_SECONDS)).is_empty());
        lanes.close(&lanes.leases());
        assert!(lanes.is_empty());
    }
}
