/// Why a sketch could not be made, merged or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory could not be had.
    #[error(transparent)]
    Memory(#[from] weir_memory::Error),
    /// The budget does not hold one key or cell.
    #[error("{given} bytes are too little memory, {least} are the least")]
    TooLittleMemory {
        /// The budget, in bytes.
        given: usize,
        /// What would do, in bytes.
        least: usize,
    },
    /// A parameter has a value that makes no sense.
    #[error("{name} is {given}, it must be {must}")]
    Parameter {
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        given: f64,
        /// What it must be.
        must: &'static str,
    },
    /// Sketches that differ in this cannot be merged.
    #[error("sketches of different {what} cannot be merged: {mine} here, {theirs} there")]
    Differs {
        /// What is different.
        what: &'static str,
        /// Its value in the sketch that was to grow.
        mine: u64,
        /// Its value in the other.
        theirs: u64,
    },
    /// The totals of both together pass 2^63.
    #[error("the totals of both sketches together pass 2^63")]
    TooMuch,
    /// The bytes are no image of such a sketch.
    #[error("offset {offset}: {why}")]
    Image {
        /// Where in the image, in bytes.
        offset: usize,
        /// What is wrong there.
        why: &'static str,
    },
    /// The bytes are no image of an Apache DataSketches HyperLogLog sketch.
    #[error("{0}")]
    Apache(String),
}

/// Refuses a merge if the sketches differ in `what`.
pub(crate) fn alike(what: &'static str, mine: u64, theirs: u64) -> Result<(), Error> {
    if mine == theirs { Ok(()) } else { Err(Error::Differs { what, mine, theirs }) }
}
