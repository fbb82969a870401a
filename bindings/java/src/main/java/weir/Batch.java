package weir;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.Reference;
import java.util.Arrays;
import weir.ffi.Native;

/**
 * A batch of packets, where they lie. One object is used for batch after batch: {@link Source#next} fills it, {@link #release} gives
 * the memory back. It belongs to the thread that filled it; another thread's access throws.
 */
public final class Batch implements AutoCloseable {
    static final int DESCRIPTOR = (int) Native.weir_descriptor.LAYOUT.byteSize();
    private static final VarHandle USER;

    static {
        try {
            USER = MethodHandles.lookup().findVarHandle(Batch.class, "user", Thread.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    final MemorySegment struct;
    /** Address of {@link #struct}. */
    private final long at;
    final MemorySegment error;
    private final Packet packet = new Packet(this);
    /** Grows with each fill and each release: odd while a batch is held. */
    private long generation;

    long region;
    long packets;
    int size;
    private int linkType;
    private long verdicts;
    private long lease;
    /** The thread that fills or holds this batch; {@code null} for none. Taken by one thread at a time, and changed by {@link #USER} only. */
    @SuppressWarnings("unused")
    private Thread user;
    /** The thread that holds packets; {@code null} for none. A thread writes its own name or {@code null}, so it reads its name only
     * while it holds them. */
    private Thread holder;
    private Source source;
    /** The life of the segments of this batch; {@code null} while there are none. */
    private Arena life;
    /** Link type of each interface + 1, as far as asked; 0 for those not asked yet. */
    private int[] links = new int[4];

    private long linksOf;

    /** Makes an empty batch. */
    public Batch() {
        WeirException.checkLibrary();
        Arena arena = Arena.ofAuto();
        struct = arena.allocate(Native.weir_batch.LAYOUT);
        error = arena.allocate(ValueLayout.JAVA_LONG);
        at = struct.address();
    }

    /** Takes this batch for the calling thread, which fills it next. */
    void take() {
        if (!USER.compareAndSet(this, null, Thread.currentThread())) {
            throw new IllegalStateException("the batch was not released");
        }
    }

    /** Lets other threads take this batch. */
    void leave() {
        USER.setRelease(this, null);
    }

    WeirException failure(int status) {
        WeirException failure = WeirException.of(status, error);
        error.set(ValueLayout.JAVA_LONG, 0, 0);
        return failure;
    }

    void filled(Source source) {
        this.source = source;
        region = Memory.nativeLong(at + Native.weir_batch.region);
        packets = Memory.nativeLong(at + Native.weir_batch.packets);
        verdicts = Memory.nativeLong(at + Native.weir_batch.verdicts);
        size = Memory.nativeInt(at + Native.weir_batch.len);
        linkType = Memory.nativeInt(at + Native.weir_batch.link_type);
        lease = Memory.nativeLong(at + Native.weir_batch.lease);
        // Until here the structure is there.
        Reference.reachabilityFence(this);
        generation++;
        holder = Thread.currentThread();
        packet.begin(region, packets, size, linkType);
    }

    /** Throws unless this thread holds a batch. */
    void checkHeld() {
        if (Thread.currentThread() != holder) {
            throw refused();
        }
    }

    RuntimeException refused() {
        Thread holder = this.holder;
        return holder == null
            ? new IllegalStateException("the batch was released")
            : new WrongThreadException("the batch belongs to " + holder);
    }

    /** Returns the number of packets, with any verdict. */
    public int size() {
        checkHeld();
        return size;
    }

    /** Returns the number of packets that passed the filter. */
    public int passed() {
        checkHeld();
        return struct.get(ValueLayout.JAVA_INT, Native.weir_batch.passed);
    }

    /** Returns the number of the filter that judged the packets: 0, and 1 more with each {@link Source#setFilter}. */
    public long filter() {
        checkHeld();
        return struct.get(ValueLayout.JAVA_LONG, Native.weir_batch.filter);
    }

    /** Returns the packet of this batch: one object, which {@link Packet#at} points at a packet. */
    public Packet packet() {
        return packet;
    }

    /** Returns 64 verdicts of the filter: bit i is 1 if packet {@code 64 * word + i} passed. */
    public long verdicts(int word) {
        checkHeld();
        java.util.Objects.checkIndex(word, (size + 63) / 64);
        return Memory.nativeLong(verdicts + 8L * word);
    }

    /** Whether a packet passed the filter. */
    public boolean isPassed(int number) {
        checkHeld();
        java.util.Objects.checkIndex(number, size);
        return (Memory.nativeLong(verdicts + 8L * (number >> 6)) >>> number & 1) == 1;
    }

    /**
     * Returns the verdicts of a split, in words of 64 as {@link #verdicts}: read-only, and valid as {@link #region}. Allocates.
     *
     * @param split number of the split in {@link Options#splits}
     */
    public MemorySegment split(int split) {
        checkHeld();
        try (Arena local = Arena.ofConfined()) {
            MemorySegment words = local.allocate(ValueLayout.ADDRESS);
            int status = (int) Native.weir_split.invokeExact(lease(), split, words);
            if (status != Native.WEIR_OK) {
                throw new IndexOutOfBoundsException("there is no split " + split);
            }
            return kept(words.get(ValueLayout.JAVA_LONG, 0), (size + 63) / 64 * 8L);
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /**
     * Returns the memory of the packets, read-only. Only the bytes that {@link #offset} and {@link Packet#captured} name may be read:
     * between the packets of a capture the kernel may write. Allocates.
     *
     * <p>The segment belongs to this thread and dies with the batch: a later access throws.
     */
    public MemorySegment region() {
        checkHeld();
        return kept(region, struct.get(ValueLayout.JAVA_LONG, Native.weir_batch.region_len));
    }

    private MemorySegment kept(long address, long bytes) {
        if (life == null) {
            life = Arena.ofConfined();
        }
        return MemorySegment.ofAddress(address).reinterpret(bytes, life, null).asReadOnly();
    }

    /** Returns the offset of a packet's first byte in the {@link #region}. */
    public long offset(int number) {
        checkHeld();
        java.util.Objects.checkIndex(number, size);
        return Memory.nativeLong(packets + (long) DESCRIPTOR * number);
    }

    /** Returns the link type of an interface of the source: a number of the LINKTYPE registry, such as 1 for Ethernet. */
    public int linkType(int interfaceIndex) {
        checkHeld();
        return link(interfaceIndex);
    }

    int link(int index) {
        if (linkType != Native.WEIR_MIXED && index == 0) {
            return linkType;
        }
        if (linksOf != generation) {
            // Another source may have other interfaces.
            Arrays.fill(links, 0);
            linksOf = generation;
        }
        if (index < links.length && links[index] > 0) {
            return links[index] - 1;
        }
        return askLink(index);
    }

    private int askLink(int index) {
        try (Arena local = Arena.ofConfined()) {
            MemorySegment about = local.allocate(Native.weir_interface.LAYOUT);
            int status = (int) Native.weir_interface_of.invokeExact(lease(), index, about);
            if (status != Native.WEIR_OK) {
                throw new IndexOutOfBoundsException("there is no interface " + index);
            }
            if (index >= links.length) {
                links = Arrays.copyOf(links, index + 1);
            }
            int link = about.get(ValueLayout.JAVA_INT, Native.weir_interface.link_type);
            links[index] = link + 1;
            return link;
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /**
     * Returns the NUMA node on which the packets of this batch lie, 0 on a machine with one node. A worker runs best on a processor of
     * the same node. <b>Cost</b>: a system call, and some objects.
     *
     * @throws WeirException the kernel refuses to tell
     */
    public int node() {
        checkHeld();
        try (Arena local = Arena.ofConfined()) {
            MemorySegment node = local.allocate(ValueLayout.JAVA_INT);
            int status = (int) Native.weir_node_of.invokeExact(lease(), node);
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, null);
            }
            return node.get(ValueLayout.JAVA_INT, 0);
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        }
    }

    /** Returns a number that no other batch in this object has. */
    long generation() {
        return generation;
    }

    /** Returns the handle of the C library for this batch, for functions of {@link Native}. It is refused after the release. */
    public long lease() {
        return lease;
    }

    /**
     * Gives the memory back to the source.
     *
     * @throws IllegalStateException no batch is held, such as after a first release
     * @throws WrongThreadException another thread holds it
     */
    public void release() {
        checkHeld();
        if (life != null) {
            life.close();
            life = null;
        }
        if (source.isDebugged()) {
            poison();
        }
        generation++;
        packet.end();
        holder = null;
        try {
            int status = (int) Native.weir_release.invokeExact(lease());
            if (status != Native.WEIR_OK) {
                throw WeirException.of(status, null);
            }
        } catch (Throwable e) {
            throw WeirException.unexpected(e);
        } finally {
            leave();
        }
    }

    /** Overwrites the packets, so that a later look at them shows. */
    private void poison() {
        for (int i = 0; i < size; i++) {
            long descriptor = packets + (long) DESCRIPTOR * i;
            long offset = Memory.nativeLong(descriptor);
            int captured = Memory.nativeInt(descriptor + Native.weir_descriptor.captured);
            Memory.ALL.asSlice(region + offset, captured).fill((byte) 0xdb);
        }
    }

    /** Releases what is held, if anything is. */
    @Override
    public void close() {
        if (holder != null) {
            release();
        }
    }
}
