//! Tables that several workers update.

use super::{Sketch, cms, reversible, sets::Flows};
use crate::state::stored_kinds;
use crate::{Config, Error, KeyKind, Slot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use weir_packet::flow::FlowKey;
use weir_sketch::{SharedCms, SharedExact, SharedReversibleSets, SharedSimpleTable};

/// Table that several workers update.
#[derive(Clone, Debug)]
pub(crate) enum Shared {
    Exact(Arc<SharedExact<FlowKey>>),
    Cms(Arc<SharedCms>),
    Simple(Arc<SharedSimpleTable<FlowKey>>),
    Reversible(Arc<reversible::SharedCells>),
    Sets(Arc<SharedReversibleSets<Flows>>),
}

/// Shared tables of the open windows.
#[derive(Debug, Default)]
pub struct SharedTables(Mutex<BTreeMap<Slot, Vec<Shared>>>);

impl SharedTables {
    /// Returns the tables of a window, one for each [stored kind](stored_kinds) of key. The first call for a window creates them.
    pub(crate) fn of(&self, config: &Config, slot: Slot) -> Result<Vec<Shared>, Error> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tables) = windows.get(&slot) {
            return Ok(tables.clone());
        }
        let tables: Vec<Shared> = stored_kinds(&config.keys)
            .into_iter()
            .map(|kind| Shared::new(config, kind))
            .collect::<Result<_, _>>()?;
        windows.insert(slot, tables.clone());
        Ok(tables)
    }

    /// Removes the tables of a complete window.
    pub(crate) fn forget(&self, slot: Slot) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&slot);
    }
}

impl Shared {
    fn new(config: &Config, kind: KeyKind) -> Result<Self, Error> {
        let Config {
            memory,
            seed,
            request,
            ..
        } = config;
        match config.sketch {
            Sketch::Cms { conservative } => {
                cms::shared_cells(config, conservative).map(|cells| Self::Cms(Arc::new(cells)))
            }
            Sketch::Reversible => {
                let cells = reversible::shared_cells(config, kind)?;
                Ok(Self::Reversible(Arc::new(cells)))
            }
            Sketch::ReversibleSets => {
                let table = SharedReversibleSets::new(*memory, *seed)?;
                Ok(Self::Sets(Arc::new(table)))
            }
            Sketch::Simple => {
                let table = SharedSimpleTable::new(*memory, *seed, request)?;
                Ok(Self::Simple(Arc::new(table)))
            }
            // The check of the settings refuses shared tables of the other sketches: see `Sketch::can_be_shared`.
            Sketch::Exact | Sketch::Heavy | Sketch::Majority => {
                let new = match config.times {
                    true => SharedExact::with_times,
                    false => SharedExact::new,
                };
                let table = new(*memory, *seed, request)?;
                Ok(Self::Exact(Arc::new(table)))
            }
        }
    }
}
