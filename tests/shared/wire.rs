//! As much of PostgreSQL's protocol as it takes to see where a round trip begins and ends.

/// The bytes of the length before every message.
const LENGTH: usize = 4;
/// What asks for encryption before a connection starts.
const ENCRYPTION: [u32; 2] = [80_877_103, 80_877_104];
const REFUSED_ENCRYPTION: u8 = b'N';
const SIMPLE_QUERY: u8 = b'Q';
const SYNC: u8 = b'S';
const READY: u8 = b'Z';

/// What comes from one side of a connection, cut into messages however the bytes arrive.
#[derive(Debug)]
pub(crate) struct Messages {
    side: Side,
    started: bool,
    waiting: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// One message, whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    /// Whether it ends a round trip on its side: a sync, a simple query or the startup; ready for the next.
    pub(crate) ends: bool,
}

impl Messages {
    pub(crate) fn of(side: Side) -> Self {
        Self { side, started: false, waiting: Vec::new() }
    }

    /// Takes bytes as they arrive. Returns the messages that are whole.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Message> {
        self.waiting.extend_from_slice(bytes);
        std::iter::from_fn(|| self.next()).collect()
    }

    fn next(&mut self) -> Option<Message> {
        let first = *self.waiting.first()?;
        if !self.started && self.side == Side::Server && first == REFUSED_ENCRYPTION {
            return Some(self.split(1, false));
        }
        let typed = self.started || self.side == Side::Server;
        let head = usize::from(typed);
        let length = number(self.waiting.get(head..head + LENGTH)?) as usize;
        if self.waiting.len() < head + length {
            return None;
        }
        let ends = match self.side {
            Side::Server => first == READY,
            Side::Client if typed => first == SIMPLE_QUERY || first == SYNC,
            Side::Client => !ENCRYPTION.contains(&number(&self.waiting[LENGTH..2 * LENGTH])),
        };
        self.started |= self.side == Side::Server || ends;
        Some(self.split(head + length, ends))
    }

    fn split(&mut self, at: usize, ends: bool) -> Message {
        let rest = self.waiting.split_off(at);
        Message { bytes: std::mem::replace(&mut self.waiting, rest), ends }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &[u8], body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(LENGTH + body.len()).unwrap().to_be_bytes();
        [kind, &length, body].concat()
    }

    #[test]
    fn messages_are_whole_however_their_bytes_arrive() {
        let startup = message(b"", &[0, 3, 0, 0, b'x']);
        let sent = [message(b"", &ENCRYPTION[0].to_be_bytes()), startup, message(b"p", b"proof")];
        let sent =
            sent.into_iter().chain([message(b"P", b"parse"), message(b"S", b""), message(b"Q", b"COMMIT\0")]);
        let sent: Vec<_> = sent.collect();
        for size in [1, 3, 7, 1000] {
            let mut messages = Messages::of(Side::Client);
            let found: Vec<_> = sent.concat().chunks(size).flat_map(|bytes| messages.take(bytes)).collect();
            let ends: Vec<_> = found.iter().map(|message| message.ends).collect();
            assert_eq!(ends, [false, true, false, false, true, true]);
            assert_eq!(found.into_iter().map(|message| message.bytes).collect::<Vec<_>>(), sent);
        }
    }

    #[test]
    fn a_refusal_of_encryption_is_one_byte_and_a_notice_is_not() {
        let mut messages = Messages::of(Side::Server);
        let sent = [b"N".to_vec(), message(b"R", b"ok"), message(b"Z", b"I"), message(b"N", b"notice")];
        let found = messages.take(&sent.concat());
        assert_eq!(found.iter().map(|message| message.ends).collect::<Vec<_>>(), [false, false, true, false]);
    }
}
