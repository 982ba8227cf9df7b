//! The operator's day, over the real binaries: the drill of docs/operations.md as it is written there, and health.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Ran, TestServer, binary};

/// The commands of a section of docs/operations.md: its blocks that are fenced as `sh`.
fn commands(section: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/operations.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let rest = &text[begin + 4..];
    let rest = &rest[..rest.find("\n## ").unwrap_or(rest.len())];
    let blocks: Vec<_> =
        rest.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "{section} has no commands");
    blocks.concat()
}

/// Runs commands as they are written, with the places of an installation below `root`.
fn run(commands: &str, root: &Path) -> Ran {
    let here = |path: &str| format!("{}{path}", root.display());
    let commands = commands
        .replace("/var/backups", &here("/var/backups"))
        .replace("/etc/mandate", &here("/etc/mandate"));
    let binaries = binary("mandate-server").parent().unwrap().display().to_string();
    let mut command = Command::new("sh");
    command.env_clear().env("PATH", format!("{binaries}:/usr/bin:/bin")).args(["-euxc", &commands]);
    command.output().unwrap().into()
}

/// Lays out an installation below `root`.
fn install(root: &Path, master_key: &str, database: &str) {
    for folder in ["var/backups", "etc/mandate"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::write(root.join("etc/mandate/master.key"), master_key).unwrap();
    std::fs::write(root.join("etc/mandate/server.toml"), format!("database = \"{database}\"")).unwrap();
}

#[test]
fn the_restore_drill_works_as_it_is_written() {
    let root = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(root.path());
    let demo = server.demo();
    let agent = demo.buyer("drill");
    assert_eq!(agent.ask(40).text("/verdict"), "allow");
    let keys: Value =
        serde_json::from_str(&std::fs::read_to_string(root.path().join("mandate-dev.json")).unwrap())
            .unwrap();
    install(root.path(), keys["master_key"].as_str().unwrap(), server.ready("database"));
    let drilled = run(&commands("Restore drill"), root.path()).code(0);
    assert!(drilled.out.contains("(opened by the master key that is set)"), "{drilled:#?}");
    assert_eq!(drilled.out.matches("sound\n").count(), 1, "{drilled:#?}");
    assert_eq!(agent.ask(40).text("/verdict"), "allow", "the server went on");
    let setting = "export MANDATE_CONFIG=/etc/mandate/server.toml\n";
    for section in ["Backup", "Check a database"] {
        run(&format!("{setting}{}", commands(section)), root.path()).code(0);
    }
    assert_eq!(server.hold(&demo.client, &[server.issuer()]), 2);
}

#[test]
fn a_restore_puts_the_backup_in_the_place_of_what_is_there_and_loses_nothing() {
    let root = tempfile::tempdir().unwrap();
    let backup = root.path().join("backup.db");
    let operator = |args: &[&str]| {
        let mut command = Command::new(binary("mandate-server"));
        Ran::from(command.env_clear().args(args).output().unwrap())
    };
    let (database, issuer, key, before, after);
    {
        let server = TestServer::start_in(root.path());
        (database, issuer) = (server.ready("database").to_owned(), server.issuer());
        let agent = server.demo().buyer("restored");
        before = agent.ask(40).text("/decision");
        let file = backup.to_str().unwrap();
        let taken = operator(&["backup", "create", file, "--database", &database, "--json"]).code(0);
        let manifest: Value = serde_json::from_str(&taken.out).unwrap();
        assert_eq!(manifest["bytes"], std::fs::metadata(&backup).unwrap().len());
        after = agent.ask(40).text("/decision");
        key = agent.client.key().to_owned();
        let running = operator(&["backup", "restore", file, "--force", "--database", &database]).code(1);
        assert!(running.err.contains(" belongs to process "), "{running:?}");
    }
    let file = backup.to_str().unwrap();
    {
        // A server has taken the file, and has not opened it yet.
        let lock = format!("{}-server", database.strip_prefix("sqlite://").unwrap());
        let lock = std::fs::File::options().write(true).open(lock).unwrap();
        lock.lock().unwrap();
        let starting = operator(&["backup", "restore", file, "--force", "--database", &database]).code(1);
        assert!(starting.err.contains(" belongs to process "), "{starting:?}");
    }
    let unasked = operator(&["backup", "restore", file, "--database", &database]).code(1);
    assert!(unasked.err.ends_with("exists; --force renames and keeps it\n"), "{unasked:?}");
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().env("MANDATE_MASTER_KEY", "ab".repeat(32));
    command.args(["backup", "restore", file, "--force", "--database", &database]);
    let foreign = Ran::from(command.output().unwrap()).code(1);
    assert!(foreign.err.contains("does not open under the master key that is set"), "{foreign:?}");
    let restored =
        operator(&["backup", "restore", file, "--force", "--database", &database, "--json"]).code(0);
    let restored: Value = serde_json::from_str(&restored.out).unwrap();
    let aside = format!("sqlite://{}", restored["set_aside"].as_str().unwrap());
    for sound in [&database, &aside] {
        assert_eq!(operator(&["check", "--database", sound]).code(0).out, "sound\n");
    }
    let server = TestServer::start_in(root.path());
    let agent = server.client(&key);
    assert_eq!(agent.get(&format!("/decisions/{before}")).status, 200);
    assert_eq!(
        agent.get(&format!("/decisions/{after}")).status,
        404,
        "what came after the backup is not in it"
    );
    assert_eq!(server.hold(&server.demo().client, &[issuer, server.issuer()]), 1);

    std::fs::write(&backup, [std::fs::read(&backup).unwrap(), vec![0]].concat()).unwrap();
    let changed = operator(&["backup", "verify", file]).code(1);
    assert!(changed.err.contains("and its manifest says"), "{changed:?}");
}

#[test]
fn an_interrupted_restore_is_completed_by_the_next_program_that_opens_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("mandate.db");
    let database = format!("sqlite://{}", place.display());
    let operator = |args: &[&str]| {
        let mut command = Command::new(binary("mandate-server"));
        Ran::from(command.env_clear().args(args).args(["--database", &database]).output().unwrap())
    };
    let names = || {
        let listed = operator(&["organization", "list", "--json"]).code(0).json();
        listed.as_array().unwrap().iter().map(|one| one["organization"].clone()).collect::<Vec<_>>()
    };
    operator(&["migrate"]).code(0);
    operator(&["organization", "create", "before"]).code(0);
    let backup = folder.path().join("backup.db");
    operator(&["backup", "create", backup.to_str().unwrap()]).code(0);
    operator(&["organization", "create", "after"]).code(0);
    assert_eq!(names().len(), 2);
    // As after a crash: the copy is whole and has its first name, the database has been set aside.
    let time = "2026-11-21T16:04:39.330Z";
    std::fs::copy(&backup, folder.path().join(format!("mandate.db.restoring-{time}"))).unwrap();
    let aside = folder.path().join(format!("mandate.db.replaced-{time}"));
    std::fs::rename(&place, &aside).unwrap();
    for reading in [&["check"][..], &["migrate", "--dry-run"], &["backup", "create", "another.db"]] {
        let refused = operator(reading).code(if reading == ["check"] { 3 } else { 1 });
        assert!(refused.err.contains("a restore of it was interrupted"), "{refused:?}");
    }
    assert_eq!(names(), ["before"]);
    assert_eq!(operator(&["check"]).code(0).out, "sound\n");
    let mut check = Command::new(binary("mandate-server"));
    check.env_clear().args(["check", "--database", &format!("sqlite://{}", aside.display())]);
    assert_eq!(Ran::from(check.output().unwrap()).code(0).out, "sound\n");
}

