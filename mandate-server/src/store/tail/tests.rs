//! The tail of the log, beside those who read.

use mandate_core::{AgentId, Timestamp};

use super::*;

fn agent(name: &str) -> AgentKey {
    AgentKey { environment: 1, agent: AgentId::parse(name).unwrap() }
}

fn id(number: i64) -> DecisionId {
    DecisionId::new(Timestamp::from_millis(1_000 + number), 0)
}

/// A tail of no decisions.
fn tail() -> Tail {
    Tail::of(Vec::new())
}

#[test]
fn what_is_settled_stays_for_those_who_began_before() {
    let (tail, a) = (tail(), agent("agt_a"));
    (1..=3).for_each(|number| tail.add(&a, id(number)));
    tail.commit((0, None), Vec::new());
    let early = tail.visit();
    tail.add(&a, id(4));
    tail.commit((0, None), vec![(a.clone(), id(3))]);
    assert_eq!(tail.behind(&a, None), [id(1), id(2), id(3), id(4)], "its snapshot has nothing of it in rows");
    let late = tail.visit();
    tail.add(&a, id(5));
    tail.commit((0, None), vec![(a.clone(), id(4))]);
    drop(early);
    tail.commit((0, None), Vec::new());
    assert_eq!(tail.behind(&a, None), [id(4), id(5)], "the later one needs what was settled after it began");
    assert_eq!(tail.behind(&a, Some(id(4))), [id(5)]);
    drop(late);
    tail.commit((0, None), Vec::new());
    assert_eq!(tail.behind(&a, None), [id(5)]);
    tail.commit((2, Some(id(7))), vec![(a.clone(), id(5))]);
    assert!(!tail.has(&a) && tail.behind(&a, None).is_empty());
    assert_eq!(tail.beginning(), Some(id(7)), "nothing before the newest is owed");
}

#[test]
fn what_is_not_committed_leaves_nothing_behind() {
    let (tail, a, b) = (tail(), agent("agt_a"), agent("agt_b"));
    tail.add(&a, id(1));
    tail.begin_at(id(1));
    tail.commit((0, None), Vec::new());
    tail.add(&a, id(2));
    tail.add(&b, id(0));
    tail.begin_at(id(0));
    assert_eq!((tail.since(), tail.beginning()), (Some(id(0)), Some(id(0))));
    tail.abort();
    assert_eq!((tail.since(), tail.beginning()), (Some(id(1)), Some(id(1))));
    assert_eq!(tail.behind(&a, None), [id(1)]);
    assert!(!tail.has(&b));
    tail.abort();
    assert_eq!(tail.behind(&a, None), [id(1)]);
}

#[test]
fn what_a_savepoint_has_added_is_taken_back_alone() {
    let (tail, a, b) = (tail(), agent("agt_a"), agent("agt_b"));
    tail.add(&a, id(1));
    let added = tail.added();
    tail.add(&a, id(2));
    tail.add(&b, id(3));
    tail.take_back(added);
    assert_eq!((tail.behind(&a, None), tail.has(&b)), (vec![id(1)], false));
    tail.abort();
    assert!(!tail.has(&a));
}

#[test]
fn what_is_read_anew_takes_the_place_of_what_was_there() {
    let (tail, a, b) = (tail(), agent("agt_a"), agent("agt_b"));
    tail.add(&a, id(1));
    tail.commit((1, None), Vec::new());
    let visit = tail.visit();
    tail.replace(Tail::of(vec![(b.clone(), id(2))]));
    assert_eq!((tail.has(&a), tail.behind(&b, None)), (false, vec![id(2)]));
    drop(visit);
}

#[test]
fn how_much_is_behind_counts_all_environments_whichever_was_read_first() {
    let tail = Tail::bounded(4, 8);
    let other = AgentKey { environment: 2, ..agent("agt_b") };
    // The second environment is read behind the first, and its decision is the oldest of all.
    (2..=7).for_each(|number| tail.read(Some(&agent("agt_a")), id(number)));
    tail.read(Some(&other), id(1));
    tail.is_read(None);
    assert_eq!(tail.overdue(8), [other, agent("agt_a")]);
}

