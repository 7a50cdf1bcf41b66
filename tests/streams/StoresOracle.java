// Answers queries of Kafka Streams' stores: JSON in, JSON out. tests/streams/stores/test_against_kafka_stores.py
// puts the same entries into our stores.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.*;
import org.apache.kafka.streams.state.*;

public class StoresOracle {
    static final Serde<String> TEXT = Serdes.String();

    static class Nothing extends ContextualProcessor<String, String, Void, Void> {
        public void process(Record<String, String> record) {
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode answers = json.createArrayNode();
        for (JsonNode test : json.readTree(System.in)) {
            Topology topology = new Topology();
            topology.addSource("source", new StringDeserializer(), new StringDeserializer(), "in");
            topology.addProcessor("processor", Nothing::new, "source");
            topology.addStateStore(builder(test), "processor");
            Properties settings = new Properties();
            settings.put("application.id", "oracle");
            settings.put("bootstrap.servers", "none:1");
            settings.put("state.dir", System.getProperty("java.io.tmpdir") + "/stores-" + UUID.randomUUID());
            try (TopologyTestDriver driver = new TopologyTestDriver(topology, settings)) {
                for (JsonNode put : test.get("puts")) {
                    put(driver, test.get("kind").asText(), put);
                }
                ArrayNode answer = answers.addArray();
                for (JsonNode query : test.get("queries")) {
                    ArrayNode found = answer.addArray();
                    ask(driver, test.get("kind").asText(), query, found);
                }
            }
        }
        System.out.println("ANSWERS" + json.writeValueAsString(answers));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static StoreBuilder<?> builder(JsonNode test) {
        Duration retention = Duration.ofMillis(test.get("retention").asLong());
        switch (test.get("kind").asText()) {
            case "lru": return Stores.keyValueStoreBuilder(Stores.lruMap("store", test.get("retention").asInt()), TEXT, TEXT);
            case "key-value": return Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore("store"), TEXT, TEXT);
            case "window": return Stores.windowStoreBuilder(Stores.inMemoryWindowStore("store", retention, Duration.ofMillis(10), false), TEXT, TEXT);
            case "session": return Stores.sessionStoreBuilder(Stores.persistentSessionStore("store", retention), TEXT, TEXT);
            default: return Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("store", retention), TEXT, TEXT);
        }
    }

    static void put(TopologyTestDriver driver, String kind, JsonNode put) {
        String key = text(put, 0), value = text(put, 1);
        long first = put.get(2).asLong(), second = put.get(3).asLong();
        switch (kind) {
            case "lru": if ("get".equals(value)) { driver.<String, String>getKeyValueStore("store").get(key); break; }
            case "key-value": driver.<String, String>getKeyValueStore("store").put(key, value); break;
            case "window": driver.<String, String>getWindowStore("store").put(key, value, first); break;
            case "session": driver.<String, String>getSessionStore("store").put(new Windowed<>(key, new SessionWindow(first, second)), value); break;
            default: driver.<String, String>getVersionedKeyValueStore("store").put(key, value, first);
        }
    }

    static void ask(TopologyTestDriver driver, String kind, JsonNode query, ArrayNode found) {
        String name = query.get(0).asText();
        switch (kind) {
            case "key-value": case "lru": keyValue(driver.getKeyValueStore("store"), name, query, found); break;
            case "window": window(driver.getWindowStore("store"), name, query, found); break;
            case "session": session(driver.getSessionStore("store"), name, query, found); break;
            default: versioned(driver.getVersionedKeyValueStore("store"), name, query, found);
        }
    }

    static void keyValue(KeyValueStore<String, String> store, String name, JsonNode query, ArrayNode found) {
        switch (name) {
            case "all": list(store.all(), found); break;
            case "reverse_all": list(store.reverseAll(), found); break;
            case "range": list(store.range(text(query, 1), text(query, 2)), found); break;
            case "reverse_range": list(store.reverseRange(text(query, 1), text(query, 2)), found); break;
            case "prefix_scan": list(store.prefixScan(text(query, 1), new StringSerializer()), found); break;
            case "approximate_num_entries": found.add(store.approximateNumEntries()); break;
            default: found.add(store.get(text(query, 1)));
        }
    }

