package weir;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.util.concurrent.atomic.AtomicReference;
import weir.ffi.Native;

/** Checks of the classes over a capture file: Checks FILE PACKETS. Prints a line for each, and ends with code 1 at the first that fails. */
public final class Checks {
    private static String file;
    /** Where values go that must not be optimized away. */
    private static volatile Object boxed;
    private static long packets;

    private interface Body {
        void run() throws Throwable;
    }

    public static void main(String[] arguments) throws Throwable {
        file = arguments[0];
        packets = Long.parseLong(arguments[1]);
        check("columns and packets agree", Checks::agree);
        check("a batch is released once, by its own thread", Checks::release);
        check("a packet is none behind the release", Checks::stale);
        check("what was not captured is not read", Checks::bounds);
        check("a source with batches out stays open", Checks::busy);
        check("a batch takes its segments along", Checks::segments);
        check("wrong names and filters are told", Checks::refused);
        check("a set stands for its members written out", Checks::sets);
        check("a limit ends a source", Checks::limited);
        check("another filter judges from then on", Checks::replaced);
        check("rules deny", Checks::rules);
        check("verdicts choose what a sink gets", Checks::sink);
        check("a thread pins itself", Checks::pinned);
        check("nothing is allocated for packets and batches", Checks::allocation);
        check("a boxed value is noticed", Checks::boxing);
    }

    private static void check(String name, Body body) throws Throwable {
        body.run();
        System.out.println("ok " + name);
    }

    private static void require(boolean is, Object found) {
        if (!is) {
            throw new AssertionError(found);
        }
    }

    private static <E extends Throwable> E thrown(Class<E> kind, Body body) {
        try {
            body.run();
        } catch (Throwable e) {
            require(kind.isInstance(e), e);
            return kind.cast(e);
        }
        throw new AssertionError("no " + kind);
    }

