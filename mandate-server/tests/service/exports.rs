//! Exports: whole, verifiable, of one moment, and built whatever happens in between.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use mandate_core::jwks::KeySet;
use mandate_core::jwt::Unverified;
use mandate_core::verify::{
    Expected, VerifyError, audit_verdict_ignoring_expiry, verify_event, verify_verdict,
};
use mandate_core::{AgentId, ExportId, Timestamp, Verdict};
use mandate_server::clock::Clock as _;
use mandate_server::error::Fault;
use mandate_server::model::call::{Answer, Caller};
use mandate_server::service::exports::{self, Build, CLOSES_SECONDS, Create, KEPT_SECONDS, MAX_EXPORTS};
use mandate_server::store::sql::decisions::Filter;
use mandate_server::store::sql::exports::{Export, Format};
use mandate_server::worker::export::{Exports, build_next, delete_expired};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};

use crate::world::{self, ISSUER, World};

/// A world and the directory of its exports.
pub(crate) struct Archive {
    pub(crate) world: World,
    exports: Arc<Exports>,
    stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

impl Archive {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let exports = Arc::new(Exports::new(folder.path().join("exports")));
        Self { world: World::new().await, exports, stop: watch::Sender::new(false), _folder: folder }
    }

    pub(crate) async fn ask(&self, format: Format, filter: Filter) -> Answer {
        let (id, at) = (ExportId::from_bytes(self.world.new_id()), self.world.clock.now());
        let create = Create { format, filter, id, at };
        let call = self.world.call(&self.world.organization);
        self.world.write(call, move |tx, call| exports::create(tx, call, &create)).await
    }

    async fn build(&self) -> Result<bool, Fault> {
        let World { store, keyring, moments, .. } = &self.world;
        build_next(store, &self.exports, keyring, moments, &self.stop.subscribe()).await
    }

    /// The content of `export`, written while `meanwhile` happens between any two of its pages.
    async fn written(&self, export: &Export, mut meanwhile: impl AsyncFnMut()) -> String {
        let (pause, mut paused) = mpsc::unbounded_channel();
        let (go_on, resumed) = std::sync::mpsc::channel();
        let (export, keyring, now) = (export.clone(), self.world.keyring.clone(), self.world.clock.now());
        let writing = self.world.store.read(move |tx| {
            let build = Build { export: &export, keyring: &keyring, now };
            let wait = || pause.send(()).is_ok() && resumed.recv().is_ok();
            let mut content = Vec::new();
            exports::write(tx, &build, &mut content, &wait).map(|_| content)
        });
        let between = async {
            // The snapshot is of the moment of the first page.
            paused.recv().await.unwrap();
            go_on.send(()).unwrap();
            while let Some(()) = paused.recv().await {
                meanwhile().await;
                go_on.send(()).unwrap();
            }
        };
        let (content, ()) = tokio::join!(writing, between);
        String::from_utf8(content.unwrap().unwrap()).unwrap()
    }

    /// The record, if there is one for the caller.
    pub(crate) async fn get(&self, caller: &Arc<Caller>, id: &Value) -> Option<Value> {
        let (call, id, now) =
            (self.world.call(caller), id.as_str().unwrap().to_owned(), self.world.clock.now());
        let found = self.world.store.read(move |tx| exports::get(tx, &call, &id, now)).await.unwrap();
        found.ok().map(|answer| world::json(&answer))
    }

    /// Asks and builds. Returns the record and the content.
    pub(crate) async fn export(&self, format: Format, filter: Filter) -> (Value, String) {
        let asked = self.ask(format, filter).await;
        assert_eq!(asked.status, 202);
        assert!(self.build().await.unwrap());
        let record = self.get(&self.world.organization, &world::json(&asked)["export"]).await.unwrap();
        assert_eq!(record["status"], "ready");
        let file = self.exports.file(ExportId::parse(record["export"].as_str().unwrap()).unwrap());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let content = std::fs::read_to_string(file).unwrap();
        assert_eq!(record["sha256"], hash(&content));
        (record, content)
    }
}

fn hash(text: &str) -> String {
    exports::Sha256Hex(Sha256::digest(text).into()).to_string()
}

