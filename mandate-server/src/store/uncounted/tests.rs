//! The uncounted decisions, beside readers.

use mandate_core::{AgentId, Timestamp};

use super::*;

fn agent(name: &str) -> AgentKey {
    AgentKey { environment: 1, agent: AgentId::parse(name).unwrap() }
}

fn id(number: i64) -> DecisionId {
    DecisionId::new(Timestamp::from_millis(1_000 + number), 0)
}

/// Without decisions.
fn uncounted() -> Uncounted {
    Uncounted::of(Vec::new())
}

#[test]
fn what_is_counted_stays_for_those_who_began_before() {
    let (uncounted, a) = (uncounted(), agent("agt_a"));
    (1..=3).for_each(|number| uncounted.add(&a, id(number)));
    uncounted.commit((0, None), Vec::new());
    let early = uncounted.reader();
    uncounted.add(&a, id(4));
    uncounted.commit((0, None), vec![(a.clone(), id(3))]);
    assert_eq!(
        uncounted.after(&a, None),
        [id(1), id(2), id(3), id(4)],
        "its snapshot has nothing of it in rows"
    );
    let late = uncounted.reader();
    uncounted.add(&a, id(5));
    uncounted.commit((0, None), vec![(a.clone(), id(4))]);
    drop(early);
    uncounted.commit((0, None), Vec::new());
    assert_eq!(
        uncounted.after(&a, None),
        [id(4), id(5)],
        "the later one needs what was counted after it began"
    );
    assert_eq!(uncounted.after(&a, Some(id(4))), [id(5)]);
    drop(late);
    uncounted.commit((0, None), Vec::new());
    assert_eq!(uncounted.after(&a, None), [id(5)]);
    uncounted.commit((2, Some(id(7))), vec![(a.clone(), id(5))]);
    assert!(!uncounted.has(&a) && uncounted.after(&a, None).is_empty());
    assert_eq!(uncounted.beginning(), Some(id(7)), "everything before the newest is counted");
}

#[test]
fn what_is_not_committed_leaves_nothing_behind() {
    let (uncounted, a, b) = (uncounted(), agent("agt_a"), agent("agt_b"));
    uncounted.add(&a, id(1));
    uncounted.begin_at(id(1));
    uncounted.commit((0, None), Vec::new());
    uncounted.add(&a, id(2));
    uncounted.add(&b, id(0));
    uncounted.begin_at(id(0));
    assert_eq!((uncounted.since(), uncounted.beginning()), (Some(id(0)), Some(id(0))));
    uncounted.abort();
    assert_eq!((uncounted.since(), uncounted.beginning()), (Some(id(1)), Some(id(1))));
    assert_eq!(uncounted.after(&a, None), [id(1)]);
    assert!(!uncounted.has(&b));
    uncounted.abort();
    assert_eq!(uncounted.after(&a, None), [id(1)]);
}

#[test]
fn what_a_savepoint_has_added_is_taken_back_alone() {
    let (uncounted, a, b) = (uncounted(), agent("agt_a"), agent("agt_b"));
    uncounted.add(&a, id(1));
    let added = uncounted.added();
    uncounted.add(&a, id(2));
    uncounted.add(&b, id(3));
    uncounted.take_back(added);
    assert_eq!((uncounted.after(&a, None), uncounted.has(&b)), (vec![id(1)], false));
    uncounted.abort();
    assert!(!uncounted.has(&a));
}

#[test]
fn what_is_read_anew_takes_the_place_of_what_was_there() {
    let (uncounted, a, b) = (uncounted(), agent("agt_a"), agent("agt_b"));
    uncounted.add(&a, id(1));
    uncounted.commit((1, None), Vec::new());
    let reader = uncounted.reader();
    uncounted.replace(Uncounted::of(vec![(b.clone(), id(2))]));
    assert_eq!((uncounted.has(&a), uncounted.after(&b, None)), (false, vec![id(2)]));
    drop(reader);
}

#[test]
fn how_much_is_behind_counts_all_environments_whichever_was_read_first() {
    let uncounted = Uncounted::bounded(10 * NOTED, 8);
    let (newest, oldest) = (agent("agt_a"), AgentKey { environment: 2, ..agent("agt_b") });
    // The second environment is read behind the first, and its decisions are older.
    let (some, many) = (i64::try_from(8 * NOTED).unwrap(), i64::try_from(16 * NOTED).unwrap());
    (some..many).for_each(|number| uncounted.read(None, id(number)));
    uncounted.read(Some(&newest), id(many));
    uncounted.read(Some(&oldest), id(0));
    (1..some).for_each(|number| uncounted.read(None, id(number)));
    uncounted.is_read(None);
    let write = |noted| uncounted.commit((usize::try_from(noted * NOTED).unwrap(), None), Vec::new());
    assert_eq!(uncounted.overdue(8), std::slice::from_ref(&oldest));
    write(8);
    assert_eq!(uncounted.overdue(8), std::slice::from_ref(&oldest), "eight and less than two are behind");
    write(3);
    assert_eq!(uncounted.overdue(8), [oldest, newest]);
}

