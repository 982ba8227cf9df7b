//! Lookups that hang: whom they hold up, and whom not.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Instant, advance};

use super::*;

const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Name servers that do not answer for names that begin with "hang", until they are let.
#[derive(Clone)]
struct Hanging {
    answers: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
}

impl Names for Hanging {
    fn look_up(&self, name: &str) -> BoxFuture<'static, Vec<SocketAddr>> {
        let (hangs, answers) = (name.starts_with("hang"), Arc::clone(&self.answers));
        self.asked.fetch_add(1, Ordering::SeqCst);
        async move {
            if hangs {
                let _answered = answers.acquire_owned().await;
            }
            vec![HERE]
        }
        .boxed()
    }
}

fn hanging() -> (Hanging, Lookups) {
    let names = Hanging { answers: Arc::new(Semaphore::new(0)), asked: Arc::default() };
    (names.clone(), Lookups::new(Arc::new(names)))
}

async fn look_up(lookups: &Lookups, environment: i64, name: &str) -> Result<Vec<SocketAddr>, NoAnswer> {
    on_behalf_of(environment, lookups.look_up(name)).await
}

/// Asks for so many names that hang, and gives up after the time that an attempt may take.
async fn flood(lookups: &Lookups, environment: i64, count: usize) -> Vec<Option<NoAnswer>> {
    let attempts = (0..count).map(|number| async move {
        let name = format!("hang{number}.example");
        let asked = timeout(Duration::from_secs(10), look_up(lookups, environment, &name)).await;
        asked.ok().map(|found| found.unwrap_err())
    });
    join_all(attempts).await
}

#[tokio::test(start_paused = true)]
async fn a_name_that_many_wait_for_is_asked_for_once_by_each_environment() {
    let (names, lookups) = hanging();
    let waiting = (0..8).map(|number| look_up(&lookups, number % 2, "hang.example"));
    let answering = async {
        tokio::task::yield_now().await;
        assert_eq!(lookups.under_way().len(), 2);
        names.answers.add_permits(2);
    };
    let (found, ()) = tokio::join!(join_all(waiting), answering);
    assert!(found.iter().all(|found| *found == Ok(vec![HERE])), "{found:?}");
    assert_eq!(names.asked.load(Ordering::SeqCst), 2);
    assert!(lookups.under_way().is_empty(), "the next is asked anew");
}

#[tokio::test(start_paused = true)]
async fn names_that_hang_hold_up_no_other_environment() {
    // So many that one place is left.
    let most = (MAX_LOOKUPS - KEPT_LOOKUPS) / MAX_OF_ENVIRONMENT + KEPT_LOOKUPS - 1;
    for environments in [1, 4, i64::try_from(most).unwrap()] {
        let (names, lookups) = hanging();
        let floods = (1..=environments).map(|environment| flood(&lookups, environment, 660));
        for ended in join_all(floods).await {
            let crowded = ended.iter().filter(|ended| **ended == Some(NoAnswer::Crowded)).count();
            assert!(ended.iter().flatten().count() == crowded, "{ended:?}");
            assert!(660 - crowded <= MAX_OF_ENVIRONMENT, "{crowded}");
        }
        let under_way = lookups.under_way().len();
        assert!(under_way <= MAX_LOOKUPS && under_way == names.asked.load(Ordering::SeqCst), "{under_way}");
        // They still hang, although no request waits for them any more.
        let began = Instant::now();
        for number in 0..100 {
            let found = look_up(&lookups, 0, &format!("healthy{number}.example")).await;
            assert_eq!(found, Ok(vec![HERE]), "beside {environments}");
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "beside {environments}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_lookup_gets_the_next_place_and_frees_it_when_it_gives_up() {
    let (names, lookups) = hanging();
    flood(&lookups, 1, MAX_OF_ENVIRONMENT).await;
    let asked = names.asked.load(Ordering::SeqCst);
    {
        let given_up = look_up(&lookups, 1, "hang-given-up.example");
        tokio::pin!(given_up);
        assert!(timeout(Duration::from_secs(1), &mut given_up).await.is_err());
    }
    let ending = async {
        advance(Duration::from_secs(1)).await;
        names.answers.add_permits(1);
    };
    let (found, ()) = tokio::join!(look_up(&lookups, 1, "healthy.example"), ending);
    assert_eq!(found, Ok(vec![HERE]));
    assert_eq!(names.asked.load(Ordering::SeqCst), asked + 1, "the abandoned one was not asked for");
}

#[tokio::test(start_paused = true)]
async fn requests_of_the_server_itself_have_places_of_their_own() {
    let (_, lookups) = hanging();
    flood(&lookups, 1, 2 * MAX_OF_ENVIRONMENT).await;
    assert_eq!(lookups.look_up("collector.example").await, Ok(vec![HERE]));
}
