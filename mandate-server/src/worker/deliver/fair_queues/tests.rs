//! What queues may run, alone and beside others.

use super::*;
use mandate_core::{EnvironmentKind, EventKind};
use serde_json::value::RawValue;

use crate::model::records::EventRecord;

const NOW: i64 = 1_000_000;
const AT_ONCE: Ending = Ending::Answered(Duration::from_millis(5));

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(NOW + seconds)
}

fn webhook(number: u8) -> WebhookId {
    WebhookId::from_bytes([number; 16])
}

fn key(environment: i64, number: u8) -> Key {
    (environment, webhook(number))
}

fn lease(environment: i64, number: u8, host: &str) -> LeaseRecord {
    LeaseRecord {
        environment,
        kind: EnvironmentKind::Sandbox,
        webhook: webhook(number),
        url: format!("https://{host}/in"),
        notice: None,
        until: at(LEASE_SECONDS),
    }
}

/// A webhook at a host of its own.
fn alone(environment: i64, number: u8) -> LeaseRecord {
    lease(environment, number, &format!("{number}.{environment}.example"))
}

/// Queues whose webhooks have all answered often.
fn known(leases: Vec<LeaseRecord>) -> FairQueues {
    let mut queues = FairQueues::default();
    for lease in &leases {
        for _ in 0..8 {
            queues.note((lease.environment, lease.webhook), AT_ONCE);
        }
    }
    queues.open(leases);
    queues
}

/// Begins `count` attempts besides those running.
fn begin(queues: &mut FairQueues, key: Key, count: usize) {
    let queue = queues.queues.get_mut(&key).unwrap();
    let had = queue.under_way.len();
    queue.under_way.extend((had..had + count).map(event));
}

fn event(number: usize) -> EventId {
    EventId::from_bytes(u128::try_from(number).unwrap().to_be_bytes())
}

/// Due deliveries of events with these numbers.
fn due(numbers: std::ops::Range<usize>) -> Vec<DueRecord> {
    let due = |number| DueRecord {
        event: EventRecord {
            environment: 1,
            id: event(number),
            kind: EventKind::Ping,
            at: at(0),
            data: RawValue::from_string("{}".to_owned()).unwrap(),
        },
        attempts: 0,
        since: at(0),
    };
    numbers.map(due).collect()
}

/// What one queue wants to read.
fn wanted(queues: &mut FairQueues, key: Key) -> Option<Wanted> {
    queues.wanted(at(0)).into_iter().find(|wanted| (wanted.lease.environment, wanted.lease.webhook) == key)
}

/// Begins what is in stock. Returns the events.
fn begun(queues: &mut FairQueues) -> Vec<EventId> {
    queues.begin(at(0)).into_iter().map(|(_, due)| due.event.id).collect()
}

/// Begins as many attempts as there is room for. Returns how many each queue has.
fn begin_all(queues: &mut FairQueues) -> BTreeMap<Key, usize> {
    let shares = shares(queues);
    for (key, more) in &shares {
        begin(queues, *key, *more);
    }
    shares.into_iter().collect()
}

/// Ends all attempts of a queue.
fn end_all(queues: &mut FairQueues, key: Key, ending: Ending) {
    for event in queues.queues[&key].under_way.clone() {
        queues.note(key, ending);
        queues.end(key, event);
        queues.written(key, event);
    }
}

/// How free places are shared out where each queue has enough due.
fn shares_at(queues: &FairQueues, now: Timestamp) -> Vec<(Key, usize)> {
    queues.shares(now, Queue::unread)
}

fn shares(queues: &FairQueues) -> Vec<(Key, usize)> {
    shares_at(queues, at(0))
}

fn sum(queues: &FairQueues) -> usize {
    shares(queues).iter().map(|(_, more)| more).sum()
}

#[test]
fn one_webhook_has_its_share_and_no_more() {
    let mut queues = known(vec![lease(1, 1, "a.example")]);
    assert_eq!(shares(&queues), [(key(1, 1), MAX_WIDTH)]);
    begin(&mut queues, key(1, 1), MAX_WIDTH);
    assert_eq!(shares(&queues), []);
    queues.open(vec![lease(1, 2, "b.example")]);
    assert_eq!(shares(&queues), [(key(1, 2), FIRST_WIDTH)], "the other has what it may have");
}

