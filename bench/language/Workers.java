import java.util.concurrent.CyclicBarrier;
import weir.Batch;
import weir.Options;
import weir.Processors;
import weir.Source;

/**
 * Workers that judge packets, each pinned in its own thread: {@code own:0,1} has one source for each, {@code one:0,1} one for all.
 *
 * <p>Half of the turns are a warm-up. Behind them it prints {@code ready} and waits for a line, so that processes begin together.
 * Prints nanoseconds of the slowest worker, packets and checksum of all, for each turn.
 */
final class Workers {
    private Workers() {}

    static void run(String how, String file, int turns, long atLeast) {
        String[] words = how.split(":");
        boolean shared = words[0].equals("one");
        String[] cpus = words[1].split(",");
        int workers = cpus.length;
        CyclicBarrier barrier = new CyclicBarrier(workers);
        Source[] common = new Source[1];
        long[][] found = new long[workers][3];
        Thread[] threads = new Thread[workers];
        for (int i = 0; i < workers; i++) {
            int number = i;
            threads[i] = Thread.ofPlatform().start(() -> {
                try {
                    Processors.pin(Integer.parseInt(cpus[number]));
                    Batch batch = new Batch();
                    for (int turn = 0; turn < turns; turn++) {
                        if (number == 0 && turn == turns / 2) {
                            System.out.println("ready");
                            System.in.read();
                        }
                        barrier.await();
                        long[] mine = found[number];
                        mine[0] = mine[1] = mine[2] = 0;
                        long begun = System.nanoTime();
                        long each = atLeast / workers;
                        long most = shared ? atLeast : each;
                        for (long passed = 0; passed < most;) {
                            Source source = shared ? common(common, barrier, number, file) : Source.open(options(), file);
                            while (source.next(batch)) {
                                mine[2] += Language.checked(batch);
                                mine[1] += batch.size();
                                batch.release();
                            }
                            if (shared) {
                                barrier.await();
                            }
                            passed += source.counts().received();
                            if (shared) {
                                barrier.await();
                            }
                            if (!shared || number == 0) {
                                source.close();
                            }
                        }
                        mine[0] = System.nanoTime() - begun;
                        barrier.await();
                        if (number == 0) {
                            print(found);
                        }
                        barrier.await();
                    }
                } catch (Exception e) {
                    e.printStackTrace();
                    System.exit(1);
                }
            });
        }
        for (Thread thread : threads) {
            try {
                thread.join();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    private static Options options() {
        return Options.DEFAULT.withWorkers(1);
    }

    /** Returns the source that all workers share, which the first one opens. */
    private static Source common(Source[] common, CyclicBarrier barrier, int number, String file) throws Exception {
        if (number == 0) {
            common[0] = Source.open(options(), file);
        }
        barrier.await();
        return common[0];
    }

    private static void print(long[][] found) {
        long ns = 0;
        long packets = 0;
        long sum = 0;
        for (long[] one : found) {
            ns = Math.max(ns, one[0]);
            packets += one[1];
            sum += one[2];
        }
        System.out.println(ns + " " + packets + " " + sum);
    }
}
