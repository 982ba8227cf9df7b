//! The order of the sources: what each part must not name, one purpose a file, and files of a size to be read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MAX_LINES: usize = 450;
const TOP_LEVEL: [&str; 9] = [
    "Cargo.lock",
    "Cargo.toml",
    "README.md",
    "docs",
    "examples",
    "mandate-cli",
    "mandate-core",
    "mandate-server",
    "tests",
];

/// What the code under a path must not name, but for the files excepted.
struct Rule {
    path: &'static str,
    never: &'static [&'static str],
    except: &'static [&'static str],
}

const SQL: [&str; 4] = ["SELECT ", "INSERT INTO", "DELETE FROM", "UPDATE "];
const TIME_AND_RANDOMNESS: [&str; 2] = ["SystemTime", "getrandom"];
const ENVIRONMENT: [&str; 3] = ["env::var", "env::vars", "env::set_var"];

const RULES: &[Rule] = &[
    // No clock, no randomness, no I/O, no async.
    Rule { path: "mandate-core/src", never: &TIME_AND_RANDOMNESS, except: &[] },
    Rule {
        path: "mandate-core/src",
        never: &[
            "std::fs",
            "std::net",
            "std::env",
            "std::process",
            "std::io",
            "Instant::now",
            "tokio",
            "async fn",
            "async move",
            ".await",
            "println!",
            "eprintln!",
        ],
        except: &[],
    },
    // But for the backend that draws a number for each signature.
    Rule { path: "mandate-core/src", never: &["rand::"], except: &["es256/aws_lc_rs.rs"] },
    // Which part of the server may import which is in `layers`. Here: what else a part must not name.
    Rule {
        path: "mandate-server/src/service",
        never: &["axum", "hyper", "tokio", "async fn", "async move", ".await", "rusqlite", "sqlite"],
        except: &[],
    },
    Rule { path: "mandate-server/src/service", never: &SQL, except: &[] },
    Rule { path: "mandate-server/src/http", never: &["rusqlite", "sqlite", "store::sql"], except: &[] },
    Rule { path: "mandate-server/src/http", never: &SQL, except: &[] },
    Rule { path: "mandate-server/src/store", never: &["hyper", "evaluate("], except: &[] },
    // A backend is named in the store, and where an error of it becomes a fault.
    Rule { path: "mandate-server/src", never: &["rusqlite"], except: &["store/", "error.rs"] },
    // Environment, files and clock have one home each.
    Rule { path: "mandate-server/src", never: &ENVIRONMENT, except: &["config.rs"] },
    Rule {
        path: "mandate-server/src",
        never: &["std::fs"],
        except: &[
            "admin/backup/file.rs",
            "admin/manual.rs",
            "admin/notice.rs",
            "admin/public_log/files.rs",
            "admin/retention/file.rs",
            "config.rs",
            "config/master.rs",
            "dev/state.rs",
            "http/serve/tls.rs",
            "metrics/process.rs",
            "service/public_log/remembered.rs",
            "store/sqlite/",
            "store/transfer.rs",
            "store/upkeep.rs",
            "worker/export.rs",
            "worker/export/shared.rs",
        ],
    },
    Rule { path: "mandate-server/src", never: &TIME_AND_RANDOMNESS, except: &["clock.rs"] },
    Rule { path: "mandate-cli/src", never: &ENVIRONMENT, except: &["environment.rs"] },
    Rule { path: "mandate-cli/src", never: &TIME_AND_RANDOMNESS, except: &["environment.rs"] },
    // Verifying needs no server.
    Rule { path: "mandate-cli", never: &["mandate_server", "mandate-server\""], except: &["tests/"] },
    Rule { path: "mandate-core", never: &["mandate_server", "mandate_cli"], except: &[] },
];

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All Rust files below a folder of the workspace, by their path from its root.
pub(crate) fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // Cargo's output, if it was run in the workspace of the benchmarks.
                folders.extend((!path.ends_with("target")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

/// The lines of code, numbered: no comments, and nothing of the tests, which are last in their file or in one of their own.
/// Where a module of tests is only named, the code behind it counts.
pub(crate) fn code(path: &Path) -> Vec<(usize, String)> {
    let of_tests = path
        .iter()
        .any(|part| part == "tests.rs" || part == "tests" || part == "vectors.rs" || part == "vectors");
    if of_tests {
        return Vec::new();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let whole: Vec<_> = text.lines().collect();
    let begins_tests = |at: usize| {
        let mut item = whole[at..].iter().skip_while(|line| line.starts_with("#["));
        whole[at] == "#[cfg(test)]" && item.next().is_some_and(|line| line.ends_with('{'))
    };
    let last = (0..whole.len()).find(|&at| begins_tests(at)).unwrap_or(whole.len());
    let lines = whole[..last].iter().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, (*line).to_owned()))
        .collect()
}

#[test]
fn no_part_names_what_it_must_not() {
    let mut breaches = Vec::new();
    for rule in RULES {
        for path in sources(rule.path) {
            let name = path.strip_prefix(root().join(rule.path)).unwrap().to_str().unwrap();
            if rule
                .except
                .iter()
                .any(|excepted| name == *excepted || excepted.ends_with('/') && name.starts_with(excepted))
            {
                continue;
            }
            for (at, line) in code(&path) {
                for never in rule.never.iter().filter(|never| line.contains(**never)) {
                    breaches.push(format!("{}/{name}:{at} names {never}: {}", rule.path, line.trim()));
                }
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

/// The literals of text in lines of code.
fn literals(code: &str) -> Vec<String> {
    let code = code.replace("'\"'", "");
    let (mut found, mut chars) = (Vec::new(), code.chars());
    while chars.by_ref().any(|char| char == '"') {
        let mut literal = String::new();
        while let Some(char) = chars.next().filter(|char| *char != '"') {
            literal.push(char);
            if char == '\\' {
                literal.extend(chars.next());
            }
        }
        found.push(literal);
    }
    found
}

/// A statement is found in a database's own statistics by the name in its text.
#[test]
fn each_statement_has_a_name_of_its_own() {
    let (mut names, mut breaches) = (BTreeSet::new(), Vec::new());
    for path in sources("mandate-server/src/store") {
        let code: String = code(&path).into_iter().map(|(_, line)| line + "\n").collect();
        for literal in literals(&code).iter().map(|literal| literal.trim_start()) {
            // Of a text of several statements, any may be the one that is looked for.
            let begins = |verb: &&str| {
                let begins = |one: &str| one.trim_start().starts_with(&format!("{} ", verb.trim_end()));
                literal.split(';').any(begins) && !literal.contains("/* ")
            };
            if SQL.iter().chain(&["WITH", "TRUNCATE"]).any(begins) {
                breaches.push(format!("{} has a statement without a name: {literal}", path.display()));
            }
            let name =
                literal.strip_prefix("/* ").and_then(|text| text.split_once(" */")).map(|(name, _)| name);
            breaches.extend(
                name.filter(|name| !names.insert((*name).to_owned()))
                    .map(|name| format!("{} has a second statement of the name {name}", path.display())),
            );
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
    assert!(names.len() > 200, "{} names were found", names.len());
}

#[test]
fn the_command_line_depends_on_no_server() {
    for package in ["mandate-cli", "mandate-core"] {
        let manifest = std::fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        assert!(!manifest.contains("mandate-server"), "{package} depends on the server");
    }
}

#[test]
fn each_file_says_what_it_is_for_and_can_be_read_in_one_sitting() {
    let mut breaches = Vec::new();
    for folder in
        TOP_LEVEL.iter().filter(|name| name.starts_with("mandate-") || ["tests", "examples"].contains(name))
    {
        for path in sources(folder) {
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.strip_prefix(root()).unwrap().display();
            if !text.starts_with("//! ") {
                breaches.push(format!("{name} does not open with what it is for"));
            }
            let lines = text.lines().count();
            if lines > MAX_LINES {
                breaches.push(format!("{name} has {lines} lines, more than {MAX_LINES}"));
            }
        }
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

#[test]
fn the_top_level_is_fixed() {
    let entries =
        std::fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let ignored = |name: &String| name.starts_with('.') || name == "target";
    let beyond: Vec<_> =
        entries.filter(|name| !ignored(name) && !TOP_LEVEL.contains(&name.as_str())).collect();
    assert!(beyond.is_empty(), "{beyond:?}");
}

/// The tests of the workspace as `file::test`; what is in `tests.rs` or `mod.rs` goes by its folder.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in TOP_LEVEL.iter().filter(|name| name.starts_with("mandate-") || **name == "tests") {
        for path in sources(folder) {
            let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
            let file = match stem(&path).as_str() {
                "tests" | "mod" => stem(path.parent().unwrap()),
                name => name.to_owned(),
            };
            let text = std::fs::read_to_string(&path).unwrap();
            let mut lines = text.lines().map(str::trim);
            while let Some(line) = lines.next() {
                if line.starts_with("on_both! {") {
                    let cases = lines.by_ref().take_while(|line| *line != "}");
                    found.extend(cases.map(|case| format!("{file}::{}", case.trim_end_matches(','))));
                } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    let function = lines.by_ref().find_map(|line| line.split_once("fn ")).unwrap().1;
                    found.insert(format!("{file}::{}", function.split('(').next().unwrap()));
                }
            }
        }
    }
    found
}

#[test]
fn every_rule_names_tests_that_are_there() {
    let tests = tests();
    let page = std::fs::read_to_string(root().join("docs/behaviour.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Rule |"));
    let (mut rules, mut breaches) = (0, Vec::new());
    for row in rows {
        let held = row.trim_end_matches(" |").rsplit_once(" | ").unwrap().1;
        let there = |name: &str| match name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) {
            Some(path) if path.contains('/') => root().join(path).is_file(),
            Some(name) => tests.contains(name),
            None => false,
        };
        breaches.extend(held.split(", ").filter(|name| !there(name)).map(|name| format!("{name}: {row}")));
        rules += 1;
    }
    assert!(
        breaches.is_empty(),
        "docs/behaviour.md names tests that are not there:\n{}",
        breaches.join("\n")
    );
    assert!(rules > 80, "{rules} rules were found");
}

/// Files of tests that one database alone has; the roots of the tests say why.
const ON_ONE_DATABASE: [(&str, &[&str]); 2] = [
    (
        "http",
        &[
            "analysts",
            "bodies",
            "clocks",
            "crowded",
            "input",
            "locks",
            "losses",
            "partitions",
            "pooler",
            "published",
            "rates",
            "replicas",
            "roles",
            "standby",
            "stops",
            "tls",
            "trace",
            "traces",
            "transfer",
            "unread",
        ],
    ),
    (
        "service",
        &[
            "backups",
            "closing_beside",
            "costs",
            "counts",
            "damage",
            "fan_out",
            "files",
            "flips",
            "log_lease",
            "lost",
            "metered",
            "order",
            "partitions",
            "shared_jobs",
            "states",
            "uncounted",
        ],
    ),
];

#[test]
fn what_is_tested_on_one_database_is_tested_on_the_other() {
    for (suite, excepted) in ON_ONE_DATABASE {
        let [sqlite, postgres] = ["main.rs", "postgres.rs"].map(|name| {
            let path = root().join("mandate-server/tests").join(suite).join(name);
            let text = std::fs::read_to_string(path).unwrap();
            let files = text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
            files.map(str::to_owned).collect::<BTreeSet<_>>()
        });
        let apart: Vec<_> = sqlite.symmetric_difference(&postgres).collect();
        assert_eq!(apart, excepted, "{suite}");
    }
}

/// Pages that are read in one sitting: how many lines each may have.
const SHORT_PAGES: [(&str, usize); 2] = [("docs/architecture.md", 150), ("docs/performance.md", 150)];
/// How long a line of docs/architecture.md may be, in characters: it is read in an editor, too.
const MAX_LINE: usize = 120;

#[test]
fn short_pages_stay_short() {
    for (page, max) in SHORT_PAGES {
        let lines = std::fs::read_to_string(root().join(page)).unwrap().lines().count();
        assert!(lines <= max, "{page} has {lines} lines, more than {max}");
    }
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let long: Vec<_> = page.lines().filter(|line| line.chars().count() > MAX_LINE).collect();
    assert!(long.is_empty(), "docs/architecture.md has lines over {MAX_LINE}:\n{}", long.join("\n"));
}

/// How many sentences a rule has. What is in backticks is one word.
fn sentences(rule: &str) -> usize {
    let prose: String = rule.split('`').step_by(2).collect::<Vec<_>>().join("x");
    let ends = |word: &&str| word.ends_with(['.', '?', '!']);
    let words: Vec<_> = prose.split_whitespace().collect();
    words.iter().copied().filter(ends).count() + usize::from(!words.last().is_some_and(ends))
}

#[test]
fn a_rule_has_at_most_three_sentences() {
    assert_eq!(["One.", "One. `a. b`", "One. Two. Three", "1.5 `x.` is one"].map(sentences), [1, 2, 3, 1]);
    let page = std::fs::read_to_string(root().join("docs/behaviour.md")).unwrap();
    let rows =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.trim_end_matches(" |").rsplit_once(" | "));
    let long: Vec<_> = rows.map(|(rule, _)| rule).filter(|rule| sentences(rule) > 3).collect();
    assert!(long.is_empty(), "rules of more than three sentences:\n{}", long.join("\n"));
}

/// Fewer words are no sentence of their own.
const WORDS: usize = 6;

/// The headings of a page, and its sentences outside of code, however their lines are broken. Of tables, only rules.
fn says(page: &str, has_rules: bool) -> Vec<String> {
    let (mut blocks, mut is_code) = (Vec::new(), false);
    for line in page.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if is_code
            || is_fence
            || line.is_empty()
            || ["- ", "| ", "#"].iter().any(|mark| line.starts_with(mark))
        {
            blocks.push(Vec::new());
        }
        let is_said = !is_code && !is_fence && (has_rules || !line.starts_with('|'));
        if let Some(block) = blocks.last_mut().filter(|_| is_said) {
            block.extend(line.split_whitespace());
        }
    }
    let blocks = blocks.into_iter().map(|block| block.join(" "));
    let (headings, prose): (Vec<_>, Vec<_>) = blocks.partition(|block| block.starts_with("## "));
    let sentences = prose.iter().flat_map(|block| block.split(". ").flat_map(|part| part.split(" | ")));
    let sentences = sentences.map(|sentence| sentence.trim_matches([' ', '.', '|', '-', '*']));
    let sentences = sentences.filter(|sentence| sentence.split(' ').count() >= WORDS);
    headings.into_iter().chain(sentences.map(str::to_owned)).collect()
}

/// What a page says more than once.
fn said_again(page: &str, has_rules: bool) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    says(page, has_rules).into_iter().filter(|said| !seen.insert(said.clone())).collect()
}

/// A page that was put together from two holds things twice. The page of commands is made from their help.
#[test]
fn no_page_says_a_thing_twice() {
    let page = "## A\n\nIt is said twice, once\nin two lines. Here.\n\n- Here. It is said twice, once in two lines.\n\n## A\n";
    assert_eq!(said_again(page, false), ["## A", "It is said twice, once in two lines"]);
    let mut twice = Vec::new();
    for page in std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()) {
        if page.extension().is_none_or(|extension| extension != "md") || page.ends_with("cli.md") {
            continue;
        }
        let again = said_again(&std::fs::read_to_string(&page).unwrap(), page.ends_with("behaviour.md"));
        twice.extend(again.into_iter().map(|said| format!("{}: {said}", page.display())));
    }
    assert!(twice.is_empty(), "{}", twice.join("\n"));
}