#[test]
fn a_queue_grows_with_the_answers_that_come_and_shrinks_when_none_does() {
    let slow = Ending::Answered(PROMPT);
    for (endings, width) in [
        (&[][..], FIRST_WIDTH),
        (&[AT_ONCE], 4),
        (&[AT_ONCE; 4], MAX_WIDTH),
        (&[AT_ONCE; 9], MAX_WIDTH),
        (&[slow], 4),
        (&[slow; 9], SLOW_WIDTH),
        (&[AT_ONCE, AT_ONCE, AT_ONCE, AT_ONCE, slow], SLOW_WIDTH),
        (&[AT_ONCE, AT_ONCE, AT_ONCE, Ending::AtOnce], 16),
        (&[AT_ONCE, AT_ONCE, AT_ONCE, Ending::Hung], 1),
        (&[AT_ONCE, AT_ONCE, AT_ONCE, Ending::Crowded], 16),
        (&[Ending::Hung, AT_ONCE], 2),
        (&[Ending::Hung, AT_ONCE, AT_ONCE, AT_ONCE, AT_ONCE, AT_ONCE], MAX_WIDTH),
    ] {
        let mut queues = FairQueues::default();
        for ending in endings {
            queues.note(key(1, 1), *ending);
        }
        queues.open(vec![alone(1, 1)]);
        assert_eq!(shares(&queues), [(key(1, 1), width)], "{endings:?}");
    }
}

#[test]
fn the_ending_of_an_attempt_follows_from_its_answer_and_time() {
    let (soon, late) = (Duration::from_millis(5), PROMPT);
    for (answer, after, ending) in [
        (Ok(200), soon, Ending::Answered(soon)),
        (Ok(500), late, Ending::Answered(late)),
        (Err(NoAnswer::Late), late, Ending::Hung),
        (Err(NoAnswer::Late), soon, Ending::Hung),
        (Err(NoAnswer::Crowded), late, Ending::Crowded),
        (Err(NoAnswer::ConnectionRefused), soon, Ending::AtOnce),
        (Err(NoAnswer::Connection), late, Ending::Hung),
    ] {
        assert_eq!(Ending::of(&answer, after), ending, "{answer:?} after {after:?}");
    }
}

#[test]
fn one_host_and_one_environment_have_theirs() {
    let queues = known((1..=4).map(|number| lease(i64::from(number), number, "a.example")).collect());
    assert_eq!(sum(&queues), OF_HOST.most - OF_HOST.kept + 2, "two more have nothing, and one each");
    let queues = known((1..=16).map(|number| alone(1, number)).collect());
    assert!(sum(&queues) >= OF_ENVIRONMENT.most - OF_ENVIRONMENT.kept);
    assert!(sum(&queues) <= OF_ENVIRONMENT.most);
}

#[test]
fn the_queue_with_the_fewest_attempts_comes_first_when_little_is_free() {
    let mut queues = known((1..=20).map(|number| alone(number.into(), number)).collect());
    for number in 1..=14 {
        begin(&mut queues, key(number.into(), number), 23);
    }
    // 322 are running, 14 are free, and 48 are reserved for queues that have none: these come first.
    let shares = shares(&queues);
    let first: Vec<_> = shares.iter().take(6).map(|((environment, _), _)| *environment).collect();
    assert_eq!(first, [15, 16, 17, 18, 19, 20]);
    assert!(shares.iter().all(|(_, more)| *more > 0));
    let sum: usize = shares.iter().map(|(_, more)| more).sum();
    assert!((14..=14 + 6).contains(&sum), "{sum}");
}

