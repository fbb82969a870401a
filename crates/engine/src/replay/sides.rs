//! The two sides of a connection: clients and servers, told from one packet alone.

use weir_packet::flow::FlowKey;

/// Whether a packet of this key comes from the server of its connection.
///
/// The end with the lower port is the server; of equal ports, or without ports, the end with the lower address. So both directions of a
/// connection get different sides, whatever was seen of it before.
pub(super) fn is_from_server(key: &FlowKey) -> bool {
    (key.sport, key.src) < (key.dport, key.dst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directions_of_a_connection_are_of_two_sides() {
        let end = |last: u8, port: u16| {
            let mut address = [0; 16];
            address[3] = last;
            (address, port)
        };
        for (client, server) in [
            (end(1, 40_000), end(2, 443)),
            (end(2, 40_000), end(1, 443)),
            (end(2, 5060), end(1, 5060)),
            (end(9, 0), end(8, 0)),
        ] {
            let key = |from: ([u8; 16], u16), to: ([u8; 16], u16)| FlowKey {
                src: from.0,
                dst: to.0,
                sport: from.1,
                dport: to.1,
                ..FlowKey::NONE
            };
            assert!(is_from_server(&key(server, client)));
            assert!(!is_from_server(&key(client, server)));
        }
    }
}