fn lines(content: &str) -> Vec<Value> {
    content.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn kinds(content: &str) -> Vec<String> {
    // Of a line with several members the kind is the one that is an object.
    let kind = |line: &Value| -> String {
        let members = line.as_object().unwrap();
        let named = members.iter().find(|(_, value)| value.is_object()).or_else(|| members.iter().next());
        named.unwrap().0.clone()
    };
    lines(content).iter().map(kind).filter(|kind| kind != "governing").collect()
}

#[tokio::test]
async fn an_export_can_be_verified_from_end_to_end() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let agent = world.agent("a").await;
    world.ask(&agent, "1").await;
    let first = world.mandate(&agent, 1_000, r#","review_above":200"#).await;
    let reviewed = world.ask(&agent, "300").await;
    world.approve(&reviewed["review"]["id"]).await;
    let second = world.mandate(&agent, 1_000, "").await;
    world.mandate(&agent, 500, "").await;
    world.ask(&agent, "501").await;
    world.clock.advance(3_600);
    let (record, content) = archive.export(Format::Ndjson, Filter::default()).await;
    assert_eq!((&record["rows"], &record["format"]), (&json!(4), &json!("ndjson")));
    assert_eq!(record["expires_at"], "2026-06-22T13:00:00.000Z");
    let kinds = kinds(&content);
    assert_eq!(
        kinds,
        ["export", "mandate", "mandate", "decision", "decision", "decision", "decision", "trailer"]
    );
    assert!(
        content.contains(&first) && !content.contains(&format!("\"id\":\"{second}\"")),
        "none that decided nothing"
    );

    let keys = KeySet::parse(world.keyring.public_key_set(world.clock.now()).unwrap().as_bytes()).unwrap();
    let mut lines = lines(&content);
    lines.retain(|line| line.get("governing").is_none());
    for line in &lines[3..7] {
        let shown = world.decision(&world.organization, &line["decision"]["jti"]).await;
        assert_eq!(line["decision"], shown, "as the API shows it");
        let token = line["decision"]["verdict_token"].as_str().unwrap();
        let audited = audit_verdict_ignoring_expiry(token, &keys, ISSUER).unwrap();
        assert_eq!(audited.claims().jti.to_string(), line["decision"]["jti"]);
    }
    let trailer = lines[7]["trailer"].as_str().unwrap();
    let claims = Unverified::parse(trailer).unwrap().verify(&keys).unwrap();
    let claims: Value = serde_json::from_slice(claims.claims()).unwrap();
    let before = &content[..content.rfind("{\"trailer\"").unwrap()];
    let wanted = json!({"iss": ISSUER, "iat": 1_781_528_400, "export": record["export"], "rows": 4, "sha256": hash(before)});
    assert_eq!(claims, wanted);
    let expected = Expected::new(ISSUER, world.clock.now());
    assert!(matches!(verify_verdict(trailer, &keys, &expected), Err(VerifyError::Kind { .. })));
    assert!(matches!(verify_event(trailer, &keys, &expected), Err(VerifyError::Kind { .. })));
}

#[tokio::test]
async fn a_filter_says_which_decisions_are_in_it() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let (a, b) = (world.agent("a").await, world.agent("b").await);
    for agent in [&a, &b] {
        world.mandate(agent, 100_000, "").await;
    }
    for minute in 0..6 {
        let agent = if minute % 2 == 0 { &a } else { &b };
        world.ask(agent, if minute < 3 { "1" } else { "501" }).await;
        world.clock.advance(60);
    }
    let count = async |filter| archive.export(Format::Ndjson, filter).await.0["rows"].as_i64().unwrap();
    let at = |text| Some(Timestamp::parse(text).unwrap());
    let agent = Some(AgentId::parse("agt_a").unwrap());
    let (since, until) = (at("2026-06-15T12:01:00Z"), at("2026-06-15T12:04:00Z"));
    let verdict = Some(Verdict::Allow);
    assert_eq!(count(Filter::default()).await, 6);
    assert_eq!(count(Filter { agent: agent.clone(), ..Filter::default() }).await, 3);
    assert_eq!(count(Filter { verdict, ..Filter::default() }).await, 3);
    assert_eq!(count(Filter { since, until, ..Filter::default() }).await, 3, "since is in it, until is not");
    assert_eq!(count(Filter { verdict, since, until, ..Filter::default() }).await, 2);
    assert_eq!(count(Filter { agent, verdict, since, ..Filter::default() }).await, 1);
    let refused = archive.ask(Format::Csv, Filter { since: until, until: since, ..Filter::default() }).await;
    let message =
        "until must be after since; got `2026-06-15T12:01:00.000Z`, since is 2026-06-15T12:04:00.000Z";
    assert_eq!((refused.status, &world::json(&refused)["error"]["message"]), (400, &json!(message)));
}

