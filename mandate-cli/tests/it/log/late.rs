//! `mandate log monitor`: what a log must have had for a day.

use super::monitor::Watched;
use super::*;
use serde_json::Value;

#[test]
fn a_token_that_is_a_day_old_must_be_in_the_log() {
    let mut watched = Watched::new();
    let now = now();
    let old = token_of(&watched.site, 1);
    let young = token(json!({"iss": watched.site.address(), "iat": now, "exp": now + 300}));
    let tokens = write(watched.folder.path(), "tokens", format!("{old}\n\n{young}\n"));
    watched
        .look(&["--tokens", &tokens])
        .code(55)
        .shows("line 1 of")
        .shows("is none of the 303 entries")
        .shows("LATE");
    watched.log.push(&decision(&old));
    watched.log.publish(&watched.site);
    watched.log.publish_proof(&watched.site, &old);
    watched.look(&["--tokens", &tokens]).code(0);
    // Another log's proof is none; the entry is there.
    let mut other = watched.log.clone();
    other.key = SigningKey::new(watched.log.key.verifier().name(), KeyKind::Note, &[8; 32]).unwrap();
    other.publish_proof(&watched.site, &old);
    let said = watched.look(&["--tokens", &tokens, "--json"]).code(26).json();
    let why = said["not_compared"][0].as_str().unwrap();
    assert!(why.contains("is entry 303 of") && why.contains("does not hold"), "{said}");
    assert_eq!(said["late"], json!([]));
    watched.look(&["--tokens", &tokens]).code(26).shows("not compared").shows("NOT ALL COMPARED");
    let folder = watched.folder.path().join("copy");
    watched.log.write(&folder);
    let more = ["--tokens", &tokens, "--log", folder.to_str().unwrap()];
    let state = watched.folder.path().join("copy.state");
    let args = ["monitor", "--state", state.to_str().unwrap(), "--log-key", &watched.log.verifier()];
    ran(log(watched.folder.path(), &[&args[..], &more].concat())).code(2).says("has no proofs of tokens");
    let bad = write(watched.folder.path(), "bad", "x\n");
    watched.look(&["--tokens", &bad]).code(10);
}

/// A token may be in the log that this one continues.
#[test]
fn a_token_of_an_older_log_is_not_late() {
    let mut watched = Watched::new();
    let old = token_of(&watched.site, 1);
    let tokens = write(watched.folder.path(), "tokens", format!("{old}\n"));
    watched.log.push(&decision(&old));
    watched.log.publish(&watched.site);
    watched.log.publish_proof(&watched.site, &old);
    watched.look(&["--tokens", &tokens]).code(0);
    let origin = watched.log.key.verifier().name().to_owned();
    let mut new = TestLog::new(&format!("{origin}/2"));
    new.key = SigningKey::new(&format!("{origin}/2"), KeyKind::Note, &[9; 32]).unwrap();
    new.push(&Entry::OlderLog(watched.log.checkpoint()));
    new.publish(&watched.site);
    let key = new.verifier();
    // The service has the proofs of all logs at each.
    let path = proof_path(&old).replace("/proof/", "/2/proof/");
    watched.site.add(&path, watched.log.proof_of(&old).into_bytes());
    watched.look(&["--log-key", &key, "--tokens", &tokens]).code(54);
    watched.look(&["--tokens", &tokens]).code(0);
    // One who has not gone over names the older log in a policy.
    std::fs::remove_file(watched.folder.path().join("state")).unwrap();
    let over = |more: &[&str]| watched.look(&[&["--log-key", &key, "--tokens", &tokens], more].concat());
    over(&[]).code(26).shows("is entry 303 of").shows("does not hold");
    let listing = format!("log {}\nlog {key}\nquorum none\n", watched.log.verifier());
    let policy = write(watched.folder.path(), "policy", listing);
    watched.look(&["--tokens", &tokens, "--policy", &policy]).code(0);
}

