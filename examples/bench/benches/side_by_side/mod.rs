//! Contenders measured alternately in one run, and the ratio of their medians.
//!
//! A figure of one machine at one moment says little, and two figures taken minutes apart little more. Hence each contest goes
//! round its contenders more than once (A B A B), and what it prints last is how many times longer each took than the first.

use std::cell::RefCell;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

/// How many times a contest goes round.
const ROUNDS: usize = 2;
const WARM_UP: Duration = Duration::from_millis(300);
const MEASUREMENT: Duration = Duration::from_millis(1_500);
const SAMPLES: usize = 30;

/// Something that is measured under a name, and the nanoseconds that one call of it took, sample by sample.
pub(crate) struct Contender<'a> {
    name: &'static str,
    run: Box<dyn Fn() + 'a>,
    samples: RefCell<Vec<f64>>,
}

/// A contender that calls `run`, whose result is computed and thrown away.
pub(crate) fn contender<'a, T>(name: &'static str, run: impl Fn() -> T + 'a) -> Contender<'a> {
    let run = Box::new(move || drop(black_box(run())));
    Contender { name, run, samples: RefCell::default() }
}

/// Measures the contenders alternately, and prints their ratios to the first.
pub(crate) fn contest(criterion: &mut Criterion, name: &str, contenders: &[Contender<'_>]) {
    let mut group = criterion.benchmark_group(name);
    group.warm_up_time(WARM_UP).measurement_time(MEASUREMENT).sample_size(SAMPLES);
    for round in 1..=ROUNDS {
        for contender in contenders {
            group.bench_function(BenchmarkId::new(contender.name, round), |bencher| {
                bencher.iter_custom(|calls| contender.time(calls));
            });
        }
    }
    group.finish();
    let medians = contenders.iter().filter_map(|contender| Some((contender.name, contender.median()?)));
    let medians: Vec<_> = medians.collect();
    let Some((_, first)) = medians.first() else { return };
    for (contender, median) in &medians {
        println!("{name:<18} {contender:<36} {median:>9.0} ns  {:>7.2}", median / first);
    }
    println!();
}

impl Contender<'_> {
    #[expect(clippy::cast_precision_loss, reason = "a duration, to be rounded")]
    fn time(&self, calls: u64) -> Duration {
        let start = Instant::now();
        (0..calls).for_each(|_| (self.run)());
        let took = start.elapsed();
        self.samples.borrow_mut().push(took.as_nanos() as f64 / calls as f64);
        took
    }

    /// Of all rounds; nothing when a filter has passed this contender over.
    fn median(&self) -> Option<f64> {
        let mut samples = self.samples.take();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    }
}
