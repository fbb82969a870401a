//! Ports as sinks of a run.

use super::{BATCH, Port, PortFault, interface, mtu, offload};
use crate::name::Name;
use crate::sink::{End, Kind, Note, Packets, Sink, SinkFault, SinkReport};
use weir_packet::Frame;
use weir_packet::savefile::{Layout, Record};

/// A sink that sends packets through a port.
pub struct PortSink {
    /// The port.
    pub port: Port,
    /// Largest length to send, bytes: longer packets are cut. 0 means no limit.
    pub snaplen: u32,
    /// Whether each packet is sent at once.
    pub flush_each: bool,
    /// Finisher of frames that are forwarded from another interface.
    pub finisher: Option<Finisher>,
}

/// Finishes frames whose sender left a part to its interface: fills in checksums, and cuts TCP segments longer than the MTU.
#[derive(Debug)]
pub struct Finisher {
    /// Largest packet of the port without the link header, bytes.
    mtu: usize,
    scratch: Vec<u8>,
    /// Frames that were cut, and the resulting frames.
    cut: (u64, u64),
}

impl Finisher {
    /// A finisher for a port; `None` for one without an MTU, such as `null`.
    pub fn new(port: &Name) -> Option<Self> {
        interface(port).and_then(mtu).map(|mtu| Self {
            mtu,
            scratch: Vec::new(),
            cut: (0, 0),
        })
    }

    fn left(&self, frame: &[u8]) -> Option<offload::Left> {
        offload::left(frame, self.mtu)
    }
}

/// The end of a sink whose port failed.
pub(crate) fn failed(fault: PortFault) -> End {
    End::Failed(SinkFault::Port(fault))
}

impl PortSink {
    /// Returns the bytes of a packet to send, and whether they are fewer than its wire length.
    /// **Errors**: the packet's link type differs from the port's.
    fn part<'a>(
        &self,
        layout: &Layout,
        record: &Record<'a>,
    ) -> Result<(&'a [u8], bool), PortFault> {
        let Frame {
            mut data,
            wire_len,
            interface,
        } = record.frame;
        self.port
            .check(layout.interfaces[interface as usize].link)?;
        if self.snaplen != 0 {
            data = &data[..data.len().min(self.snaplen as usize)];
        }
        Ok((data, data.len() < wire_len as usize))
    }

    /// Sends what comes of a frame on which work is left. Frames taken before must have been sent.
    fn finish(&mut self, frame: &[u8], left: offload::Left) -> Result<(), PortFault> {
        let Some(Finisher { mtu, scratch, cut }) = &mut self.finisher else {
            return Ok(());
        };
        let mut frames = 0;
        let taken = offload::finish(frame, left, *mtu, scratch, |frame| {
            frames += 1;
            self.port.take(frame, false)
        });
        if frames > 1 {
            cut.0 += 1;
            cut.1 += frames;
        }
        taken.and_then(|()| self.port.flush())
    }

    /// Sends a packet, whose data may be `cut`. The port counts it, whatever becomes of it.
    fn send(&mut self, data: &[u8], cut: bool) -> Result<(), PortFault> {
        match self
            .finisher
            .as_mut()
            .filter(|_| !cut)
            .and_then(|finisher| finisher.left(data))
        {
            Some(left) => {
                self.port.flush()?;
                self.finish(data, left)?;
            }
            None => self.port.take(data, cut)?,
        }
        if self.flush_each {
            self.port.flush()?;
        }
        Ok(())
    }

    /// Sends the packets of a batch without a copy. Returns the number of packets that the port has counted.
    fn send_in_place(&mut self, packets: &Packets<'_>) -> (u64, Result<(), PortFault>) {
        let (mut frames, mut waiting) = ([&[][..]; BATCH], 0);
        let mut taken = 0;
        let mut sent = self.port.flush();
        packets.in_place(|record| {
            let part = if sent.is_ok() {
                self.part(packets.layout(), &record)
            } else {
                return;
            };
            sent = part.and_then(|(data, cut)| {
                taken += 1;
                if let Some(left) = self
                    .finisher
                    .as_ref()
                    .filter(|_| !cut)
                    .and_then(|finisher| finisher.left(data))
                {
                    // The order stays.
                    self.port.send(&frames[..std::mem::take(&mut waiting)])?;
                    return self.finish(data, left);
                }
                if !self.port.is_for_device(data, cut) {
                    return Ok(());
                }
                frames[waiting] = data;
                waiting += 1;
                if waiting < BATCH {
                    return Ok(());
                }
                waiting = 0;
                self.port.send(&frames)
            });
        });
        // The frames before a refused one are still sent.
        let rest = self.port.send(&frames[..waiting]);
        (taken, sent.and(rest))
    }
}

impl Sink for PortSink {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let sent = self
            .part(layout, record)
            .and_then(|(data, cut)| self.send(data, cut));
        sent.map_err(failed)
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        let (taken, sent) = if self.flush_each {
            let (mut taken, mut sent) = (0, Ok(()));
            packets.in_place(|record| {
                let part = match &sent {
                    Ok(()) => self.part(packets.layout(), &record),
                    Err(_) => return,
                };
                sent = part.and_then(|(data, cut)| {
                    taken += 1;
                    self.send(data, cut)
                });
            });
            (taken, sent)
        } else {
            self.send_in_place(packets)
        };
        (taken, sent.map_err(failed))
    }

    fn flush(&mut self) -> Result<(), End> {
        self.port.flush().map_err(failed)
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        self.port.finish().map_err(failed)
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let (counts, null) = (self.port.counts(), self.port.is_null());
        let cut = (counts.cut > 0 && !null).then_some(Note::Cut {
            packets: counts.cut,
        });
        let (whole, pieces) = self
            .finisher
            .as_ref()
            .map_or((0, 0), |finisher| finisher.cut);
        SinkReport {
            taken: counts.sent,
            pieces: pieces - whole,
            lost: self.port.lost(),
            kind: if null { Kind::Discarded } else { Kind::Sent },
            notes: cut.into_iter().chain(self.port.note()).collect(),
            ..SinkReport::default()
        }
    }
}
