// Counts records by key and minute, exactly once, in two threads. Arguments: bootstrap servers,
// number of records, directory for state. Prints records per second from the first to the last.

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

public class WindowCount {
    public static void main(String[] arguments) throws Exception {
        long records = Long.parseLong(arguments[1]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", "java-" + System.nanoTime());
        settings.put("state.dir", arguments[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("num.stream.threads", "2");
        AtomicLong seen = new AtomicLong();
        AtomicLong began = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream("bench", Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .peek((key, value) -> {
                long number = seen.incrementAndGet();
                if (number == 1) {
                    began.set(System.nanoTime());
                }
                if (number == records) {
                    done.countDown();
                }
            })
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .count()
            .toStream()
            .map((key, count) -> KeyValue.pair(key.key(), count))
            .to("java-out", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        done.await();
        double seconds = (System.nanoTime() - began.get()) / 1e9;
        System.out.println(records / seconds);
        System.out.flush();
        streams.close(Duration.ofSeconds(20));
        Runtime.getRuntime().halt(0);
    }
}