    private static void agree() {
        long found = 0;
        Columns columns = new Columns(1000, Field.values());
        try (Source source = Source.open(Options.DEFAULT.withFilter("udp"), file); Batch batch = new Batch()) {
            Packet packet = batch.packet();
            while (source.next(batch)) {
                int number = 0;
                int passed = 0;
                for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) {
                    for (int row = 0; row < rows; row++, number++) {
                        packet.at(number);
                        require(columns.getLong(Field.TIME, row) == packet.timeNanos(), number);
                        require(columns.getInt(Field.WIRE_LENGTH, row) == packet.wireLength(), number);
                        require(columns.getInt(Field.CAPTURED, row) == packet.captured(), number);
                        require(columns.getInt(Field.IP_VERSION, row) == packet.ipVersion(), number);
                        int source4 = packet.isIpv4() ? packet.ipv4Source() : 0;
                        require(columns.getInt(Field.IPV4_SOURCE, row) == source4, number);
                        if (packet.isIpv4()) {
                            require(columns.getInt(Field.IPV4_DESTINATION, row) == packet.ipv4Destination(), number);
                            require(columns.getInt(Field.PROTOCOL, row) == packet.protocol(), number);
                        }
                        if (packet.isTcp() || packet.isUdp()) {
                            require(columns.getInt(Field.SOURCE_PORT, row) == packet.sourcePort(), number);
                            require(columns.getInt(Field.DESTINATION_PORT, row) == packet.destinationPort(), number);
                        }
                        require(batch.isPassed(number) == ((batch.verdicts(number / 64) >>> number & 1) == 1), number);
                        // The language of filters looks behind no tag unless it is asked to.
                        require(batch.isPassed(number) == (packet.isUdp() && packet.vlan() < 0), number);
                        passed += batch.isPassed(number) ? 1 : 0;
                    }
                }
                int rows = 0;
                for (int some = columns.beginPassed(batch); some > 0; some = columns.next(batch)) {
                    rows += some;
                }
                require(number == batch.size() && passed == batch.passed() && rows == passed, rows);
                found += number;
                batch.release();
            }
            require(source.isEnded() && found == packets, found);
            Counts counts = source.end();
            require(counts.isFinal() && counts.received() == packets && counts.received() == counts.passed() + counts.filtered(), counts);
        }
    }

    private static void release() throws Throwable {
        try (Source source = Source.open(file); Batch batch = new Batch()) {
            thrown(IllegalStateException.class, batch::release);
            require(source.next(batch), "a batch");
            thrown(IllegalStateException.class, () -> source.next(batch));
            AtomicReference<Throwable> found = new AtomicReference<>();
            Packet packet = batch.packet().at(0);
            Thread other = new Thread(() -> {
                thrown(WrongThreadException.class, () -> packet.byteAt(0));
                thrown(WrongThreadException.class, () -> packet.at(0));
                thrown(WrongThreadException.class, packet::ipVersion);
                thrown(WrongThreadException.class, packet::wireLength);
                thrown(WrongThreadException.class, batch::size);
                thrown(IllegalStateException.class, () -> source.next(batch));
                found.set(thrown(WrongThreadException.class, batch::release));
            });
            other.start();
            other.join();
            require(found.get() != null, "no exception");
            batch.release();
            thrown(IllegalStateException.class, batch::release);
            Thread next = new Thread(() -> {
                require(source.next(batch), "a second batch");
                thrown(IllegalStateException.class, packet::wireLength);
                thrown(IllegalStateException.class, () -> packet.byteAt(0));
                thrown(IllegalStateException.class, packet::isIpv4);
                require(packet.at(0).captured() > 0, packet);
                synchronized (found) {
                    found.set(null);
                    found.notifyAll();
                    while (found.get() == null) {
                        waitFor(found);
                    }
                }
                batch.release();
            });
            next.start();
            synchronized (found) {
                while (found.get() != null) {
                    waitFor(found);
                }
                // It was filled by the other thread, and now this one is refused.
                thrown(WrongThreadException.class, () -> packet.at(0));
                thrown(WrongThreadException.class, () -> packet.byteAt(0));
                found.set(new Throwable("go on"));
                found.notifyAll();
            }
            next.join();
            thrown(IllegalStateException.class, () -> packet.at(0));
        }
    }

    private static void waitFor(Object what) {
        try {
            what.wait(10_000);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    private static void stale() {
        try (Source source = Source.open(file); Batch batch = new Batch()) {
            require(source.next(batch), "a batch");
            Packet packet = batch.packet().at(0);
            require(packet.captured() > 0, packet.captured());
            batch.release();
            thrown(IllegalStateException.class, packet::captured);
            thrown(IllegalStateException.class, () -> packet.byteAt(0));
            thrown(IllegalStateException.class, () -> packet.at(0));
            thrown(IllegalStateException.class, batch::size);
            thrown(IllegalStateException.class, () -> batch.verdicts(0));
        }
    }

    private static void bounds() {
        try (Source source = Source.open(file); Batch batch = new Batch()) {
            require(source.next(batch), "a batch");
            Packet packet = batch.packet().at(0);
            int captured = packet.captured();
            for (int offset : new int[] {-1, captured, captured - 3, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
                thrown(IndexOutOfBoundsException.class, () -> packet.intAt(offset));
                thrown(IndexOutOfBoundsException.class, () -> packet.longAt(offset));
            }
            require(packet.intAt(captured - 4) == packet.intAt(captured - 4), captured);
            thrown(IndexOutOfBoundsException.class, () -> packet.at(batch.size()));
            thrown(IndexOutOfBoundsException.class, () -> packet.at(-1));
            thrown(IndexOutOfBoundsException.class, () -> batch.split(0));
            thrown(IndexOutOfBoundsException.class, () -> batch.linkType(99));
        }
    }

    private static void busy() {
        Source source = Source.open(file);
        Batch batch = new Batch();
        require(source.next(batch), "a batch");
        WeirException refused = thrown(WeirException.class, source::close);
        require(refused.status() == Native.WEIR_BUSY, refused);
        batch.release();
        source.close();
        source.close();
        require(thrown(WeirException.class, () -> source.next(batch)).status() == Native.WEIR_CLOSED, "closed");
        require(thrown(WeirException.class, source::counts).status() == Native.WEIR_CLOSED, "closed");
    }

    private static void segments() throws InterruptedException {
        for (Options options : new Options[] {Options.DEFAULT, Options.DEFAULT.withDebug()}) {
            try (Source source = Source.open(options, file); Batch batch = new Batch()) {
                require(source.next(batch), "a batch");
                MemorySegment kept = batch.region();
                long address = UncheckedPackets.address(batch, 0);
                require(kept.get(ValueLayout.JAVA_BYTE, batch.offset(0)) == UncheckedPackets.byteAt(address), address);
                AtomicReference<Throwable> found = new AtomicReference<>();
                Thread other = new Thread(() -> found.set(thrown(WrongThreadException.class, () -> kept.get(ValueLayout.JAVA_BYTE, 0))));
                other.start();
                other.join();
                require(found.get() != null, "no exception");
                batch.release();
                thrown(IllegalStateException.class, () -> kept.get(ValueLayout.JAVA_BYTE, 0));
            }
        }
    }

    private static void refused() {
        WeirException missing = thrown(WeirException.class, () -> Source.open("nowhere.pcap"));
        require(missing.getMessage().equals("nowhere.pcap: no such file"), missing);
        require(missing.status() == Native.WEIR_FAILED, missing.status());
        WeirException wrong = thrown(WeirException.class, () -> Source.open(Options.DEFAULT.withFilter("port port"), file));
        require(wrong.getMessage().startsWith("expression 'port port': ") && wrong.status() == Native.WEIR_REFUSED, wrong);
        WeirException none = thrown(WeirException.class, () -> Source.open());
        require(none.getMessage().equals("there is no name of a source"), none);
        WeirException scheme = thrown(WeirException.class, () -> Sink.open("af_paket:eth0"));
        require(scheme.getMessage().contains("unknown way to send"), scheme);
        thrown(NullPointerException.class, () -> Source.open((String) null));
        thrown(IllegalArgumentException.class, () -> Source.open(Options.DEFAULT.withFilter("tcp\0 port"), file));
        thrown(IllegalArgumentException.class, () -> Source.open(file + "\0x"));
        thrown(IllegalArgumentException.class, () -> new Columns(0, Field.TIME));
        thrown(IllegalArgumentException.class, () -> new Columns(10));
        require(thrown(WeirException.class, () -> Source.open(Options.DEFAULT.withBatches(-1), file)).getMessage().contains("batches"), "batches");
        try (Source source = Source.open(file)) {
            require(thrown(WeirException.class, () -> Sink.open(file)).status() == Native.WEIR_FAILED, source);
        }
    }

    /** Numbers of the packets that pass. */
    private static java.util.List<Integer> passing(Options options) {
        java.util.List<Integer> found = new java.util.ArrayList<>();
        int first = 0;
        try (Source source = Source.open(options, file); Batch batch = new Batch()) {
            while (source.next(batch)) {
                for (int i = 0; i < batch.size(); i++) {
                    if (batch.isPassed(i)) {
                        found.add(first + i);
                    }
                }
                first += batch.size();
                batch.release();
            }
        }
        return found;
    }

    private static void sets() throws java.io.IOException {
        java.nio.file.Path members = java.nio.file.Files.createTempFile("members", ".txt");
        try {
            java.nio.file.Files.writeString(members, "10.0.0.1\n10.0.0.4-10.0.0.5 # two\n8000::/1\n");
            String set = "banned=" + members;
            String writtenOut = "(src host 10.0.0.1 or src net 10.0.0.4/31 or src net 8000::/1)";
            Options with = Options.DEFAULT.withSets(set);
            java.util.List<Integer> wanted = passing(Options.DEFAULT.withFilter(writtenOut + " and udp"));
            java.util.List<Integer> found = passing(with.withFilter("src @banned and udp"));
            require(found.equals(wanted) && wanted.size() > 1000, wanted.size());
            WeirException unknown = thrown(WeirException.class, () -> Source.open(with.withFilter("src @baned"), file));
            require(unknown.getMessage().contains("there is no set \"@baned\": those given are @banned"), unknown);
            WeirException unused = thrown(WeirException.class, () -> Source.open(with, file));
            require(unused.getMessage().startsWith("--set banned: no expression names a set: write src @banned"), unused);
            java.nio.file.Files.writeString(members, "10.0.0.1\nwww\n");
            WeirException wrong = thrown(WeirException.class, () -> Source.open(with.withFilter("src @banned"), file));
            require(wrong.getMessage().endsWith(".txt: line 2: \"www\" is not an address, prefix or range of addresses"), wrong);
            require(wrong.status() == Native.WEIR_REFUSED, wrong.status());
        } finally {
            java.nio.file.Files.delete(members);
        }
        WeirException missing =
            thrown(WeirException.class, () -> Source.open(Options.DEFAULT.withFilter("src @a").withSets("a=/nowhere.txt"), file));
        require(missing.getMessage().equals("--set a: /nowhere.txt: no such file"), missing);
    }

    private static void limited() {
        try (Source source = Source.open(Options.DEFAULT.withFilter("udp").withLimit(3), file); Batch batch = new Batch()) {
            int passed = 0;
            while (source.next(batch)) {
                passed += batch.passed();
                batch.release();
            }
            require(passed == 3 && source.end().passed() == 3, passed);
        }
    }

    private static void replaced() {
        Options options = Options.DEFAULT.withBatches(1).withFilter("udp");
        try (Source source = Source.open(options, file); Batch batch = new Batch()) {
            require(source.next(batch) && batch.filter() == 0, batch.filter());
            long number = source.setFilter("tcp", java.time.Duration.ofSeconds(10));
            require(number == 1, number);
            batch.release();
            long last = 0;
            while (source.next(batch)) {
                Packet packet = batch.packet();
                for (int i = 0; i < batch.size(); i++) {
                    boolean expected = (batch.filter() == 0 ? packet.at(i).isUdp() : packet.at(i).isTcp()) && packet.vlan() < 0;
                    require(batch.isPassed(i) == expected, i);
                }
                last = batch.filter();
                batch.release();
            }
            require(last == 1, last);
            thrown(WeirException.class, () -> source.setFilter("port port", java.time.Duration.ofSeconds(10)));
        }
    }

    private static void rules() {
        Options options = Options.DEFAULT.withRules("drop proto udp src 10.0.0.0/8").withBatches(1);
        try (Source source = Source.open(options, file); Batch batch = new Batch()) {
            long denied = 0;
            while (source.next(batch)) {
                Packet packet = batch.packet();
                for (int i = 0; i < batch.size(); i++) {
                    packet.at(i);
                    boolean expected = packet.isIpv4() && packet.protocol() == 17 && packet.ipv4Source() >>> 24 == 10;
                    require(batch.isPassed(i) != expected, i);
                    denied += expected ? 1 : 0;
                }
                source.setRules("drop proto udp src 10.0.0.0/8  # the same");
                thrown(WeirException.class, () -> source.setRules("drop sorce 1.2.3.4"));
                batch.release();
            }
            require(source.end().denied() == denied && denied > 0, denied);
        }
    }

    private static void sink() {
        try (Source source = Source.open(Options.DEFAULT.withFilter("udp"), file); Batch batch = new Batch();
            Sink all = Sink.open("null"); Sink some = Sink.open("null")) {
            Verdicts verdicts = new Verdicts();
            Verdicts others = new Verdicts();
            long expected = 0;
            while (source.next(batch)) {
                all.send(batch);
                verdicts.begin(batch);
                for (int i = 0; i < batch.size(); i += 3) {
                    verdicts.pass(i);
                }
                expected += verdicts.passed();
                some.send(batch, verdicts);
                thrown(IllegalStateException.class, () -> some.send(batch, others));
                batch.release();
                thrown(IllegalStateException.class, () -> all.send(batch));
            }
            require(some.end().given() == expected, expected);
            require(all.end().given() == source.end().passed(), "all that passed");
        }
    }

    /** Processors of the calling thread, as the kernel tells. */
    private static String allowed() throws Exception {
        for (String line : java.nio.file.Files.readAllLines(java.nio.file.Path.of("/proc/thread-self/status"))) {
            if (line.startsWith("Cpus_allowed_list:")) {
                return line.substring(line.indexOf(':') + 1).strip();
            }
        }
        throw new AssertionError("no Cpus_allowed_list");
    }

    private static void pinned() throws Throwable {
        String before = allowed();
        for (int cpu : Processors.usable()) {
            AtomicReference<Throwable> failed = new AtomicReference<>();
            Thread worker = new Thread(() -> {
                try {
                    Processors.pin(cpu);
                    require(allowed().equals(Integer.toString(cpu)) && Processors.usable().length == 1, allowed());
                    try (Source source = Source.open(file); Batch batch = new Batch()) {
                        thrown(IllegalStateException.class, batch::node);
                        require(source.next(batch) && batch.node() >= 0, "a node");
                    }
                } catch (Throwable e) {
                    failed.set(e);
                }
            });
            worker.start();
            worker.join();
            if (failed.get() != null) {
                throw failed.get();
            }
        }
        require(allowed().equals(before), allowed());
        thrown(IllegalArgumentException.class, () -> Processors.pin(-1));
        AtomicReference<Throwable> refused = new AtomicReference<>();
        Thread.ofVirtual().start(() -> refused.set(thrown(IllegalStateException.class, () -> Processors.pin(0)))).join();
        require(refused.get() != null, "no exception");
        require(allowed().equals(before), allowed());
    }

    /** Reads a file to its end, and returns a figure of all its packets. */
    private static long work(Source source, Batch batch, Columns columns, boolean boxes) {
        long sum = 0;
        Packet packet = batch.packet();
        while (source.next(batch)) {
            for (int i = 0; i < batch.size(); i++) {
                if (packet.at(i).isIpv4()) {
                    sum += packet.ipv4Source() ^ packet.protocol();
                }
                if (boxes) {
                    boxed = Long.valueOf(sum + 1_000_000);
                }
            }
            for (int rows = columns.begin(batch); rows > 0; rows = columns.next(batch)) {
                for (int row = 0; row < rows; row++) {
                    sum += columns.getInt(Field.DESTINATION_PORT, row);
                }
            }
            batch.release();
        }
        return sum;
    }

    /** Bytes that this thread allocates for batches and packets of a file. */
    private static long allocated(boolean boxes) {
        var threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        long id = Thread.currentThread().threadId();
        Batch batch = new Batch();
        Columns columns = new Columns(4096, Field.DESTINATION_PORT);
        long least = Long.MAX_VALUE;
        for (int turn = 0; turn < 20; turn++) {
            try (Source source = Source.open(Options.DEFAULT.withBatches(2), file)) {
                long before = threads.getThreadAllocatedBytes(id);
                work(source, batch, columns, boxes);
                least = Math.min(least, threads.getThreadAllocatedBytes(id) - before);
            }
        }
        return least;
    }

    private static void allocation() {
        long bytes = allocated(false);
        // What a turn of the interpreter or the call of the bean itself takes.
        require(bytes < 4096, bytes);
    }

    /** The oracle of the check above: with a value boxed for each packet it fails. */
    private static void boxing() {
        long bytes = allocated(true);
        require(bytes > packets, bytes);
    }
}
