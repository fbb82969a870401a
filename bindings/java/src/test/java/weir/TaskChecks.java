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
        typed(file);
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

    /** Figures of health, findings and duplicates are those of the JSON. */
    private static void typed(String file) {
        MeasureOptions settings = new MeasureOptions().window(Duration.ofSeconds(10)).healthTcp().healthDns().findings();
        try (Measurement measurement = Measurement.open(Options.DEFAULT.withDedup(Duration.ofDays(1)), settings, file, file)) {
            Measurement.Answer last = null;
            for (Measurement.Answer answer; (answer = measurement.next()) != null; last = answer) {
                Health.TcpFigures sum = answer.tcp().sum();
                String json = answer.json();
                String tcp = json.substring(json.indexOf("\"tcp\":{"));
                require(tcp.contains("\"packets\":" + sum.packets() + ",\"payload\":" + sum.payload() + ","), json);
                for (Health.Conversation row : answer.tcp().rows()) {
                    require(tcp.contains("\"src\":\"" + row.src() + "\",\"sport\":" + row.sport() + ",\"dst\":\"" + row.dst() + "\""), row);
                    require(row.sent().rttCount() > 0 == row.sent().rttMinNanos() >= 0, row);
                }
                require(answer.dns().sum().codes().size() == 16 && answer.dns().sum().name() == null, answer.dns());
                require(json.contains("\"queries\":" + answer.dns().sum().queries() + ","), json);
                for (Finding finding : answer.findings()) {
                    require(List.of("begin", "end", "open").contains(finding.state()) && finding.lastNanos() > finding.beginNanos(), finding);
                    require(finding.most() >= finding.figure() && !finding.row().isEmpty() && !finding.unit().isEmpty(), finding);
                }
            }
            require(last.isSummary() && last.tcp().conversations() > 0, last);
            require(last.json().contains("\"duplicates\":"), last.json());
        }
        try (Measurement measurement = Measurement.open(new MeasureOptions(), file)) {
            Measurement.Answer answer = measurement.next();
            require(answer.tcp() == null && answer.dns() == null && answer.findings().isEmpty(), answer);
        }
        require(thrown(() -> Measurement.open(new MeasureOptions().key("country"), file)).getMessage().contains("needs a database"), "geo");
        require(thrown(() -> Measurement.open(new MeasureOptions().geo(file + "-gone").key("country"), file)).status() < 0, "geo");
        require(thrown(() -> Sink.open(file + ".out", SinkOptions.DEFAULT.withAnonymize(file + "-gone"))).getMessage().contains("-gone"), "key");
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
