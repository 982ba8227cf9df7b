//! What was changed beside the drafts that are decided ahead of the writer: by it a draft stands or falls.
//!
//! The writer numbers its changes. A draft says up to which number those who made it had heard of them, and stands if
//! nothing that it rests on has changed since. What has changed is told on a [`Board`], once it is committed.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::{Mutex, PoisonError};

use super::super::tx::Touched;
use crate::model::records::AgentKey;

/// Agents that are told of one by one. Beyond that everything counts as changed.
const MAX_TOLD: usize = 4096;

/// The changes that drafts on their way may not know of yet.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The number of the newest change.
    newest: u64,
    /// The newest change of everything.
    everything: u64,
    environments: HashMap<i64, u64>,
    agents: HashMap<AgentKey, u64>,
    /// What is not told yet.
    news: News,
}

/// What whoever decides ahead must forget.
#[derive(Debug, Default)]
pub(super) struct News {
    /// The number of the newest change in it, or before it.
    pub(super) newest: u64,
    /// Nothing that was known holds.
    pub(super) everything: bool,
    /// Environments whose mode may be another.
    pub(super) environments: BTreeSet<i64>,
    /// Agents of whom nothing that was known holds.
    pub(super) agents: BTreeSet<AgentKey>,
}

/// Where the writer tells what it has changed.
#[derive(Debug, Default)]
pub(super) struct Board(Mutex<News>);

impl Changes {
    /// Whether nothing at all has changed since the change of that number.
    pub(super) fn none_since(&self, since: u64) -> bool {
        since >= self.newest
    }

    /// Whether nothing that decides on the agent's requests has changed since the change of that number.
    pub(super) fn stands(&self, since: u64, agent: &AgentKey) -> bool {
        self.none_since(since)
            || (since >= self.everything
                && self.environments.get(&agent.environment).is_none_or(|at| since >= *at)
                && self.agents.get(agent).is_none_or(|at| since >= *at))
    }

    /// Nothing that is known elsewhere holds any more.
    pub(super) fn everything(&mut self) {
        self.newest += 1;
        self.everything = self.newest;
        self.environments.clear();
        self.agents.clear();
        self.news = News { everything: true, ..News::default() };
    }

    /// What decides on the agent's requests may be changed.
    pub(super) fn agent(&mut self, agent: AgentKey) {
        if self.agents.len() >= MAX_TOLD {
            self.everything();
            return;
        }
        self.newest += 1;
        self.agents.insert(agent.clone(), self.newest);
        if !self.news.everything {
            self.news.agents.insert(agent);
        }
    }

    /// All of this may be changed.
    pub(super) fn touched(&mut self, touched: Touched) {
        for environment in touched.environments {
            self.newest += 1;
            self.environments.insert(environment, self.newest);
            if !self.news.everything {
                self.news.environments.insert(environment);
            }
        }
        touched.agents.into_iter().for_each(|agent| self.agent(agent));
    }

    /// Drafts that knew of less than the changes up to `since` do not come any more.
    pub(super) fn known_up_to(&mut self, since: u64) {
        if since >= self.newest {
            self.environments.clear();
            self.agents.clear();
        }
    }

    /// Tells what has changed. The transaction that changed it has ended.
    pub(super) fn tell(&mut self, board: &Board) {
        let mut told = board.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.newest == self.newest {
            return;
        }
        told.newest = self.newest;
        let News { everything, environments, agents, .. } = mem::take(&mut self.news);
        told.everything |= everything || told.agents.len() + agents.len() > MAX_TOLD;
        if told.everything {
            told.environments.clear();
            told.agents.clear();
        } else {
            told.environments.extend(environments);
            told.agents.extend(agents);
        }
    }
}

impl Board {
    /// What was told since the last time.
    pub(super) fn news(&self) -> News {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = told.newest;
        mem::replace(&mut *told, News { newest, ..News::default() })
    }
}

#[cfg(test)]
mod tests {
    use mandate_core::AgentId;

    use super::*;

    fn agent(environment: i64, number: usize) -> AgentKey {
        AgentKey { environment, agent: AgentId::parse(&format!("agt_{number}")).unwrap() }
    }

    #[test]
    fn a_draft_stands_while_nothing_that_it_rests_on_has_changed() {
        let (mut changes, board) = (Changes::default(), Board::default());
        assert!(changes.stands(0, &agent(1, 1)));
        changes.agent(agent(1, 1));
        assert!(!changes.stands(0, &agent(1, 1)));
        assert!(changes.stands(0, &agent(1, 2)) && changes.stands(0, &agent(2, 1)));
        assert!(changes.stands(1, &agent(1, 1)));
        changes.touched(Touched { environments: [2].into(), ..Touched::default() });
        assert!(!changes.stands(1, &agent(2, 1)) && changes.stands(1, &agent(1, 1)));
        changes.tell(&board);
        let news = board.news();
        assert_eq!(
            (news.newest, news.everything, news.environments, news.agents.len()),
            (2, false, [2].into(), 1)
        );
        changes.everything();
        assert!(!changes.stands(2, &agent(1, 2)) && changes.stands(3, &agent(1, 2)));
        assert_eq!(board.news().newest, 2, "it is not told before the transaction has ended");
        changes.tell(&board);
        assert!(board.news().everything);
        assert!(!board.news().everything, "told once");
        assert_eq!(board.news().newest, 3);
    }

    #[test]
    fn beyond_a_bound_everything_has_changed() {
        let (mut changes, board) = (Changes::default(), Board::default());
        (0..MAX_TOLD).for_each(|number| changes.agent(agent(1, number)));
        assert!(changes.stands(0, &agent(2, 1)));
        changes.agent(agent(1, MAX_TOLD));
        assert!(!changes.stands(0, &agent(2, 1)));
        changes.tell(&board);
        (0..2).for_each(|number| changes.agent(agent(1, number)));
        changes.tell(&board);
        let news = board.news();
        assert!(news.everything && news.agents.is_empty());
    }

    #[test]
    fn what_all_drafts_know_of_is_forgotten() {
        let mut changes = Changes::default();
        changes.agent(agent(1, 1));
        changes.agent(agent(1, 2));
        changes.known_up_to(1);
        assert!(!changes.stands(1, &agent(1, 2)));
        changes.known_up_to(2);
        assert!(changes.agents.is_empty());
    }
}
