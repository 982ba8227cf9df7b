//! Layers and circles: which part of the server may import which, no large circle of files that import each other, and one
//! place on each database where a decision is written.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use crate::tidy::{code, root, sources};

/// What each part of the server may import. A part is a file or folder below `mandate-server/src`; `main.rs` may import all.
/// No part imports one above it, so that there is no circle of parts.
const LAYERS: &[(&str, &[&str])] = &[
    ("dev", &["app", "admin", "http", "service", "store", "model", "config", "clock", "error"]),
    (
        "app",
        &[
            "http",
            "worker",
            "settlement",
            "service",
            "store",
            "metrics",
            "model",
            "config",
            "traces",
            "clock",
            "error",
        ],
    ),
    // A certificate is checked as the listener reads it, and a last checkpoint read as the worker writes it.
    ("admin", &["http", "worker", "service", "store", "model", "logs", "config", "clock", "error"]),
    // An export is read from where the worker builds it.
    (
        "http",
        &[
            "worker",
            "settlement",
            "service",
            "store",
            "metrics",
            "model",
            "config",
            "traces",
            "clock",
            "error",
        ],
    ),
    (
        "worker",
        &["settlement", "service", "store", "metrics", "model", "traces", "outgoing", "clock", "error"],
    ),
    ("settlement", &["service", "store", "model", "config", "outgoing", "clock", "error"]),
    ("service", &["store", "model", "clock", "error"]),
    ("store", &["metrics", "model", "traces", "error"]),
    ("metrics", &["model", "error"]),
    ("logs", &["config"]),
    ("config", &["model", "traces"]),
    ("traces", &["outgoing", "error"]),
    ("outgoing", &["error"]),
    ("model", &["error"]),
    ("clock", &[]),
    ("error", &[]),
];

/// How many files may import each other in a circle. A module and its child modules do so by nature, and are left aside.
const LARGEST_CIRCLE: usize = 3;

/// How many imports a path is followed through. A name can be imported under itself.
const LONGEST_WAY: usize = 8;

/// The path of a module in its crate, without `crate`.
type Module = Vec<String>;

/// The words of a text of code: names, `::`, and signs. Comments are gone already, and literals of text are left out.
fn words(text: &str) -> Vec<String> {
    // A quotation mark between single ones begins no text.
    let text = text.replace("'\"'", "");
    let (mut words, mut chars) = (Vec::new(), text.chars().peekable());
    while let Some(char) = chars.next() {
        if char.is_alphanumeric() || char == '_' {
            let mut name = String::from(char);
            while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || *next == '_') {
                name.push(next);
            }
            words.push(name);
        } else if char == ':' && chars.next_if_eq(&':').is_some() {
            words.push("::".to_owned());
        } else if char == '"' {
            while let Some(char) = chars.next().filter(|char| *char != '"') {
                if char == '\\' {
                    chars.next();
                }
            }
        } else if !char.is_whitespace() {
            words.push(char.to_string());
        }
    }
    words
}

/// What a module names.
#[derive(Default)]
struct Names {
    /// The paths that it imports, each with the name that it has here.
    imports: Vec<(String, Module)>,
    /// The paths in the text of its code.
    paths: Vec<Module>,
}

/// The paths of one tree of a `use`, each behind `before`.
fn tree<'a>(
    words: &mut Peekable<impl Iterator<Item = &'a String>>,
    before: &[String],
    found: &mut Vec<(String, Module)>,
) {
    let (mut path, mut name) = (before.to_vec(), None);
    while let Some(word) = words.next_if(|word| !["}", ",", ";"].contains(&word.as_str())) {
        match word.as_str() {
            "{" => {
                while words.peek().is_some_and(|word| !["}", ";"].contains(&word.as_str())) {
                    tree(words, &path, found);
                    words.next_if(|word| *word == ",");
                }
                words.next();
                return;
            }
            "as" => name = words.next().cloned(),
            "self" if !path.is_empty() => {}
            "::" | "*" => {}
            name => path.push(name.to_owned()),
        }
    }
    let name = name.or_else(|| path.last().cloned());
    found.extend(name.map(|name| (name, path)));
}