#[test]
fn a_check_prints_each_finding_on_a_line_and_exits_with_1() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.db");
    let operator = |args: &[&str]| {
        let mut command = Command::new(binary("mandate-server"));
        Ran::from(command.env_clear().args(args).output().unwrap())
    };
    operator(&["backup", "create", file.to_str().unwrap(), "--database", server.ready("database")]).code(0);
    let database = format!("sqlite://{}", file.display());
    assert_eq!(operator(&["check", "--json", "--database", &database]).code(0).out, "");
    let mut bytes = std::fs::read(&file).unwrap();
    let last_page = bytes.len() - 4096;
    bytes[last_page..].fill(0x55);
    std::fs::write(&file, bytes).unwrap();
    let text = operator(&["check", "--quick", "--database", &database]).code(1);
    assert!(text.out.starts_with("database: found ") && text.out.contains("; expected pages"), "{text:?}");
    let json = operator(&["check", "--json", "--database", &database]).code(1);
    for line in json.out.lines() {
        let finding: Value = serde_json::from_str(line).unwrap();
        assert_eq!((finding["table"].as_str(), finding["id"].as_str()), (Some("database"), None));
    }
    assert!(json.err.contains(&format!("error: {} finding", json.out.lines().count())), "{json:?}");
}

/// SQLite would drop all that is behind the flipped bit, without a word.
#[test]
fn a_damaged_write_ahead_log_is_a_finding_and_nothing_starts_on_it() {
    let mut server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    assert_eq!([buyer.ask(1).status, buyer.ask(1).status], [201; 2]);
    server.kill();
    let log = format!("{}-wal", server.ready("database").strip_prefix("sqlite://").unwrap());
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[1_000] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let found = server.operate(&["check"]).code(1);
    assert!(found.out.starts_with("database: found ") && found.out.lines().count() == 1, "{found:?}");
    assert!(found.out.contains(&format!("the write-ahead log {log} is damaged: its frame 1 ")), "{found:?}");
    for command in [&["serve"][..], &["migrate"], &["config", "check"], &["key", "list"]] {
        let refused = server.operate(command).code(1);
        assert!(refused.err.contains("is damaged: its frame 1 "), "{command:?}: {refused:?}");
    }
    assert!(std::fs::read(&log).unwrap() == bytes, "the log is left as it was");
}

