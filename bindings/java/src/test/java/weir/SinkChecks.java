package weir;

/**
 * Sinks and sources whose names a test chooses. {@code SinkChecks open ACT NAME YES ...} opens each: ACT is send or take, and YES the interface
 * that is named, or nothing. {@code SinkChecks copy FILE OUT RESERVE} copies a capture. Prints a line for each: its status, and the reason.
 */
public final class SinkChecks {
    public static void main(String[] arguments) {
        if (arguments[0].equals("copy")) {
            System.out.println(outcome(() -> copy(arguments[1], arguments[2], Long.parseLong(arguments[3]))));
            return;
        }
        for (int i = 1; i < arguments.length; i += 3) {
            String name = arguments[i + 1];
            String[] yes = arguments[i + 2].isEmpty() ? new String[0] : new String[] {arguments[i + 2]};
            boolean sends = arguments[i].equals("send");
            System.out.println(outcome(() -> {
                if (sends) {
                    Sink.open(name, yes).close();
                } else {
                    Source.open(Options.DEFAULT.withYesTake(yes), name).close();
                }
            }));
        }
    }

    private static void copy(String file, String out, long reserve) {
        SinkOptions options = SinkOptions.DEFAULT.withReserve(reserve);
        try (Source source = Source.open(file); Sink sink = Sink.open(out, options); Batch batch = new Batch()) {
            while (source.next(batch)) {
                sink.send(batch);
                batch.release();
            }
        }
    }

    private static String outcome(Runnable work) {
        try {
            work.run();
            return "0 ";
        } catch (WeirException e) {
            return e.status() + " " + e.getMessage();
        }
    }

    private SinkChecks() {}
}
