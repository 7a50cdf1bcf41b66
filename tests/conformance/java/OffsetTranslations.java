package org.apache.kafka.connect.mirror;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.OptionalLong;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/** Kafka's OffsetSyncStore and PartitionState: a history on each line, the answers on a line. */
public class OffsetTranslations {
    private static final TopicPartition PARTITION = new TopicPartition("t", 0);

    private static class Store extends OffsetSyncStore {
        @Override
        void backingStoreStart() {
        }

        void add(long upstream, long downstream) {
            OffsetSync sync = new OffsetSync(PARTITION, upstream, downstream);
            handleRecord(new ConsumerRecord<>("s", 0, 0, sync.recordKey(), sync.recordValue()));
        }

        /** The first syncs are read during the start, in full or only the last of them. */
        void begin(boolean onlyLast) {
            initializationMustReadToEnd = onlyLast;
        }

        void end() {
            readToEnd = true;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Store store = new Store();
            OffsetSyncWriter.PartitionState state = null;
            StringBuilder out = new StringBuilder();
            for (String word : line.split(" ")) {
                String[] parts = word.split(":");
                long first = parts.length > 1 ? Long.parseLong(parts[1]) : 0;
                long second = parts.length > 2 ? Long.parseLong(parts[2]) : 0;
                switch (parts[0]) {
                    case "begin" -> store.begin(first == 1);
                    case "end" -> store.end();
                    case "add" -> store.add(first, second);
                    case "lag" -> state = new OffsetSyncWriter.PartitionState(first);
                    case "copy" -> {
                        out.append(state.update(first, second)).append(' ');
                        state.reset();
                    }
                    default -> {
                        OptionalLong found = store.translateDownstream("g", PARTITION, first);
                        out.append(found.isPresent() ? found.getAsLong() : "none").append(' ');
                    }
                }
            }
            System.out.println(out.toString().trim());
        }
    }
}
