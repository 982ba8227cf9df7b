//! The connection to the database is lost at every step of every operation: before a request has arrived there, or
//! after it was done and before the answer. After any answer, a retry finds the effect once.

use std::time::{Duration, Instant};

use mandate_server::http::router::{Key, Route, table};
use mandate_tests::Proxy;
use mandate_tests::campaign;
use mandate_tests::proxy::Lost;
use reqwest::Method;

use crate::apart;
use crate::oracle;
use crate::samples::{Sample, sample};
use crate::tenants::{Tenant, Tenants};
use crate::wire::Reply;
use crate::world::World;

/// More round trips than any operation makes.
const MOST_STEPS: usize = 40;
/// Cases in one tenant: it may have 16 webhooks.
const CASES: usize = 12;
/// Statements are not kept prepared, so that there are fewer round trips.
const UNPREPARED: &str = "?statement_cache=off";
/// How soon the service is there again.
const RESUMES: Duration = Duration::from_secs(10);

/// For how long nothing goes over the network before a case begins, so that what is counted is its own: at a new time the
/// server looks what is due. It does so a few times a second at any time, so that the wait has a bound.
const QUIET: Duration = Duration::from_millis(20);
const QUIET_WITHIN: Duration = Duration::from_secs(1);

/// What an operation may leave behind, counted.
const COUNTS: [&str; 10] = [
    "SELECT count(*) FROM agents",
    "SELECT count(*) FROM api_keys",
    "SELECT count(*) FROM mandates",
    "SELECT count(*) FROM decisions",
    "SELECT count(*) FROM reviews",
    "SELECT count(*) FROM events",
    "SELECT count(*) FROM webhooks",
    "SELECT count(*) FROM escrows",
    "SELECT count(*) FROM exports",
    "SELECT CAST(COALESCE(sum(COALESCE(CAST(split_part(a.metered, ' ', 4) AS BIGINT), u.requests)), 0) AS BIGINT)
        FROM usage u LEFT JOIN agents a ON a.environment = u.environment AND a.agent = u.agent
            AND starts_with(a.metered, u.month || ' ' || u.currency || ' ')",
];

type Counts = [i64; COUNTS.len()];

struct Case<'a> {
    tenants: &'a Tenants,
    tenant: &'a Tenant,
    proxy: &'a Proxy,
    /// The database, past the proxy.
    database: &'a str,
    route: &'a Route,
}

impl Case<'_> {
    fn counts(&self) -> Counts {
        let counted = apart::run_once(self.database, |tx| {
            let mut counts = [0; COUNTS.len()];
            for (count, sql) in counts.iter_mut().zip(COUNTS) {
                *count = tx.row(sql, &[])?.unwrap().integer()?;
            }
            Ok(counts)
        });
        counted.unwrap().unwrap()
    }

    /// Asks once, under an idempotency key if there is one.
    async fn ask(&self, sample: &Sample, name: Option<&str>) -> Reply {
        let path = self.route.path.replace("{id}", &sample.id);
        let asking = self.tenant.client.request(&self.route.method, &path);
        let asking = if sample.body.is_null() { asking } else { asking.json(&sample.body) };
        let asking = asking.bearer_auth(self.tenant.key(self.route.key));
        let asking = match name {
            Some(name) => asking.header("Idempotency-Key", name),
            None => asking,
        };
        asking.asked().await
    }

    /// Asks on until it is done.
    async fn done(&self, sample: &Sample, name: &str) -> Reply {
        let began = Instant::now();
        loop {
            let reply = self.ask(sample, Some(name).filter(|_| self.is_post())).await;
            if reply.succeeded() {
                return reply;
            }
            assert!(reply.status >= 500, "{:?}: {}", self.route, reply.body);
            assert!(began.elapsed() < RESUMES, "{:?} is not served again: {}", self.route, reply.body);
        }
    }

    /// Ends the deliveries that earlier cases have left: no receiver takes them, and each new try would be counted among the
    /// round trips of this one.
    fn end_deliveries(&self) {
        let ended = apart::run_once(self.database, |tx| {
            Ok(tx.execute("UPDATE deliveries SET state = 'ended' WHERE state = 'pending'", &[])?)
        });
        ended.unwrap().unwrap();
    }

    /// Waits until what the server does by itself is done.
    async fn wait_for_quiet(&self) {
        let began = Instant::now();
        let mut seen = self.proxy.round_trips();
        while began.elapsed() < QUIET_WITHIN {
            tokio::time::sleep(QUIET).await;
            let now = self.proxy.round_trips();
            if std::mem::replace(&mut seen, now) == now {
                return;
            }
        }
    }

    fn is_post(&self) -> bool {
        self.route.method == Method::POST
    }

    /// Runs the operation with one loss. Gives what it left behind, and whether there was a loss.
    async fn lose(&self, after: usize, lost: Lost, retried: bool) -> (Counts, bool) {
        let name = format!("{after}-{lost:?}");
        self.end_deliveries();
        // No key asks more often in a minute than is permitted.
        self.tenants.world.clock.advance(61);
        let sample = sample(self.tenant, self.route.method.as_str(), self.route.path).await;
        let before = self.counts();
        self.wait_for_quiet().await;
        self.proxy.lose(after, lost);
        let first = self.ask(&sample, Some(&*name).filter(|_| retried && self.is_post())).await;
        let happened = !self.proxy.lose_nothing();
        let case = || format!("{:?} {name}: {}", self.route, first.body);
        assert!(first.succeeded() || retried && first.status >= 500, "{}", case());
        if retried {
            self.retry(&sample, &name, &first).await;
        }
        let after = self.counts();
        (std::array::from_fn(|at| after[at] - before[at]), happened)
    }

    /// What was acknowledged is replayed, and what was not is done once.
    async fn retry(&self, sample: &Sample, name: &str, first: &Reply) {
        let second = self.done(sample, name).await;
        if self.is_post() {
            let third = self.done(sample, name).await;
            assert!(third.replayed(), "{:?} {name}", self.route);
            assert_eq!((third.status, third.anonymous().body), (second.status, second.anonymous().body));
            if first.succeeded() {
                assert!(second.replayed(), "{:?} {name}: what was acknowledged is done again", self.route);
                assert_eq!((first.status, &first.body), (second.status, &second.body));
            }
        }
    }
}

