//! A web site of fixed files on loopback, which a test may change while it is read.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Files by path. A path with the value `None` is answered without an end.
type Files = Arc<Mutex<BTreeMap<String, Option<Vec<u8>>>>>;

pub(super) struct Site {
    address: String,
    files: Files,
}

impl Site {
    pub(super) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files = Files::default();
        let served = Arc::clone(&files);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let files = Arc::clone(&served);
                thread::spawn(move || answer(stream, &files));
            }
        });
        Self { address, files }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) fn log(&self) -> String {
        format!("{}/log/sandbox", self.address)
    }

    /// Serves these files below a path, and nothing that was there before.
    pub(super) fn serve(&self, below: &str, files: BTreeMap<String, Vec<u8>>) {
        let mut served = self.files.lock().unwrap();
        served.retain(|path, _| !path.starts_with(below) || path.contains("/proof/"));
        served.extend(files.into_iter().map(|(path, bytes)| (format!("{below}{path}"), Some(bytes))));
    }

    pub(super) fn add(&self, path: &str, bytes: Vec<u8>) {
        self.files.lock().unwrap().insert(path.to_owned(), Some(bytes));
    }

    pub(super) fn remove(&self, path: &str) {
        self.files.lock().unwrap().remove(path);
    }

    /// From now on this path is answered with bytes that never end.
    pub(super) fn flood(&self, path: &str) {
        self.files.lock().unwrap().insert(path.to_owned(), None);
    }
}

fn answer(stream: TcpStream, files: &Files) {
    let mut reader = BufReader::new(stream);
    let mut path = None;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
        if line.trim_end().is_empty() {
            break;
        }
    }
    let found = files.lock().unwrap().get(&path.unwrap_or_default()).cloned();
    let stream = reader.get_mut();
    // The client may have closed the connection already.
    let _ = match found {
        Some(Some(bytes)) => {
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", bytes.len());
            stream.write_all(&[head.as_bytes(), &bytes].concat())
        }
        Some(None) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
            while stream.write_all(&[b'a'; 4096]).is_ok() {}
            Ok(())
        }
        None => stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
    };
}
