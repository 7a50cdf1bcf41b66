import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** Answers a line of JSON with a line of JSON: builds, reads and validates record batches. */
public class BatchOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode question = JSON.readTree(line);
                switch (question.get("do").asText()) {
                    case "build" -> build(question, answer);
                    case "read" -> read(question, answer);
                    default -> validate(question, answer);
                }
            } catch (RecordValidationException e) {
                fail(answer, e.invalidException());
                ArrayNode errors = answer.putArray("records");
                e.recordErrors().forEach(one -> errors.addArray().add(one.batchIndex).add(one.message));
            } catch (Exception e) {
                fail(answer, e);
            }
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static void fail(ObjectNode answer, Exception e) {
        answer.put("error", Errors.forException(e).name());
        answer.put("message", e.getMessage());
    }

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : HexFormat.of().parseHex(node.asText());
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return HexFormat.of().formatHex(copy);
    }

    private static Compression compression(String name, JsonNode level) {
        boolean plain = level == null || level.isNull();
        return switch (name) {
            case "gzip" -> plain ? Compression.gzip().build() : Compression.gzip().level(level.asInt()).build();
            case "lz4" -> plain ? Compression.lz4().build() : Compression.lz4().level(level.asInt()).build();
            case "zstd" -> plain ? Compression.zstd().build() : Compression.zstd().level(level.asInt()).build();
            case "snappy" -> Compression.snappy().build();
            default -> Compression.NONE;
        };
    }

    private static TimestampType timestampType(JsonNode node) {
        return node.asInt() == 1 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
    }

    private static void build(JsonNode q, ObjectNode answer) {
        var builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), (byte) q.get("magic").asInt(),
            compression(q.get("compression").asText(), q.get("level")), timestampType(q.get("timestamp_type")),
            q.get("base_offset").asLong(), q.get("log_append_time").asLong(), q.get("producer_id").asLong(),
            (short) q.get("producer_epoch").asInt(), q.get("base_sequence").asInt(),
            q.get("transactional").asBoolean(), false, q.get("leader_epoch").asInt());
        for (JsonNode record : q.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get(3)) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            builder.append(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)),
                headers.toArray(new Header[0]));
        }
        answer.put("batch", hex(builder.build().buffer()));
    }

    private static void read(JsonNode q, ObjectNode answer) {
        var records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(q.get("batch"))));
        ArrayNode found = answer.putArray("records");
        ArrayNode batches = answer.putArray("batches");
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            batches.addArray().add(batch.baseOffset()).add(batch.lastOffset()).add(batch.maxTimestamp())
                .add(batch.partitionLeaderEpoch()).add(batch.producerId()).add(batch.producerEpoch())
                .add(batch.baseSequence()).add(batch.isTransactional()).add(batch.isControlBatch())
                .add(batch.compressionType().id).add(batch.timestampType().id);
            for (var record : batch) {
                ArrayNode row = found.addArray();
                row.add(record.offset()).add(record.timestamp()).add(hex(record.key())).add(hex(record.value()));
                ArrayNode headers = row.addArray();
                for (Header header : record.headers()) {
                    byte[] value = header.value();
                    headers.addArray().add(header.key())
                        .add(value == null ? null : HexFormat.of().formatHex(value));
                }
            }
        }
    }

    private static void validate(JsonNode q, ObjectNode answer) {
        var records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(q.get("batch"))));
        AppendOrigin origin = AppendOrigin.valueOf(q.get("origin").asText());
        if (origin == AppendOrigin.CLIENT) ProduceRequest.validateRecords((short) 12, records);
        CompressionType source = CompressionType.NONE;
        for (MutableRecordBatch batch : records.batches()) source = batch.compressionType();
        String wanted = q.get("compression").asText();
        Optional<Compression> configured = wanted.equals("producer")
            ? Optional.empty() : Optional.of(compression(wanted, q.get("level")));
        long now = q.get("now").asLong();
        Time time = (Time) Proxy.newProxyInstance(BatchOracle.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, values) -> method.getName().equals("milliseconds") ? now : 0L);
        var recorder = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(BatchOracle.class.getClassLoader(),
            new Class<?>[] {LogValidator.MetricsRecorder.class}, (proxy, method, values) -> null);
        var validator = new LogValidator(records, new TopicPartition("t", 0), time, source,
            BrokerCompressionType.targetCompression(configured, source), q.get("compacted").asBoolean(),
            (byte) 2, timestampType(q.get("timestamp_type")), q.get("before").asLong(), q.get("after").asLong(),
            q.get("leader_epoch").asInt(), origin);
        var result = validator.validateMessagesAndAssignOffsets(
            PrimitiveRef.ofLong(q.get("next_offset").asLong()), recorder, BufferSupplier.NO_CACHING);
        answer.put("batch", hex(result.validatedRecords().buffer()));
        answer.put("max_timestamp", result.maxTimestampMs());
        answer.put("log_append_time", result.logAppendTimeMs());
    }
}
