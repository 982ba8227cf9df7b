//! A proxy before PostgreSQL that does what networks do: it cuts, delays, stalls and half-closes connections, and loses
//! one chosen request or answer.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::black_hole;
use crate::wire::{Message, Messages, Side};

/// What is read at a time.
const CHUNK: usize = 16 * 1024;

/// A listener on loopback that passes on what it is sent.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: Arc<Network>,
    /// Ends all connections.
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The lost part of a round trip. The connection is cut with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The request, so that nothing arrives.
    Request,
    /// The server has done it, and the answer is lost.
    Answer,
}

/// Which way of a connection ends, while the other stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// The server reads the end; what it sends still arrives.
    ToServer,
    /// The client reads the end; what it sends still arrives.
    ToClient,
}

#[derive(Debug)]
struct Network {
    target: Mutex<SocketAddr>,
    weather: watch::Sender<Weather>,
    connections: AtomicUsize,
    round_trips: AtomicUsize,
    /// What fills the listener's queue.
    filling: Mutex<Vec<std::net::TcpStream>>,
    /// What is to be lost, and after how many round trips.
    loss: Mutex<Option<(usize, Lost)>>,
}

/// The state of the proxy. Each count that goes up is one event.
#[derive(Debug, Clone, Default)]
struct Weather {
    delay: Duration,
    stalled: bool,
    refusing: bool,
    swallowing: bool,
    cuts: usize,
    halves: usize,
    half: Option<Half>,
}