#[test]
fn whatever_hangs_leaves_places_to_those_that_have_none() {
    // As many as may run, to webhooks that answered until now, and hang.
    let flooding = (1..=4).flat_map(|environment| (1..=16).map(move |number| alone(environment, number)));
    let mut queues = known(flooding.collect());
    while !begin_all(&mut queues).is_empty() {}
    assert!(queues.queues.values().map(|queue| queue.under_way.len()).sum::<usize>() >= ALL.most - ALL.kept);
    let healthy: Vec<_> = (5..=36).map(|environment| alone(environment, 1)).collect();
    queues.open(healthy.clone());
    let begun = begin_all(&mut queues);
    for lease in healthy {
        assert!(begun[&(lease.environment, lease.webhook)] >= 1);
    }
    assert!(queues.queues.values().map(|queue| queue.under_way.len()).sum::<usize>() <= ALL.most);
}

#[test]
fn with_fewer_files_there_are_fewer_places_and_as_large_a_part_is_reserved() {
    let mut queues = FairQueues::of(40);
    assert_eq!((queues.all.most, queues.all.kept), (40, 5));
    queues.open((1..=100).map(|environment| alone(environment, 1)).collect());
    while !begin_all(&mut queues).is_empty() {}
    let running = queues.queues.values().map(|queue| queue.under_way.len()).sum::<usize>();
    assert!((35..=40).contains(&running), "{running}");
    assert_eq!(FairQueues::of(100_000).all.most, ALL.most);
}

#[test]
fn nothing_is_kept_for_what_has_hung_before() {
    // More webhooks than places, all of which hang: each has one attempt, and none takes a reserved place.
    let hanging = (1..=32).flat_map(|environment| (1..=16).map(move |number| alone(environment, number)));
    let mut queues = FairQueues::default();
    for lease in hanging.clone() {
        queues.note((lease.environment, lease.webhook), Ending::Hung);
    }
    queues.open(hanging.collect());
    while !begin_all(&mut queues).is_empty() {}
    assert!(queues.queues.values().all(|queue| queue.under_way.len() <= 1));
    assert_eq!(queues.queues.values().map(|queue| queue.under_way.len()).sum::<usize>(), ALL.most - ALL.kept);
    queues.open(vec![alone(33, 1)]);
    assert_eq!(begin_all(&mut queues)[&key(33, 1)], 1);
    end_all(&mut queues, key(33, 1), AT_ONCE);
    assert_eq!(
        begin_all(&mut queues)[&key(33, 1)],
        1,
        "one after the other, and none waits for those that hang"
    );
}

#[test]
fn a_queue_is_over_when_nothing_is_left_or_its_time_slice_has_passed_or_something_hung() {
    let mut queues = known(vec![alone(1, 1)]);
    let key = key(1, 1);
    assert_eq!(queues.over(at(0)), []);
    begin(&mut queues, key, 1);
    queues.queues.get_mut(&key).unwrap().drained = true;
    assert_eq!((queues.over(at(0)), shares(&queues).len()), (vec![], 0), "one is under way");
    end_all(&mut queues, key, AT_ONCE);
    assert_eq!(queues.over(at(0)), queues.leases());
    queues.look_again();
    assert_eq!((queues.over(at(0)), shares(&queues).len()), (vec![], 1));
    assert_eq!(queues.over(at(SLICE_SECONDS)), queues.leases());
    assert!(shares_at(&queues, at(SLICE_SECONDS)).is_empty());
    begin(&mut queues, key, 1);
    end_all(&mut queues, key, Ending::Hung);
    assert_eq!(
        (queues.over(at(0)), shares(&queues).len()),
        (queues.leases(), 0),
        "the others have their time slices"
    );
    queues.note(key, AT_ONCE);
    assert_eq!((queues.over(at(0)), shares(&queues).len()), (vec![], 1), "it answers again");
    queues.note(key, Ending::Hung);
    queues.close(&queues.leases());
    assert!(queues.is_empty());
    queues.open(vec![alone(1, 1)]);
    assert_eq!(shares(&queues), [(key, 1)]);
}

