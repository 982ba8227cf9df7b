//! What is counted: in a form that Prometheus reads, moved by what was done, and without data of any tenant.
#![allow(clippy::float_cmp, reason = "counts are whole numbers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::wire::exchange;
use crate::world::{World, spend};

/// A scrape, read strictly as `OpenMetrics` 1.0 has it: its families by name, its samples by name and labels.
struct Scrape {
    families: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

/// The metrics that only a database on this machine's disk has.
const OF_FILES: [&str; 2] = ["mandate_database_free_bytes", "mandate_database_wal_bytes"];

/// The metrics that only a database on a server of its own has; and of these, the one that only a standby shows.
const OF_SERVERS: [&str; 3] = [
    "mandate_database_connections",
    "mandate_database_receivers",
    "mandate_database_partitions_timestamp_seconds",
];
const OF_STANDBYS: &str = "mandate_database_replication_lag_bytes";

impl Scrape {
    async fn of(world: &World) -> Self {
        let reply = exchange(world.running.ops, "GET", "/metrics", "", b"").await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert_eq!(reply.header("content-type"), Some(form));
        Self::read(&reply.body)
    }

    fn read(text: &str) -> Self {
        let text = text.strip_suffix("# EOF\n").unwrap();
        let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
        let mut family = String::new();
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (kind, name, rest) =
                    (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
                match kind {
                    "HELP" => {
                        assert!(!rest.is_empty() && !families.contains_key(name), "{line}");
                        name.clone_into(&mut family);
                    }
                    "TYPE" => assert!(families.insert(name.to_owned(), rest.to_owned()).is_none(), "{line}"),
                    "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}"),
                    _ => panic!("{line}"),
                }
                assert!(name == family && is_name(name), "{line}");
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            // An empty set of labels is none.
            let series = series.trim_end_matches("{}");
            let name = series.split('{').next().unwrap();
            let suffix =
                name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let suffixes: &[&str] = match families[&family].as_str() {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                "info" => &["_info"],
                "gauge" => &[""],
                other => panic!("{other}"),
            };
            assert!(suffixes.contains(&suffix), "{line}");
            labels(series);
            assert!(
                samples.insert(series.to_owned(), value.parse().unwrap()).is_none(),
                "{line} is there twice"
            );
        }
        let scrape = Self { families, samples };
        scrape.check_histograms();
        scrape
    }

    /// Buckets are cumulative, and the last of them holds all.
    fn check_histograms(&self) {
        let mut last: BTreeMap<String, f64> = BTreeMap::new();
        let mut bounds: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (series, value) in self.samples.iter().filter(|(series, _)| series.contains("_bucket{")) {
            let (rest, bound) = series.split_once("le=\"").unwrap();
            let (bound, behind) = bound.split_once('"').unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            bounds.entry(format!("{rest}{behind}")).or_default().push((bound, *value));
        }
        for (histogram, mut buckets) in bounds {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{histogram}");
            let (bound, count) = buckets.pop().unwrap();
            assert!(bound.is_infinite(), "{histogram}");
            let whole = histogram
                .replace("_bucket", "_count")
                .replace("{,", "{")
                .replace(",}", "}")
                .replace("{}", "");
            last.insert(whole, count);
        }
        for (series, count) in last {
            assert_eq!(self.samples.get(&series), Some(&count), "{series}");
        }
    }

    fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("{series} is not among {:#?}", self.samples))
    }

    /// The names of all samples, without their labels.
    fn names(&self) -> BTreeSet<&str> {
        self.samples.keys().filter_map(|series| series.split('{').next()).collect()
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The labels of a series: names, each with a value in quotes, without anything that would have to be escaped.
fn labels(series: &str) -> Vec<(&str, &str)> {
    let Some((_, labels)) = series.split_once('{') else { return Vec::new() };
    let pairs = labels.strip_suffix('}').unwrap().split("\",").map(|pair| pair.split_once("=\"").unwrap());
    let pairs: Vec<_> = pairs.map(|(name, value)| (name, value.trim_end_matches('"'))).collect();
    assert!(
        pairs.iter().all(|(name, value)| is_name(name) && !value.contains(['"', '\\', '\n'])),
        "{series}"
    );
    pairs
}

/// A world in which something of every kind has happened.
async fn busy() -> (World, Vec<String>) {
    let world = World::start().await;
    let agent = world.agent("secretive-buyer").await;
    let mandate = world.mandate("agt_secretive-buyer").await;
    let webhook = json!({ "url": "https://hidden.example/hook", "events": ["decision.resolved"] });
    let webhook = world.post(&world.organization_key, "/v1/webhooks", &webhook).await.json();
    let webhook = webhook["webhook"].as_str().unwrap().to_owned();
    let allowed = world.post(&agent, "/v1/authorizations", &spend(40)).await.json();
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(900)).await.json()["verdict"], "deny_limit");
    let asked = world.post(&agent, "/v1/authorizations", &spend(300)).await.json();
    let review = asked["review"]["id"].as_str().unwrap().to_owned();
    let approve = format!("/v1/reviews/{review}/approve");
    assert_eq!(world.send("POST", &approve, &world.organization_key, "", "").await.status, 201);
    assert_eq!(world.post(&agent, "/v1/authorizations", &spend(250)).await.json()["verdict"], "review");
    assert_eq!(world.get("an unknown key", "/v1/agents").await.status, 401);
    assert_eq!(world.get("an unknown key", "/v1/nowhere").await.status, 401);
    assert_eq!(world.send("BREW", "/v1/agents", &agent, "", "").await.status, 400);
    assert_eq!(
        world.post(&world.organization_key, &format!("/v1/webhooks/{webhook}/ping"), &json!({})).await.status,
        202
    );
    let token = allowed["verdict_token"].as_str().unwrap().to_owned();
    let names = ["secretive-buyer", "acme", "hidden.example"].map(str::to_owned);
    let secrets = [agent, world.organization_key.clone(), mandate, webhook, review, token];
    (world, names.into_iter().chain(secrets).collect())
}

#[tokio::test]
async fn the_counters_move_by_what_was_done() {
    let (world, _) = busy().await;
    let scrape = Scrape::of(&world).await;
    for (series, value) in [
        ("mandate_verdicts_total{verdict=\"allow\",mode=\"enforce\"}", 2.0),
        ("mandate_verdicts_total{verdict=\"review\",mode=\"enforce\"}", 2.0),
        ("mandate_verdicts_total{verdict=\"deny_limit\",mode=\"enforce\"}", 1.0),
        ("mandate_verdicts_total{verdict=\"allow\",mode=\"observe\"}", 0.0),
        (
            "mandate_http_requests_total{listener=\"api\",method=\"POST\",path=\"/v1/authorizations\",status=\"2xx\"}",
            4.0,
        ),
        ("mandate_http_requests_total{listener=\"api\",method=\"GET\",path=\"\",status=\"4xx\"}", 1.0),
        (
            "mandate_http_requests_total{listener=\"api\",method=\"GET\",path=\"/v1/agents\",status=\"4xx\"}",
            1.0,
        ),
        (
            "mandate_http_requests_total{listener=\"api\",method=\"other\",path=\"/v1/agents\",status=\"4xx\"}",
            1.0,
        ),
        (
            "mandate_http_request_duration_seconds_count{listener=\"api\",method=\"POST\",path=\"/v1/authorizations\"}",
            4.0,
        ),
        ("mandate_authorization_duration_seconds_count", 4.0),
        ("mandate_http_requests_under_way{listener=\"ops\"}", 1.0),
        ("mandate_reviews_pending", 1.0),
        ("mandate_exports_pending", 0.0),
        ("mandate_rate_limited_total", 0.0),
        ("mandate_faults_total", 0.0),
        ("mandate_ready", 1.0),
        ("mandate_build_info{version=\"0.1.0\"}", 1.0),
    ] {
        assert_eq!(scrape.value(series), value, "{series}");
    }
    // A worker may be writing at the moment of one scrape, not of all.
    let mut waiting = scrape.value("mandate_store_queue_jobs");
    for _ in 0..1000 {
        if waiting > 0.0 {
            waiting = Scrape::of(&world).await.value("mandate_store_queue_jobs");
        }
    }
    assert!(waiting < 1.0, "{waiting} jobs wait for a writer that has nothing to do");
    let committed = scrape.value("mandate_store_commit_duration_seconds_count");
    assert!(committed >= 6.0 && committed == scrape.value("mandate_store_batch_jobs_count"), "{committed}");
    // What is left on another machine's disk is not known.
    for series in OF_FILES {
        assert_eq!(
            scrape.samples.contains_key(series),
            crate::KIND == mandate_tests::Kind::Sqlite,
            "{series}"
        );
    }
    for series in [
        "mandate_database_bytes",
        "mandate_caller_lookups_total{outcome=\"miss\"}",
        "process_resident_memory_bytes",
        "process_open_fds",
    ] {
        assert!(scrape.value(series) >= 1.0, "{series}");
    }
    let start = scrape.value("process_start_time_seconds");
    assert_eq!(scrape.value("mandate_clock_timestamp_seconds"), start, "the clock does not move");
    assert_eq!(scrape.value("mandate_signing_key_created_timestamp_seconds{kind=\"sandbox\"}"), start);
    for kind in ["sandbox", "production"] {
        assert_eq!(scrape.value(&format!("mandate_signing_ready{{kind=\"{kind}\"}}")), 1.0);
    }
}

