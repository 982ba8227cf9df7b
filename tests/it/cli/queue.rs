//! `mandate review watch` in a pseudo-terminal of 80 columns and 24 lines.

use std::io::{Read as _, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};

use crate::harness::{Agent, TestServer, binary, terms};

const DEADLINE: Duration = Duration::from_secs(20);

/// The command at a terminal, and what the terminal shows.
struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keys: Box<dyn Write + Send>,
    bytes: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Terminal {
    fn start(server: &TestServer, key: &str, args: &[&str]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(binary("mandate"));
        command.args(args);
        command.env_clear();
        for (name, value) in [
            ("TERM", "xterm"),
            ("MANDATE_BASE_URL", server.ready("base_url")),
            ("MANDATE_ORGANIZATION_KEY", key),
        ] {
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
        Self { child, keys, bytes, screen: parser(), _master: pair.master }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    fn shows(&mut self, what: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let shown = self.screen.screen().contents();
            if what(&shown) {
                return shown;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.bytes.recv_timeout(left) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(e) => panic!("{e}; the screen:\n{shown}"),
            }
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Reads what is left, and gives the exit code.
    fn end(&mut self) -> u32 {
        while let Ok(bytes) = self.bytes.recv_timeout(DEADLINE) {
            self.screen.process(&bytes);
        }
        self.child.wait().unwrap().exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn parser() -> vt100::Parser {
    let size = |n: u16| n.try_into().unwrap();
    vt100::Parser::new(size(24), size(80), 0)
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
    for part in ["300 USD", "400 USD", "agt_buyer -> vendor:acme", "Mandate", "a approve", "> "] {
        assert!(shown.contains(part), "{part} is not in\n{shown}");
    }
    assert!(!shown.contains("LIVE"));
    assert!(terminal.screen.screen().alternate_screen());

    terminal.press("a");
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("approved rev_"));
    terminal.press("d");
    terminal.shows(|screen| screen.contains("Why?"));
    terminal.press("too dear\r");
    terminal.shows(|screen| screen.contains("Nothing waits") && screen.contains("denied rev_"));
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
    terminal.shows(|screen| screen.contains("LIVE") && screen.contains("1 waiting"));
    terminal.press("a");
    terminal.shows(|screen| screen.contains("LIVE: approve rev_"));
    terminal.press("n");
    terminal.shows(|screen| screen.contains("nothing was done"));
    let status =
        || agent.client.get(&format!("/decisions/{}", asked.text("/decision"))).text("/review/status");
    assert_eq!(status(), "pending");
    terminal.press("a");
    terminal.shows(|screen| screen.contains("LIVE: approve rev_"));
    terminal.press("y");
    terminal.shows(|screen| screen.contains("approved rev_"));
    assert_eq!(status(), "approved");
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(!terminal.screen.screen().alternate_screen());
}

#[test]
fn a_live_change_is_asked_about_at_a_terminal_and_not_elsewhere() {
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
    let mut command = crate::harness::mandate(&set);
    command.env("MANDATE_BASE_URL", server.ready("base_url"));
    command.env("MANDATE_ORGANIZATION_KEY", organization.live.key());
    assert!(command.status().unwrap().success(), "a script is not asked");
    assert_eq!(mode(), "observe");
}
