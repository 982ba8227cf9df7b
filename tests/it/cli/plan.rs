//! Mandates as code against a real server: the plan, what applying it does, and what drifts.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::Shell;
use crate::harness::{Agent, Organization, Ran, TestServer, binary, terms};

/// An organization with a directory of mandates.
struct Coded<'a> {
    shell: Shell<'a>,
    organization: &'a Organization,
    folder: tempfile::TempDir,
}

impl<'a> Coded<'a> {
    fn new(server: &'a TestServer, organization: &'a Organization) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("mandates")).unwrap();
        Self { shell: Shell::new(server, organization), organization, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes the file of an agent, with another limit for each payment.
    fn write(&self, agent: &str, per_transaction: u32) {
        let mut terms = terms(&format!("agt_{agent}"));
        terms["limits"]["per_transaction"] = json!(per_transaction);
        std::fs::write(self.path(&format!("mandates/{agent}.json")), terms.to_string()).unwrap();
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.command(args).output().unwrap().into()
    }

    /// The command in the folder that has the directory.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.shell.command(args);
        command.current_dir(self.folder.path());
        command
    }

    /// Plans into `plan.json`, and gives the plan.
    #[track_caller]
    fn plan(&self, more: &[&str]) -> Value {
        let args = [&["plan", "mandates", "--out", "plan.json", "--json"], more].concat();
        self.run(&args).code(0).json()
    }

    fn actions(plan: &Value) -> Vec<(String, String)> {
        let steps = plan["steps"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        steps.map(|step| (text(&step["agent"]), text(&step["action"]))).collect()
    }

    /// How many mandates were ever written for the agent, and the newest's limit and status.
    fn written(&self, agent: &str) -> (usize, u64, String) {
        let list = self.organization.client.get(&format!("/mandates?agent=agt_{agent}&limit=100")).json();
        let newest = &list["data"][0];
        (
            list["data"].as_array().unwrap().len(),
            newest["limits"]["per_transaction"].as_u64().unwrap(),
            newest["status"].as_str().unwrap().to_owned(),
        )
    }

    fn is_written(&self, agent: &str, mandates: usize, limit: u64, status: &str) {
        assert_eq!(self.written(agent), (mandates, limit, status.to_owned()), "{agent}");
    }
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(agent, action)| ((*agent).to_owned(), (*action).to_owned())).collect()
}

#[test]
fn a_plan_says_what_changes_in_words_and_in_money_and_apply_does_it() {
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    let buyer = organization.buyer("buyer");
    for (amount, verdict) in [(40, "allow"), (50, "allow"), (700, "deny_limit")] {
        assert_eq!(buyer.ask(amount).text("/verdict"), verdict);
    }
    for name in ["same", "wild"] {
        organization.buyer(name);
    }
    organization.agent("fresh");
    organization.agent("idle");
    coded.write("buyer", 1000);
    coded.write("same", 500);
    coded.write("fresh", 500);
    std::fs::write(coded.path("mandates/README.md"), "no mandate").unwrap();

    let shown = coded.run(&["plan", "mandates"]).code(0);
    for line in [
        "replace      agt_buyer  buyer.json  mnd_",
        "             limits.per_transaction: 500 -> 1000",
        "             last 30 days: 90 USD allowed; under this plan 90 USD",
        "               1 request that was deny_limit would be review",
        "create       agt_fresh  fresh.json  nothing was ever written for it",
        "             up to 500 USD a payment, 2000 USD a month, for software, cloud; above 200 role:head-of-it decides; until 2099-12-31",
        "             last 30 days: no request",
        "unmanaged    agt_wild  mnd_",
        "unchanged    1 agent: agt_same",
        "1 TO CREATE, 1 TO REPLACE, 0 TO REVOKE; 1 unchanged, 1 unmanaged",
        "plan         sha256:",
    ] {
        assert!(shown.out.lines().any(|shown| shown.starts_with(line)), "{line} is not in {}", shown.out);
    }
    let plan = coded.plan(&[]);
    let expected = [
        ("agt_fresh", "create"),
        ("agt_buyer", "replace"),
        ("agt_wild", "unmanaged"),
        ("agt_same", "unchanged"),
    ];
    assert_eq!(Coded::actions(&plan), pairs(&expected));
    let again = coded.plan(&[]);
    assert_eq!(plan["hash"], again["hash"], "the same plan has the same hash");
    assert!(shown.out.contains(plan["hash"].as_str().unwrap()));

    // The money of an export is the money that is fetched.
    let export = coded.run(&["export", "create", "--jq", ".export"]).code(0).out;
    coded.run(&["export", "download", export.trim(), "-o", "all.ndjson"]).code(0);
    let of_export = coded.plan(&["--decisions", "all.ndjson"]);
    assert_eq!(plan["steps"], of_export["steps"]);

    coded.run(&["apply", "plan.json", "--hash", "sha256:00"]).code(30).says("the plan's hash is sha256:");
    let applied = coded.run(&["apply", "plan.json", "--hash", plan["hash"].as_str().unwrap()]).code(0);
    assert!(applied.out.ends_with("APPLIED: 2 of 2\n"), "{applied:?}");
    coded.is_written("buyer", 2, 1000, "active");
    coded.is_written("fresh", 1, 500, "active");
    coded.is_written("same", 1, 500, "active");
    coded.is_written("wild", 1, 500, "active");
    // Once more it does nothing, and says so.
    let once_more = coded.run(&["apply", "plan.json"]).code(0);
    assert_eq!(once_more.out.matches("(was done before)").count(), 2, "{once_more:?}");
    coded.is_written("buyer", 2, 1000, "active");
    assert!(
        coded.run(&["plan", "mandates"]).code(0).out.contains("NOTHING TO CHANGE: 3 unchanged, 1 unmanaged")
    );
}

