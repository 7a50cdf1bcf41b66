import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Runs transforms, predicates and converters on cases: a line of JSON each, answered by a line. */
public class ConnectCases {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final JsonConverter WITH = new JsonConverter(false);
    private static final JsonConverter WITHOUT = new JsonConverter(false);

    public static void main(String[] arguments) throws Exception {
        WITH.configure(Map.of("replace.null.with.default", "false"), false);
        WITHOUT.configure(Map.of("schemas.enable", "false"), false);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = MAPPER.createObjectNode();
            try {
                answer(MAPPER.readTree(line), answer);
            } catch (Exception error) {
                answer.removeAll();
                answer.put("class", error.getClass().getSimpleName());
                answer.put("error", String.valueOf(error.getMessage()));
            }
            out.println(MAPPER.writeValueAsString(answer));
        }
        out.flush();
    }

    private static void answer(JsonNode request, ObjectNode answer) throws Exception {
        Map<String, Object> config = new HashMap<>();
        for (Map.Entry<String, JsonNode> entry : request.get("config").properties())
            config.put(entry.getKey(), entry.getValue().textValue());
        Object plugin = Class.forName(request.get("class").asText()).getDeclaredConstructor().newInstance();
        switch (request.get("kind").asText()) {
            case "transformation": {
                @SuppressWarnings("unchecked")
                Transformation<SinkRecord> transform = (Transformation<SinkRecord>) plugin;
                transform.configure(config);
                write(apply(transform, request), answer);
                break;
            }
            case "predicate": {
                @SuppressWarnings("unchecked")
                Predicate<SinkRecord> predicate = (Predicate<SinkRecord>) plugin;
                predicate.configure(config);
                answer.put("test", predicate.test(sink(request)));
                break;
            }
            case "from": {
                Converter converter = (Converter) plugin;
                converter.configure(config, false);
                SchemaAndValue value = read(request.get("value"));
                bytes(converter.fromConnectData("t", value.schema(), value.value()), answer);
                break;
            }
            case "to": {
                Converter converter = (Converter) plugin;
                converter.configure(config, false);
                byte[] data = Base64.getDecoder().decode(request.get("data").asText());
                SchemaAndValue value = converter.toConnectData("t", data);
                answer.put("value", text(value.schema(), value.value()));
                break;
            }
            case "header-from": {
                HeaderConverter converter = (HeaderConverter) plugin;
                SchemaAndValue value = read(request.get("value"));
                bytes(converter.fromConnectHeader("t", "h", value.schema(), value.value()), answer);
                break;
            }
            default: {
                HeaderConverter converter = (HeaderConverter) plugin;
                byte[] data = Base64.getDecoder().decode(request.get("data").asText());
                SchemaAndValue value = converter.toConnectHeader("t", "h", data);
                answer.put("value", value == null ? null : text(value.schema(), value.value()));
            }
        }
    }

    @SuppressWarnings({"rawtypes", "unchecked"})
    private static ConnectRecord apply(Transformation transform, JsonNode request) {
        return transform.apply(request.get("source").asBoolean() ? source(request) : sink(request));
    }

    private static SinkRecord sink(JsonNode request) {
        SchemaAndValue key = read(request.get("key"));
        SchemaAndValue value = read(request.get("value"));
        return new SinkRecord(request.get("topic").asText(), 3, key.schema(), key.value(), value.schema(),
            value.value(), 7, time(request), TimestampType.CREATE_TIME, headers(request));
    }

    private static SourceRecord source(JsonNode request) {
        SchemaAndValue key = read(request.get("key"));
        SchemaAndValue value = read(request.get("value"));
        return new SourceRecord(Map.of(), Map.of(), request.get("topic").asText(), null, key.schema(), key.value(),
            value.schema(), value.value(), time(request), headers(request));
    }

    private static Long time(JsonNode request) {
        return request.get("timestamp").isNull() ? null : request.get("timestamp").asLong();
    }

    private static ConnectHeaders headers(JsonNode request) {
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode name : request.get("headers"))
            headers.addString(name.asText(), "x");
        return headers;
    }

    private static SchemaAndValue read(JsonNode node) {
        if (node.isNull())
            return SchemaAndValue.NULL;
        byte[] data = node.asText().getBytes(StandardCharsets.UTF_8);
        return (node.asText().startsWith("{\"schema\":") ? WITH : WITHOUT).toConnectData("t", data);
    }

    private static String text(org.apache.kafka.connect.data.Schema schema, Object value) {
        byte[] data = WITH.fromConnectData("t", schema, value);
        return data == null ? null : new String(data, StandardCharsets.UTF_8);
    }

    private static void bytes(byte[] data, ObjectNode answer) {
        answer.put("data", data == null ? null : Base64.getEncoder().encodeToString(data));
    }

    private static void write(ConnectRecord<?> record, ObjectNode answer) {
        if (record == null) {
            answer.put("dropped", true);
            return;
        }
        answer.put("topic", record.topic());
        answer.put("partition", record.kafkaPartition());
        answer.put("timestamp", record.timestamp());
        answer.put("key", text(record.keySchema(), record.key()));
        answer.put("value", text(record.valueSchema(), record.value()));
        var headers = answer.putArray("headers");
        for (Header header : record.headers())
            headers.addArray().add(header.key()).add(text(header.schema(), header.value()));
    }
}
