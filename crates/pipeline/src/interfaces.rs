//! One table of interfaces for packets of several sources.

use crate::reader::SourceError;
use weir_packet::LinkType;
use weir_packet::savefile::Layout;

/// All interfaces met so far, equal interfaces once: the interfaces of a layout of [`Format::Spool`].
#[derive(Debug)]
pub(crate) struct Interfaces(Layout);

impl Default for Interfaces {
    fn default() -> Self {
        Self(Layout::spool(Vec::new()))
    }
}

/// For each byte order, the place of each interface of one source in the table.
pub(crate) type Ids = [Vec<u32>; 2];

impl Interfaces {
    pub fn len(&self) -> usize {
        self.0.interfaces.len()
    }

    /// Returns the layout of packets of these interfaces.
    pub fn layout(&self) -> Layout {
        self.0.clone()
    }

    /// Returns the index in the table of interface number `interface` of a source with this layout.
    #[inline]
    pub fn id(
        &mut self,
        ids: &mut Ids,
        layout: &Layout,
        interface: u32,
    ) -> Result<u32, SourceError> {
        let known = |ids: &Ids| {
            ids[usize::from(layout.big_endian)]
                .get(interface as usize)
                .copied()
        };
        match known(ids) {
            Some(id) => Ok(id),
            None => {
                self.announce(ids, layout)?;
                Ok(known(ids).expect("all interfaces of the layout have a place now"))
            }
        }
    }

    /// Returns the index in the table of interface number `interface` of a source whose packets have been taken. The interface
    /// itself may have no packets.
    pub fn place(
        &mut self,
        ids: &mut Ids,
        layout: &Layout,
        interface: u32,
    ) -> Result<u32, SourceError> {
        // One byte order has all interfaces, unless the sections of the source differ in it.
        match ids.iter().find_map(|ids| ids.get(interface as usize)) {
            Some(&id) => Ok(id),
            None => self.id(ids, layout, interface),
        }
    }

    /// Adds the texts of sections and the blocks about packets of a source that are not here yet. Returns whether there are new
    /// ones.
    #[cold]
    pub fn carry(&mut self, layout: &Layout) -> bool {
        let count = |layout: &Layout| layout.carried.len() + layout.notes.len();
        let before = count(&self.0);
        self.0.carry(layout);
        count(&self.0) > before
    }

    /// Adds the interfaces of a source that are not in the table yet. **Errors**: too many interfaces.
    #[cold]
    pub fn announce(&mut self, ids: &mut Ids, layout: &Layout) -> Result<(), SourceError> {
        let ids = &mut ids[usize::from(layout.big_endian)];
        for interface in layout.interfaces.iter_from(ids.len()) {
            let mut interface = interface.clone();
            // The address family of a BSD loopback frame has the byte order of its file, but spooled packets have no file.
            if layout.big_endian && interface.link == LinkType::NULL {
                interface.link = LinkType::LOOP;
            }
            ids.push(self.0.describe(interface).map_err(SourceError::Format)?);
        }
        Ok(())
    }
}