#[test]
fn agents_without_a_file_are_revoked_only_when_that_is_asked_for() {
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    for name in ["a", "b", "c"] {
        organization.buyer(name);
    }
    // An empty directory, and one that is not there.
    assert_eq!(
        Coded::actions(&coded.plan(&[])),
        pairs(&[("agt_a", "unmanaged"), ("agt_b", "unmanaged"), ("agt_c", "unmanaged")])
    );
    coded.run(&["apply", "plan.json"]).code(0).shows("APPLIED: 0 of 0");
    coded.run(&["plan", "mandates", "--revoke-missing"]).code(2).says("is it the right directory?");
    coded.run(&["plan", "nowhere"]).code(3).says("the directory nowhere cannot be read");
    coded.write("a", 500);
    let shown = coded.run(&["plan", "mandates", "--revoke-missing", "--out", "plan.json"]).code(0);
    assert!(shown.out.contains("revoke       2 agents without a file: agt_b, agt_c"), "{shown:?}");
    coded.run(&["apply", "plan.json", "--revoke-missing"]).code(2).says("what is revoked is in the plan");
    coded.run(&["apply", "plan.json"]).code(0).shows("revoked      agt_b  mnd_");
    for (agent, status) in [("a", "active"), ("b", "revoked"), ("c", "revoked")] {
        coded.is_written(agent, 1, 500, status);
    }
    coded.run(&["apply", "plan.json"]).code(0).shows("APPLIED: 2 of 2");
    // What was revoked, in an emergency perhaps, is not written again without a word.
    organization.client.act(&format!(
        "/mandates/{}/revoke",
        coded.run(&["agent", "show", "a", "--jq", ".mandate"]).out.trim()
    ));
    let shown = coded.run(&["plan", "mandates"]).code(0);
    assert!(shown.out.contains("create       agt_a  a.json  mnd_"), "{shown:?}");
    assert!(shown.out.contains("status: revoked -> active"), "{shown:?}");
}

#[test]
fn a_plan_that_no_longer_holds_is_refused_as_a_whole() {
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    for name in ["a", "b", "c", "d"] {
        organization.buyer(name);
        coded.write(name, 600);
    }
    std::fs::remove_file(coded.path("mandates/d.json")).unwrap();
    coded.write("c", 500);
    let refused = |why: &str| {
        let refused = coded.run(&["apply", "plan.json"]).code(34).says(why).says("done            nothing");
        for agent in ["a", "b"] {
            coded.is_written(agent, 1, 500, "active");
        }
        refused
    };
    // An agent that is unmanaged, and one that is unchanged.
    for agent in ["agt_d", "agt_c"] {
        coded.plan(&[]);
        organization.mandate(&terms(agent));
        refused(&format!("{agent}: mnd_"));
    }
    // A stop is not undone by a plan from before it.
    coded.plan(&[]);
    let stopped = coded.run(&["agent", "show", "b", "--jq", ".mandate"]).code(0).out;
    organization.client.act(&format!("/mandates/{}/revoke", stopped.trim()));
    let refused =
        coded.run(&["apply", "plan.json"]).code(34).says("active in the plan; now mnd_").says(", revoked");
    assert_eq!(refused.out.matches("written").count(), 0);
    coded.is_written("a", 1, 500, "active");

    // Another plan in the same file, and another environment.
    let plan = coded.plan(&[]);
    let changed = plan.to_string().replace("600", "6000");
    std::fs::write(coded.path("plan.json"), changed).unwrap();
    coded.run(&["apply", "plan.json"]).code(30).says("it was changed: its hash is another");
    std::fs::write(coded.path("plan.json"), "{}").unwrap();
    coded.run(&["apply", "plan.json"]).code(30).says("plan.json is no plan");
    coded.plan(&[]);
    let mut live = coded.command(&["apply", "plan.json", "--yes"]);
    let live: Ran = live.env("MANDATE_ORGANIZATION_KEY", organization.live.key()).output().unwrap().into();
    live.code(30).says("(sandbox)").says("(live)");
    coded.run(&["apply", "mandates"]).code(2).says("a person at a terminal");
}

