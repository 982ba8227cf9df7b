//! A listener before which connections hang: its queue is full, so that the kernel drops whatever asks for one more, as a
//! network does that leads nowhere. It takes neither privileges nor another machine.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::runtime::Builder;

/// How many connections may wait to be taken.
const QUEUE: u32 = 64;
/// After so long a connection on this machine is not made any more.
const DROPPED: Duration = Duration::from_millis(500);

/// A listener on loopback with a queue that can be filled.
#[must_use]
pub fn listener() -> TcpListener {
    // On a thread of its own, so that asynchronous and other tests can use it.
    let made = thread::spawn(|| {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(QUEUE).unwrap().into_std().unwrap();
            listener.set_nonblocking(false).unwrap();
            listener
        })
    });
    made.join().unwrap()
}

/// Fills the queue of a listener that accepts no connections, for as long as what is returned lives.
#[must_use]
pub fn fill(address: SocketAddr) -> Vec<TcpStream> {
    let mut filling = Vec::new();
    while let Ok(waiting) = TcpStream::connect_timeout(&address, DROPPED) {
        filling.push(waiting);
        assert!(filling.len() <= 4 * QUEUE as usize, "{address} is served");
    }
    filling
}