/// What a text of code names.
fn named(text: &str) -> Names {
    let words = words(text);
    let (mut words, mut names) = (words.iter().peekable(), Names::default());
    while let Some(word) = words.next() {
        if word == "use" {
            tree(&mut words, &[], &mut names.imports);
            continue;
        }
        let mut path = vec![word.clone()];
        while words.next_if(|word| *word == "::").is_some() {
            path.extend(words.next().cloned());
        }
        // What follows `<…>::` is no name of this module.
        if path.len() > 1 && word != ">" {
            names.paths.push(path);
        }
    }
    names
}

/// The module of the crate that a path in `module` leads into, through at most `depth` imports of modules on its way; none
/// where it leads out of the crate.
fn target(module: &Module, path: &[String], names: &BTreeMap<Module, Names>, depth: usize) -> Option<Module> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let (mut at, mut rest) = match path.first()?.as_str() {
        "crate" => (Vec::new(), &path[1..]),
        "self" => (module.clone(), &path[1..]),
        "super" => (module[..module.len().saturating_sub(ups)].to_vec(), &path[ups..]),
        _ => (module.clone(), path),
    };
    let is_bare = rest.len() == path.len();
    while let Some(name) = rest.first() {
        at.push(name.clone());
        if !names.contains_key(&at) {
            at.pop();
            break;
        }
        rest = &rest[1..];
    }
    let imported = rest.split_first().filter(|_| depth > 0).and_then(|(name, rest)| {
        let (_, import) = names.get(&at)?.imports.iter().find(|(known, _)| known == name)?;
        target(&at, &[import, rest].concat(), names, depth - 1)
    });
    let is_own = is_bare && rest.len() == path.len();
    imported.or((!is_own).then_some(at))
}

/// The modules of a crate with their code.
fn modules(package: &str) -> BTreeMap<Module, String> {
    let folder = format!("{package}/src");
    let mut modules = BTreeMap::new();
    for path in sources(&folder) {
        let lines: Vec<_> = code(&path).into_iter().map(|(_, line)| line).collect();
        let name = path.strip_prefix(root().join(&folder)).unwrap().with_extension("");
        let mut module: Module = name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if ["mod", "lib", "main"].contains(&module.last().unwrap().as_str()) {
            module.pop();
        }
        // A crate of a binary and a library has two roots, and neither counts.
        modules.insert(module, lines.join("\n"));
    }
    modules
}

/// Which module imports which; their own children and parents, and the root, aside.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let names: BTreeMap<_, _> = modules.iter().map(|(module, text)| (module.clone(), named(text))).collect();
    let of = |(module, own): (&Module, &Names)| {
        let paths = own.imports.iter().map(|(_, path)| path).chain(&own.paths);
        let targets = paths.filter_map(|path| target(module, path, &names, LONGEST_WAY));
        let others = targets.filter(|other| !other.starts_with(module) && !module.starts_with(other));
        (module.clone(), others.collect())
    };
    names.iter().map(of).collect()
}

/// All modules that are reachable from one by imports.
fn reachable(from: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut found, mut open) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = open.pop() {
        let new = imports.get(&module).into_iter().flatten().filter(|other| found.insert((*other).clone()));
        open.extend(new.cloned());
    }
    found
}

/// The sets of modules that are all reachable from each other.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Vec<String>> {
    let by_module: BTreeMap<_, _> =
        imports.keys().map(|module| (module, reachable(module, imports))).collect();
    let mut circles = BTreeSet::new();
    for (module, reachable) in &by_module {
        let circle: Vec<_> = reachable.iter().filter(|other| by_module[other].contains(*module)).collect();
        if circle.len() > 1 {
            circles.insert(circle.into_iter().map(|module| module.join("/")).collect());
        }
    }
    circles
}