#[test]
fn a_place_that_becomes_free_is_taken_from_the_stock_and_nothing_is_begun_twice() {
    let mut queues = known(vec![alone(1, 1)]);
    let key = key(1, 1);
    let first = wanted(&mut queues, key).unwrap();
    assert_eq!((first.more, first.in_hand.len()), (MAX_WIDTH + MAX_WIDTH * STOCKED, 0));
    queues.stock(&first, due(0..first.more), Instant::now());
    assert_eq!(begun(&mut queues), (0..MAX_WIDTH).map(event).collect::<Vec<_>>());
    assert_eq!(begun(&mut queues), [], "it has as many as it may have");
    queues.end(key, event(5));
    assert_eq!(begun(&mut queues), [event(MAX_WIDTH)]);

    // The database has an ended attempt as due until its result is stored.
    let second = wanted(&mut queues, key).unwrap();
    assert_eq!((second.more, second.in_hand.len()), (MAX_WIDTH * STOCKED, MAX_WIDTH + 1));
    queues.stock(&second, due(0..second.more + second.in_hand.len()), Instant::now());
    queues.end(key, event(6));
    assert_eq!(begun(&mut queues), [event(MAX_WIDTH + 1)]);
    queues.written(key, event(5));
    queues.written(key, event(6));
    assert_eq!(wanted(&mut queues, key).unwrap().in_hand.len(), MAX_WIDTH);

    // Less than was wanted is all there is. The queue is not given back before its stock is done.
    let third = wanted(&mut queues, key).unwrap();
    queues.stock(&third, due(0..MAX_WIDTH + 3), Instant::now());
    assert!(wanted(&mut queues, key).is_none(), "it is drained");
    end_all(&mut queues, key, AT_ONCE);
    assert_eq!(queues.over(at(0)), [], "something is in stock");
    assert!(!begun(&mut queues).is_empty());
    end_all(&mut queues, key, AT_ONCE);
    assert_eq!(queues.over(at(0)), queues.leases());
}

#[test]
fn an_old_stock_is_read_again_and_not_begun_from() {
    let mut queues = known(vec![alone(1, 1)]);
    let key = key(1, 1);
    let first = wanted(&mut queues, key).unwrap();
    queues.stock(&first, due(0..40), Instant::now());
    assert!(queues.queues[&key].drained);
    let queue = queues.queues.get_mut(&key).unwrap();
    queue.read_at = queue.read_at.checked_sub(STOCK_LASTS).unwrap();
    assert_eq!(begun(&mut queues), []);
    assert!(wanted(&mut queues, key).is_some());
}

#[test]
fn a_stock_is_begun_from_in_its_time_slice_alone() {
    let mut queues = known(vec![alone(1, 1)]);
    let first = wanted(&mut queues, key(1, 1)).unwrap();
    queues.stock(&first, due(0..40), Instant::now());
    assert!(queues.begin(at(SLICE_SECONDS)).is_empty());
    queues.note(key(1, 1), Ending::Hung);
    assert!(queues.begin(at(0)).is_empty());
    assert_eq!(queues.over(at(0)), queues.leases());
}

#[test]
fn those_that_can_begin_nothing_take_no_reading_from_those_that_can() {
    // More queues than there is stock for, all at one host without a free place, and one at another host with
    // places.
    let of_host = (1..=600).map(|environment| lease(environment, 1, "a.example"));
    let mut queues = known(of_host.chain([alone(601, 1)]).collect());
    for environment in 1..=64 {
        begin(&mut queues, key(environment, 1), 1);
    }
    let all = queues.wanted(at(0));
    let sum: usize = all.iter().map(|wanted| wanted.more).sum();
    assert!(sum <= MAX_STOCKED + MAX_WIDTH, "{sum}");
    let other = all.iter().find(|wanted| wanted.lease.environment == 601).unwrap();
    assert!(other.more >= 1);
}

#[test]
fn of_a_bounded_number_of_webhooks_it_is_known_how_they_answer() {
    let mut queues = FairQueues::default();
    for environment in 0..=i64::try_from(MAX_PACES.get()).unwrap() {
        queues.note(key(environment, 1), Ending::Hung);
    }
    assert_eq!(queues.paces.len(), MAX_PACES.get());
}
