//! weir for Python: the part of the package `weir` that is in Rust.
//!
//! Sources, batches and sinks of `weir_api` as Python objects. Columns and frames reach Python by the buffer protocol, tables by the Arrow
//! C data interface; neither is copied. The interpreter's lock is released while packets are waited for and read.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "structures of the Arrow C data interface")]
mod arrow;
mod batch;
#[allow(unsafe_code, reason = "views of the buffer protocol")]
mod buffer;
mod error;
mod fields;
mod gather;
mod measure;
mod process;
mod record;
mod sink;
mod source;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _weir {
    #[pymodule_export]
    use crate::batch::{Batch, Region};
    #[pymodule_export]
    use crate::buffer::{Column, Frame};
    #[pymodule_export]
    use crate::error::{Closed, Failed, Refused, WeirError};
    #[pymodule_export]
    use crate::measure::Measurement;
    #[pymodule_export]
    use crate::record::Recording;
    #[pymodule_export]
    use crate::sink::{Sink, SinkCounts};
    #[pymodule_export]
    use crate::source::{Counts, Source};

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::process::listen(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add(
            "FIELDS",
            crate::fields::Field::ALL
                .map(crate::fields::Field::name)
                .to_vec(),
        )
    }
}
