package weir;

import java.time.Duration;
import java.util.List;
import weir.ffi.Native;

/**
 * Answers and recordings for a test to compare: TaskChecks FILE DIRECTORY. Prints the answers of some measurements of the file, each behind
 * a line with its number, and then what a recording of it says.
 */
public final class TaskChecks {
    public static void main(String[] arguments) {
        String file = arguments[0];
        Options one = Options.DEFAULT.withWorkers(1);
        List<MeasureOptions> asked = List.of(
            new MeasureOptions(),
            new MeasureOptions().key("src").key("dport").window(Duration.ofSeconds(1)),
            new MeasureOptions().key("src/28").byBytes().rows(3).sketch(MeasureOptions.Sketch.EXACT),
            new MeasureOptions().key("src").window(Duration.ofSeconds(5)).late(Duration.ofMillis(100)).changers(4).memory(1 << 20));
        for (int i = 0; i < asked.size(); i++) {
            System.out.println("measurement " + i);
            answers(one, asked.get(i), file);
        }
        System.out.println("measurement " + asked.size());
        answers(one.withFilter("udp and src net 10.0.0.0/28"), new MeasureOptions().key("proto"), file);
        refused(file);
        record(file, arguments[1]);
    }

    private static void answers(Options options, MeasureOptions measure, String file) {
        try (Measurement measurement = Measurement.open(options, measure.seed(0), file)) {
            int summaries = 0;
            for (Measurement.Answer answer; (answer = measurement.next()) != null; ) {
                require(summaries == 0, "an answer behind the summary");
                summaries += answer.isSummary() ? 1 : 0;
                System.out.println(answer.json());
            }
            require(summaries == 1 && measurement.isEnded() && measurement.next(Duration.ofDays(1)) == null, summaries);
            require(measurement.remarks().isEmpty(), "remarks");
        }
    }

    private static void refused(String file) {
        require(thrown(() -> Measurement.open(new MeasureOptions().key("sorce"), file)).getMessage().startsWith("unknown key 'sorce'"), "key");
        WeirException little = thrown(() -> Measurement.open(new MeasureOptions().memory(16), file));
        require(little.status() == Native.WEIR_REFUSED, little);
        require(little.getMessage().equals("--memory 16 bytes is too small for a table: use --memory 16k or more"), little);
        require(thrown(() -> Measurement.open(new MeasureOptions(), file + "-gone")).status() == Native.WEIR_FAILED, "gone");
        Measurement measurement = Measurement.open(new MeasureOptions().window(Duration.ofMillis(10)), file);
        measurement.stop();
        measurement.close();
        measurement.close();
        require(thrown(measurement::next).status() == Native.WEIR_CLOSED, "closed");
        require(thrown(measurement::stop).status() == Native.WEIR_CLOSED, "closed");
        require(thrown(measurement::remarks).status() == Native.WEIR_CLOSED, "closed");
        require(thrown(() -> Recorder.open(new RecordOptions(), file, file)).getMessage().contains("is not a directory"), "directory");
    }

    private static void record(String file, String directory) {
        RecordOptions settings = new RecordOptions().ram(16 << 20).disk(64 << 20).reserve(1)
            .around(Duration.ofSeconds(1), Duration.ofMillis(500)).trigger("one=udp src port 40000 and greater 959");
        System.out.println("recording");
        Recorder recorder = Recorder.open(Options.DEFAULT.withFilter("udp"), settings, directory, file);
        while (!recorder.isEnded()) {
            String saved = recorder.next(Duration.ofSeconds(1));
            if (saved != null) {
                System.out.println(saved);
            }
        }
        require(recorder.status().startsWith("{\"type\":\"status\",\"recorded\":"), recorder.status());
        require(thrown(() -> recorder.trigger("one")).getMessage().equals("the recording has ended"), "ended");
        require(thrown(() -> recorder.trigger(Duration.ofSeconds(1), Duration.ZERO)).status() == Native.WEIR_REFUSED, "ended");
        System.out.println(recorder.end());
        recorder.close();
        require(thrown(recorder::status).status() == Native.WEIR_CLOSED, "closed");
        require(thrown(recorder::end).status() == Native.WEIR_CLOSED, "closed");
    }

    private static WeirException thrown(Runnable body) {
        try {
            body.run();
        } catch (WeirException e) {
            return e;
        }
        throw new AssertionError("nothing was thrown");
    }

    private static void require(boolean is, Object found) {
        if (!is) {
            throw new AssertionError(found);
        }
    }

    private TaskChecks() {}
}
