//! Reading a policy, line by line.

use std::collections::BTreeMap;

use super::{Known, MAX_POLICY_BYTES, MAX_POLICY_ITEMS, Policy, PolicyProblem, PolicyRefused, Quorum};
use crate::log::decimal;
use crate::log::key::{KeyKind, VerifierKey};

const LOG: &str = "log <key> [<url>]";
const WITNESS: &str = "witness <name> <key> [<url>]";
const GROUP: &str = "group <name> all|any|<number> <name> …";
const QUORUM: &str = "quorum <name>|none";

/// The name that the quorum may give, and nothing may have.
const NONE: &[u8] = b"none";

/// What the lines so far define. Names are bytes: they need not be text.
#[derive(Debug, Default)]
struct Lines<'a> {
    logs: Vec<Known>,
    witnesses: Vec<Known>,
    groups: usize,
    /// What has a name; and whether it is a member of a group already.
    names: BTreeMap<&'a [u8], (Quorum, bool)>,
    quorum: Option<Quorum>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<Policy, PolicyRefused> {
    let refused = |line, problem| PolicyRefused { line, problem };
    if bytes.len() > MAX_POLICY_BYTES {
        return Err(refused(1, PolicyProblem::Size));
    }
    let (mut lines, mut last) = (Lines::default(), 1);
    for (line, number) in bytes.split_inclusive(|byte| *byte == b'\n').zip(1_usize..) {
        let line = line.strip_suffix(b"\n").ok_or_else(|| refused(number, PolicyProblem::End))?;
        lines.read(line).map_err(|problem| refused(number, problem))?;
        last = number;
    }
    match lines.quorum {
        Some(quorum) => Ok(Policy { logs: lines.logs, witnesses: lines.witnesses, quorum }),
        None => Err(refused(last, PolicyProblem::Quorum)),
    }
}

impl<'a> Lines<'a> {
    fn read(&mut self, line: &'a [u8]) -> Result<(), PolicyProblem> {
        if line.iter().any(|byte| *byte < b' ' && *byte != b'\t' || *byte == 0x7f) {
            return Err(PolicyProblem::Character);
        }
        let words: Vec<_> =
            line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|w| !w.is_empty()).collect();
        let Some((word, rest)) = words.split_first().filter(|(word, _)| !word.starts_with(b"#")) else {
            return Ok(());
        };
        match *word {
            b"log" => self.log(rest),
            b"witness" => self.witness(rest),
            b"group" => self.group(rest),
            b"quorum" => self.quorum(rest),
            _ => Err(PolicyProblem::Word),
        }
    }

    fn log(&mut self, words: &[&'a [u8]]) -> Result<(), PolicyProblem> {
        let [key, url @ ..] = words else { return Err(PolicyProblem::Words { wanted: LOG }) };
        let known = known(key, url, KeyKind::Note, LOG)?;
        push(&mut self.logs, known)
    }

    fn witness(&mut self, words: &[&'a [u8]]) -> Result<(), PolicyProblem> {
        let [name, key, url @ ..] = words else { return Err(PolicyProblem::Words { wanted: WITNESS }) };
        let known = known(key, url, KeyKind::Cosignature, WITNESS)?;
        let place = self.witnesses.len();
        push(&mut self.witnesses, known)?;
        self.define(name, Quorum::Witness(place))
    }

    fn group(&mut self, words: &[&'a [u8]]) -> Result<(), PolicyProblem> {
        let [name, threshold, members @ ..] = words else {
            return Err(PolicyProblem::Words { wanted: GROUP });
        };
        if members.is_empty() {
            return Err(PolicyProblem::Words { wanted: GROUP });
        }
        if self.groups >= MAX_POLICY_ITEMS {
            return Err(PolicyProblem::Items);
        }
        self.groups = self.groups.saturating_add(1);
        let threshold = match *threshold {
            b"all" => Some(members.len()),
            b"any" => Some(1),
            number => std::str::from_utf8(number)
                .ok()
                .and_then(decimal::read)
                .and_then(|number| usize::try_from(number).ok())
                .filter(|number| (1..=members.len()).contains(number)),
        };
        let threshold = threshold.ok_or(PolicyProblem::Threshold { members: members.len() })?;
        let members = members.iter().map(|member| self.member(member)).collect::<Result<_, _>>()?;
        self.define(name, Quorum::Group { threshold, members })
    }

    fn quorum(&mut self, words: &[&'a [u8]]) -> Result<(), PolicyProblem> {
        let [name] = words else { return Err(PolicyProblem::Words { wanted: QUORUM }) };
        if self.quorum.is_some() {
            return Err(PolicyProblem::Quorum);
        }
        self.quorum = Some(match self.names.get(name) {
            Some((quorum, _)) => quorum.clone(),
            None if *name == NONE => Quorum::None,
            None => return Err(PolicyProblem::Undefined { name: shown(name) }),
        });
        Ok(())
    }

    fn define(&mut self, name: &'a [u8], quorum: Quorum) -> Result<(), PolicyProblem> {
        if name == NONE || self.names.contains_key(name) {
            return Err(PolicyProblem::DuplicateName { name: shown(name) });
        }
        self.names.insert(name, (quorum, false));
        Ok(())
    }

    /// Each witness counts in one way: it is a member once at most.
    fn member(&mut self, name: &[u8]) -> Result<Quorum, PolicyProblem> {
        let Some((quorum, is_member)) = self.names.get_mut(name) else {
            return Err(PolicyProblem::Undefined { name: shown(name) });
        };
        if std::mem::replace(is_member, true) {
            return Err(PolicyProblem::MemberTwice { name: shown(name) });
        }
        Ok(quorum.clone())
    }
}

fn known(key: &[u8], url: &[&[u8]], kind: KeyKind, wanted: &'static str) -> Result<Known, PolicyProblem> {
    let url = match url {
        [] => None,
        [url] => Some(String::from_utf8_lossy(url).into_owned()),
        _ => return Err(PolicyProblem::Words { wanted }),
    };
    let key = VerifierKey::parse(&String::from_utf8_lossy(key))?;
    if key.kind() != kind {
        return Err(PolicyProblem::KeyKind { wanted: kind.byte() });
    }
    Ok(Known { key, url })
}

fn push(list: &mut Vec<Known>, known: Known) -> Result<(), PolicyProblem> {
    if list.len() >= MAX_POLICY_ITEMS {
        return Err(PolicyProblem::Items);
    }
    if list.iter().any(|other| other.key.public_key() == known.key.public_key()) {
        return Err(PolicyProblem::DuplicateKey);
    }
    list.push(known);
    Ok(())
}

/// A name made safe to repeat in a message.
fn shown(name: &[u8]) -> String {
    crate::error::echo(&String::from_utf8_lossy(name))
}