#[test]
fn the_exit_code_reports_health() {
    let mut server = TestServer::start();
    let url = server.ready("ops_url").to_owned();
    let ask = |form: &[&str]| {
        let mut command = Command::new(binary("mandate-server"));
        Ran::from(command.env_clear().args(["healthcheck", "--url", &url]).args(form).output().unwrap())
    };
    let well = ask(&[]).code(0);
    assert_eq!((well.out.as_str(), well.err.as_str()), ("", ""));
    assert_eq!(ask(&["--json"]).code(0).json(), json!({ "ready": true, "url": url }));
    server.kill();
    assert!(ask(&[]).code(1).err.contains("/readyz does not answer: Connection refused"));
    let report = ask(&["--json"]).code(1).json();
    assert_eq!((&report["ready"], &report["url"]), (&json!(false), &json!(url)));
    assert!(report["problem"].as_str().unwrap().contains("does not answer"), "{report}");
}

#[test]
fn settings_are_shown_with_their_sources_and_without_the_master_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.toml");
    std::fs::write(&file, "review_expiry_seconds = 60\nlog_format = \"json\"").unwrap();
    let print = |form: &[&str]| {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().env("MANDATE_MASTER_KEY", "ab".repeat(32)).env("MANDATE_LOG_LEVEL", "warn");
        command.args(["config", "print", "--log-format", "text", "--config"]).arg(&file).args(form);
        Ran::from(command.output().unwrap()).code(0).out
    };
    let shown: Value = serde_json::from_str(&print(&["--json"])).unwrap();
    let setting = |name: &str| {
        let found = shown.as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
        (found["value"].clone(), found["source"].as_str().unwrap().to_owned())
    };
    assert_eq!(setting("review_expiry_seconds"), (60.into(), format!("file {}", file.display())));
    assert_eq!(setting("log_level"), ("warn".into(), "environment variable MANDATE_LOG_LEVEL".to_owned()));
    assert_eq!(setting("log_format"), ("text".into(), "flag --log-format".to_owned()));
    assert_eq!(setting("settlement"), ("local".into(), "default".to_owned()));
    assert_eq!(setting("base_url"), (Value::Null, "not set".to_owned()));
    assert_eq!(setting("master_key").0, "(hidden)");
    for form in [&[][..], &["--toml"], &["--json"]] {
        assert!(!print(form).contains("abab"));
    }
    // What is printed as a file is one, and says the same.
    let again = folder.path().join("again.toml");
    std::fs::write(&again, print(&["--toml"])).unwrap();
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().args(["config", "print", "--json", "--config"]).arg(&again);
    let same: Value = serde_json::from_str(&Ran::from(command.output().unwrap()).code(0).out).unwrap();
    let values = |of: &Value| {
        let settings = of.as_array().unwrap().iter().filter(|setting| setting["name"] != "master_key");
        settings.map(|setting| setting["value"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(values(&same), values(&shown));
    let mut command = Command::new(binary("mandate-server"));
    let refused = Ran::from(command.env_clear().args(["config", "check"]).output().unwrap()).code(2);
    assert!(refused.err.contains("MANDATE_MASTER_KEY"), "{refused:?}");
}

#[test]
fn a_configuration_can_be_used_when_serve_would_use_it() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().unwrap();
    let (key, empty) = (folder.path().join("master.key"), folder.path().join("empty.pem"));
    std::fs::write(&key, "0f".repeat(32)).unwrap();
    std::fs::write(&empty, "").unwrap();
    let check = |variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = server.operator(&[&["config", "check"], flags].concat());
        Ran::from(command.envs(variables.iter().copied()).output().unwrap())
    };
    let well = check(&[], &[]).code(0);
    assert_eq!((well.out.as_str(), well.err.as_str()), ("the configuration can be used\n", ""));
    assert_eq!(check(&[], &["--json"]).code(0).json(), json!({ "usable": true, "warnings": [] }));
    let warned = check(&[("MANDATE_DATABSE", "x")], &["--json"]).code(0).json();
    let warning = r#"this variable is not read; is the nearest one meant? name="MANDATE_DATABSE" nearest="MANDATE_DATABASE""#;
    assert_eq!(warned, json!({ "usable": true, "warnings": [warning] }));
    let warned = check(&[("MANDATE_DATABSE", "x")], &[]).code(0);
    assert!(warned.err.contains("MANDATE_DATABSE") && warned.err.contains("is not read"), "{warned:?}");

    let other = [("MANDATE_MASTER_KEY", ""), ("MANDATE_MASTER_KEY_FILE", key.to_str().unwrap())];
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let closed = check(&other, &["--json"]).code(1);
    assert!(closed.err.contains("can be read by others"), "{closed:?}");
    let report = closed.json();
    assert!(report["problem"].as_str().unwrap().contains("does not open under the master key"), "{report}");
    assert!(report["warnings"][0].as_str().unwrap().contains("can be read by others"), "{report}");
    assert_eq!(report["usable"], false);
    let absent = format!("sqlite://{}", folder.path().join("new.db").display());
    assert_eq!(check(&other, &["--database", &absent]).code(0).out, well.out);
    assert!(!folder.path().join("new.db").exists(), "to look makes nothing");

    let empty = empty.to_str().unwrap();
    for listener in ["--tls", "--public-tls"] {
        let flags =
            [&format!("{listener}-certificate"), empty, &format!("{listener}-key"), key.to_str().unwrap()];
        let refused = check(&[], &flags).code(1);
        assert!(refused.err.contains("empty.pem holds no certificate"), "{refused:?}");
    }
    check(&[], &["--api-address", "nowhere"]).code(2);

    let copy = folder.path().join("copy.db");
    server.operate(&["backup", "create", copy.to_str().unwrap()]).code(0);
    let database = format!("sqlite://{}", copy.display());
    let changed = |sql: &str| rusqlite::Connection::open(&copy).unwrap().execute(sql, []).unwrap();
    let on_copy = || check(&[], &["--database", &database]);
    assert_eq!(on_copy().code(0).out, well.out);
    assert_eq!(changed("UPDATE log_secret SET sealed = zeroblob(60)"), 1);
    let refused = on_copy().code(1);
    assert!(refused.err.contains("the secret of the public logs in sqlite://"), "{refused:?}");
    assert_eq!(changed("DELETE FROM log_secret"), 1);
    let refused = on_copy().code(1);
    assert!(refused.err.contains("log_secret has no row"), "{refused:?}");
}

#[test]
fn a_database_is_migrated_when_it_is_said_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", folder.path().join("m.db").display());
    let migrate = |args: &[&str]| {
        let mut command = Command::new(binary("mandate-server"));
        command.env_clear().args(["migrate", "--database", &database]).args(args);
        Ran::from(command.output().unwrap()).code(0).out
    };
    let dry = migrate(&["--dry-run"]);
    assert!(dry.starts_with("schema 0, newest ") && dry.contains("\nwould apply 1: schema\n"), "{dry}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert!(migrate(&[]).contains("\napplied 1: schema\n"));
    let there: Value = serde_json::from_str(&migrate(&["--json"])).unwrap();
    assert_eq!((&there["current"], &there["changes"]), (&there["newest"], &json!([])));
}
