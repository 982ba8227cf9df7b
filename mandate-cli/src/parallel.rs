//! Work on all cores, with results in the order of the input, and only a few blocks in memory.

use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::thread;

/// How many blocks may be queued at each end of a worker.
const WAITING: usize = 4;
/// The most workers. One reader cannot feed more.
const MAX_WORKERS: usize = 16;

/// Reads blocks on one thread, processes each on one of several others, and passes the results to `take`
/// here, in the order of the blocks, until there are no more or `take` stops.
///
/// Blocks go to the workers in a fixed rotation, and results are collected in the same rotation, so that nothing has
/// to be sorted.
pub(crate) fn ordered<T: Send, R: Send>(
    blocks: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
    mut take: impl FnMut(R) -> ControlFlow<()>,
) {
    let workers = thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS);
    thread::scope(|scope| {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for _ in 0..workers {
            let (input, taken) = sync_channel::<T>(WAITING);
            let (done, output) = sync_channel::<R>(WAITING);
            let work = &work;
            scope.spawn(move || taken.into_iter().map(work).try_for_each(|result| done.send(result)));
            inputs.push(input);
            outputs.push(output);
        }
        scope.spawn(move || blocks.zip(inputs.iter().cycle()).try_for_each(|(block, to)| to.send(block)));
        for output in outputs.iter().cycle() {
            // A worker that ends without a result has got no block in this round, so all results are here.
            let Ok(result) = output.recv() else { break };
            if take(result).is_break() {
                break;
            }
        }
        // Workers that still send will see the closed channel.
        drop(outputs);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_input() {
        let mut taken = Vec::new();
        let work = |n: u64| (0..(n * 7919) % 1000).fold(n, |n, _| std::hint::black_box(n));
        ordered(0..1000, work, |n| {
            taken.push(n);
            ControlFlow::Continue(())
        });
        assert!(taken.iter().copied().eq(0..1000));
    }

    #[test]
    fn breaking_off_ends_a_source_without_end() {
        let mut taken = 0;
        ordered(
            std::iter::repeat(1),
            |n| n,
            |n| {
                taken += n;
                if taken == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert_eq!(taken, 100);
        ordered(std::iter::empty::<u8>(), |n| n, |_| panic!("nothing came"));
    }
}
