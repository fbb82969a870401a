//! Compressed captures: the decoders of several libraries, behind one function.

use std::io::{self, BufRead, BufReader, Read};
use weir_packet::savefile::magic::Compression;

/// Bytes of compressed input read at once.
const INPUT: usize = 256 << 10;

/// Default limit of the window of zstd data, in bytes; the zstd library and its command have the same limit.
pub const ZSTD_WINDOW: u64 = 128 << 20;

/// Smallest and largest window of the format on a 64-bit machine, in bytes.
pub const ZSTD_WINDOWS: (u64, u64) = (1 << 10, 1 << 31);

/// Creates a decoder over `source`; successive members or frames are read as one stream.
///
/// The limit of the window of zstd data is `zstd_window` bytes, rounded up to a power of two. If a header asks for more, the
/// decoder refuses the data before it takes the memory.
pub fn decoder(
    kind: Compression,
    source: impl Read + Send + 'static,
    zstd_window: u64,
) -> io::Result<Box<dyn Read + Send>> {
    let source = BufReader::with_capacity(INPUT, source);
    let (name, decoder): (_, Box<dyn Read + Send>) = match kind {
        Compression::Gzip => (
            "gzip",
            Box::new(flate2::bufread::MultiGzDecoder::new(source)),
        ),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
            let largest = zstd_window
                .clamp(ZSTD_WINDOWS.0, ZSTD_WINDOWS.1)
                .next_power_of_two();
            decoder.window_log_max(largest.ilog2())?;
            ("zstd", Box::new(Windowed { decoder, largest }))
        }
        Compression::Lz4 => (
            "lz4",
            Box::new(Lz4Frames {
                decoder: lz4_flex::frame::FrameDecoder::new(source),
            }),
        ),
    };
    Ok(Box::new(Named { name, decoder }))
}

/// Zstd decoder whose error names the refused window, because the library's error names neither a size nor a remedy.
struct Windowed<R: Read> {
    decoder: R,
    largest: u64,
}

impl<R: Read> Read for Windowed<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buf).map_err(|error| {
            if !error.to_string().contains("requires too much memory") {
                return error;
            }
            let (limit, most) = (self.largest >> 20, ZSTD_WINDOWS.1 >> 30);
            let why = format!(
                "the zstd data needs a window of more than {limit}M of memory: --zstd-window SIZE allows one of up to {most}G"
            );
            io::Error::new(io::ErrorKind::OutOfMemory, why)
        })
    }
}

/// Decoder whose errors name the format, because the libraries' errors do not.
struct Named {
    name: &'static str,
    decoder: Box<dyn Read + Send>,
}

impl Read for Named {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buf).map_err(|error| match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory, _) | (_, Some(_)) => error,
            (kind, None) => {
                let name = self.name;
                io::Error::new(
                    kind,
                    format!("the {name} data ends early, is damaged, or other data follows it ({error})"),
                )
            }
        })
    }
}

/// Decoder that reads lz4 frames one after another.
struct Lz4Frames<R: BufRead> {
    decoder: lz4_flex::frame::FrameDecoder<R>,
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.decoder.read(buf)? {
                // The decoder returns 0 at the end of each frame and begins the next frame at the next call.
                0 if !self.decoder.get_mut().fill_buf()?.is_empty() => {}
                n => return Ok(n),
            }
        }
    }
}