#[test]
fn no_part_of_the_server_imports_what_it_may_not() {
    let modules = modules("mandate-server");
    let parts: BTreeSet<_> = modules.keys().filter_map(|module| module.first().cloned()).collect();
    let listed: BTreeSet<_> = LAYERS.iter().map(|(part, _)| (*part).to_owned()).collect();
    assert_eq!(parts, listed);
    for (number, (part, may)) in LAYERS.iter().enumerate() {
        let below: Vec<_> = LAYERS[number + 1..].iter().map(|(part, _)| *part).collect();
        assert!(may.iter().all(|other| below.contains(other)), "{part} may import what is not below it");
    }
    let table: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let mut breaches = BTreeSet::new();
    for (module, others) in imports(&modules).iter().filter(|(module, _)| !module.is_empty()) {
        for other in others.iter().filter(|other| !other.is_empty() && other[0] != module[0]) {
            if !table[module[0].as_str()].contains(&other[0].as_str()) {
                breaches.insert(format!("{} imports {}", module.join("/"), other.join("/")));
            }
        }
    }
    assert!(breaches.is_empty(), "{breaches:#?}");
}

#[test]
fn no_large_circle_of_files_imports_each_other() {
    let mut breaches = Vec::new();
    for package in ["mandate-core", "mandate-server", "mandate-cli"] {
        let circles = circles(&imports(&modules(package))).into_iter();
        let large = circles.filter(|circle| circle.len() > LARGEST_CIRCLE);
        breaches.extend(large.map(|circle| format!("{package}: {}", circle.join(" "))));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}

/// A script that decides writes as a batch does.
#[test]
fn a_decision_is_written_in_one_way_on_each_database() {
    let modules = modules("mandate-server");
    let naming = |text: &str| {
        let counts = modules.iter().map(|(module, code)| (module.join("/"), code.matches(text).count()));
        counts.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    let once = |paths: [&str; 2]| paths.map(|path| (path.to_owned(), 1_usize)).to_vec();
    // PostgreSQL has one text with reviews and events, and one without.
    let texts = [("store/postgres/keep".to_owned(), 2_usize), ("store/sql/decisions".to_owned(), 1)];
    assert_eq!(naming("INSERT INTO decisions"), texts);
    assert_eq!(naming("decisions::keep("), once(["store/sqlite", "store/sqlite/batch"]));
    assert_eq!(naming("keep::keep"), once(["store/postgres/hot", "store/postgres/session"]));
}

#[test]
fn circles_are_found_by_imports_and_by_paths_in_the_text() {
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<Module>();
    let texts = [
        ("a", "use crate::{b::{self, Thing as Other,}, std};\nmod child;"),
        ("a/child", "use super::Parent; fn f() {}"),
        ("b", "fn f() -> super::c::Thing { loop {} }"),
        ("c", "pub(crate) use self::d::*; use std::fmt;"),
        ("c/d", "type T = crate::a::child::Thing;"),
        // What a parent imports from its child is the child's, and a path goes on from an imported name.
        ("e", "mod f; pub use f::Thing; use std::{self, fmt};"),
        ("e/f", ""),
        ("g", "use super::e::{self, Thing};"),
        ("h", "use crate::e as other; fn f() -> fmt::Result { other::f::make::<fmt::Thing>() }"),
        ("i", "use crate::{e}; fn f() { e::Thing::make(); <T>::a::b(); std::a() }"),
    ];
    let modules = texts.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
    let imports = imports(&modules);
    assert_eq!(imports[&module("a")], [module("b")].into());
    assert_eq!(imports[&module("b")], [module("c")].into());
    assert_eq!(imports[&module("c/d")], [module("a/child")].into());
    for user in ["g", "h", "i"] {
        assert_eq!(imports[&module(user)], [module("e"), module("e/f")].into(), "{user}");
    }
    assert!(circles(&imports).is_empty());
    let mut closed = imports;
    closed.get_mut(&module("c")).unwrap().insert(module("a"));
    assert_eq!(circles(&closed), [vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]].into());
}