#[tokio::test]
async fn an_export_is_built_a_minute_after_the_end_of_its_period() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let agent = world.agent("a").await;
    world.ask(&agent, "1").await;
    let early = archive.ask(Format::Csv, ending(world.clock.now().plus_seconds(1))).await;
    let message = "until must not be in the future; got `2026-06-15T12:00:01.000Z`, and it is \
        2026-06-15T12:00:00.000Z. Leave it out for all decisions so far";
    assert_eq!((early.status, &world::json(&early)["error"]["message"]), (400, &json!(message)));
    assert_eq!(archive.ask(Format::Csv, ending(world.clock.now())).await.status, 202);
    // One without an end does not wait behind it.
    assert_eq!(archive.ask(Format::Csv, Filter::default()).await.status, 202);
    assert!(archive.build().await.unwrap() && !archive.build().await.unwrap());
    world.clock.advance(CLOSES_SECONDS - 1);
    assert!(!archive.build().await.unwrap());
    world.clock.advance(1);
    assert!(archive.build().await.unwrap() && !archive.build().await.unwrap());
}

#[tokio::test]
async fn the_first_line_names_the_newest_decision_of_an_export_without_an_end() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let first = |content: &str| lines(content)[0]["export"].clone();
    assert_eq!(first(&archive.export(Format::Ndjson, Filter::default()).await.1)["last"], Value::Null);
    let agent = world.agent("a").await;
    world.ask(&agent, "1").await;
    let newest = world.ask(&agent, "1").await["decision"].clone();
    assert_eq!(first(&archive.export(Format::Ndjson, Filter::default()).await.1)["last"], newest);
    world.clock.advance(CLOSES_SECONDS);
    let until = world.clock.now().plus_seconds(-CLOSES_SECONDS);
    assert_eq!(first(&archive.export(Format::Ndjson, ending(until)).await.1)["last"], Value::Null);
}

pub(crate) fn ending(until: Timestamp) -> Filter {
    Filter { until: Some(until), ..Filter::default() }
}

#[tokio::test]
async fn a_log_of_many_pages_is_written_once_each() {
    let archive = Archive::new().await;
    let agent = archive.world.agent("a").await;
    archive.world.mandate(&agent, 1_000, "").await;
    futures_util::future::join_all((0..1_201).map(|_| archive.world.ask(&agent, "0.01"))).await;
    let (record, content) = archive.export(Format::Ndjson, Filter::default()).await;
    assert_eq!(record["rows"], 1_201);
    let ids: Vec<_> = lines(&content)
        .iter()
        .filter_map(|line| line["decision"]["jti"].as_str().map(ToOwned::to_owned))
        .collect();
    assert!(ids.len() == 1_201 && ids.windows(2).all(|pair| pair[0] < pair[1]), "oldest first, none twice");
}