/// Killed at many moments, and two at once: each agent gets one mandate more.
#[test]
fn what_is_interrupted_is_ended_by_the_next_run_and_two_at_once_write_once() {
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    let names: Vec<String> = (0..6).map(|number| format!("agent{number}")).collect();
    for name in &names {
        organization.buyer(name);
    }
    for (round, limit) in (1..=6_u32).map(|round| (round, 500 + round)) {
        for name in &names {
            coded.write(name, limit);
        }
        coded.plan(&[]);
        let mut command = coded.command(&["apply", "plan.json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        if round % 2 == 0 {
            let both = [command.spawn().unwrap(), command.spawn().unwrap()];
            for child in both {
                let ran: Ran = child.wait_with_output().unwrap().into();
                ran.code(0).shows("APPLIED: 6 of 6");
            }
        } else {
            for moment in 1..=4 {
                let mut killed = command.spawn().unwrap();
                std::thread::sleep(Duration::from_millis(u64::from(round) * 12 * moment));
                killed.kill().unwrap();
                killed.wait().unwrap();
            }
            coded.run(&["apply", "plan.json"]).code(0).shows("APPLIED: 6 of 6");
        }
        for name in &names {
            coded.is_written(name, usize::try_from(round).unwrap() + 1, limit.into(), "active");
        }
    }
}

#[test]
fn drift_has_a_code_of_its_own() {
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    for name in ["a", "b"] {
        organization.buyer(name);
        coded.write(name, 500);
    }
    coded.run(&["drift", "mandates"]).code(0).shows("NO DRIFT: 2 agents");
    organization.buyer("other");
    coded.run(&["drift", "mandates"]).code(27).shows("unmanaged    agt_other").shows("DRIFT: 1 of 3 agents");
    coded.run(&["drift", "mandates", "--allow-unmanaged"]).code(0);
    let mut wider = terms("agt_a");
    wider["limits"]["per_month"] = json!(9000);
    organization.mandate(&wider);
    let drifted = coded.run(&["drift", "mandates", "--allow-unmanaged"]).code(27);
    assert!(drifted.out.contains("limits.per_month: 9000 -> 2000"), "{drifted:?}");
    coded.write("later", 500);
    let json = coded.run(&["drift", "mandates", "--json"]).code(27).json();
    let expected = [("agt_a", "replace"), ("agt_later", "unregistered"), ("agt_other", "unmanaged")];
    assert_eq!((Coded::actions(&json), &json["drift"]), (pairs(&expected), &json!(true)));
    coded
        .run(&["plan", "mandates"])
        .code(33)
        .says("agt_later (later.json)")
        .says("mandate agent create later");
}

#[test]
fn files_that_are_no_mandates_are_all_named() {
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    organization.buyer("a");
    coded.write("a", 500);
    std::fs::copy(coded.path("mandates/a.json"), coded.path("mandates/copy.json")).unwrap();
    std::fs::write(coded.path("mandates/b.yaml"), "agent: agt_b").unwrap();
    std::fs::write(coded.path("mandates/c.json"), "{\"agent\": \"agt_c\"}").unwrap();
    let refused = coded.run(&["plan", "mandates"]).code(30).says("3 files in mandates are refused");
    for why in ["copy.json: agt_a has a mandate in a.json already", "b.yaml: this is YAML", "c.json: "] {
        assert!(refused.err.contains(why), "{why}: {refused:?}");
    }
    // A name of a mandate with nothing to read behind it would leave its agent without a file.
    std::os::unix::fs::symlink("gone", coded.path("mandates/d.json")).unwrap();
    std::fs::create_dir(coded.path("mandates/e.json")).unwrap();
    std::fs::write(coded.path("mandates/f.JSON"), "{\n  \"agent\": \"agt_f\",\n  \"limts\": {}\n}").unwrap();
    std::fs::write(coded.path("mandates/g.json"), [0xff]).unwrap();
    let refused = coded.run(&["plan", "mandates", "--revoke-missing"]).code(30);
    for why in
        ["7 files in mandates are refused", "d.json: this is no file", "e.json: this is no file", "g.json: "]
    {
        assert!(refused.err.contains(why), "{why}: {refused:?}");
    }
    assert!(refused.err.contains("f.JSON:"), "{refused:?}");
    for name in ["d.json", "f.JSON", "g.json"] {
        std::fs::remove_file(coded.path(&format!("mandates/{name}"))).unwrap();
    }
    std::fs::remove_dir(coded.path("mandates/e.json")).unwrap();
    std::fs::remove_file(coded.path("mandates/copy.json")).unwrap();
    std::fs::remove_file(coded.path("mandates/b.yaml")).unwrap();
    let mut ended = terms("agt_c");
    ended["expires"] = json!("2020-01-31");
    std::fs::write(coded.path("mandates/c.json"), ended.to_string()).unwrap();
    coded.run(&["plan", "mandates"]).code(30).says("the mandate in c.json is refused: expires");
}

#[test]
fn the_commands_of_the_page_run_as_they_are_written() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/mandates-as-code.md");
    let page = std::fs::read_to_string(page).unwrap();
    let commands: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("$ mandate ")).collect();
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    organization.buyer("purchaser");
    organization.agent("travel");
    coded.write("purchaser", 800);
    coded.write("travel", 500);
    let run = |command: &str| coded.run(&command.split(' ').collect::<Vec<_>>()).code(0).out;
    let [plan, apply, drift] = commands[..] else { panic!("{commands:?}") };
    assert!(run(plan).contains("1 TO CREATE, 1 TO REPLACE, 0 TO REVOKE"));
    assert!(run(apply).ends_with("APPLIED: 2 of 2\n"));
    assert!(!run(drift).is_empty());
}