#[test]
fn witnesses_that_stay_away_for_a_day_make_a_log_late() {
    let mut watched = Watched::new();
    let policy = write(watched.folder.path(), "policy", policy_of(&[witness(1)]));
    watched.look(&["--policy", &policy]).code(0);
    let state = String::from_utf8(watched.state()).unwrap();
    let since: Value = serde_json::from_str(&state).unwrap();
    let since = since["unwitnessed"]["since"].as_str().unwrap().to_owned();
    let path = watched.folder.path().join("state");
    std::fs::write(&path, state.replace(&since, "2026-01-01T00:00:00.000Z")).unwrap();
    // Nothing says whether an older checkpoint has them.
    watched
        .look(&["--policy", &policy])
        .code(26)
        .shows("at 2026-01-01T00:00:00.000Z")
        .shows("gives no proof");
    let Entry::Decision { token, .. } = strange(301) else { panic!() };
    let proof = watched.log.proof(301, Some(vec![0; 64])).to_string();
    watched.site.add(&proof_of_hash(&token), proof.into_bytes());
    watched.look(&["--policy", &policy]).code(55).shows("at 2026-01-01T00:00:00.000Z");
    watched.log.witnesses = vec![witness(1)];
    watched.log.publish(&watched.site);
    watched.look(&["--policy", &policy]).code(0);
    watched.log.witnesses = Vec::new();
    watched.log.publish(&watched.site);
    watched.look(&["--policy", &policy]).code(0);
}

/// What convicts must be provable: a service's answer, or a token that anyone can have written, proves nothing.
#[test]
fn what_no_entry_proves_is_not_late() {
    let mut watched = Watched::new();
    let of = |changes| {
        token(json!({"iss": watched.site.address(), "nonce": format!("n_{:026}", 9), "verdict": changes}))
    };
    let signed = of("allow");
    let (head, _) = signed.rsplit_once('.').unwrap();
    let (_, other) =
        token_of(&watched.site, 8).rsplit_once('.').map(|(_, other)| ("", other.to_owned())).unwrap();
    let live = crate::issuer::live_token(json!({"iss": watched.site.address()}));
    for (token, why) in [
        (format!("{head}.{other}"), "is signed by no key that the log has published"),
        (live, "is of another issuer or kind of environment"),
        (crate::issuer::token(json!({})), "is of another issuer or kind of environment"),
    ] {
        let tokens = write(watched.folder.path(), "tokens", format!("{token}\n"));
        watched.look(&["--tokens", &tokens]).code(26).shows(why);
    }
    // It is in an older log that is not served any more, or that is: the key is of that one, too.
    let tokens = write(watched.folder.path(), "tokens", format!("{signed}\n"));
    watched.look(&["--tokens", &tokens]).code(55);
    let origin = watched.log.key.verifier().name().to_owned();
    let mut new = TestLog::new(&format!("{origin}/2"));
    new.push(&Entry::OlderLog(watched.log.checkpoint()));
    new.publish(&watched.site);
    watched.look(&["--log-key", &new.verifier()]).code(54);
    watched.look(&["--tokens", &tokens]).code(55).shows("and of no older log's");
    watched.log.push(&decision(&signed));
    new.entries[0] = Entry::OlderLog(watched.log.checkpoint()).to_bytes();
    std::fs::remove_file(watched.folder.path().join("state")).unwrap();
    for (served, code) in [(false, 26), (true, 26)] {
        if served {
            watched.log.publish(&watched.site);
        }
        new.publish(&watched.site);
        let said = watched.look(&["--log-key", &new.verifier(), "--tokens", &tokens]).code(code);
        said.shows(if served { "is entry 303 of" } else { "has 303 of its 304 entries" });
    }
}

/// The newest checkpoint of a busy log waits for its witnesses at every look.
#[test]
fn witnesses_that_cosign_between_two_looks_are_not_late() {
    let mut watched = Watched::new();
    let policy = write(watched.folder.path(), "policy", policy_of(&[witness(1)]));
    let look = |watched: &Watched| watched.look(&["--policy", &policy]);
    look(&watched).code(0);
    let state: Value = serde_json::from_slice(&watched.state()).unwrap();
    let since = state["unwitnessed"]["since"].as_str().unwrap().to_owned();
    let earlier = String::from_utf8(watched.state()).unwrap().replace(&since, "2026-01-01T00:00:00.000Z");
    let day_later = || std::fs::write(watched.folder.path().join("state"), &earlier).unwrap();
    // The last decision that the log had is in a checkpoint that they have cosigned, of the size that the log had, or less.
    let Entry::Decision { token, .. } = strange(301) else { panic!() };
    let proof_with = |log: &TestLog| {
        let mut cosigned = log.clone();
        cosigned.witnesses = vec![witness(1)];
        let proof = cosigned.proof(301, Some(vec![0; 64])).to_string();
        watched.site.add(&proof_of_hash(&token), proof.into_bytes());
    };
    let mut shorter = watched.log.clone();
    shorter.entries.truncate(302);
    let now = watched.log.clone();
    watched.log.strangers(1);
    watched.log.publish(&watched.site);
    // One of other entries that its key has signed is a fork.
    let mut other = now.clone();
    other.entries[7] = strange(9_999).to_bytes();
    for (log, code) in [(None, 26), (Some(&other), 52), (Some(&shorter), 55), (Some(&now), 0)] {
        if let Some(log) = log {
            proof_with(log);
        }
        day_later();
        look(&watched).code(code);
    }
    let state: Value = serde_json::from_slice(&watched.state()).unwrap();
    assert_eq!(state["unwitnessed"]["size"], 304);
}

