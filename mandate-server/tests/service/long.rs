//! Scripts that read for long have threads of their own.

use std::sync::mpsc;
use std::time::Duration;

use mandate_server::store::tx::Tx;
use tokio::sync::mpsc::unbounded_channel;

use crate::world::World;

/// How many of them run at a time.
const AT_A_TIME: usize = 2;
/// How many others read meanwhile.
const OTHERS: usize = 20;
const WITHIN: Duration = Duration::from_mins(1);

#[tokio::test]
async fn what_reads_for_long_holds_up_no_other() {
    let world = World::new().await;
    let (started, mut is_started) = unbounded_channel();
    let mut held = Vec::new();
    for number in 0..AT_A_TIME {
        let (end, ended) = mpsc::channel::<()>();
        let (store, started) = (world.store.clone(), started.clone());
        let reading = tokio::spawn(async move {
            let script = move |_: &mut Tx<'_>| started.send(number).is_ok() && ended.recv().is_ok();
            store.read_long(script).await
        });
        // The one before does not keep this one from beginning.
        assert_eq!(tokio::time::timeout(WITHIN, is_started.recv()).await, Ok(Some(number)));
        held.push((end, reading));
    }
    let others = (0..OTHERS).map(|number| world.store.read(move |_| number));
    let others = tokio::time::timeout(WITHIN, futures_util::future::join_all(others)).await.unwrap();
    assert_eq!(others, (0..OTHERS).map(Ok).collect::<Vec<_>>());
    for (end, reading) in held {
        end.send(()).unwrap();
        assert_eq!(reading.await.unwrap(), Ok(true));
    }
}
