//! What is installed: the package's files are there or can be made, the unit is one, and it starts the server rightly.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Ran, binary};

/// The directives of the unit, by section: those that systemd.unit(5), systemd.service(5), systemd.exec(5),
/// systemd.kill(5) and systemd.resource-control(5) have, as far as they are used.
const DIRECTIVES: &[(&str, &[&str])] = &[
    (
        "Unit",
        &[
            "Description",
            "Documentation",
            "Wants",
            "After",
            "AssertPathExists",
            "StartLimitIntervalSec",
            "StartLimitBurst",
        ],
    ),
    (
        "Service",
        &[
            "Type",
            "User",
            "Group",
            "ExecStart",
            "ExecReload",
            "LoadCredential",
            "Environment",
            "Restart",
            "RestartSec",
            "KillSignal",
            "TimeoutStopSec",
            "StateDirectory",
            "StateDirectoryMode",
            "WorkingDirectory",
            "UMask",
            "LimitNOFILE",
            "LimitCORE",
            "NoNewPrivileges",
            "CapabilityBoundingSet",
            "AmbientCapabilities",
            "ProtectSystem",
            "ProtectHome",
            "PrivateTmp",
            "PrivateDevices",
            "PrivateIPC",
            "PrivateUsers",
            "ProtectClock",
            "ProtectControlGroups",
            "ProtectHostname",
            "ProtectKernelLogs",
            "ProtectKernelModules",
            "ProtectKernelTunables",
            "ProtectProc",
            "ProcSubset",
            "RemoveIPC",
            "RestrictAddressFamilies",
            "RestrictNamespaces",
            "RestrictRealtime",
            "RestrictSUIDSGID",
            "LockPersonality",
            "MemoryDenyWriteExecute",
            "SystemCallArchitectures",
            "SystemCallFilter",
            "SystemCallErrorNumber",
        ],
    ),
    ("Install", &["WantedBy"]),
];
/// What no change may take from the unit.
const KEPT: [&str; 7] = [
    // Decisions go by the clock.
    "After=network-online.target time-sync.target",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "MemoryDenyWriteExecute=yes",
    "UMask=0077",
    "CapabilityBoundingSet=",
    "LoadCredential=master-key:/etc/mandate/master.key",
];
/// How long the server takes to end what is under way, in seconds.
const DRAIN_SECONDS: u32 = 15;

fn server() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("mandate-server")
}

fn packaged(name: &str) -> String {
    std::fs::read_to_string(server().join("packaging").join(name)).unwrap()
}

/// The unit as lines of section, name and value.
fn unit() -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut lines = Vec::new();
    for line in
        packaged("mandate-server.service").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("no directive: {line}"));
            lines.push((section.clone(), name.to_owned(), value.to_owned()));
        }
    }
    lines
}

fn value(name: &str) -> String {
    unit().into_iter().find(|(_, found, _)| found == name).unwrap().2
}

#[test]
fn the_unit_is_one_and_stays_hardened() {
    for (section, name, _) in unit() {
        let known = DIRECTIVES.iter().find(|(known, _)| *known == section);
        let (_, names) = known.unwrap_or_else(|| panic!("no section [{section}]"));
        assert!(names.contains(&name.as_str()), "[{section}] has no {name}");
    }
    let lines: BTreeSet<_> = unit().into_iter().map(|(_, name, value)| format!("{name}={value}")).collect();
    for kept in KEPT {
        assert!(lines.contains(kept), "{kept}");
    }
    assert!(value("TimeoutStopSec").parse::<u32>().unwrap() > DRAIN_SECONDS);
}

#[test]
fn the_unit_starts_the_server_with_flags_and_settings_that_it_takes() {
    let start = value("ExecStart");
    let mut words = start.split(' ');
    assert_eq!((words.next(), words.next()), (Some("/usr/bin/mandate-server"), Some("serve")));
    let settings = server().join("packaging/server.toml");
    let flags: Vec<_> = words
        .map(|word| if word == "/etc/mandate/server.toml" { settings.to_str().unwrap() } else { word })
        .collect();
    assert!(flags.contains(&settings.to_str().unwrap()), "{start}");
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().env("MANDATE_MASTER_KEY", "ab".repeat(32)).args(["config", "check"]).args(&flags);
    assert_eq!(Ran::from(command.output().unwrap()).code(0).out, "the configuration can be used\n");
    assert_eq!(value("ExecReload"), "kill -HUP $MAINPID", "SIGHUP renews certificates; nothing else would");
    let variable = value("Environment");
    assert_eq!(variable, "MANDATE_MASTER_KEY_FILE=%d/master-key");
    let mut command = Command::new(binary("mandate-server"));
    command.env_clear().args(["config", "print", "--json", "--config"]).arg(&settings);
    let shown = Ran::from(command.output().unwrap()).code(0).out;
    let state = format!("sqlite:///var/lib/{}/", value("StateDirectory"));
    assert!(shown.contains(&state), "the database is where the server may write: {shown}");
}

