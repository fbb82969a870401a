//! The server name in the first message of a TLS connection.
//!
//! [`Hello::read`] looks at the first bytes of a TCP payload. A client that begins a TLS connection sends a ClientHello there (RFC 8446,
//! 4.1.2), and tells in it the name of the wanted server, not encrypted (RFC 6066, 3). All lengths are claims: each part is read within
//! the claim of the part around it, and within the captured bytes. Nothing here allocates. A message that goes on in another
//! segment or record is not put together: a name in its first part is found, any other is not.

/// Beginning of a connection, as the first bytes of its payload tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello<'a> {
    /// No ClientHello.
    Other,
    /// A ClientHello with this name: bytes of the packet, hostile, of any length and content.
    Named(&'a [u8]),
    /// A ClientHello without a name.
    Unnamed,
    /// A ClientHello that goes on after these bytes, without a name so far.
    Cut,
    /// A ClientHello with a part that is longer than the part around it.
    Malformed,
}

/// Type of a record that carries messages of the handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;
/// Type of a ClientHello (RFC 8446, 4).
const CLIENT_HELLO: u8 = 1;
/// Type of the extension with the server name, and of a host name in it (RFC 6066, 3).
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// Bytes of the header of a record.
const RECORD: usize = 5;

impl<'a> Hello<'a> {
    /// Reads the payload of a TCP segment. **Cost**: a look at six bytes, unless it begins a connection; then linear in the number of
    /// extensions.
    pub fn read(payload: &'a [u8]) -> Self {
        let &[HANDSHAKE, 3, _, high, low, CLIENT_HELLO, ..] = payload else {
            return Self::Other;
        };
        let record = Part {
            have: &payload[RECORD..],
            len: usize::from(u16::from_be_bytes([high, low])),
        };
        match name(record) {
            Ok(Some(name)) => Self::Named(name),
            Ok(None) => Self::Unnamed,
            Err(Stop::Cut) => Self::Cut,
            Err(Stop::Malformed) => Self::Malformed,
        }
    }
}

/// Reason to stop in front of a name.
#[derive(Clone, Copy, Debug)]
enum Stop {
    Cut,
    Malformed,
}

/// Part of a message, of which the first bytes were captured.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    have: &'a [u8],
    /// Bytes that the part claims to have.
    len: usize,
}

impl<'a> Part<'a> {
    /// Takes `len` bytes from the front.
    fn take(&mut self, len: usize) -> Result<Self, Stop> {
        self.len = self.len.checked_sub(len).ok_or(Stop::Malformed)?;
        let (have, rest) = self.have.split_at(len.min(self.have.len()));
        self.have = rest;
        Ok(Self { have, len })
    }

    /// Takes a number of `N` bytes, the highest first.
    fn number<const N: usize>(&mut self) -> Result<usize, Stop> {
        let bytes = self.take(N)?.have;
        let bytes: &[u8; N] = bytes.try_into().map_err(|_| Stop::Cut)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Takes a part that begins with its length, a number of `N` bytes.
    fn part<const N: usize>(&mut self) -> Result<Self, Stop> {
        let len = self.number::<N>()?;
        self.take(len)
    }

    /// All bytes of the part.
    fn whole(self) -> Result<&'a [u8], Stop> {
        let have = self.have.get(..self.len);
        have.ok_or(Stop::Cut)
    }
}

/// Name in the ClientHello that a record begins with.
fn name(mut record: Part<'_>) -> Result<Option<&[u8]>, Stop> {
    record.number::<1>()?;
    let len = record.number::<3>()?;
    // The message may go on in further records.
    let goes_on = len > record.len;
    let mut hello = record.take(len.min(record.len))?;
    let found = in_hello(&mut hello);
    match found {
        Ok(None) | Err(Stop::Malformed) if goes_on => Err(Stop::Cut),
        found => found,
    }
}

fn in_hello<'a>(hello: &mut Part<'a>) -> Result<Option<&'a [u8]>, Stop> {
    // Version and random bytes.
    hello.take(2 + 32)?;
    // Session, cipher suites and compression methods.
    hello.part::<1>()?;
    hello.part::<2>()?;
    hello.part::<1>()?;
    if hello.len == 0 {
        return Ok(None);
    }
    let mut extensions = hello.part::<2>()?;
    while extensions.len > 0 {
        let kind = extensions.number::<2>()?;
        let mut extension = extensions.part::<2>()?;
        if kind == usize::from(SERVER_NAME) {
            return in_list(extension.part::<2>()?);
        }
    }
    Ok(None)
}

fn in_list(mut list: Part<'_>) -> Result<Option<&[u8]>, Stop> {
    while list.len > 0 {
        let kind = list.number::<1>()?;
        let name = list.part::<2>()?;
        if kind == usize::from(HOST_NAME) {
            return name.whole().map(Some);
        }
    }
    Ok(None)
}