/// Runs all operations of a kind, each with every loss; or, below scale 10, with one loss of `every`, beginning at another
/// place for each operation.
async fn lose_everywhere(parameters: &str, every: usize, which: impl Fn(&Route) -> bool) {
    let every = if campaign::scale() < 10 { every } else { 1 };
    let mut gone = None;
    let world = World::start_with(|settings| {
        let (proxy, through) = Proxy::before_database(&settings.database);
        gone = Some((proxy, std::mem::replace(&mut settings.database, through + parameters)));
    });
    let tenants = &Tenants::of(world.await).await;
    let (proxy, database) = &gone.unwrap();
    let (mut operations, mut losses) = (0, 0);
    for (number, route) in table().iter().enumerate().filter(|(_, route)| which(route)) {
        let tenant = async |name: &str| {
            let key = tenants.world.onboard(&format!("tenant-{number}-{name}"));
            Tenant::new(&tenants.ours.client, key).await
        };
        let mut mine = tenant("first").await;
        let case = Case { tenants, tenant: &mine, proxy, database, route };
        let (wanted, _) = case.lose(usize::MAX, Lost::Request, true).await;
        operations += 1;
        // Who sends no idempotency key rests on the server alone to find out whether it was done.
        let ways = [
            (Lost::Request, true, "request"),
            (Lost::Answer, true, "answer"),
            (Lost::Answer, false, "alone"),
        ];
        for (lost, retried, name) in ways.into_iter().filter(|way| way.1 || route.method == Method::POST) {
            let mut places = (number % every..MOST_STEPS).step_by(every).enumerate();
            loop {
                let (case, after) =
                    places.next().unwrap_or_else(|| panic!("{route:?} makes more round trips"));
                if case % CASES == 0 {
                    mine = tenant(&format!("{name}-{after}")).await;
                }
                let case = Case { tenants, tenant: &mine, proxy, database, route };
                let (left, happened) = case.lose(after, lost, retried).await;
                assert_eq!(
                    left, wanted,
                    "{route:?}, {lost:?} lost after {after}, retried: {retried}: {COUNTS:#?}"
                );
                losses += usize::from(happened);
                if !happened {
                    break;
                }
            }
        }
    }
    println!("{operations} operations, {losses} losses");
    oracle::holds(database);
    assert!(losses > operations, "{losses} losses in {operations} operations");
}

#[tokio::test]
async fn what_agents_ask_for_is_decided_once_wherever_the_connection_is_lost() {
    lose_everywhere("", 1, |route| route.method == Method::POST && route.key == Key::Agent).await;
}

#[tokio::test]
async fn what_organizations_ask_for_is_done_once_wherever_the_connection_is_lost() {
    lose_everywhere(UNPREPARED, 4, |route| route.method == Method::POST && route.key == Key::Organization)
        .await;
}

#[tokio::test]
async fn what_is_read_can_be_read_again_wherever_the_connection_is_lost() {
    lose_everywhere(UNPREPARED, 2, |route| route.method == Method::GET).await;
}
