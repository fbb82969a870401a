/// Error of making, merging or reading a sketch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory could not be obtained.
    #[error(transparent)]
    Memory(#[from] weir_memory::Error),
    /// The memory budget is too small for one key or cell.
    #[error("{given} bytes are too little memory, {least} are the least")]
    TooLittleMemory {
        /// The budget, in bytes.
        given: usize,
        /// The least sufficient memory, in bytes.
        least: usize,
    },
    /// A parameter has an invalid value.
    #[error("{name} is {given}, it must be {must}")]
    Parameter {
        /// Name of the parameter.
        name: &'static str,
        /// Value of the parameter.
        given: f64,
        /// Condition that the value must meet.
        must: &'static str,
    },
    /// The sketches differ in this property, so they cannot be merged.
    #[error("sketches of different {what} cannot be merged: {mine} here, {theirs} there")]
    Differs {
        /// Name of the property.
        what: &'static str,
        /// Value in the sketch that was to be changed.
        mine: u64,
        /// Value in the other sketch.
        theirs: u64,
    },
    /// The sum of the totals exceeds 2^63.
    #[error("the totals of both sketches together pass 2^63")]
    TooMuch,
    /// The bytes are not an image of such a sketch.
    #[error("offset {offset}: {why}")]
    Image {
        /// Offset in the image, in bytes.
        offset: usize,
        /// Error found at that offset.
        why: &'static str,
    },
    /// The bytes are not an image of an Apache DataSketches HyperLogLog sketch.
    #[error("{0}")]
    Apache(String),
}

/// Refuses a merge if the sketches differ in `what`.
pub(crate) fn alike(what: &'static str, mine: u64, theirs: u64) -> Result<(), Error> {
    if mine == theirs {
        Ok(())
    } else {
        Err(Error::Differs { what, mine, theirs })
    }
}
