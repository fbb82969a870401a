//! Compressed captures: the decoders of well-kept libraries, behind one door.

use std::io::{self, BufRead, BufReader, Read};
use weir_packet::savefile::magic::Compression;

/// Bytes of compressed input read at once.
const INPUT: usize = 256 << 10;

/// A decoder over `source`; members or frames that follow each other are read as one.
pub fn decoder(kind: Compression, source: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let source = BufReader::with_capacity(INPUT, source);
    let (name, decoder): (_, Box<dyn Read + Send>) = match kind {
        Compression::Gzip => ("gzip", Box::new(flate2::bufread::MultiGzDecoder::new(source))),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
            // Files of `zstd --long` need a larger window than the default limit.
            decoder.window_log_max(31)?;
            ("zstd", Box::new(decoder))
        }
        Compression::Lz4 => ("lz4", Box::new(Lz4Frames { decoder: lz4_flex::frame::FrameDecoder::new(source) })),
    };
    Ok(Box::new(Named { name, decoder }))
}

/// Says of a decoder's error what it is about: the libraries' own words name no format.
struct Named {
    name: &'static str,
    decoder: Box<dyn Read + Send>,
}

impl Read for Named {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buf).map_err(|error| match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::Interrupted, _) | (_, Some(_)) => error,
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

/// Reads lz4 frames one after another.
struct Lz4Frames<R: BufRead> {
    decoder: lz4_flex::frame::FrameDecoder<R>,
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.decoder.read(buf)? {
                // The decoder says 0 at the end of each frame and begins the next one at the next call.
                0 if !self.decoder.get_mut().fill_buf()?.is_empty() => {}
                n => return Ok(n),
            }
        }
    }
}
