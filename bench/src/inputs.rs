//! Capture files to measure on. They are newly written, so that the page cache holds them in the folios that the comparison
//! needs.

use anyhow::Context;
use nix::unistd::sync;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Interface, Resolution};
use weir_packet::{Frame, LinkType};

/// Size of the writes that make a file, which decides on the folios of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// Pieces of 4 MiB: large folios.
    Large,
    /// Pieces of 4 KiB, as in a program that writes through stdio: small folios.
    Small,
}

impl Pieces {
    fn bytes(self) -> usize {
        match self {
            Self::Large => 4 << 20,
            Self::Small => 4 << 10,
        }
    }
}

/// A capture file with known answers.
#[derive(Debug)]
pub struct Input {
    /// Path of the file.
    pub path: PathBuf,
    /// Description for a heading.
    pub title: String,
    /// Size of the file, bytes.
    pub bytes: u64,
    /// Packets in the file.
    pub packets: u64,
}

/// Writes a pcap of at least `bytes` bytes.
pub fn make(
    folder: &Path,
    name: &str,
    sizes: Sizes,
    bytes: u64,
    pieces: Pieces,
) -> anyhow::Result<Input> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join(name);
    // A new file does not reuse pages of the old one.
    let _ = fs::remove_file(&path);
    let mut file = File::create(&path).with_context(|| path.display().to_string())?;
    let profile = Profile {
        sizes,
        packets: u64::MAX,
        flows: 1_000_000,
        ..Profile::default()
    };
    let mut generator = Generator::new(&profile)?;
    let mut encoder = Encoder::new(Format::Pcap, 0);
    let interface = Interface::plain(
        LinkType::ETHERNET,
        FRAME_MAX as u32,
        Resolution::MICROSECOND,
    );
    let id = encoder.interface(&interface)?;
    let mut buffer = Vec::with_capacity(pieces.bytes() + 2 * FRAME_MAX);
    let mut frame = [0u8; FRAME_MAX];
    let (mut written, mut packets) = (0u64, 0u64);
    while written + (buffer.len() as u64) < bytes {
        let made = generator
            .next(&mut frame)
            .context("the generator has an end")?;
        let data = &frame[..made.len];
        encoder.packet(
            &mut buffer,
            id,
            Some(made.time_ns),
            &Frame {
                data,
                wire_len: made.len as u32,
                interface: 0,
            },
        );
        packets += 1;
        if buffer.len() >= pieces.bytes() {
            file.write_all(&buffer[..pieces.bytes()])?;
            written += pieces.bytes() as u64;
            buffer.drain(..pieces.bytes());
        }
    }
    file.write_all(&buffer)?;
    written += buffer.len() as u64;
    let folios = match pieces {
        Pieces::Large => "large folios",
        Pieces::Small => "small folios",
    };
    let title = format!(
        "{sizes} frames, {} MB, {packets} packets, {folios}",
        written / 1_000_000
    );
    Ok(Input {
        path,
        title,
        bytes: written,
        packets,
    })
}

/// Repeats the records of `input` until the file has at least `bytes` bytes.
pub fn repeat(input: &Input, folder: &Path, name: &str, bytes: u64) -> anyhow::Result<Input> {
    const FILE_HEADER: usize = 24;
    let path = folder.join(name);
    let _ = fs::remove_file(&path);
    let records = fs::read(&input.path)?;
    let mut file = File::create(&path)?;
    file.write_all(&records[..FILE_HEADER])?;
    let (mut written, mut packets) = (FILE_HEADER as u64, 0);
    while written < bytes {
        file.write_all(&records[FILE_HEADER..])?;
        written += (records.len() - FILE_HEADER) as u64;
        packets += input.packets;
    }
    let title = format!("{} MB, {packets} packets", written / 1_000_000);
    Ok(Input {
        path,
        title,
        bytes: written,
        packets,
    })
}

/// Waits until all files are on disk, so that writing them does not disturb the measurement.
pub fn settle() {
    sync();
}