/// The scripts of a job of the workflow, in their order.
fn scripts(workflow: &str, job: &str) -> Vec<String> {
    let (_, after) = workflow.split_once(&format!("\n  {job}:\n")).unwrap();
    let mut scripts: Vec<String> = Vec::new();
    let mut inside = false;
    for line in after.lines().take_while(|line| line.starts_with("   ") || line.is_empty()) {
        if line.trim() == "run: |" {
            scripts.push(String::new());
            inside = true;
        } else if let Some(command) = line.strip_prefix("          ").filter(|_| inside) {
            scripts.last_mut().unwrap().extend([command, "\n"]);
        } else {
            inside = false;
        }
    }
    scripts
}

/// A forge's command, which keeps comments and gives the artifact of the run that it names.
const FORGE: &str = r#"#!/bin/sh
case "$1 $2" in
  "pr comment") cp "$5" "$FORGE/comment-$3" ;;
  "api repos/acme/mandates/commits/merged/pulls") echo head ;;
  "run list") [ "$8" = head ] && echo 7 ;;
  "run download") [ "$3" = 7 ] && cp "$FORGE/plan.json" . ;;
  *) exit 1 ;;
esac
"#;

#[test]
fn the_example_workflow_shows_the_plan_and_applies_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let server = TestServer::start();
    let organization = server.demo();
    let coded = Coded::new(&server, &organization);
    let agent: Agent = organization.buyer("buyer");
    assert_eq!(agent.ask(600).text("/verdict"), "deny_limit");
    coded.write("buyer", 800);
    let forge = tempfile::tempdir().unwrap();
    let gh = forge.path().join("gh");
    std::fs::write(&gh, FORGE).unwrap();
    std::fs::set_permissions(&gh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("examples/mandates-as-code/workflow.yml");
    let workflow = std::fs::read_to_string(file).unwrap();
    let run = |script: &str| -> Ran {
        let path = format!(
            "{}:{}:/usr/bin:/bin",
            forge.path().display(),
            binary("mandate").parent().unwrap().display()
        );
        let mut command = Command::new("bash");
        command.args(["-e", "-c", script]).env_clear().current_dir(coded.folder.path()).stdin(Stdio::null());
        command.env("PATH", path).env("FORGE", forge.path()).env("GH_REPO", "acme/mandates");
        command.env("PULL_REQUEST", "12").env("COMMIT", "merged");
        command.env("MANDATE_BASE_URL", server.ready("base_url"));
        command.env("MANDATE_ORGANIZATION_KEY", organization.client.key());
        command.output().unwrap().into()
    };
    for script in scripts(&workflow, "plan") {
        run(&script).code(0);
    }
    let comment = std::fs::read_to_string(forge.path().join("comment-12")).unwrap();
    assert!(comment.contains("1 request that was deny_limit would be review"), "{comment}");
    std::fs::rename(coded.path("plan.json"), forge.path().join("plan.json")).unwrap();
    let [drift] = &scripts(&workflow, "drift")[..] else { panic!() };
    run(drift).code(27);
    let apply = scripts(&workflow, "apply");
    assert_eq!(apply.len(), 2);
    for script in apply {
        run(&script).code(0);
    }
    coded.is_written("buyer", 2, 800, "active");
    run(drift).code(0);
    assert!(Path::new(&coded.path("plan.json")).exists());
}
