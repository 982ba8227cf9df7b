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
    let shown = terminal.shows(|screen| screen.contains("per month"));
    assert!(shown.contains("per month  no limit") && shown.contains("status     active"), "{shown}");
    organization.client.post(&format!("/mandates/{mandate}/revoke"), &serde_json::json!({}));
    terminal.shows(|screen| screen.contains("status     revoked"));
}