#[tokio::test]
async fn what_a_database_server_shows_is_measured() {
    let (world, _) = busy().await;
    let scrape = Scrape::of(&world).await;
    let is_server = crate::KIND == mandate_tests::Kind::Postgres;
    for series in OF_SERVERS {
        assert_eq!(scrape.names().contains(series), is_server, "{series}");
    }
    if is_server {
        assert!(scrape.value("mandate_database_connections{kind=\"decide\"}") >= 1.0);
        assert_eq!(scrape.value("mandate_database_receivers"), 0.0, "there is no standby");
    }
    let age = scrape.value("mandate_batch_age_seconds");
    assert!((0.0..60.0).contains(&age), "{age}");
    assert_eq!(scrape.value("mandate_store_lock_waits_total"), 0.0);
}

#[tokio::test]
async fn metrics_hold_no_data_of_any_tenant() {
    let (world, secrets) = busy().await;
    let text = exchange(world.running.ops, "GET", "/metrics", "", b"").await.body;
    for secret in &secrets {
        assert!(!text.contains(secret.as_str()), "{secret}");
    }
    let known = [
        "kind", "le", "listener", "method", "mode", "outcome", "path", "reason", "status", "verdict",
        "version",
    ];
    for series in Scrape::read(&text).samples.keys() {
        for (name, value) in labels(series) {
            assert!(known.contains(&name), "{series}");
            assert!(name != "path" || value.is_empty() || value.starts_with('/'), "{series}");
        }
    }
}

fn documented(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The metrics that are named in expressions.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("mandate_") || word.starts_with("process_")).collect()
}

/// All values of the members `expr` below `value`.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("expr").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|value| expressions(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_what_there_is() {
    let (world, _) = busy().await;
    let scrape = Scrape::of(&world).await;
    let there = scrape.names();
    let mut expressions_of_dashboard = Vec::new();
    expressions(
        &serde_json::from_str(&documented("grafana-dashboard.json")).unwrap(),
        &mut expressions_of_dashboard,
    );
    let dashboard = expressions_of_dashboard.join("\n");
    let alerts = documented("alerts.yaml");
    let asked: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(asked.len(), alerts.matches("- alert: ").count());
    for (file, text) in [("dashboard", dashboard.as_str()), ("alerts", asked.join("\n").as_str())] {
        assert!(!named(text).is_empty());
        let mut unknown: Vec<_> = named(text).difference(&there).copied().collect();
        let of_others: &[&str] =
            if crate::KIND == mandate_tests::Kind::Postgres { &OF_FILES } else { &OF_SERVERS };
        unknown.retain(|name| !of_others.contains(name) && *name != OF_STANDBYS);
        assert!(unknown.is_empty(), "the {file} names {unknown:?}");
    }
    let shown = named(&dashboard);
    let hidden: Vec<_> = scrape
        .families
        .keys()
        .filter(|family| !shown.iter().any(|name| name.starts_with(family.as_str())))
        .collect();
    assert!(hidden.is_empty(), "no panel shows {hidden:?}");
}
