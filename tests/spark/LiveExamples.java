// The topologies of examples/ in Java, live on a cluster: each an application of its own.
// Arguments: the bootstrap servers and a directory for state. Ends with its standard input.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.RoundingMode;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

public class LiveExamples {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Serde<String> TEXT = Serdes.String();
    static final Serde<JsonNode> NODE = Serdes.serdeFrom(LiveExamples::write, LiveExamples::read);
    static final long HOUR_MS = 3_600_000;

    static byte[] write(String topic, JsonNode node) {
        try {
            return node == null ? null : JSON.writeValueAsBytes(node);
        } catch (Exception error) {
            throw new IllegalArgumentException(error);
        }
    }

    static JsonNode read(String topic, byte[] data) {
        try {
            return data == null ? null : JSON.readTree(data);
        } catch (Exception error) {
            throw new IllegalArgumentException(error);
        }
    }

    static ObjectNode with(JsonNode node) {
        return ((ObjectNode) node).deepCopy();
    }

    static JsonNode field(JsonNode node, String name) {
        return node == null ? JSON.nullNode() : node.get(name);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, StreamsBuilder> programs = new LinkedHashMap<>();
        programs.put("alerts", alerts());
        programs.put("enriched", enriched());
        programs.put("flights", flights());
        programs.put("orders", orders());
        programs.put("sessions", sessions());
        List<KafkaStreams> running = new ArrayList<>();
        for (Map.Entry<String, StreamsBuilder> one : programs.entrySet()) {
            Properties settings = new Properties();
            settings.put("application.id", "java-" + one.getKey());
            settings.put("bootstrap.servers", arguments[0]);
            settings.put("state.dir", arguments[1]);
            settings.put("auto.offset.reset", "earliest");
            settings.put("processing.guarantee", "exactly_once_v2");
            settings.put("default.key.serde", Serdes.StringSerde.class);
            settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
            KafkaStreams streams = new KafkaStreams(one.getValue().build(), settings);
            streams.start();
            running.add(streams);
        }
        while (System.in.read() >= 0) {
        }
        Runtime.getRuntime().halt(0);
    }

    static Consumed<String, JsonNode> json() {
        return Consumed.with(TEXT, NODE);
    }

