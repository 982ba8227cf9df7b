//! What a person meets, in a pseudo-terminal of 80 columns and 24 lines: the queue of reviews, questions, progress.

use std::io::{Read as _, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};

use crate::harness::{Agent, TestServer, binary, terms};

const DEADLINE: Duration = Duration::from_secs(20);
/// What the arrow keys send.
pub(super) const DOWN: &str = "\u{1b}[B";
const LIVE_QUESTION: &str = "LIVE: approve 300 USD, agt_buyer -> vendor:acme, rev_";

/// The command at a terminal, and what the terminal shows.
pub(super) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    bytes: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Everything that was ever written to it.
    written: Vec<u8>,
    master: Option<Box<dyn portable_pty::MasterPty + Send>>,
}

impl Terminal {
    pub(super) fn start(server: &TestServer, key: &str, args: &[&str]) -> Self {
        Self::with(args, &[("MANDATE_BASE_URL", server.ready("base_url")), ("MANDATE_ORGANIZATION_KEY", key)])
    }

    pub(super) fn with(args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = CommandBuilder::new(binary("mandate"));
        command.args(args);
        Self::of(command, variables)
    }

    /// The same, with a file as its standard input.
    fn fed(file: &Path, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = CommandBuilder::new("/bin/sh");
        command.args(["-c", r#"file=$1; shift; exec "$0" "$@" <"$file""#]);
        command.arg(binary("mandate"));
        command.arg(file);
        command.args(args);
        Self::of(command, variables)
    }

    fn of(command: CommandBuilder, variables: &[(&str, &str)]) -> Self {
        Self::sized(command, variables, 80)
    }

    /// At a terminal of so many columns.
    pub(super) fn narrow(args: &[&str], variables: &[(&str, &str)], columns: u16) -> Self {
        let mut command = CommandBuilder::new(binary("mandate"));
        command.args(args);
        Self::sized(command, variables, columns)
    }

    fn sized(mut command: CommandBuilder, variables: &[(&str, &str)], columns: u16) -> Self {
        let size = PtySize { rows: 24, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        command.env_clear();
        command.env("TERM", "xterm");
        for (name, value) in variables {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let (mut reader, keys) =
            (pair.master.try_clone_reader().unwrap(), pair.master.take_writer().unwrap());
        let (send, bytes) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut piece) {
                if send.send(piece[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keys, bytes, screen: parser(columns), written: Vec::new(), master: Some(pair.master) }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub(super) fn shows(&mut self, what: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let shown = self.screen.screen().contents();
            if what(&shown) {
                return shown;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(bytes) => self.take(&bytes),
                Err(e) => panic!("{e}; the screen:\n{shown}"),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.written.extend_from_slice(bytes);
    }

    pub(super) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Takes the terminal away, as when its window is closed.
    fn hang_up(&mut self) {
        self.bytes = channel().1;
        // What is shown next ends the thread that reads, and with it the last hold on the terminal but these two.
        self.press("r");
        self.keys = Box::new(std::io::sink());
        self.master = None;
    }

    /// Everything that was ever written to it.
    pub(super) fn written(&self) -> String {
        String::from_utf8_lossy(&self.written).into_owned()
    }

    /// Reads what is left. Returns the exit code.
    pub(super) fn end(&mut self) -> u32 {
        while let Ok(bytes) = self.bytes.recv_timeout(DEADLINE) {
            self.take(&bytes);
        }
        self.child.wait().unwrap().exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn parser(columns: u16) -> vt100::Parser {
    let size = |n: u16| n.try_into().unwrap();
    vt100::Parser::new(size(24), size(columns), 0)
}

#[test]
fn a_person_answers_with_one_key() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let first = agent.ask(300);
    let second = agent.ask(400);
    let mut terminal =
        Terminal::start(&server, organization.client.key(), &["review", "watch", "--refresh", "1"]);
    let shown = terminal.shows(|screen| screen.contains("2 waiting") && screen.contains("per month"));
    for part in ["300 USD", "400 USD", "buyer -> acme", "Mandate", "> "] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(!shown.contains("LIVE"));
    assert!(terminal.screen.screen().alternate_screen());

    terminal.shows(|screen| screen.contains("a approve"));
    terminal.press("a");
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("approved rev_"));
    // After an answer, the user selects the next review.
    terminal.press(DOWN);
    terminal.shows(|screen| screen.contains("400 USD") && screen.contains("a approve"));
    terminal.press("d");
    terminal.shows(|screen| screen.contains("Why?"));
    terminal.press("too dear\r");
    terminal.shows(|screen| screen.contains("No review is pending") && screen.contains("denied rev_"));
    // What comes while the queue is open appears by itself.
    agent.ask(350);
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("350 USD"));
    terminal.press("q");
    assert_eq!(terminal.end(), 0);
    assert!(!terminal.screen.screen().alternate_screen(), "the terminal is as it was");

    let decision = |answer: &crate::harness::Answer| {
        agent.client.get(&format!("/decisions/{}", answer.text("/decision")))
    };
    assert_eq!(decision(&first).text("/review/status"), "approved");
    assert_eq!(decision(&second).text("/review/status"), "denied");
    assert_eq!(decision(&second).text("/review/reason"), "too dear");
}

#[test]
fn a_live_answer_is_confirmed_and_ctrl_c_restores_the_terminal() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = Agent::register(&organization.live, "buyer");
    assert_eq!(organization.live.post("/mandates", &terms(&agent.id)).status, 201);
    let asked = agent.ask(300);
    let mut terminal = Terminal::start(&server, organization.live.key(), &["review", "watch"]);
    terminal.shows(|screen| {
        screen.contains("LIVE") && screen.contains("1 waiting") && screen.contains("a approve")
    });
    terminal.press("a");
    terminal.shows(|screen| screen.contains(LIVE_QUESTION) && screen.contains("y does"));
    terminal.press("n");
    terminal.shows(|screen| screen.contains("nothing was done"));
    let status =
        || agent.client.get(&format!("/decisions/{}", asked.text("/decision"))).text("/review/status");
    assert_eq!(status(), "pending");
    terminal.press("r");
    terminal.shows(|screen| screen.contains("a approve"));
    // What is typed in one go with the first key is no answer to what the first key asks.
    terminal.press("ay");
    terminal.shows(|screen| screen.contains(LIVE_QUESTION) && screen.contains("y does"));
    assert_eq!(status(), "pending");
    terminal.press("y");
    terminal.shows(|screen| screen.contains("approved rev_"));
    assert_eq!(status(), "approved");
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(!terminal.screen.screen().alternate_screen());
}

#[test]
fn a_live_change_is_asked_about_at_a_terminal_and_wants_yes_elsewhere() {
    let server = TestServer::start();
    let organization = server.demo();
    let args = ["enforcement", "set", "enforce"];
    let mut terminal = Terminal::start(&server, organization.live.key(), &args);
    terminal.shows(|screen| {
        screen.contains("LIVE") && screen.contains("from the next decision on denials block?")
    });
    terminal.press("n\r");
    assert_eq!(terminal.end(), 4);
    let mode = || organization.live.get("/enforcement").text("/mode");
    assert_eq!(mode(), "observe");
    let mut terminal = Terminal::start(&server, organization.live.key(), &args);
    terminal.shows(|screen| screen.contains("denials block?"));
    terminal.press("y\r");
    assert_eq!(terminal.end(), 0);
    assert_eq!(mode(), "enforce");
    let set = ["enforcement", "set", "observe"];
    let script = |args: &[&str]| {
        let mut command = crate::harness::mandate(args);
        command.env("MANDATE_BASE_URL", server.ready("base_url"));
        command.env("MANDATE_ORGANIZATION_KEY", organization.live.key());
        crate::harness::Ran::from(command.output().unwrap())
    };
    let refused = script(&set).code(4);
    assert!(refused.err.contains("confirm with --yes"), "{refused:?}");
    assert_eq!(mode(), "enforce");
    script(&[&set[..], &["--yes"]].concat()).code(0);
    assert_eq!(mode(), "observe");
}

#[test]
fn a_live_change_from_a_file_is_asked_about_at_the_terminal() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let agent = Agent::register(&organization.live, "buyer");
    let file = folder.path().join("mandate.json");
    std::fs::write(&file, terms(&agent.id).to_string()).unwrap();
    let variables = [
        ("MANDATE_BASE_URL", server.ready("base_url")),
        ("MANDATE_ORGANIZATION_KEY", organization.live.key()),
    ];
    let count = || organization.live.get("/mandates").json()["data"].as_array().unwrap().len();
    for (answer, exit, written) in [("n\r", 4, 0), ("y\r", 0, 1)] {
        let mut terminal = Terminal::fed(&file, &["mandate", "create", "-f", "-"], &variables);
        terminal.shows(|screen| screen.contains("LIVE: write a mandate for"));
        terminal.press(answer);
        assert_eq!(terminal.end(), exit);
        assert_eq!(count(), written);
    }
    let mut unasked = Terminal::fed(&file, &["mandate", "create", "--yes", "-f", "-"], &variables);
    assert_eq!(unasked.end(), 0);
    assert_eq!(count(), 2);
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let server = TestServer::start();
    let organization = server.demo();
    let mut terminal = Terminal::start(&server, organization.client.key(), &["review", "watch"]);
    terminal.shows(|screen| screen.contains("No review is pending"));
    assert!(terminal.screen.screen().alternate_screen());
    let id = terminal.child.process_id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(terminal.end(), 130);
    assert!(!terminal.screen.screen().alternate_screen(), "the terminal is as it was");
    assert!(!terminal.screen.screen().hide_cursor());
}

#[test]
fn the_queue_ends_with_its_terminal() {
    let server = TestServer::start();
    let organization = server.demo();
    let mut terminal = Terminal::start(&server, organization.client.key(), &["review", "watch"]);
    terminal.shows(|screen| screen.contains("No review is pending"));
    terminal.hang_up();
    let mut killer = terminal.child.clone_killer();
    let (ended, end) = channel();
    let watchdog = std::thread::spawn(move || {
        if end.recv_timeout(DEADLINE).is_err() {
            killer.kill().unwrap();
        }
    });
    let code = terminal.child.wait().unwrap().exit_code();
    ended.send(()).unwrap();
    watchdog.join().unwrap();
    assert_eq!(code, 130);
}

#[test]
fn login_asks_for_the_key_and_does_not_show_it() {
    let (server, home) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    let (base, key) = (server.ready("base_url"), organization.client.key());
    let folder = home.path().to_str().unwrap();
    let login = || Terminal::with(&["login"], &[("MANDATE_CONFIG_DIR", folder)]);
    let kept = home.path().join("profiles.json");

    let mut terminal = login();
    terminal.shows(|screen| screen.contains("The service's address:"));
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(!kept.exists(), "Ctrl-C keeps nothing");

    let mut terminal = login();
    terminal.shows(|screen| screen.contains("The service's address:"));
    terminal.press(&format!("{base}\r"));
    terminal.shows(|screen| screen.contains("The API key"));
    terminal.press(&format!("{key}\r"));
    terminal
        .shows(|screen| screen.contains("key of       organization") && screen.contains("only you can read"));
    assert_eq!(terminal.end(), 0);
    let written = String::from_utf8_lossy(&terminal.written);
    assert!(!written.contains(key) && !written.contains(&key[20..30]), "{written}");
    assert!(std::fs::read_to_string(&kept).unwrap().contains(key));
}

#[test]
fn progress_is_shown_to_a_person_and_taken_away() {
    let (server, folder) = (TestServer::start(), tempfile::tempdir().unwrap());
    let organization = server.demo();
    organization.buyer("buyer").ask(40);
    let (base, key) = (server.ready("base_url"), organization.client.key());
    let file = folder.path().join("all.ndjson");
    let mut command = crate::harness::mandate(&["export", "create", "--jq", ".export"]);
    command.env("MANDATE_BASE_URL", base).env("MANDATE_ORGANIZATION_KEY", key);
    let export = crate::harness::Ran::from(command.output().unwrap()).code(0).out;
    let args = ["export", "download", export.trim(), "-o", path(&file)];
    let mut terminal = Terminal::start(&server, key, &args);
    assert_eq!(terminal.end(), 0);
    let shown = terminal.screen.screen().contents();
    assert!(shown.contains("signed by") && !shown.contains("B/s"), "{shown}");
    assert!(String::from_utf8_lossy(&terminal.written).contains("B/s"));

    let issuer = server.ready("verdicts_url");
    let mut terminal = Terminal::start(&server, key, &["audit", path(&file), "--issuer", issuer]);
    assert_eq!(terminal.end(), 0);
    let shown = terminal.screen.screen().contents();
    assert!(shown.contains("NOTHING FOUND") && !shown.contains('%'), "{shown}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