/// Whether the file name matches a pattern with at most one `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, behind)) => {
            name.len() >= before.len() + behind.len() && name.starts_with(before) && name.ends_with(behind)
        }
    }
}

/// The manual pages and completions of a command, as its package is built with.
fn generated(command: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut names = BTreeSet::new();
    let run =
        |args: &[&str]| Ran::from(Command::new(binary(command)).env_clear().args(args).output().unwrap());
    run(&["man", "--out", folder.path().to_str().unwrap()]).code(0);
    for (shell, name) in
        [("bash", command.to_owned()), ("zsh", format!("_{command}")), ("fish", format!("{command}.fish"))]
    {
        let script = run(&["completions", shell]).code(0).out;
        assert!(script.contains(command), "{shell}: {script}");
        names.insert(format!("../target/packaging/{command}/completions/{name}"));
    }
    for page in std::fs::read_dir(folder.path()).unwrap() {
        let page = page.unwrap();
        assert!(std::fs::read_to_string(page.path()).unwrap().contains(".TH "), "{page:?}");
        names
            .insert(format!("../target/packaging/{command}/man/{}", page.file_name().into_string().unwrap()));
    }
    names
}

/// `cargo install --git` reads the manifests of the repository, and no `.cargo/config.toml`: what a release is built with is
/// in a manifest, or in the command that the documentation has.
#[test]
fn an_installation_without_a_clone_keeps_how_a_release_is_built() {
    let folder = server();
    let root = folder.parent().unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let config: toml::Table = read(".cargo/config.toml").parse().unwrap();
    assert_eq!(config.keys().collect::<Vec<_>>(), ["env", "profile"]);
    assert_eq!(config["profile"].as_table().unwrap().keys().collect::<Vec<_>>(), ["dev"]);
    let variables = config["env"].as_table().unwrap().iter();
    let variables: Vec<_> = variables.map(|(name, value)| format!("{name}={value}")).collect();
    let command = format!(
        "{} \\\n    cargo install --locked --git URL mandate-server mandate-cli\n",
        variables.join(" ")
    );
    assert!(read("docs/operations.md").contains(&command), "{command}");
    let workspace: toml::Table = read("Cargo.toml").parse().unwrap();
    assert_eq!(workspace["profile"]["release"]["lto"].as_str(), Some("thin"));
}

#[test]
fn what_the_packages_name_is_there_or_can_be_made() {
    for (krate, command, pages) in [
        ("mandate-server", "mandate-server", ["mandate-server.1", "mandate-server-backup-create.1"]),
        ("mandate-cli", "mandate", ["mandate.1", "mandate-verify.1"]),
    ] {
        let folder = server().parent().unwrap().join(krate);
        let manifest: toml::Table =
            std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let deb = &manifest["package"]["metadata"]["deb"];
        assert_eq!(deb["name"].as_str(), Some(command));
        let generated = generated(command);
        for page in pages {
            let page = format!("../target/packaging/{command}/man/{page}");
            assert!(generated.contains(&page), "{page}: {generated:?}");
        }
        let mut installed = BTreeSet::new();
        for asset in deb["assets"].as_array().unwrap() {
            let (source, target) = (asset[0].as_str().unwrap(), asset[1].as_str().unwrap());
            let there = match source.strip_prefix("target/release/") {
                Some(name) => binary(name).exists(),
                None if source.starts_with("../target/packaging/") => {
                    generated.iter().any(|name| matches(source, name))
                }
                None => folder.join(source).exists(),
            };
            assert!(there, "{source}");
            installed.insert(format!("/{target}{}", source.rsplit('/').next().unwrap()));
        }
        // Every generated file is in the package.
        for name in &generated {
            let is_packed = |asset: &toml::Value| matches(asset[0].as_str().unwrap(), name);
            assert!(deb["assets"].as_array().unwrap().iter().any(is_packed), "{name}");
        }
        for file in deb.get("conf-files").and_then(toml::Value::as_array).into_iter().flatten() {
            assert!(installed.contains(file.as_str().unwrap()), "{file:?}");
        }
        assert!(installed.contains(&format!("/usr/bin/{command}")));
        assert_eq!(
            installed.contains("/usr/lib/systemd/system/mandate-server.service"),
            command == "mandate-server"
        );
    }
    let scripts = server().join("packaging/debian");
    for script in ["postinst", "prerm", "postrm"] {
        let checked = Command::new("sh").arg("-n").arg(scripts.join(script)).status().unwrap();
        assert!(checked.success(), "{script}");
    }
}

#[test]
fn the_container_runs_unprivileged_and_reports_its_health() {
    let file = packaged("Containerfile");
    let last = file.rsplit("\nFROM ").next().unwrap();
    for line in
        ["USER 10001:10001", "CMD [\"mandate-server\", \"healthcheck\"]", "ENTRYPOINT [\"mandate-server\"]"]
    {
        assert!(last.contains(line), "{line}");
    }
}
