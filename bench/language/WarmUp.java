import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.function.BiConsumer;
import weir.Batch;
import weir.Options;
import weir.Source;

/**
 * Has the calls of small batches compiled before they are measured. A capture file gives few batches, so that the calls for each batch would
 * otherwise be interpreted for most of a launch; and a live capture would lose packets while they are compiled.
 */
final class WarmUp {
    /** Openings of a source: as many calls of a loop as the JVM wants before it compiles it for good, or as few as a check of the programs wants. */
    private static final int OPENINGS = Integer.getInteger("openings", 1000);

    /** Readings of the file for each opening: each one is a batch. */
    private static final int READINGS = 60;

    /** Packets of a batch: about those of a burst of AF_XDP. */
    private static final int PACKETS = 256;

    private WarmUp() {}

    /** Gives sources of small batches to {@code work}, which takes them all. */
    static void run(Options options, BiConsumer<Source, Batch> work) {
        try (Batch batch = new Batch()) {
            Path file = Files.createTempFile("warm-up", ".pcap");
            try {
                Files.write(file, udp());
                String[] names = Collections.nCopies(READINGS, file.toString()).toArray(String[]::new);
                for (int i = 0; i < OPENINGS; i++) {
                    try (Source source = Source.open(options, names)) {
                        work.accept(source, batch);
                    }
                }
            } finally {
                Files.delete(file);
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** A capture file of UDP packets of 64 bytes. */
    private static byte[] udp() {
        ByteBuffer bytes = ByteBuffer.allocate(24 + 80 * PACKETS).order(ByteOrder.LITTLE_ENDIAN);
        bytes.put(records(0, true));
        for (int i = 0; i < PACKETS; i++) {
            int frame = bytes.position() + 16;
            bytes.put(records(1, false));
            // Ethernet with IPv4, its length and protocol, and the length of UDP.
            bytes.put(frame + 12, (byte) 8).put(frame + 14, (byte) 0x45).put(frame + 17, (byte) 50);
            bytes.put(frame + 23, (byte) 17).put(frame + 39, (byte) 30);
        }
        return bytes.array();
    }

    /** Bytes of frames of 64 zeros in a capture file, behind the head of one if that is asked for. */
    static byte[] records(int packets, boolean head) {
        ByteBuffer bytes = ByteBuffer.allocate((head ? 24 : 0) + 80 * packets).order(ByteOrder.LITTLE_ENDIAN);
        for (int word : head ? new int[] {0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1} : new int[0]) {
            bytes.putInt(word);
        }
        for (int i = 0; i < packets; i++) {
            bytes.putInt(0).putInt(0).putInt(64).putInt(64).put(new byte[64]);
        }
        return bytes.array();
    }
}
