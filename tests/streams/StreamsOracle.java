// Runs topologies that tests describe with Kafka Streams' TopologyTestDriver: JSON in, JSON out.
// The functions of the operators are those of tests/streams/cases.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.Punctuator;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;

public class StreamsOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode test : JSON.readTree(System.in)) {
            ObjectNode answer = answers.addObject();
            try {
                run(test, answer);
            } catch (Exception error) {
                answer.put("error", error + " caused by " + error.getCause());
            }
        }
        System.out.println("ANSWERS" + JSON.writeValueAsString(answers));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void run(JsonNode test, ObjectNode answer) {
        WRAPPED.clear();
        Build build = new Build(test.path("wrapped").asBoolean());
        for (JsonNode step : test.get("steps")) {
            build.add(step);
        }
        Topology topology = build.builder.build();
        build.finish.accept(topology);
        answer.put("describe", topology.describe().toString());
        Properties settings = new Properties();
        settings.put("application.id", "oracle");
        settings.put("bootstrap.servers", "none:1");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("__emit.interval.ms.kstreams.windowed.aggregation__", 0L);
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        settings.put("state.dir", System.getProperty("java.io.tmpdir") + "/streams-" + UUID.randomUUID());
        if (test.path("memory").asBoolean()) {
            settings.put("dsl.store.suppliers.class", BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        }
        if (test.path("wrapped").asBoolean()) {
            settings.put("processor.wrapper.class", Wrapper.class);
        }
        StringSerializer write = new StringSerializer();
        StringDeserializer read = new StringDeserializer();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, settings)) {
            Map<String, TestInputTopic<String, String>> inputs = new HashMap<>();
            int number = 0;
            for (JsonNode one : test.get("inputs")) {
                String topic = one.get(0).asText();
                RecordHeaders headers = new RecordHeaders();
                headers.add("n", String.valueOf(number++).getBytes());
                inputs.computeIfAbsent(topic, name -> driver.createInputTopic(name, write, write))
                    .pipeInput(new TestRecord<>(text(one.get(1)), text(one.get(2)),
                        headers, one.get(3).asLong()));
            }
            ArrayNode outputs = answer.putArray("outputs");
            for (JsonNode topic : test.get("outputs")) {
                TestOutputTopic<String, String> output =
                    driver.createOutputTopic(topic.asText(), read, read);
                while (!output.isEmpty()) {
                    TestRecord<String, String> record = output.readRecord();
                    outputs.addArray().add(topic.asText()).add(record.key()).add(record.value())
                        .add(record.timestamp()).add(headers(record));
                }
            }
        }
        answer.set("wrapped", JSON.valueToTree(WRAPPED));
    }

    static final Map<String, Integer> WRAPPED = new TreeMap<>();

    /** Counts the records of each processor. */
    public static class Wrapper implements ProcessorWrapper {
        @Override
        public <KIn, VIn, KOut, VOut> WrappedProcessorSupplier<KIn, VIn, KOut, VOut> wrapProcessorSupplier(String name, ProcessorSupplier<KIn, VIn, KOut, VOut> supplier) {
            WRAPPED.putIfAbsent(name, 0);
            return ProcessorWrapper.asWrapped(new ProcessorSupplier<KIn, VIn, KOut, VOut>() {
                public Processor<KIn, VIn, KOut, VOut> get() {
                    Processor<KIn, VIn, KOut, VOut> inner = supplier.get();
                    return new Processor<KIn, VIn, KOut, VOut>() {
                        public void init(ProcessorContext<KOut, VOut> context) { inner.init(context); }
                        public void process(Record<KIn, VIn> record) { WRAPPED.merge(name, 1, Integer::sum); inner.process(record); }
                        public void close() { inner.close(); }
                    };
                }
                public Set<StoreBuilder<?>> stores() { return supplier.stores(); }
            });
        }

        @Override
        public <KIn, VIn, VOut> WrappedFixedKeyProcessorSupplier<KIn, VIn, VOut> wrapFixedKeyProcessorSupplier(String name, FixedKeyProcessorSupplier<KIn, VIn, VOut> supplier) {
            WRAPPED.putIfAbsent(name, 0);
            return ProcessorWrapper.asWrappedFixedKey(new FixedKeyProcessorSupplier<KIn, VIn, VOut>() {
                public FixedKeyProcessor<KIn, VIn, VOut> get() {
                    FixedKeyProcessor<KIn, VIn, VOut> inner = supplier.get();
                    return new FixedKeyProcessor<KIn, VIn, VOut>() {
                        public void init(FixedKeyProcessorContext<KIn, VOut> context) { inner.init(context); }
                        public void process(FixedKeyRecord<KIn, VIn> record) { WRAPPED.merge(name, 1, Integer::sum); inner.process(record); }
                        public void close() { inner.close(); }
                    };
                }
                public Set<StoreBuilder<?>> stores() { return supplier.stores(); }
            });
        }
    }

    static String headers(TestRecord<String, String> record) {
        StringBuilder found = new StringBuilder();
        for (Header one : record.headers()) {
            found.append(one.key()).append(new String(one.value())).append(' ');
        }
        return found.toString();
    }

    static String text(JsonNode node) {
        return node.isNull() ? null : node.asText();
    }

    static String join(String left, String right) {
        return "(" + left + "+" + right + ")";
    }

    static <K> String windowed(Windowed<K> key) {
        return key.key() + "@" + key.window().start() + "/" + key.window().end();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static class Build {
        final StreamsBuilder builder;
        final Map<String, Object> made = new HashMap<>();
        java.util.function.Consumer<Topology> finish = topology -> { };

        Build(boolean wrapped) {
            Properties settings = new Properties();
            settings.put("application.id", "oracle");
            settings.put("bootstrap.servers", "none:1");
            settings.put("processor.wrapper.class", Wrapper.class);
            builder = wrapped ? new StreamsBuilder(new TopologyConfig(new StreamsConfig(settings))) : new StreamsBuilder();
        }

        <T> T of(JsonNode step, String name) {
            return (T) made.get(step.get(name).asText());
        }

        void add(JsonNode step) {
            Object result = make(step);
            if (step.has("id")) {
                made.put(step.get("id").asText(), result);
            }
        }

        Duration ms(JsonNode step, String name) {
            return Duration.ofMillis(step.get(name).asLong());
        }

        Materialized stored(JsonNode step) {
            Materialized found = !step.has("store") ? Materialized.with(null, null)
                : step.has("history")
                ? Materialized.as(Stores.persistentVersionedKeyValueStore(step.get("store").asText(), ms(step, "history")))
                : step.has("entries")
                ? Materialized.as(Stores.lruMap(step.get("store").asText(), step.get("entries").asInt()))
                : Materialized.as(step.get("store").asText());
            return found.withKeySerde(Serdes.String()).withValueSerde(Serdes.String());
        }

        Materialized counted(JsonNode step) {
            return stored(step).withValueSerde(Serdes.Long());
        }

        Object make(JsonNode step) {
            switch (step.get("op").asText()) {
                case "stream": return step.has("pattern")
                    ? builder.stream(java.util.regex.Pattern.compile(step.get("pattern").asText()))
                    : builder.stream(step.get("topic").asText());
                case "table":
                    return step.has("store")
                        ? builder.table(step.get("topic").asText(), stored(step))
                        : builder.table(step.get("topic").asText());
                case "global_table": return builder.globalTable(step.get("topic").asText());
                case "to": if (step.path("by_record").asBoolean()) {
                    String topic = step.get("topic").asText();
                    ((KStream<String, String>) of(step, "of")).to((key, value, context) -> topic, Produced.streamPartitioner(drops(step)));
                    return null;
                } ((KStream<String, String>) of(step, "of")).to(step.get("topic").asText(), step.has("drops")
                    ? Produced.streamPartitioner(drops(step)) : Produced.keySerde(null)); return null;
                case "lookup": {
                    finish = topology -> {
                        topology.addReadOnlyStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("facts"), Serdes.String(), Serdes.String()),
                            "facts-source", new StringDeserializer(), new StringDeserializer(), step.get("topic").asText(), "facts-processor", Filling::new);
                        topology.connectProcessorAndStateStores("lookup", "facts");
                    };
                    return ((KStream<String, String>) of(step, "of")).process(Lookup::new, Named.as("lookup"));
                }
                case "filter": return ((KStream<String, String>) of(step, "of")).filter((k, v) -> v != null && v.length() % 2 == 1);
                case "map_values": return ((KStream<String, String>) of(step, "of")).mapValues(v -> v + "m");
                case "select_key": return ((KStream<String, String>) of(step, "of")).selectKey((k, v) -> v == null ? null : v.substring(0, 1));
                case "flat_map_values": return ((KStream<String, String>) of(step, "of")).flatMapValues(v -> v == null ? List.of() : Arrays.asList(v.split("")));
                case "map": return ((KStream<String, String>) of(step, "of")).map((k, v) -> KeyValue.pair(k + "k", v));
                case "merge": return ((KStream<String, String>) of(step, "of")).merge(of(step, "with"));
                case "repartition": return ((KStream<String, String>) of(step, "of")).repartition();
                case "branch": return ((KStream<String, String>) of(step, "of")).split().branch((k, v) -> v != null && v.length() == 1).defaultBranch().entrySet().stream().filter(one -> one.getKey().endsWith("1")).findFirst().get().getValue();
                case "to_table": return step.has("store")
                    ? ((KStream<String, String>) of(step, "of")).toTable(stored(step))
                    : ((KStream<String, String>) of(step, "of")).toTable();
                case "process": return ((KStream<String, String>) of(step, "of")).process(new Counting(step));
                case "process_values": return ((KStream<String, String>) of(step, "of")).processValues(() -> new CountingValues());
                case "peek": return ((KStream<String, String>) of(step, "of")).peek((k, v) -> { });
                case "filter_not": return ((KStream<String, String>) of(step, "of")).filterNot((k, v) -> v != null && v.length() % 2 == 1);
                case "flat_map": return ((KStream<String, String>) of(step, "of")).flatMap((k, v) -> v == null ? List.of() : List.of(KeyValue.pair(v, k), KeyValue.pair(k, v)));
                case "unlimited_windows": return windowed(step, ((KGroupedStream<String, String>) of(step, "of")).windowedBy(UnlimitedWindows.of().startOn(java.time.Instant.ofEpochMilli(step.get("start").asLong()))));
                case "table_transform": return step.has("store")
                    ? ((KTable<String, String>) of(step, "of")).transformValues(() -> new Transform(), stored(step))
                    : ((KTable<String, String>) of(step, "of")).transformValues(() -> new Transform());
                case "cogroup_windows": {
                    KGroupedStream<String, String> left = of(step, "of"), right = of(step, "with");
                    CogroupedKStream<String, String> both = left.<String>cogroup((k, v, a) -> a + "l" + v).cogroup(right, (k, v, a) -> a + "r" + v);
                    switch (step.get("kind").asText()) {
                        case "time": return both.windowedBy(TimeWindows.ofSizeAndGrace(ms(step, "size"), ms(step, "grace")).advanceBy(ms(step, "advance"))).aggregate(() -> "", stored(step));
                        case "sliding": return both.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(step, "size"), ms(step, "grace"))).aggregate(() -> "", stored(step));
                        default: return both.windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(step, "size"), ms(step, "grace"))).aggregate(() -> "", (k, a, b) -> a + b, stored(step));
                    }
                }
                case "group_by_key": return ((KStream<String, String>) of(step, "of")).groupByKey();
                case "group_by": return ((KStream<String, String>) of(step, "of")).groupBy((k, v) -> v == null ? null : v.substring(0, 1));
                case "count": return counts(((KGroupedStream<String, String>) of(step, "of")).count(counted(step)));
                case "reduce": return ((KGroupedStream<String, String>) of(step, "of")).reduce((a, v) -> a + v, stored(step));
                case "aggregate": return ((KGroupedStream<String, String>) of(step, "of")).aggregate(() -> "", (k, v, a) -> a + "," + v, stored(step));
                case "time_windows": {
                    TimeWindows windows = TimeWindows.ofSizeAndGrace(ms(step, "size"), ms(step, "grace")).advanceBy(ms(step, "advance"));
                    TimeWindowedKStream found = ((KGroupedStream<String, String>) of(step, "of")).windowedBy(windows);
                    return windowed(step, found);
                }
                case "sliding_windows": {
                    SlidingWindows windows = SlidingWindows.ofTimeDifferenceAndGrace(ms(step, "size"), ms(step, "grace"));
                    return windowed(step, ((KGroupedStream<String, String>) of(step, "of")).windowedBy(windows));
                }
                case "session_windows": {
                    SessionWindows windows = SessionWindows.ofInactivityGapAndGrace(ms(step, "size"), ms(step, "grace"));
                    SessionWindowedKStream<String, String> found = ((KGroupedStream<String, String>) of(step, "of")).windowedBy(windows);
                    if (step.get("close").asBoolean()) {
                        found = found.emitStrategy(EmitStrategy.onWindowClose());
                    }
                    return found.aggregate(() -> "", (k, v, a) -> a + "," + v, (k, a, b) -> a + b, stored(step));
                }
                case "suppress": return ((KTable<Windowed, String>) of(step, "of")).suppress((Suppressed) Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
                case "suppress_time": return ((KTable<String, String>) of(step, "of")).suppress(Suppressed.untilTimeLimit(ms(step, "size"), step.has("bytes")
                    ? Suppressed.BufferConfig.maxBytes(step.get("bytes").asLong())
                    : Suppressed.BufferConfig.maxRecords(step.get("records").asLong())));
                case "windowed_to_stream": return ((KTable<Windowed<String>, String>) of(step, "of")).toStream((k, v) -> StreamsOracle.windowed(k));
                case "to_stream": return ((KTable<String, String>) of(step, "of")).toStream();
                case "table_filter": {
                    KTable<String, String> table = of(step, "of");
                    Predicate<String, String> odd = (k, v) -> v.length() % 2 == 1;
                    return step.has("store") ? table.filter(odd, stored(step)) : table.filter(odd);
                }
                case "table_map_values": {
                    KTable<String, String> table = of(step, "of");
                    return step.has("store") ? table.mapValues(v -> v + "t", stored(step)) : table.mapValues(v -> v + "t");
                }
                case "table_group_by": return ((KTable<String, String>) of(step, "of")).groupBy((k, v) -> KeyValue.pair(v.substring(0, 1), v));
                case "table_aggregate": return ((KGroupedTable<String, String>) of(step, "of")).aggregate(() -> "", (k, v, a) -> a + "+" + v, (k, v, a) -> a + "-" + v, stored(step));
                case "table_count": return counts(((KGroupedTable<String, String>) of(step, "of")).count(counted(step)));
                case "table_reduce": return ((KGroupedTable<String, String>) of(step, "of")).reduce((a, v) -> a + "+" + v, (a, v) -> a + "-" + v, stored(step));
                case "stream_join": {
                    KStream<String, String> left = of(step, "of"), right = of(step, "with");
                    JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, ms(step, "grace")).before(ms(step, "before")).after(ms(step, "after"));
                    switch (step.get("kind").asText()) {
                        case "inner": return left.join(right, StreamsOracle::join, windows);
                        case "left": return left.leftJoin(right, StreamsOracle::join, windows);
                        default: return left.outerJoin(right, StreamsOracle::join, windows);
                    }
                }
                case "stream_table_join": {
                    KStream<String, String> left = of(step, "of");
                    KTable<String, String> right = of(step, "with");
                    if (step.has("waits")) {
                        Joined<String, String, String> joined = Joined.<String, String, String>with(Serdes.String(), Serdes.String(), null).withGracePeriod(ms(step, "waits"));
                        ValueJoiner<String, String, String> joiner = StreamsOracle::join;
                        return step.get("kind").asText().equals("inner") ? left.join(right, joiner, joined) : left.leftJoin(right, joiner, joined);
                    }
                    return step.get("kind").asText().equals("inner") ? left.join(right, StreamsOracle::join) : left.leftJoin(right, StreamsOracle::join);
                }
                case "global_join": {
                    KStream<String, String> left = of(step, "of");
                    GlobalKTable<String, String> right = of(step, "with");
                    KeyValueMapper<String, String, String> key = (k, v) -> v == null ? null : v.substring(0, 1);
                    ValueJoiner<String, String, String> joiner = StreamsOracle::join;
                    return step.get("kind").asText().equals("inner") ? left.join(right, key, joiner) : left.leftJoin(right, key, joiner);
                }
                case "table_join": {
                    KTable<String, String> left = of(step, "of"), right = of(step, "with");
                    switch (step.get("kind").asText()) {
                        case "inner": return step.has("store") ? left.join(right, StreamsOracle::join, stored(step)) : left.join(right, StreamsOracle::join);
                        case "left": return step.has("store") ? left.leftJoin(right, StreamsOracle::join, stored(step)) : left.leftJoin(right, StreamsOracle::join);
                        default: return step.has("store") ? left.outerJoin(right, StreamsOracle::join, stored(step)) : left.outerJoin(right, StreamsOracle::join);
                    }
                }
                case "foreign_key_join": {
                    KTable<String, String> left = of(step, "of"), right = of(step, "with");
                    java.util.function.Function<String, String> key = v -> v.substring(0, 1).equals("z") ? null : v.substring(0, 1);
                    ValueJoiner<String, String, String> joiner = StreamsOracle::join;
                    if (step.has("drops")) {
                        TableJoined<String, String> joined = step.get("other").asBoolean()
                            ? TableJoined.<String, String>with(null, drops(step)) : TableJoined.<String, String>with(drops(step), null);
                        return step.get("kind").asText().equals("inner") ? left.join(right, key, joiner, joined) : left.leftJoin(right, key, joiner, joined);
                    }
                    return step.get("kind").asText().equals("inner") ? left.join(right, key, joiner) : left.leftJoin(right, key, joiner);
                }
                case "cogroup": {
                    KGroupedStream<String, String> left = of(step, "of"), right = of(step, "with");
                    return left.<String>cogroup((k, v, a) -> a + "l" + v).cogroup(right, (k, v, a) -> a + "r" + v).aggregate(() -> "", stored(step));
                }
                default: throw new IllegalArgumentException(step.toString());
            }
        }

        Object windowed(JsonNode step, TimeWindowedKStream<String, String> found) {
            if (step.get("close").asBoolean()) {
                found = found.emitStrategy(EmitStrategy.onWindowClose());
            }
            return found.aggregate(() -> "", (k, v, a) -> a + "," + v, stored(step));
        }

        /** Appends the number of a key's records; every ten ms of stream time it writes all numbers. */
        static class Counting implements org.apache.kafka.streams.processor.api.ProcessorSupplier<String, String, String, String> {
            final JsonNode step;

            Counting(JsonNode step) {
                this.step = step;
            }

            public Set<StoreBuilder<?>> stores() {
                return Set.of(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("counts"), Serdes.String(), Serdes.String()));
            }

            void all(KeyValueStore<String, String> counts, ProcessorContext<String, String> context, long time) {
                try (KeyValueIterator<String, String> found = step.get("reverse").asBoolean() ? counts.reverseAll() : counts.all()) {
                    while (found.hasNext()) {
                        KeyValue<String, String> one = found.next();
                        context.forward(new Record<>(one.key, one.value + "at" + time, time));
                    }
                }
            }

            public Processor<String, String, String, String> get() {
                return new Processor<>() {
                    ProcessorContext<String, String> context;
                    KeyValueStore<String, String> counts;

                    public void init(ProcessorContext<String, String> given) {
                        context = given;
                        counts = given.getStateStore("counts");
                        Punctuator punctuator = time -> all(counts, context, time);
                        if (step.has("start")) {
                            given.schedule(java.time.Instant.ofEpochMilli(step.get("start").asLong()), Duration.ofMillis(10), PunctuationType.STREAM_TIME, punctuator);
                        } else {
                            given.schedule(Duration.ofMillis(10), PunctuationType.STREAM_TIME, punctuator);
                        }
                    }

                    public void process(Record<String, String> record) {
                        String key = record.key() == null ? "none" : record.key();
                        String before = counts.get(key);
                        counts.put(key, record.value() == null ? null : before == null ? "1" : before + "1");
                        if (step.has("again") && "a".equals(key)) {
                            context.schedule(java.time.Instant.ofEpochMilli(step.get("start").asLong() + 5), Duration.ofMillis(10), PunctuationType.STREAM_TIME, time -> context.forward(new Record<>("again", "at" + time, time)));
                        }
                        context.forward(record.withValue(record.value() + before + context.currentStreamTimeMs() + context.applicationId() + context.taskId()));
                    }
                };
            }
        }

        /** Writes no record of one key, which a foreign-key join refuses; leaves those without a key to the producer. */
        static <V> org.apache.kafka.streams.processor.StreamPartitioner<String, V> drops(JsonNode step) {
            String dropped = step.get("drops").asText();
            return (topic, key, value, count) -> key == null ? Optional.empty()
                : key.equals(dropped) ? Optional.of(Set.of()) : Optional.of(Set.of(count - 1));
        }

        /** Fills the store of facts. */
        static class Filling extends ContextualProcessor<String, String, Void, Void> {
            public void process(Record<String, String> record) {
                if (record.key() != null) {
                    context().<KeyValueStore<String, String>>getStateStore("facts").put(record.key(), record.value());
                }
            }
        }

        /** Appends the fact of a record's key. */
        static class Lookup extends ContextualProcessor<String, String, String, String> {
            public void process(Record<String, String> record) {
                KeyValueStore<String, String> facts = context().getStateStore("facts");
                context().forward(record.withValue(record.value() + (record.key() == null ? "-" : facts.get(record.key()))));
            }
        }

        static class CountingValues extends ContextualFixedKeyProcessor<String, String, String> {
            public void process(FixedKeyRecord<String, String> record) {
                context().forward(record.withValue(record.value() + context().recordMetadata().get().offset()));
                context().forward(record.withTimestamp(record.timestamp() + 1));
            }
        }

        static class Transform implements ValueTransformerWithKey<String, String, String> {
            public void init(org.apache.kafka.streams.processor.ProcessorContext context) {
            }

            public String transform(String key, String value) {
                return value == null ? null : value.startsWith("c") ? null : key + value;
            }

            public void close() {
            }
        }

        KTable<String, String> counts(KTable<String, Long> table) {
            return table.mapValues(v -> String.valueOf(v));
        }
    }
}
