//! The queue of reviews while others answer, too: no key answers a review that was not read.

use super::queue::{DOWN, Terminal};
use crate::harness::{Agent, Answer, Organization, TestServer, terms};

/// What has become of the review of a request.
fn status(agent: &Agent, asked: &Answer) -> String {
    agent.client.get(&format!("/decisions/{}", asked.text("/decision"))).text("/review/status")
}

fn deny(organization: &Organization, asked: &Answer) {
    let path = format!("/reviews/{}/deny", asked.text("/review/id"));
    assert_eq!(organization.client.post(&path, &serde_json::json!({})).status, 200);
}

fn watch(server: &TestServer, organization: &Organization) -> Terminal {
    Terminal::start(server, organization.client.key(), &["review", "watch", "--refresh", "1"])
}

#[test]
fn letters_of_a_reason_stay_text_when_the_review_is_gone() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let (first, second) = (agent.ask(300), agent.ask(400));
    let mut terminal = watch(&server, &organization);
    terminal.shows(|screen| screen.contains("2 waiting"));
    terminal.press("d");
    terminal.shows(|screen| screen.contains("Why? _"));
    deny(&organization, &first);
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("this review is gone: Esc"));
    terminal.press("ate, can pay later");
    terminal.shows(|screen| screen.contains("Why? ate, can pay later_"));
    terminal.press("\r");
    terminal.shows(|screen| screen.contains("nothing was done"));
    terminal.shows(|screen| screen.contains("Nothing is selected: press up or down."));
    // Letters choose nothing, and answer nothing. The next look shows that they have arrived.
    terminal.press("ajakar");
    terminal.shows(|screen| screen.contains("up/down select") && screen.contains("1 waiting"));
    assert_eq!(status(&agent, &second), "pending");
    terminal.press(DOWN);
    terminal.shows(|screen| screen.contains("400 USD") && screen.contains("a approve"));
    terminal.press("a");
    terminal.shows(|screen| screen.contains("approved rev_"));
    assert_eq!((status(&agent, &first), status(&agent, &second)), ("denied".into(), "approved".into()));
}

#[test]
fn a_question_about_a_live_review_that_is_gone_has_one_answer() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = Agent::register(&organization.live, "buyer");
    assert_eq!(organization.live.post("/mandates", &terms(&agent.id)).status, 201);
    let (first, second) = (agent.ask(300), agent.ask(400));
    let mut terminal =
        Terminal::start(&server, organization.live.key(), &["review", "watch", "--refresh", "1"]);
    terminal.shows(|screen| screen.contains("2 waiting") && screen.contains("a approve"));
    terminal.press("a");
    terminal.shows(|screen| screen.contains("LIVE: approve 300 USD") && screen.contains("y does"));
    let path = format!("/reviews/{}/deny", first.text("/review/id"));
    assert_eq!(organization.live.post(&path, &serde_json::json!({})).status, 200);
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("this review is gone: Esc"));
    terminal.press("yay");
    terminal.press("\r");
    terminal.shows(|screen| screen.contains("nothing was done"));
    assert_eq!(status(&agent, &second), "pending");
    terminal.press("q");
    assert_eq!(terminal.end(), 0);
}

#[test]
fn what_is_pasted_answers_nothing() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let asked = agent.ask(300);
    let mut terminal = watch(&server, &organization);
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("a approve"));
    terminal.press("\u{1b}[200~approve\u{1b}[201~");
    terminal.press("d");
    terminal.shows(|screen| screen.contains("Why? _"));
    terminal.press("\u{1b}[200~too dear,\nask again\r\u{1b}[201~");
    terminal.shows(|screen| screen.contains("Why? too dear, ask again _"));
    assert_eq!(status(&agent, &asked), "pending");
    terminal.press("\r");
    terminal.shows(|screen| screen.contains("denied rev_"));
    assert_eq!(status(&agent, &asked), "denied");
}

#[test]
fn a_mandate_is_shown_in_its_current_state() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.agent("buyer");
    let mut free = terms(&agent.id);
    free["limits"].as_object_mut().unwrap().remove("per_month");
    let mandate = organization.client.post("/mandates", &free).text("/id");
    agent.ask(300);
    let mut terminal = watch(&server, &organization);
    terminal.shows(|screen| screen.contains("per month  no limit") && screen.contains("status     active"));
    organization.client.post(&format!("/mandates/{mandate}/revoke"), &serde_json::json!({}));
    terminal.shows(|screen| screen.contains("status     revoked"));
}

#[test]
fn the_mandate_and_the_month_are_those_that_govern_now() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    agent.ask(300);
    let mut narrower = terms(&agent.id);
    narrower["limits"] = serde_json::json!({"per_transaction": 350, "per_month": 1000, "currency": "USD"});
    let mut terminal = watch(&server, &organization);
    let before = terminal
        .shows(|screen| screen.contains("1,700 left of 2,000 USD") && screen.contains("limit      500 USD"));
    assert!(!before.contains("changed"), "{before}");
    assert_eq!(organization.client.post("/mandates", &narrower).status, 201);
    terminal.shows(|screen| {
        let parts = ["700 left of 1,000 USD", "changed    since the request", "limit      350 USD"];
        parts.iter().all(|part| screen.contains(part)) && screen.contains("status     active")
    });
}