#[test]
fn the_oldest_are_overdue_once_there_is_too_much_behind_them() {
    let tail = Tail::bounded(3, 2);
    let (a, b, c) = (agent("agt_a"), agent("agt_b"), agent("agt_c"));
    tail.add(&b, id(1));
    tail.commit((2, None), Vec::new());
    tail.add(&a, id(2));
    tail.commit((1, None), Vec::new());
    assert_eq!(tail.overdue(8), []);
    tail.commit((1, None), Vec::new());
    assert_eq!(tail.overdue(8), std::slice::from_ref(&b), "four were written since");
    tail.commit((2, None), Vec::new());
    assert_eq!(tail.overdue(8), [b.clone(), a.clone()]);
    assert_eq!(tail.overdue(1), std::slice::from_ref(&b));
    // What is settled is not overdue, even while a reader needs what was before.
    let visit = tail.visit();
    tail.commit((0, None), vec![(b.clone(), id(1)), (a.clone(), id(2))]);
    assert_eq!(tail.overdue(8), []);
    assert_eq!(tail.behind(&b, None), [id(1)]);
    (6..=8).zip([&a, &b, &c]).for_each(|(number, agent)| tail.add(agent, id(number)));
    assert_eq!(tail.overdue(8), std::slice::from_ref(&a), "an agent too many");
    assert_eq!(tail.beginning(), Some(id(6)));
    drop(visit);
}

#[test]
fn after_a_long_visit_it_is_tidied_bit_by_bit() {
    let (tail, a) = (tail(), agent("agt_a"));
    let visit = tail.visit();
    let many = i64::try_from(3 * MAX_DROPPED).unwrap();
    for number in 0..many {
        tail.add(&a, id(number));
        tail.commit((1, None), vec![(a.clone(), id(number))]);
    }
    drop(visit);
    let left = || tail.behind(&a, None).len();
    assert_eq!(left(), 3 * MAX_DROPPED);
    for rest in [2, 1, 0] {
        tail.commit((0, None), Vec::new());
        assert_eq!(left(), rest * MAX_DROPPED);
    }
    assert!(!tail.has(&a));
}

#[test]
fn a_range_has_the_order_of_the_log_by_agent() {
    let (a, b) = (agent("agt_a"), agent("agt_b"));
    let all = vec![(b.clone(), id(1)), (a.clone(), id(2)), (b.clone(), id(3)), (a.clone(), id(4))];
    let tail = Tail::of(all);
    let start = (i64::MIN, "", &[][..]);
    let of_a = (a.clone(), vec![id(2), id(4)]);
    assert_eq!(tail.between(start, None, 9), [of_a.clone(), (b.clone(), vec![id(1), id(3)])]);
    assert_eq!(tail.between(start, None, 3), [of_a.clone(), (b.clone(), vec![id(1)])]);
    assert_eq!(tail.between(start, None, 2), [of_a]);
    let (two, one) = (id(2).to_bytes(), id(1).to_bytes());
    let (after, last) = ((1, "agt_a", &two[..]), (1, "agt_b", &one[..]));
    assert_eq!(tail.between(after, Some(last), 9), [(a, vec![id(4)]), (b, vec![id(1)])]);
    assert_eq!(tail.agents((1, "agt_a"), 9).len(), 1);
    assert_eq!(tail.agents((0, ""), 1).len(), 1);
}

#[test]
fn its_table_is_made_at_the_start_and_not_while_commits_wait() {
    let tail = Tail::bounded(1 << 19, 100);
    tail.read(Some(&agent("agt_a")), id(1));
    tail.is_read(Some(id(1)));
    let room = tail.inner().agents.capacity();
    assert!(room >= 100, "{room}");
    (2..=100).for_each(|number| tail.add(&agent(&format!("agt_{number}")), id(number)));
    assert_eq!(tail.inner().agents.capacity(), room);
}