    static void window(WindowStore<String, String> store, String name, JsonNode query, ArrayNode found) {
        switch (name) {
            case "all": list(store.all(), found); break;
            case "backward_all": list(store.backwardAll(), found); break;
            case "fetch": times(store.fetch(text(query, 1), at(query, 2), at(query, 3)), found); break;
            case "backward_fetch": times(store.backwardFetch(text(query, 1), at(query, 2), at(query, 3)), found); break;
            case "fetch_keys": list(store.fetch(text(query, 1), text(query, 2), at(query, 3), at(query, 4)), found); break;
            case "backward_fetch_keys": list(store.backwardFetch(text(query, 1), text(query, 2), at(query, 3), at(query, 4)), found); break;
            case "fetch_all": list(store.fetchAll(at(query, 1), at(query, 2)), found); break;
            case "backward_fetch_all": list(store.backwardFetchAll(at(query, 1), at(query, 2)), found); break;
            default: found.add(store.fetch(text(query, 1), query.get(2).asLong()));
        }
    }

    static void session(SessionStore<String, String> store, String name, JsonNode query, ArrayNode found) {
        switch (name) {
            case "fetch": list(store.fetch(text(query, 1)), found); break;
            case "backward_fetch": list(store.backwardFetch(text(query, 1)), found); break;
            case "fetch_keys": list(store.fetch(text(query, 1), text(query, 2)), found); break;
            case "backward_fetch_keys": list(store.backwardFetch(text(query, 1), text(query, 2)), found); break;
            case "find_sessions": list(store.findSessions(text(query, 1), at(query, 2), at(query, 3)), found); break;
            case "backward_find_sessions": list(store.backwardFindSessions(text(query, 1), at(query, 2), at(query, 3)), found); break;
            case "find_sessions_of_keys": list(store.findSessions(text(query, 1), text(query, 2), at(query, 3), at(query, 4)), found); break;
            case "backward_find_sessions_of_keys": list(store.backwardFindSessions(text(query, 1), text(query, 2), at(query, 3), at(query, 4)), found); break;
            default: found.add(store.fetchSession(text(query, 1), query.get(2).asLong(), query.get(3).asLong()));
        }
    }

    static void versioned(VersionedKeyValueStore<String, String> store, String name, JsonNode query, ArrayNode found) {
        if (name.equals("versions")) {
            MultiVersionedKeyQuery<String, String> asked = MultiVersionedKeyQuery.<String, String>withKey(text(query, 1)).withAscendingTimestamps();
            asked = query.get(2).isNull() ? asked : asked.fromTime(at(query, 2));
            asked = query.get(3).isNull() ? asked : asked.toTime(at(query, 3));
            try (VersionedRecordIterator<String> all = store.query(asked, PositionBound.unbounded(), new QueryConfig(false)).getResult()) {
                while (all.hasNext()) {
                    VersionedRecord<String> one = all.next();
                    found.add(one.value() + "@" + one.timestamp() + "/" + one.validTo().map(String::valueOf).orElse("None"));
                }
            }
            return;
        }
        VersionedRecord<String> one = query.get(2).isNull() ? store.get(text(query, 1)) : store.get(text(query, 1), query.get(2).asLong());
        found.add(one == null ? null : one.value() + "@" + one.timestamp());
    }

    static void list(KeyValueIterator<?, String> all, ArrayNode found) {
        while (all.hasNext()) {
            KeyValue<?, String> one = all.next();
            Object key = one.key;
            if (key instanceof Windowed) {
                Windowed<?> windowed = (Windowed<?>) key;
                key = windowed.key() + "@" + windowed.window().start() + "/" + windowed.window().end();
            }
            found.add(key + "=" + one.value);
        }
        all.close();
    }

    static void times(WindowStoreIterator<String> all, ArrayNode found) {
        while (all.hasNext()) {
            KeyValue<Long, String> one = all.next();
            found.add(one.key + "=" + one.value);
        }
        all.close();
    }

    static Instant at(JsonNode query, int index) {
        return Instant.ofEpochMilli(query.get(index).asLong());
    }

    static String text(JsonNode query, int index) {
        return query.get(index).isNull() ? null : query.get(index).asText();
    }
}
