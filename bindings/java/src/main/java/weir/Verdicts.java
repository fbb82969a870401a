package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;

/** Verdicts of a program on the packets of a batch, a bit each, for {@link Sink#send(Batch, Verdicts)}. Grows as batches do. */
public final class Verdicts {
    private MemorySegment words = Arena.ofAuto().allocate(8 * 64, 8);
    private int size;
    private Batch batch;
    private long generation;

    /** Begins with a batch: no packet passes. */
    public void begin(Batch batch) {
        batch.checkHeld();
        size = batch.size;
        this.batch = batch;
        generation = batch.generation();
        long bytes = (size + 63) / 64 * 8L;
        if (bytes > words.byteSize()) {
            words = Arena.ofAuto().allocate(bytes * 2, 8);
        }
        words.asSlice(0, bytes).fill((byte) 0);
    }

    /** Lets a packet pass. */
    public void pass(int number) {
        Objects.checkIndex(number, size);
        long at = (number >> 6) * 8L;
        words.set(ValueLayout.JAVA_LONG, at, words.get(ValueLayout.JAVA_LONG, at) | 1L << number);
    }

    /** Sets the verdicts on 64 packets at once: bit i is that on packet {@code 64 * word + i}. */
    public void set(int word, long bits) {
        Objects.checkIndex(word, (size + 63) / 64);
        int left = size - word * 64;
        words.set(ValueLayout.JAVA_LONG, word * 8L, left < 64 ? bits & (1L << left) - 1 : bits);
    }

    /** Whether a packet passes. */
    public boolean passes(int number) {
        Objects.checkIndex(number, size);
        return (words.get(ValueLayout.JAVA_LONG, (number >> 6) * 8L) >>> number & 1) == 1;
    }

    /** Returns the number of packets that pass. */
    public int passed() {
        int passed = 0;
        for (int word = 0; word < (size + 63) / 64; word++) {
            passed += Long.bitCount(words.get(ValueLayout.JAVA_LONG, word * 8L));
        }
        return passed;
    }

    MemorySegment words(Batch batch) {
        if (batch != this.batch || generation != batch.generation()) {
            throw new IllegalStateException("the verdicts are those of another batch");
        }
        return words;
    }
}