impl Proxy {
    /// A proxy before what listens at `target`.
    #[must_use]
    pub fn before(target: SocketAddr) -> Self {
        let listener = black_hole::listener();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let network = Arc::new(Network {
            target: Mutex::new(target),
            weather: watch::Sender::default(),
            connections: AtomicUsize::new(0),
            round_trips: AtomicUsize::new(0),
            filling: Mutex::default(),
            loss: Mutex::new(None),
        });
        let (stop, mut stopping) = watch::channel(false);
        let run = {
            let network = Arc::clone(&network);
            move || {
                // On a thread of its own, so that asynchronous and other tests can use it.
                let runtime = Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = TcpListener::from_std(listener).unwrap();
                    tokio::spawn(accept(listener, network));
                    let _ = stopping.wait_for(|stop| *stop).await;
                });
            }
        };
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(run).unwrap();
        Self { address, network, stop, thread: Some(thread) }
    }

    /// A proxy before the server of a database, and the URL of the database through it.
    #[must_use]
    pub fn before_database(url: &str) -> (Self, String) {
        let (head, tail) = url.split_once('@').expect("a URL with a role");
        let end = tail.find(['/', '?']).unwrap_or(tail.len());
        let target = tail[..end].to_socket_addrs().expect("a host and a port").next().expect("an address");
        let proxy = Self::before(target);
        let through = format!("{head}@{}{}", proxy.address, &tail[end..]);
        (proxy, through)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends connections made from now on to another place.
    pub fn point_at(&self, target: SocketAddr) {
        *self.network.target.lock().unwrap() = target;
    }

    /// Cuts all connections, as a reset does.
    pub fn cut(&self) {
        self.change(|weather| weather.cuts += 1);
    }

    /// Ends one way of all connections.
    pub fn half_close(&self, half: Half) {
        self.change(|weather| (weather.halves, weather.half) = (weather.halves + 1, Some(half)));
    }

    /// Holds everything up for so long, both ways.
    pub fn delay(&self, delay: Duration) {
        self.change(|weather| weather.delay = delay);
    }

    /// Passes nothing on for so long, without an error: connections stay open, and new ones are taken.
    pub fn stall_for(&self, time: Duration) {
        self.change(|weather| weather.stalled = true);
        std::thread::sleep(time);
        self.change(|weather| weather.stalled = false);
    }

    /// Closes the connections that there are, and for so long new ones at once.
    pub fn refuse_for(&self, time: Duration) {
        self.change(|weather| (weather.refusing, weather.cuts) = (true, weather.cuts + 1));
        std::thread::sleep(time);
        self.change(|weather| weather.refusing = false);
    }

    /// From now on swallows everything, as a host that is gone or a network that is cut in two does: nothing is
    /// passed on, and new connections get no answer.
    pub fn swallow(&self) {
        self.change(|weather| (weather.stalled, weather.swallowing) = (true, true));
        *self.network.filling.lock().unwrap() = black_hole::fill(self.address);
    }

    /// Loses this of the round trip that comes after so many others, over all connections, and cuts its connection.
    pub fn lose(&self, after: usize, lost: Lost) {
        *self.network.loss.lock().unwrap() = Some((after, lost));
    }

    /// Calls off what was to be lost. Returns whether it was not lost yet.
    #[must_use]
    pub fn lose_nothing(&self) -> bool {
        self.network.loss.lock().unwrap().take().is_some()
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.network.connections.load(Ordering::SeqCst)
    }

    /// How many round trips were asked for.
    #[must_use]
    pub fn round_trips(&self) -> usize {
        self.network.round_trips.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.network.weather.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Network {
    /// Counts a round trip that has been asked for. Returns whether something of it is to be lost.
    fn round_trip(&self) -> Option<Lost> {
        self.round_trips.fetch_add(1, Ordering::SeqCst);
        let mut planned = self.loss.lock().unwrap();
        let (after, lost) = planned.as_mut()?;
        if *after > 0 {
            *after -= 1;
            return None;
        }
        let lost = *lost;
        *planned = None;
        Some(lost)
    }
}

async fn accept(listener: TcpListener, network: Arc<Network>) {
    let mut swallowing = network.weather.subscribe();
    loop {
        let _ = swallowing.wait_for(|weather| !weather.swallowing).await;
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = swallowing.changed() => continue,
        };
        let Ok((client, _)) = accepted else { return };
        network.connections.fetch_add(1, Ordering::SeqCst);
        let weather = network.weather.subscribe();
        if weather.borrow().refusing {
            let _ = client.set_zero_linger();
            continue;
        }
        tokio::spawn(connection(client, weather, Arc::clone(&network)));
    }
}

async fn connection(client: TcpStream, weather: watch::Receiver<Weather>, network: Arc<Network>) {
    let target = *network.target.lock().unwrap();
    let Ok(server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    for end in [&client, &server] {
        // What is dropped is cut, not closed in order.
        let _ = (end.set_zero_linger(), end.set_nodelay(true));
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let lost = watch::Sender::new(None);
    let requests = Pump {
        side: Side::Client,
        weather: weather.clone(),
        network: Arc::clone(&network),
        lost: lost.clone(),
    };
    let answers = Pump { side: Side::Server, weather: weather.clone(), network, lost };
    let cuts = weather.borrow().cuts;
    let mut cut = weather;
    tokio::select! {
        _ = async { tokio::try_join!(requests.run(from_client, to_server), answers.run(from_server, to_client)) } => {}
        _ = cut.wait_for(|weather| weather.cuts != cuts) => {}
    }
}

/// One way of a connection.
struct Pump {
    side: Side,
    weather: watch::Receiver<Weather>,
    network: Arc<Network>,
    /// Which round trip of the connection has its answer lost.
    lost: watch::Sender<Option<usize>>,
}

/// The connection has come to its end.
struct Cut;

impl Pump {
    /// Passes on until the end has been read, and lets the other way go on.
    async fn run(mut self, from: OwnedReadHalf, mut to: OwnedWriteHalf) -> Result<(), Cut> {
        let halves = self.weather.borrow().halves;
        let mine = if self.side == Side::Client { Half::ToServer } else { Half::ToClient };
        let mut half = self.weather.clone();
        let closed = half.wait_for(|weather| weather.halves != halves && weather.half == Some(mine));
        tokio::select! {
            ended = self.pass_on(from, &mut to) => ended?,
            _ = closed => {}
        }
        to.shutdown().await.map_err(|_| Cut)
    }

    async fn pass_on(&mut self, mut from: OwnedReadHalf, to: &mut OwnedWriteHalf) -> Result<(), Cut> {
        let (mut messages, mut buffer, mut round_trips) = (Messages::of(self.side), vec![0; CHUNK], 0);
        loop {
            let read = from.read(&mut buffer).await;
            // The end of a connection is not passed on either.
            let _ = self.weather.wait_for(|weather| !weather.stalled).await;
            let count = read.map_err(|_| Cut)?;
            if count == 0 {
                return Ok(());
            }
            let delay = self.weather.borrow().delay;
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            let _ = self.weather.wait_for(|weather| !weather.stalled).await;
            for message in messages.take(&buffer[..count]) {
                round_trips += usize::from(message.ends);
                self.pass(&message, round_trips, to).await?;
            }
        }
    }

    async fn pass(&self, message: &Message, round_trips: usize, to: &mut OwnedWriteHalf) -> Result<(), Cut> {
        if self.side == Side::Client && message.ends {
            match self.network.round_trip() {
                Some(Lost::Request) => return Err(Cut),
                Some(Lost::Answer) => {
                    self.lost.send_replace(Some(round_trips));
                }
                None => {}
            }
        }
        if let (Side::Server, Some(lost)) = (self.side, *self.lost.borrow()) {
            if round_trips >= lost {
                return Err(Cut);
            }
            if round_trips + 1 == lost {
                return Ok(());
            }
        }
        to.write_all(&message.bytes).await.map_err(|_| Cut)
    }
}
