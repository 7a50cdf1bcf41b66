// Asks stores of each kind each query of org.apache.kafka.streams.query;
// tests/streams/stores/test_queries_against_kafka.py asks ours the same. Lines "store query: answer".

import java.time.Duration;
import java.time.Instant;
import java.util.*;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.*;
import org.apache.kafka.streams.state.*;

public class QueriesOracle {
    static final Serde<String> TEXT = Serdes.String();
    static final Duration LONG = Duration.ofMillis(1000), SIZE = Duration.ofMillis(10);

    static class Nothing extends ContextualProcessor<String, String, Void, Void> {
        public void process(Record<String, String> record) {
        }
    }

    static Map<String, StoreBuilder<?>> builders() {
        Map<String, StoreBuilder<?>> found = new LinkedHashMap<>();
        found.put("plain", Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("store"), TEXT, TEXT));
        found.put("timestamped", Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore("store"), TEXT, TEXT));
        found.put("window", Stores.windowStoreBuilder(Stores.inMemoryWindowStore("store", LONG, SIZE, false), TEXT, TEXT));
        found.put("timestamped-window", Stores.timestampedWindowStoreBuilder(Stores.inMemoryWindowStore("store", LONG, SIZE, false), TEXT, TEXT));
        found.put("session", Stores.sessionStoreBuilder(Stores.persistentSessionStore("store", LONG), TEXT, TEXT));
        found.put("headers", Stores.timestampedKeyValueStoreWithHeadersBuilder(Stores.inMemoryKeyValueStore("store"), TEXT, TEXT));
        found.put("headers-window", Stores.timestampedWindowStoreWithHeadersBuilder(Stores.inMemoryWindowStore("store", LONG, SIZE, false), TEXT, TEXT));
        found.put("headers-session", Stores.sessionStoreWithHeadersBuilder(Stores.inMemorySessionStore("store", LONG), TEXT, TEXT));
        found.put("versioned", Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("store", LONG), TEXT, TEXT));
        return found;
    }

    static Map<String, Query<?>> queries() {
        Map<String, Query<?>> found = new LinkedHashMap<>();
        found.put("key", KeyQuery.withKey("a"));
        found.put("no-key", KeyQuery.withKey("x"));
        found.put("timestamped-key", TimestampedKeyQuery.withKey("a"));
        found.put("range", RangeQuery.withLowerBound("b"));
        found.put("descending-range", RangeQuery.<String, String>withRange("a", "b").withDescendingKeys());
        found.put("timestamped-range", TimestampedRangeQuery.withNoBounds());
        found.put("window-key", WindowKeyQuery.withKeyAndWindowStartRange("a", at(5), at(25)));
        found.put("window-range", WindowRangeQuery.withWindowStartRange(at(15), at(30)));
        found.put("window-range-of-key", WindowRangeQuery.withKey("a"));
        found.put("versioned-key", VersionedKeyQuery.withKey("a"));
        found.put("versioned-key-as-of", VersionedKeyQuery.<String, String>withKey("a").asOf(at(15)));
        found.put("versions", MultiVersionedKeyQuery.<String, String>withKey("a").withAscendingTimestamps());
        found.put("descending-versions", MultiVersionedKeyQuery.<String, String>withKey("a").fromTime(at(5)).withDescendingTimestamps());
        return found;
    }

    static Instant at(long time) {
        return Instant.ofEpochMilli(time);
    }

    @SuppressWarnings("unchecked")
    static void put(StateStore store, String kind, String key, String value, long time) {
        switch (kind) {
            case "plain": ((KeyValueStore<String, String>) store).put(key, value); break;
            case "timestamped": ((TimestampedKeyValueStore<String, String>) store).put(key, ValueAndTimestamp.make(value, time)); break;
            case "window": ((WindowStore<String, String>) store).put(key, value, time); break;
            case "timestamped-window": ((TimestampedWindowStore<String, String>) store).put(key, ValueAndTimestamp.make(value, time), time); break;
            case "session": ((SessionStore<String, String>) store).put(new Windowed<>(key, new SessionWindow(time, time + 5)), value); break;
            case "headers": ((TimestampedKeyValueStoreWithHeaders<String, String>) store).put(key, ValueTimestampHeaders.make(value, time, headers(key))); break;
            case "headers-window": ((TimestampedWindowStoreWithHeaders<String, String>) store).put(key, ValueTimestampHeaders.make(value, time, headers(key)), time); break;
            case "headers-session": ((SessionStoreWithHeaders<String, String>) store).put(new Windowed<>(key, new SessionWindow(time, time + 5)), AggregationWithHeaders.make(value, headers(key))); break;
            default: ((VersionedKeyValueStore<String, String>) store).put(key, value, time);
        }
    }

    static Headers headers(String key) {
        return new RecordHeaders().add("of", key.getBytes()).add("none", null);
    }

    static String text(Headers headers) {
        List<String> found = new ArrayList<>();
        headers.forEach(one -> found.add(one.key() + ":" + (one.value() == null ? "None" : new String(one.value()))));
        return String.join(" ", found);
    }

    static String text(Object value) {
        if (value instanceof ValueTimestampHeaders) {
            ValueTimestampHeaders<?> one = (ValueTimestampHeaders<?>) value;
            return one.value() + "@" + one.timestamp() + " " + text(one.headers());
        }
        if (value instanceof AggregationWithHeaders) {
            AggregationWithHeaders<?> one = (AggregationWithHeaders<?>) value;
            return one.aggregation() + " " + text(one.headers());
        }
        if (value instanceof ValueAndTimestamp) {
            ValueAndTimestamp<?> one = (ValueAndTimestamp<?>) value;
            return one.value() + "@" + one.timestamp();
        }
        if (value instanceof VersionedRecord) {
            VersionedRecord<?> one = (VersionedRecord<?>) value;
            return one.value() + "@" + one.timestamp() + "/" + one.validTo().map(String::valueOf).orElse("None");
        }
        if (value instanceof Windowed) {
            Windowed<?> one = (Windowed<?>) value;
            return one.key() + "@" + one.window().start() + "/" + one.window().end();
        }
        if (!(value instanceof Iterator)) {
            return value == null ? "None" : value.toString();
        }
        List<String> found = new ArrayList<>();
        ((Iterator<?>) value).forEachRemaining(one -> found.add(one instanceof KeyValue
            ? text(((KeyValue<?, ?>) one).key) + "=" + text(((KeyValue<?, ?>) one).value) : text(one)));
        return found.toString();
    }

    /** What the store's own methods read. */
    static String content(StateStore store) {
        if (store instanceof KeyValueStore) {
            return text(((KeyValueStore<?, ?>) store).all());
        }
        if (store instanceof WindowStore) {
            return text(((WindowStore<String, ?>) store).fetch("a", at(0), at(50)));
        }
        if (store instanceof SessionStore) {
            return text(((SessionStore<String, ?>) store).fetch("a"));
        }
        VersionedRecord<?> one = ((VersionedKeyValueStore<String, ?>) store).get("a");
        return one.value() + "@" + one.timestamp();
    }

    static String answer(StateStore store, Query<?> query) {
        try {
            QueryResult<?> result = store.query(query, PositionBound.unbounded(), new QueryConfig(false));
            return result.isSuccess() ? text(result.getResult()) : result.getFailureReason().toString();
        } catch (UnsupportedOperationException error) {  // a versioned store says so of queries by key
            return FailureReason.UNKNOWN_QUERY_TYPE.toString();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (Map.Entry<String, StoreBuilder<?>> builder : builders().entrySet()) {
            Topology topology = new Topology();
            topology.addSource("source", new StringDeserializer(), new StringDeserializer(), "in");
            topology.addProcessor("processor", Nothing::new, "source");
            topology.addStateStore(builder.getValue(), "processor");
            Properties settings = new Properties();
            settings.put("application.id", "oracle");
            settings.put("bootstrap.servers", "none:1");
            settings.put("state.dir", System.getProperty("java.io.tmpdir") + "/queries-" + UUID.randomUUID());
            try (TopologyTestDriver driver = new TopologyTestDriver(topology, settings)) {
                StateStore store = driver.getAllStateStores().get("store");
                String kind = builder.getKey();
                put(store, kind, "a", "1", 10);
                put(store, kind, "b", "2", 20);
                put(store, kind, "a", "3", 30);
                put(store, kind, "c", "4", 40);
                System.out.println("== " + kind + " content: " + content(store));
                for (Map.Entry<String, Query<?>> query : queries().entrySet()) {
                    System.out.println("== " + kind + " " + query.getKey() + ": " + answer(store, query.getValue()));
                }
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