#[test]
fn the_oldest_are_overdue_once_there_is_too_much_behind_them() {
    let uncounted = Uncounted::bounded(3, 2);
    let (a, b, c) = (agent("agt_a"), agent("agt_b"), agent("agt_c"));
    uncounted.add(&b, id(1));
    uncounted.commit((2, None), Vec::new());
    uncounted.add(&a, id(2));
    uncounted.commit((1, None), Vec::new());
    assert_eq!(uncounted.overdue(8), []);
    uncounted.commit((1, None), Vec::new());
    assert_eq!(uncounted.overdue(8), std::slice::from_ref(&b), "four were written since");
    uncounted.commit((2, None), Vec::new());
    assert_eq!(uncounted.overdue(8), [b.clone(), a.clone()]);
    assert_eq!(uncounted.overdue(1), std::slice::from_ref(&b));
    // What is counted is not overdue, even while a reader needs what was before.
    let reader = uncounted.reader();
    uncounted.commit((0, None), vec![(b.clone(), id(1)), (a.clone(), id(2))]);
    assert_eq!(uncounted.overdue(8), []);
    assert_eq!(uncounted.after(&b, None), [id(1)]);
    (6..=8).zip([&a, &b, &c]).for_each(|(number, agent)| uncounted.add(agent, id(number)));
    assert_eq!(uncounted.overdue(8), std::slice::from_ref(&a), "an agent too many");
    assert_eq!(uncounted.beginning(), Some(id(6)));
    drop(reader);
}

#[test]
fn after_a_long_read_it_is_tidied_bit_by_bit() {
    let (uncounted, a) = (uncounted(), agent("agt_a"));
    let reader = uncounted.reader();
    let many = i64::try_from(3 * MAX_DROPPED).unwrap();
    for number in 0..many {
        uncounted.add(&a, id(number));
        uncounted.commit((1, None), vec![(a.clone(), id(number))]);
    }
    drop(reader);
    let left = || uncounted.after(&a, None).len();
    assert_eq!(left(), 3 * MAX_DROPPED);
    for rest in [2, 1, 0] {
        uncounted.commit((0, None), Vec::new());
        assert_eq!(left(), rest * MAX_DROPPED);
    }
    assert!(!uncounted.has(&a));
}

#[test]
fn a_range_has_the_order_of_the_log_by_agent() {
    let (a, b) = (agent("agt_a"), agent("agt_b"));
    let all = vec![(b.clone(), id(1)), (a.clone(), id(2)), (b.clone(), id(3)), (a.clone(), id(4))];
    let uncounted = Uncounted::of(all);
    let start = (i64::MIN, "", &[][..]);
    let of_a = (a.clone(), vec![id(2), id(4)]);
    assert_eq!(uncounted.between(start, None, 9), [of_a.clone(), (b.clone(), vec![id(1), id(3)])]);
    assert_eq!(uncounted.between(start, None, 3), [of_a.clone(), (b.clone(), vec![id(1)])]);
    assert_eq!(uncounted.between(start, None, 2), [of_a]);
    let (two, one) = (id(2).to_bytes(), id(1).to_bytes());
    let (after, last) = ((1, "agt_a", &two[..]), (1, "agt_b", &one[..]));
    assert_eq!(uncounted.between(after, Some(last), 9), [(a, vec![id(4)]), (b, vec![id(1)])]);
    assert_eq!(uncounted.agents((1, "agt_a"), 9).len(), 1);
    assert_eq!(uncounted.agents((0, ""), 1).len(), 1);
}

#[test]
fn its_table_is_made_at_the_start_and_not_while_commits_wait() {
    let uncounted = Uncounted::bounded(1 << 19, 100);
    let room = uncounted.inner().agents.capacity();
    assert!(room >= 100, "{room}");
    (2..=100).for_each(|number| uncounted.add(&agent(&format!("agt_{number}")), id(number)));
    assert_eq!(uncounted.inner().agents.capacity(), room);
}