#[tokio::test]
async fn what_is_written_while_it_is_built_is_not_in_it() {
    let archive = Archive::new().await;
    let world = &archive.world;
    let agent = world.agent("a").await;
    futures_util::future::join_all((0..1_100).map(|_| world.ask(&agent, "0.01"))).await;
    for format in [Format::Ndjson, Format::Csv] {
        world.clock.advance(60);
        let mandate = world.mandate(&agent, 1_000, r#","review_above":200"#).await;
        let review = world.ask(&agent, "300").await["review"]["id"].clone();
        archive.ask(format, Filter::default()).await;
        let now = world.clock.now();
        let export = world.store.read(move |tx| exports::pending(tx, now, 1)).await.unwrap().unwrap().pop();
        let export = export.unwrap();
        // But for the trailer, whose signature holds a number drawn at random.
        let signed = |text: String| text.split("{\"trailer\"").next().unwrap().to_owned();
        let still = archive.written(&export, async || {}).await;
        let mut pauses = 0;
        let moved = archive
            .written(&export, async || {
                match pauses {
                    0 => assert_eq!(world.approve(&review).await.status, 201),
                    1 => assert_eq!(world.revoke(&mandate).await.status, 200),
                    _ => assert!(world.ask(&agent, "1").await["decision"].is_string()),
                }
                pauses += 1;
            })
            .await;
        assert!(pauses > 2, "{pauses}");
        assert!(signed(still) == signed(moved), "the file holds what there was when it was begun");
        assert!(archive.build().await.unwrap());
    }
}

#[tokio::test]
async fn csv_is_a_table_that_a_spreadsheet_does_not_run() {
    let archive = Archive::new().await;
    let agent = archive.world.agent("a").await;
    archive.world.mandate(&agent, 1_000, "").await;
    let decided = archive.world.ask(&agent, "501").await;
    archive.world.give_reason(&decided["decision"], "=1+1, \"said\" he");
    let (record, content) = archive.export(Format::Csv, Filter::default()).await;
    assert_eq!(record["rows"], 1);
    let (header, row) = content.split_once("\r\n").unwrap();
    assert!(
        header.starts_with(
            "decision,iat,sequence,decided_at,verdict,mode,agent,amount,currency,recipient,category,mandate,"
        ),
        "{header}"
    );
    let begins = format!(
        "{},2026-06-15T12:00:00.000Z,1,2026-06-15T12:00:00.000Z,deny_limit,enforce,agt_a,501.0,USD,vendor:v,c,mnd_",
        decided["decision"].as_str().unwrap()
    );
    assert!(row.starts_with(&begins), "{row}");
    assert!(row.contains(r#","'=1+1, ""said"" he",deny_limit,0.0,0,"#), "{row}");
    assert!(row.ends_with("\r\n") && header.split(',').count() == 22, "{row}");
}

#[tokio::test]
async fn what_a_stop_or_a_crash_leaves_is_built_later() {
    let archive = Archive::new().await;
    let agent = archive.world.agent("a").await;
    archive.world.ask(&agent, "1").await;
    let asked = world::json(&archive.ask(Format::Ndjson, Filter::default()).await);
    assert_eq!((&asked["status"], asked.get("rows"), asked.get("sha256")), (&json!("pending"), None, None));
    archive.stop.send_replace(true);
    archive.build().await.unwrap();
    let read = async || archive.get(&archive.world.organization, &asked["export"]).await.unwrap();
    assert_eq!(read().await["status"], "pending");
    archive.stop.send_replace(false);
    // What the server had taken on a database that others share, it has given back.
    let file = archive.exports.file(ExportId::parse(asked["export"].as_str().unwrap()).unwrap());
    std::fs::write(file.with_extension("a1b2c3.unfinished"), "x".repeat(100_000)).unwrap();
    assert!(archive.build().await.unwrap() && !archive.build().await.unwrap());
    assert_eq!(read().await["status"], "ready");
    assert_eq!(kinds(&std::fs::read_to_string(file).unwrap()), ["export", "decision", "trailer"]);
}

#[tokio::test]
async fn one_that_cannot_be_written_has_failed() {
    let archive = Archive::new().await;
    let asked = world::json(&archive.ask(Format::Ndjson, Filter::default()).await);
    let id = ExportId::parse(asked["export"].as_str().unwrap()).unwrap();
    std::fs::write(archive.exports.file(id).parent().unwrap(), "a file where the directory should be")
        .unwrap();
    assert!(archive.build().await.unwrap());
    let read = archive.get(&archive.world.organization, &asked["export"]).await.unwrap();
    assert_eq!((&read["status"], read.get("rows")), (&json!("failed"), None));
    assert!(!archive.build().await.unwrap(), "it is not tried again");
}

#[tokio::test]
async fn an_export_is_kept_for_seven_days_and_their_number_is_bounded() {
    let archive = Archive::new().await;
    let organization = &archive.world.organization;
    let (record, _) = archive.export(Format::Csv, Filter::default()).await;
    let file = archive.exports.file(ExportId::parse(record["export"].as_str().unwrap()).unwrap());
    let delete =
        async || delete_expired(&archive.world.store, &archive.exports, archive.world.clock.now()).await;
    let (second, _) = archive.export(Format::Csv, Filter::default()).await;
    for _ in 2..MAX_EXPORTS {
        assert_eq!(archive.ask(Format::Csv, Filter::default()).await.status, 202);
    }
    let is_there = async |record: &Value| archive.get(organization, &record["export"]).await.is_some();
    assert!(is_there(&record).await && is_there(&second).await);
    assert_eq!(archive.ask(Format::Csv, Filter::default()).await.status, 202);
    assert!(!is_there(&record).await && is_there(&second).await, "the oldest finished one gives way");
    delete().await.unwrap();
    assert!(!file.exists());
    assert_eq!(archive.ask(Format::Csv, Filter::default()).await.status, 202);
    assert_eq!(archive.ask(Format::Csv, Filter::default()).await.status, 400, "all of them are pending");

    let archive = Archive::new().await;
    let organization = &archive.world.organization;
    let (record, _) = archive.export(Format::Csv, Filter::default()).await;
    let file = archive.exports.file(ExportId::parse(record["export"].as_str().unwrap()).unwrap());
    let delete =
        async || delete_expired(&archive.world.store, &archive.exports, archive.world.clock.now()).await;
    archive.world.clock.advance(KEPT_SECONDS - 1);
    delete().await.unwrap();
    assert!(file.exists() && archive.get(organization, &record["export"]).await.is_some());
    archive.world.clock.advance(1);
    assert!(archive.get(organization, &record["export"]).await.is_none(), "for every reader at that instant");
    delete().await.unwrap();
    assert!(!file.exists());
    assert_eq!(archive.ask(Format::Csv, Filter::default()).await.status, 202);
}