    static StreamsBuilder alerts() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("airports"), TEXT, NODE));
        builder.stream("departures", json())
            .process(Watch::new, "airports")
            .to("java-alerts", Produced.with(TEXT, NODE));
        return builder;
    }

    static class Watch implements Processor<String, JsonNode, String, JsonNode> {
        ProcessorContext<String, JsonNode> context;
        KeyValueStore<String, JsonNode> airports;

        public void init(ProcessorContext<String, JsonNode> given) {
            context = given;
            airports = given.getStateStore("airports");
            given.schedule(Duration.ofHours(1), PunctuationType.STREAM_TIME, this::look);
        }

        public void process(Record<String, JsonNode> record) {
            JsonNode known = airports.get(record.key());
            JsonNode delay = record.value().get("dep_delay");
            airports.put(record.key(), JSON.createObjectNode()
                .put("flights", (known == null ? 0 : known.get("flights").asLong()) + 1)
                .put("delay", (known == null ? 0.0 : known.get("delay").asDouble())
                    + (delay.isNull() ? 0.0 : delay.asDouble()))
                .put("last_ms", record.timestamp()));
        }

        void look(long nowMs) {
            List<KeyValue<String, JsonNode>> all = new ArrayList<>();
            try (KeyValueIterator<String, JsonNode> found = airports.all()) {
                found.forEachRemaining(all::add);
            }
            for (KeyValue<String, JsonNode> one : all) {
                long quietHours = (nowMs - one.value.get("last_ms").asLong()) / HOUR_MS;
                boolean isQuiet = quietHours >= 9;
                if (isQuiet && !one.value.path("is_quiet").asBoolean()) {
                    alert(one.key, nowMs,
                        JSON.createObjectNode().put("alert", "quiet").put("hours", quietHours));
                }
                double mean = one.value.get("delay").asDouble()
                    / Math.max(one.value.get("flights").asLong(), 10);
                if (mean >= 60) {
                    alert(one.key, nowMs, JSON.createObjectNode()
                        .put("alert", "late").put("minutes", (long) Math.rint(mean)));
                }
                airports.put(one.key, with(one.value)
                    .put("flights", 0).put("delay", 0).put("is_quiet", isQuiet));
            }
        }

        void alert(String airport, long nowMs, JsonNode value) {
            context.forward(new Record<>(airport, value, nowMs));
        }
    }

    static StreamsBuilder enriched() {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, JsonNode> planes = builder.table("planes", json());
        builder.stream("flights", json())
            .filter((key, flight) -> !flight.get("tailnum").isNull())
            .mapValues(flight -> (JsonNode) with(flight)
                .retain("flight", "tailnum", "origin", "dest"))
            .selectKey((key, flight) -> flight.get("tailnum").asText())
            .leftJoin(planes, (flight, plane) -> (JsonNode) with(flight)
                .<ObjectNode>set("maker", field(plane, "manufacturer"))
                .set("seats", field(plane, "seats")), Joined.with(TEXT, NODE, NODE))
            .to("java-flights-with-planes", Produced.with(TEXT, NODE));
        return builder;
    }

    static StreamsBuilder flights() {
        StreamsBuilder builder = new StreamsBuilder();
        GlobalKTable<String, JsonNode> airlines = builder.globalTable("airlines", json());
        TimeWindows days =
            TimeWindows.ofSizeAndGrace(Duration.ofDays(1), Duration.ofHours(1));
        builder.stream("flights", json())
            .filter((key, flight) -> !flight.get("dep_delay").isNull())
            .join(airlines, (key, flight) -> flight.get("carrier").asText(),
                (flight, airline) ->
                    (JsonNode) with(flight).set("airline", airline.get("name")))
            .groupBy((key, flight) -> flight.get("airline").asText(), Grouped.with(TEXT, NODE))
            .windowedBy(days)
            .aggregate(
                () -> (JsonNode) JSON.createObjectNode().put("flights", 0L).put("delay", 0.0),
                (key, flight, totals) -> JSON.createObjectNode()
                    .put("flights", totals.get("flights").asLong() + 1)
                    .put("delay",
                        totals.get("delay").asDouble() + flight.get("dep_delay").asDouble()),
                Materialized.with(TEXT, NODE))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream()
            .map((key, totals) -> KeyValue.pair(key.key(), (JsonNode) JSON.createObjectNode()
                .put("day_ms", key.window().start())
                .put("flights", totals.get("flights").asLong())
                .put("mean_delay", new BigDecimal(
                    totals.get("delay").asDouble() / totals.get("flights").asLong())
                    .setScale(1, RoundingMode.HALF_EVEN).doubleValue())))
            .to("java-delays", Produced.with(TEXT, NODE));
        return builder;
    }

    static StreamsBuilder orders() {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, JsonNode> orders = builder.table("orders", json());
        KTable<String, JsonNode> customers = builder.table("customers", json());
        orders.leftJoin(customers, order -> order.get("customer").asText(),
                (order, customer) -> (JsonNode) with(order).set("name", field(customer, "name")),
                Materialized.with(TEXT, NODE))
            .toStream()
            .to("java-orders-with-customers", Produced.with(TEXT, NODE));
        return builder;
    }

    static StreamsBuilder sessions() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("clicks", json())
            .groupByKey(Grouped.with(TEXT, NODE))
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(30)))
            .emitStrategy(EmitStrategy.onWindowClose())
            .aggregate(() -> (JsonNode) JSON.createArrayNode(),
                (key, click, pages) -> ((ArrayNode) pages).deepCopy().add(click.get("page")),
                (key, one, other) -> ((ArrayNode) one).deepCopy().addAll((ArrayNode) other),
                Materialized.<String, JsonNode, SessionStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("pages")
                    .withKeySerde(TEXT).withValueSerde(NODE).withRetention(Duration.ofDays(7)))
            .toStream()
            .map((visitor, pages) -> KeyValue.pair(visitor.key(),
                (JsonNode) JSON.createObjectNode()
                    .put("seconds", (visitor.window().end() - visitor.window().start()) / 1000)
                    .set("pages", pages)))
            .to("java-sessions", Produced.with(TEXT, NODE));
        return builder;
    }
}
