// The topologies of examples/streams_*.py as programs of Kafka Streams, with values of JSON.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs an example until its standard input ends. Arguments: its name, its output topic, and
 * settings as key=value.
 */
public final class StreamsExamples {
    static final ObjectMapper JSON = new ObjectMapper();

    public static final class JsonSerde extends Serdes.WrapperSerde<JsonNode> {
        public JsonSerde() {
            super((topic, value) -> value == null ? null : bytes(value),
                (topic, data) -> data == null ? null : tree(data));
        }
    }

    static byte[] bytes(JsonNode value) {
        try {
            return JSON.writeValueAsBytes(value);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static JsonNode tree(byte[] data) {
        try {
            return JSON.readTree(data);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", JsonSerde.class);
        for (String one : List.of(arguments).subList(2, arguments.length)) {
            String[] pair = one.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        if (settings.containsKey("emit.interval.ms")) {
            settings.put("__emit.interval.ms.kstreams.windowed.aggregation__",
                Long.valueOf((String) settings.remove("emit.interval.ms")));
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (arguments[0]) {
            case "flights" -> flights(builder, arguments[1]);
            case "sessions" -> sessions(builder, arguments[1]);
            case "orders" -> orders(builder, arguments[1]);
            case "alerts" -> alerts(builder, arguments[1]);
            case "enriched" -> enriched(builder, arguments[1]);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.err.flush();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
        }
        streams.close(Duration.ofSeconds(20));
    }

    static void flights(StreamsBuilder builder, String output) {
        var airlines = builder.<String, JsonNode>globalTable("airlines");
        builder.<String, JsonNode>stream("flights")
            .filter((key, flight) -> !flight.get("dep_delay").isNull())
            .join(airlines, (key, flight) -> flight.get("carrier").asText(),
                (flight, airline) -> (JsonNode) ((ObjectNode) flight.deepCopy())
                    .put("airline", airline.get("name").asText()))
            .groupBy((key, flight) -> flight.get("airline").asText(),
                Grouped.with(Serdes.String(), new JsonSerde()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), Duration.ofHours(1)))
            .<JsonNode>aggregate(
                () -> JSON.createObjectNode().put("flights", 0).put("delay", 0.0),
                (airline, flight, totals) -> JSON.createObjectNode()
                    .put("flights", totals.get("flights").asInt() + 1)
                    .put("delay", totals.get("delay").asDouble() + flight.get("dep_delay").asDouble()),
                Materialized.with(Serdes.String(), new JsonSerde()))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream()
            .map(StreamsExamples::day)
            .to(output);
    }

    static KeyValue<String, JsonNode> day(Windowed<String> airline, JsonNode totals) {
        int flights = totals.get("flights").asInt();
        double mean = totals.get("delay").asDouble() / flights;
        JsonNode value = JSON.createObjectNode()
            .put("day_ms", airline.window().start())
            .put("flights", flights)
            .put("mean_delay", new BigDecimal(mean).setScale(1, RoundingMode.HALF_EVEN));
        return KeyValue.pair(airline.key(), value);
    }

    static void sessions(StreamsBuilder builder, String output) {
        builder.<String, JsonNode>stream("clicks")
            .groupByKey()
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(30)))
            .emitStrategy(EmitStrategy.onWindowClose())
            .<JsonNode>aggregate(
                JSON::createArrayNode,
                (visitor, click, pages) -> ((ArrayNode) pages.deepCopy()).add(click.get("page")),
                (visitor, first, second) -> ((ArrayNode) first.deepCopy()).addAll((ArrayNode) second),
                Materialized.<String, JsonNode, SessionStore<Bytes, byte[]>>as("pages")
                    .withRetention(Duration.ofDays(7)))
            .toStream()
            .map((visitor, pages) -> {
                long seconds = (visitor.window().end() - visitor.window().start()) / 1000;
                ObjectNode value = JSON.createObjectNode().put("seconds", seconds);
                return KeyValue.pair(visitor.key(), (JsonNode) value.set("pages", pages));
            })
            .to(output);
    }

    static void orders(StreamsBuilder builder, String output) {
        var orders = builder.<String, JsonNode>table("orders");
        var customers = builder.<String, JsonNode>table("customers");
        orders.<JsonNode, String, JsonNode>leftJoin(customers,
                order -> order.get("customer").asText(),
                (order, customer) -> ((ObjectNode) order.deepCopy())
                    .set("name", customer == null ? null : customer.get("name")))
            .toStream()
            .to(output);
    }

    static void enriched(StreamsBuilder builder, String output) {
        var planes = builder.<String, JsonNode>table("planes");
        builder.<String, JsonNode>stream("flights")
            .mapValues(flight -> (JsonNode) ((ObjectNode) flight.deepCopy())
                .retain("flight", "tailnum", "origin", "dest"))
            .filter((key, flight) -> !flight.get("tailnum").isNull())
            .selectKey((key, flight) -> flight.get("tailnum").asText())
            .leftJoin(planes, (flight, plane) -> {
                ObjectNode found = flight.deepCopy();
                found.set("maker", plane == null ? null : plane.get("manufacturer"));
                return (JsonNode) found.set("seats", plane == null ? null : plane.get("seats"));
            })
            .to(output);
    }

    static void alerts(StreamsBuilder builder, String output) {
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("airports"), Serdes.String(), (Serde<JsonNode>) new JsonSerde()));
        builder.<String, JsonNode>stream("departures").process(Watch::new, "airports").to(output);
    }

    static final class Watch implements Processor<String, JsonNode, String, JsonNode> {
        static final long HOUR_MS = 3_600_000;
        ProcessorContext<String, JsonNode> context;
        KeyValueStore<String, JsonNode> airports;

        @Override
        public void init(ProcessorContext<String, JsonNode> given) {
            context = given;
            airports = context.getStateStore("airports");
            context.schedule(Duration.ofMillis(HOUR_MS), PunctuationType.STREAM_TIME, this::look);
        }

        @Override
        public void process(Record<String, JsonNode> record) {
            JsonNode known = airports.get(record.key());
            airports.put(record.key(), JSON.createObjectNode()
                .put("flights", (known == null ? 0 : known.get("flights").asInt()) + 1)
                .put("delay", (known == null ? 0 : known.get("delay").asDouble())
                    + record.value().get("dep_delay").asDouble())
                .put("last_ms", record.timestamp()));
        }

        void look(long nowMs) {
            List<KeyValue<String, JsonNode>> all = new ArrayList<>();
            try (KeyValueIterator<String, JsonNode> found = airports.all()) {
                found.forEachRemaining(all::add);
            }
            for (KeyValue<String, JsonNode> one : all) {
                long quietHours = Math.floorDiv(nowMs - one.value.get("last_ms").asLong(), HOUR_MS);
                boolean isQuiet = quietHours >= 9;
                if (isQuiet && !one.value.path("is_quiet").asBoolean()) {
                    alert(one.key, nowMs, JSON.createObjectNode().put("alert", "quiet").put("hours", quietHours));
                }
                double mean = one.value.get("delay").asDouble() / Math.max(one.value.get("flights").asInt(), 10);
                if (mean >= 60) {
                    long minutes = (long) Math.rint(mean);
                    alert(one.key, nowMs, JSON.createObjectNode().put("alert", "late").put("minutes", minutes));
                }
                airports.put(one.key, ((ObjectNode) one.value.deepCopy())
                    .put("flights", 0).put("delay", 0).put("is_quiet", isQuiet));
            }
        }

        void alert(String airport, long nowMs, JsonNode value) {
            context.forward(new Record<>(airport, value, nowMs));
        }
    }
}