/// The log's key can sign a tree for each token: a proof counts only of the log that everyone sees.
#[test]
fn a_proof_of_a_token_must_be_of_the_log_that_was_looked_at() {
    let mut watched = Watched::new();
    let old = token_of(&watched.site, 1);
    let tokens = write(watched.folder.path(), "tokens", format!("{old}\n"));
    let look = |watched: &Watched| watched.look(&["--tokens", &tokens]);
    let mut other = watched.log.clone();
    other.entries = vec![decision(&old).to_bytes()];
    other.publish_proof(&watched.site, &old);
    look(&watched).code(52).says("do not begin with the 1 that the proof of the token of line 1");
    let fork: Value =
        serde_json::from_slice(&std::fs::read(watched.folder.path().join("state.fork")).unwrap()).unwrap();
    assert_eq!(fork["before"], other.checkpoint().to_string());
    assert_eq!(fork["now"], watched.log.checkpoint().to_string());
    // The entry came behind what was looked at, a day late.
    let mut grown = watched.log.clone();
    grown.push(&decision(&old));
    grown.publish_proof(&watched.site, &old);
    look(&watched).code(55);
    // It was there, and the log has grown since. What it has signed must be served.
    watched.log = grown.clone();
    grown.strangers(5);
    grown.publish_proof(&watched.site, &old);
    watched.log.publish(&watched.site);
    look(&watched).code(51).says("the checkpoint of 309 entries in the proof of the token of line 1");
    serve_both(&watched, &grown);
    look(&watched).code(0);
    // The same in an older log.
    let origin = watched.log.key.verifier().name().to_owned();
    let mut new = TestLog::new(&format!("{origin}/2"));
    new.push(&Entry::OlderLog(watched.log.checkpoint()));
    new.publish(&watched.site);
    watched.look(&["--log-key", &new.verifier()]).code(54);
    let path = proof_path(&old).replace("/proof/", "/2/proof/");
    for (log, code) in [(&other, 52), (&watched.log, 0)] {
        watched.site.add(&path, log.proof_of(&old).into_bytes());
        look(&watched).code(code);
    }
}

/// Serves the log, and the tiles of another beside its own.
fn serve_both(watched: &Watched, other: &TestLog) {
    let mut files = other.files();
    files.extend(watched.log.files());
    watched.site.serve("/log/sandbox/", files);
}

/// What witnesses have cosigned is no later state of a log that has other entries.
#[test]
fn a_larger_checkpoint_that_witnesses_have_cosigned_must_begin_with_the_log() {
    let mut watched = Watched::new();
    let policy = write(watched.folder.path(), "policy", policy_of(&[witness(1)]));
    let look = |watched: &Watched| watched.look(&["--policy", &policy]);
    let mut cosigned = watched.log.clone();
    cosigned.strangers(5);
    cosigned.witnesses = vec![witness(1)];
    let Entry::Decision { token, .. } = strange(301) else { panic!() };
    let proof = cosigned.proof(301, Some(vec![0; 64])).to_string();
    watched.site.add(&proof_of_hash(&token), proof.into_bytes());
    let honest = watched.log.clone();
    for (forged, served, code) in [(true, false, 51), (true, true, 52), (false, true, 0)] {
        watched.log = honest.clone();
        if forged {
            watched.log.entries[290] = strange(9_999).to_bytes();
        }
        watched.log.publish(&watched.site);
        let path = watched.folder.path().join("state");
        let _ = std::fs::remove_file(&path);
        look(&watched).code(0);
        let state = String::from_utf8(watched.state()).unwrap();
        let waits: Value = serde_json::from_str(&state).unwrap();
        let since = waits["unwitnessed"]["since"].as_str().unwrap();
        let state = state.replace(since, "2026-01-01T00:00:00.000Z");
        std::fs::write(&path, &state).unwrap();
        if served {
            serve_both(&watched, &cosigned);
        }
        look(&watched).code(code);
        assert_eq!(code == 0, watched.state() != state.as_bytes());
    }
    let fork = std::fs::read_to_string(watched.folder.path().join("state.fork")).unwrap();
    let fork: Value = serde_json::from_str(&fork).unwrap();
    assert_eq!(fork["now"], cosigned.checkpoint().to_string());
}
