//! How many connections each address has, so that one cannot take all of them.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use super::concurrency::{ConcurrencyLimits, Permit};

/// A provider's customer gets a whole IPv6 network: the addresses with the same first 64 bits.
const NETWORK: u128 = !0 << 64;

/// The connections of each address.
#[derive(Debug, Default)]
pub(in crate::http) struct Peers(Arc<ConcurrencyLimits<Peer>>);

/// A connection that counts for its address until it is dropped.
pub(in crate::http) type PeerPermit = Permit<Peer>;

impl Peers {
    /// Counts one more connection of a peer, unless it has `most` of them.
    pub(in crate::http) fn admit(&self, peer: Peer, most: usize) -> Option<PeerPermit> {
        self.0.acquire(peer, most)
    }
}

/// The addresses that are counted together. Of a request it is an extension, where the peer is the client and no proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::http) struct Peer(IpAddr);

impl Peer {
    /// That of an address.
    pub(in crate::http) fn at(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
            four @ IpAddr::V4(_) => four,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let peers = Peers::default();
        let admit = |address: &str| peers.admit(Peer::at(address.parse().unwrap()), 2);
        for [first, second, third, other] in [
            ["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"],
            ["2001:db8::1", "2001:db8::2", "2001:db8::ffff:1", "2001:db8:0:1::1"],
        ] {
            let held = [admit(first).unwrap(), admit(second).unwrap()];
            assert!(admit(third).is_none());
            assert!(admit(other).is_some());
            drop(held);
            assert!(admit(third).is_some());
        }
        assert!(peers.0.is_empty(), "an address without connections is forgotten");
    }
}
