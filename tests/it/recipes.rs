//! The recipes of docs/verify.md: each is run as it is printed, on all vectors of tokens and verdicts and on tokens of a real
//! server. The page's table says which tokens they let through that must be refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mandate_core::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Ran, TestServer};
use crate::strangers::{installed, run_with};
use crate::tidy::root;

const PAGE: &str = "docs/verify.md";
/// Where the functions of a recipe end.
const USE: &str = "Use it\n";
const MAX_LINES: usize = 60;
/// The table is behind this line, to the end of the page.
const TABLE: &str = "<!-- table -->\n";
/// Debian's package of golang-jwt.
const GOLANG_JWT: &str = "/usr/share/gocode/src/github.com/golang-jwt/jwt";

struct Recipe {
    library: &'static str,
    /// The language of its block in the page.
    block: &'static str,
    file: &'static str,
    driver: &'static str,
}

const RECIPES: [Recipe; 4] = [
    Recipe { library: "jose", block: "js", file: "verify.mjs", driver: "driver.js" },
    Recipe { library: "PyJWT", block: "python", file: "verify.py", driver: "driver.py" },
    Recipe { library: "ruby-jwt", block: "ruby", file: "verify.rb", driver: "driver.rb" },
    Recipe { library: "golang-jwt", block: "go", file: "main.go", driver: "driver.go" },
];

fn page() -> String {
    fs::read_to_string(root().join(PAGE)).unwrap()
}

impl Recipe {
    /// The program as the page has it.
    fn text(&self) -> String {
        let page = page();
        let begin = format!("\n```{}\n", self.block);
        let (_, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("{PAGE} has no {}", self.block));
        rest.split_once("\n```\n").unwrap().0.to_owned() + "\n"
    }

    /// A folder with the program, from which it finds its library.
    fn folder(&self, text: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(self.file), text).unwrap();
        match self.block {
            "js" => {
                let modules = folder.path().join("node_modules");
                std::os::unix::fs::symlink(installed("node_modules"), modules).unwrap();
            }
            "go" => {
                assert!(Path::new(GOLANG_JWT).is_dir(), "{GOLANG_JWT} is missing: tests/run installs it");
                let module = "github.com/golang-jwt/jwt/v4";
                let manifest = format!(
                    "module recipe\ngo 1.18\nrequire {module} v4.0.0\nreplace {module} => {GOLANG_JWT}\n"
                );
                fs::write(folder.path().join("go.mod"), manifest).unwrap();
            }
            _ => {}
        }
        folder
    }

    fn command(&self, folder: &Path) -> Command {
        let program: PathBuf = match self.block {
            "js" => "node".into(),
            "python" => installed("venv/bin/python"),
            "ruby" => "ruby".into(),
            _ => "go".into(),
        };
        let mut command = Command::new(program);
        command.current_dir(folder).env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
        match self.block {
            "go" => command.args(["run", "."]),
            _ => command.arg(self.file),
        };
        command
    }

    /// What its functions answer to each case: nothing, or why it is refused.
    fn answers(&self, cases: &[Value], keys: &Value) -> BTreeMap<String, Option<String>> {
        let text = self.text();
        let end = text.find(USE).unwrap_or_else(|| panic!("{} has no `Use it`", self.library));
        let functions = text[..end].trim_end().trim_end_matches(['/', '#']);
        let driver = fs::read_to_string(root().join("tests/recipes").join(self.driver)).unwrap();
        let folder = self.folder(&format!("{functions}\n{driver}"));
        // Each case has nonces of its own.
        let mut cases = cases.to_vec();
        for (number, order) in cases.iter_mut().filter_map(|case| case.get_mut("order")).enumerate() {
            let nonces = folder.path().join(format!("nonces-{number}"));
            fs::create_dir(&nonces).unwrap();
            order["nonces"] = nonces.to_str().unwrap().into();
        }
        let given = folder.path().join("cases.json");
        fs::write(&given, json!({"keys": keys, "cases": cases}).to_string()).unwrap();
        let ran = Ran::from(self.command(folder.path()).arg(given).output().unwrap()).code(0);
        serde_json::from_value(ran.json()).unwrap()
    }
}

