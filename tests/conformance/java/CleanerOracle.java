import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.HexFormat;
import java.util.Optional;
import java.util.Properties;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Opens a log directory, cleans it when asked, and says what is left in it. */
public class CleanerOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    public static void main(String[] arguments) throws Exception {
        SCHEDULER.startup();
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Exception e) {
                answer.put("error", e.toString());
                e.printStackTrace();
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void answer(JsonNode question, ObjectNode answer) throws Exception {
        Time time = at(question.get("now").asLong());
        var properties = new Properties();
        question.get("config").properties().forEach(one -> properties.put(one.getKey(), one.getValue().asText()));
        UnifiedLog log = UnifiedLog.create(
            new File(question.get("directory").asText()), new LogConfig(properties), 0L, 0L, SCHEDULER,
            new BrokerTopicStats(), time, 1 << 30, new ProducerStateManagerConfig(86400000, false),
            1 << 30, new LogDirFailureChannel(1), true, Optional.<Uuid>empty());
        try {
            log.updateHighWatermark(log.logEndOffset());
            if (question.has("first_dirty")) {
                int buffer = question.path("buffer_bytes").asInt(1 << 16);
                var cleaner = new Cleaner(
                    0, new SkimpyOffsetMap(question.path("map_bytes").asInt(1 << 20)), buffer,
                    Math.max(buffer, 1 << 20), 0.9,
                    new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", time), time, one -> { });
                var toClean = new LogToClean(
                    log, question.get("first_dirty").asLong(),
                    question.get("first_uncleanable").asLong(), false);
                long start = cpuNanoseconds();
                answer.put("end_offset", cleaner.doClean(toClean, time.milliseconds()).getKey());
                answer.put("cpu_ms", (cpuNanoseconds() - start) / 1e6);
            }
            if (question.has("only_measure")) answer.put("bytes", log.size());
            else describe(log, answer);
        } finally {
            log.close();
        }
    }

    private static long cpuNanoseconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime();
    }

    private static void describe(UnifiedLog log, ObjectNode answer) throws Exception {
        ArrayNode batches = answer.putArray("batches");
        ArrayNode aborted = answer.putArray("aborted");
        ArrayNode bases = answer.putArray("bases");
        for (LogSegment segment : log.logSegments()) {
            bases.add(segment.baseOffset());
            for (RecordBatch batch : segment.log().batches()) {
                batch.ensureValid();
                ArrayNode one = batches.addArray();
                one.add(batch.baseOffset()).add(batch.lastOffset()).add(batch.countOrNull())
                    .add(batch.producerId()).add(batch.producerEpoch()).add(batch.baseSequence())
                    .add(batch.isTransactional()).add(batch.isControlBatch())
                    .add(batch.compressionType().id).add(batch.maxTimestamp())
                    .add(batch.deleteHorizonMs().orElse(-1L)).add(batch.partitionLeaderEpoch());
                ArrayNode records = one.addArray();
                for (Record record : batch)
                    records.addArray().add(record.offset()).add(record.timestamp())
                        .add(hex(record.key())).add(hex(record.value())).add(record.headers().length);
            }
            segment.txnIndex().allAbortedTxns().forEach(
                one -> aborted.addArray().add(one.producerId()).add(one.firstOffset()).add(one.lastOffset()));
        }
        answer.put("log_end", log.logEndOffset());
        ObjectNode producers = answer.putObject("producers");
        log.activeProducers().forEach(
            one -> producers.put(Long.toString(one.producerId()), one.lastSequence()));
    }

    private static String hex(java.nio.ByteBuffer bytes) {
        if (bytes == null) return null;
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }

    private static Time at(long ms) {
        return new Time() {
            public long milliseconds() { return ms; }
            public long nanoseconds() { return System.nanoTime(); }
            public void sleep(long duration) { }
            public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
        };
    }
}