#[test]
fn a_person_sees_what_an_answer_needs() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    agent.ask(40);
    agent.ask(300);
    let mut terminal = watch(&server, &organization);
    terminal.shows(|screen| {
        let head = screen.lines().next().unwrap_or_default();
        let parts =
            ["1,660 left of 2,000 USD", "40 USD  ", " s ago", "  acme  software", "left       23 h 59 min"];
        head.starts_with("sandbox  enforce mode  1 waiting")
            && screen.contains("Paid among its last 200 decisions: 1, 1 to vendor:acme")
            && parts.iter().all(|part| screen.contains(part))
    });
    terminal.press("?");
    terminal.shows(|screen| screen.contains("Any key goes back") && !screen.contains("1 waiting"));
    // Help answers nothing, whatever key is pressed.
    terminal.press("a");
    terminal.shows(|screen| screen.contains("1 waiting") && screen.contains("a approve"));
    let pending = organization.client.get("/decisions?review=pending").json();
    assert_eq!(pending["data"][0]["request"]["amount"], 300);
}

#[test]
fn at_60_columns_nothing_is_cut_without_a_sign() {
    let server = TestServer::start();
    let organization = server.demo();
    let asked = organization.buyer("purchaser").ask(300);
    let variables = [
        ("MANDATE_BASE_URL", server.ready("base_url")),
        ("MANDATE_ORGANIZATION_KEY", organization.client.key()),
    ];
    let mut terminal = Terminal::narrow(&["review", "watch"], &variables, 60);
    terminal.shows(|screen| {
        let line = screen.lines().find(|line| line.starts_with("> ")).unwrap_or_default();
        line.contains("300 USD  purchaser -> acme") && line.ends_with("23 h") && screen.contains("a approve")
    });
    terminal.press("?");
    let help = terminal.shows(|screen| screen.contains("Any key goes back"));
    for end in ["contains a text", "category and review.", "ignored."] {
        let words: Vec<&str> = end.split(' ').collect();
        assert!(words.iter().all(|word| help.contains(word)), "{end} is not in\n{help}");
    }
    terminal.press("q");
    terminal.press("q");
    assert_eq!(terminal.end(), 0);
    assert_eq!(asked.text("/verdict"), "review");
}

#[test]
fn a_search_selects_and_a_filter_hides() {
    let server = TestServer::start();
    let organization = server.demo();
    let agent = organization.buyer("buyer");
    let asked: Vec<Answer> = [300, 400, 310].into_iter().map(|amount| agent.ask(amount)).collect();
    let selected = |screen: &str, amount: &str| {
        screen.lines().any(|line| line.starts_with("> ") && line.contains(amount))
    };
    let mut terminal = watch(&server, &organization);
    terminal.shows(|screen| screen.contains("3 waiting") && selected(screen, "300 USD"));
    terminal.press("/");
    terminal.shows(|screen| screen.contains("Search: _"));
    terminal.press("400\r");
    terminal.shows(|screen| selected(screen, "400 USD"));
    terminal.press("/");
    terminal.shows(|screen| screen.contains("Search: _"));
    terminal.press("31\r");
    terminal.shows(|screen| selected(screen, "310 USD"));
    terminal.press("/");
    terminal.shows(|screen| screen.contains("Search: _"));
    terminal.press("nothing like it\r");
    terminal.shows(|screen| screen.contains("nothing contains `nothing like it`"));
    // What is typed for a filter answers nothing, and what it hides is not selected.
    terminal.press("f");
    terminal.shows(|screen| screen.contains("Show only with: _"));
    // Ctrl-U clears what was typed.
    terminal.press("31\u{15}400\r");
    let screen = terminal
        .shows(|screen| screen.contains("3 waiting, 1 with `400`") && screen.contains("Nothing is selected"));
    assert!(screen.contains("400 USD") && !screen.contains("310 USD"), "{screen}");
    terminal.press(DOWN);
    terminal.shows(|screen| selected(screen, "400 USD") && screen.contains("a approve"));
    terminal.press("a");
    terminal.shows(|screen| {
        let parts = ["approved rev_", "The filter hides all"];
        parts.iter().all(|part| screen.contains(part)) && !screen.contains("Nothing is selected")
    });
    let states: Vec<String> = asked.iter().map(|asked| status(&agent, asked)).collect();
    assert_eq!(states, ["pending", "approved", "pending"]);
}

#[test]
fn a_queue_that_is_longer_than_its_place_says_so() {
    let server = TestServer::start();
    let organization = server.demo();
    let agents = ["buyer", "purchaser"].map(|name| organization.buyer(name));
    for (agent, first) in agents.iter().zip([300, 308]) {
        (first..first + 8).for_each(|amount| assert_eq!(agent.ask(amount).text("/verdict"), "review"));
    }
    let mut terminal = watch(&server, &organization);
    let screen = terminal.shows(|screen| screen.contains("of 16 fit here"));
    assert!(screen.contains("16 waiting") && !screen.contains("315 USD"), "{screen}");
    terminal.press(&DOWN.repeat(15));
    terminal.shows(|screen| screen.lines().any(|line| line.starts_with("> ") && line.contains("315 USD")));
}