/// The cases with the check that must fail in each, of the vectors that a recipe can answer.
fn cases() -> (Value, Vec<(Value, Option<String>)>) {
    let file = |name: &str| -> Value {
        let text = fs::read_to_string(root().join("mandate-core/vectors").join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (tokens, verdicts) = (file("tokens.json"), file("verdicts.json"));
    let check = |vector: &Value| vector["check"].as_str().map(str::to_owned);
    let mut cases = Vec::new();
    for vector in tokens["vectors"].as_array().unwrap() {
        cases.push((json!({"name": vector["name"], "token": vector["token"]}), check(vector)));
    }
    for vector in verdicts["vectors"].as_array().unwrap() {
        // A recipe knows no leeway and no mandate, compares every order, and takes no sandbox alone.
        let beyond = vector["leeway_seconds"] != 0
            || ["mandate", "not_compared"].contains(&vector["check"].as_str().unwrap_or_default())
            || vector["environment"] == "sandbox" && vector["check"] == "environment";
        if beyond {
            continue;
        }
        let text = |name: &str, other: &str| vector[name].as_str().unwrap_or(other).to_owned();
        let is_sandbox = vector["environment"] != "production" && vector["check"] != "environment";
        let now = Timestamp::parse(vector["now"].as_str().unwrap()).unwrap().millis();
        let mut order = json!({
            "issuer": text("issuer", "https://verdicts.example"), "amount": text("amount", "40.50"),
            "currency": text("currency", "USD"), "recipient": text("recipient", "vendor:acme"),
        });
        if is_sandbox {
            order["sandbox"] = "sandbox".into();
        }
        let seconds = serde_json::Number::from_f64(
            f64::from(i32::try_from(now / 1000).unwrap())
                + f64::from(i32::try_from(now % 1000).unwrap()) / 1000.0,
        );
        let name = format!("{} (verdict)", vector["name"].as_str().unwrap());
        cases.push((
            json!({"name": name, "token": vector["token"], "order": order, "now": seconds}),
            check(vector),
        ));
    }
    (verdicts["jwks"].clone(), cases)
}

/// The page's table: the tokens that must be refused and that a recipe accepts.
fn table() -> String {
    let (keys, cases) = cases();
    let given: Vec<_> = cases.iter().map(|(case, _)| case.clone()).collect();
    let answers = RECIPES.map(|recipe| recipe.answers(&given, &keys));
    let (mut rows, mut refused, mut passed) = (String::new(), 0, [0; 4]);
    for (case, check) in &cases {
        let name = case["name"].as_str().unwrap();
        let accepts = answers.each_ref().map(|answers| answers[name].is_none());
        let Some(check) = check else {
            assert_eq!(accepts, [true; 4], "{name} is valid: {:?}", answers.each_ref().map(|of| &of[name]));
            continue;
        };
        refused += 1;
        if accepts.contains(&true) {
            let marks = accepts.map(|accepts| if accepts { "accepts" } else { "" }).join(" | ");
            writeln!(rows, "| {name} | `{check}` | {marks} |").unwrap();
            for (count, accepts) in passed.iter_mut().zip(accepts) {
                *count += usize::from(accepts);
            }
        }
    }
    let libraries = RECIPES.map(|recipe| recipe.library).join(" | ");
    let counts = passed.map(|count| count.to_string()).join(" | ");
    format!(
        "{TABLE}\n| Of {refused} tokens that must be refused | The check | {libraries} |\n|---|---|---|---|---|---|\n{rows}\
         | Accepted in all | | {counts} |\n"
    )
}

/// With `MANDATE_WRITE_DOCS=1` the table is written instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "the caller of the tests decides whether to write")]
fn the_table_of_recipes_is_up_to_date() {
    let (page, table) = (page(), table());
    let (above, _) = page.split_once(TABLE).unwrap();
    let wanted = above.to_owned() + &table;
    if std::env::var("MANDATE_WRITE_DOCS").is_ok_and(|value| value == "1") {
        fs::write(root().join(PAGE), wanted).unwrap();
        return;
    }
    assert!(page == wanted, "{PAGE} differs: run this test with MANDATE_WRITE_DOCS=1\n{table}");
}

#[test]
fn each_recipe_accepts_a_real_verdict_once() {
    let server = TestServer::start();
    let buyer = server.demo().buyer("buyer");
    let issuer = server.ready("verdicts_url");
    for recipe in RECIPES {
        let token = buyer.ask(40).text("/verdict_token");
        let folder = recipe.folder(&recipe.text());
        fs::create_dir(folder.path().join("nonces")).unwrap();
        let run = |order: &[&str]| {
            let ran = run_with(recipe.command(folder.path()).arg(issuer).args(order), &token);
            (ran.out.trim() == "MATCHES THIS ORDER" && ran.code == Some(0), ran)
        };
        for wrong in [
            ["40", "USD", "vendor:acme", "nonces", ""],
            ["41", "USD", "vendor:acme", "nonces", "sandbox"],
            ["40", "JPY", "vendor:acme", "nonces", "sandbox"],
            ["40", "USD", "vendor:other", "nonces", "sandbox"],
        ] {
            let wrong: Vec<_> = wrong.into_iter().filter(|text| !text.is_empty()).collect();
            let (accepted, ran) = run(&wrong);
            assert!(!accepted && ran.code != Some(0), "{} {wrong:?}: {ran:?}", recipe.library);
        }
        let order = ["40.00", "USD", "vendor:acme", "nonces", "sandbox"];
        let (accepted, ran) = run(&order);
        assert!(accepted, "{}: {ran:?}", recipe.library);
        let (accepted, ran) = run(&order);
        assert!(!accepted && ran.code != Some(0), "{} accepts twice: {ran:?}", recipe.library);
    }
}

#[test]
fn a_recipe_is_short() {
    for recipe in RECIPES {
        let text = recipe.text();
        let mut is_import = false;
        let lines = text.lines().filter(|line| {
            let first = line.split([' ', '(']).next().unwrap();
            is_import |= *line == "import (";
            let counts = !is_import && !["", "import", "from", "require", "package"].contains(&first);
            is_import &= *line != ")";
            counts
        });
        let lines = lines.count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", recipe.library);
    }
}
