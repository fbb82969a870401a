//! Interfaces of another network namespace.
//!
//! ```text
//! netns:blue/eth0            an interface of a namespace that `ip netns` lists
//! pid:1234/eth0              an interface of the namespace of a process
//! af_xdp:netns:blue/eth0:1   the same, by a backend that is named
//! ```

use crate::capture::CaptureError;
use weir_io::sys::namespace::Namespace;
use weir_io::sys::packet_socket;

/// Prefix of an interface of a namespace that `ip netns` lists.
pub const NETNS: &str = "netns:";
/// Prefix of an interface of the namespace of a process.
pub const PID: &str = "pid:";

/// Whether the name of an interface names a namespace too, or seems to.
pub fn is_namespaced(interface: &str) -> bool {
    interface.starts_with(NETNS) || interface.starts_with(PID)
}

/// Returns the namespace that the name of an interface names, and the name of the interface there; `None` for an interface of this
/// namespace. **Errors**: a name that has another form, or names all interfaces.
pub fn namespace_of(interface: &str) -> Result<Option<(Namespace, &str)>, CaptureError> {
    let found = if let Some(rest) = interface.strip_prefix(NETNS) {
        let is_name = |name: &str| !name.contains('/') && name != "." && name != "..";
        place_of(rest)
            .filter(|name| is_name(name))
            .map(|name| Namespace::Named(name.to_owned()))
    } else if let Some(rest) = interface.strip_prefix(PID) {
        place_of(rest).and_then(|number| number.parse().ok().map(Namespace::Process))
    } else {
        return Ok(None);
    };
    let bare = bare(interface);
    match found {
        // Numbers of interfaces have names in their own namespace only.
        Some(_) if bare == packet_socket::ANY => Err(CaptureError::AnyInNamespace),
        Some(namespace) if !bare.is_empty() => Ok(Some((namespace, bare))),
        _ => Err(CaptureError::Namespaced),
    }
}

/// The text before the last slash, if there is some.
fn place_of(rest: &str) -> Option<&str> {
    let (place, _) = rest.rsplit_once('/')?;
    (!place.is_empty()).then_some(place)
}

/// The name of the interface in its own namespace.
pub fn bare(interface: &str) -> &str {
    match is_namespaced(interface) {
        true => interface.rsplit('/').next().unwrap_or(interface),
        false => interface,
    }
}

/// Words in front of a command that is to run in the namespace of the interface: `ip netns exec blue `; none for this namespace.
pub fn command_words(interface: &str) -> String {
    match namespace_of(interface) {
        Ok(Some((Namespace::Named(name), _))) => format!("ip netns exec {name} "),
        Ok(Some((Namespace::Process(number), _))) => format!("nsenter -t {number} -n "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Live;
    use crate::name::Name;

    #[test]
    fn a_name_says_the_namespace_and_the_interface_there() {
        let named = |name: &str| Namespace::Named(name.to_owned());
        for (text, expected) in [
            ("netns:blue/eth0", Some((named("blue"), "eth0"))),
            ("netns:a:b/eth0", Some((named("a:b"), "eth0"))),
            ("pid:12/veth-1", Some((Namespace::Process(12), "veth-1"))),
            ("eth0", None),
        ] {
            assert_eq!(namespace_of(text).unwrap(), expected, "{text}");
        }
        for wrong in [
            "netns:blue",
            "netns:/eth0",
            "netns:../eth0",
            "netns:a/b/eth0",
            "pid:x/eth0",
            "pid:7/",
            "pid:/eth0",
            "pid:7",
            "pid:-1/eth0",
            "pid:99999999999/eth0",
        ] {
            let error = namespace_of(wrong).unwrap_err();
            assert!(
                matches!(error, CaptureError::Namespaced),
                "{wrong}: {error}"
            );
        }
        let all = namespace_of("pid:1/any").unwrap_err();
        assert!(matches!(all, CaptureError::AnyInNamespace), "{all}");
    }

    #[test]
    fn backends_and_queues_stand_around_it() {
        for (text, expected) in [
            ("netns:blue/eth0", Live::AfPacket("netns:blue/eth0")),
            ("af_packet:pid:7/eth0", Live::AfPacket("pid:7/eth0")),
            ("af_xdp:netns:a:1/eth0", Live::AfXdp("netns:a:1/eth0", None)),
            (
                "af_xdp:netns:a/eth0:1",
                Live::AfXdp("netns:a/eth0", Some("1")),
            ),
            ("af_xdp:eth0:2", Live::AfXdp("eth0", Some("2"))),
        ] {
            assert_eq!(Live::of(&Name::from(text)), Some(expected), "{text}");
        }
        assert_eq!(command_words("netns:blue/eth0"), "ip netns exec blue ");
        assert_eq!(command_words("pid:7/eth0"), "nsenter -t 7 -n ");
        assert_eq!(command_words("eth0"), "");
    }
}
