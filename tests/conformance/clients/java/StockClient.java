// Kafka's Java client as a command; `clients/stock.py` says what the commands are.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;

public final class StockClient {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        List<String> rest = List.of(arguments).subList(1, arguments.length);
        switch (arguments[0]) {
            case "produce" -> produce(rest);
            case "consume" -> consume(rest);
            case "offset" -> offset(rest);
            case "transact" -> transact(rest);
            case "zombie" -> zombie(rest);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static void produce(List<String> arguments) throws Exception {
        int count = Integer.parseInt(arguments.get(2));
        int number = Integer.parseInt(arguments.get(4));
        long pauseMs = Long.parseLong(arguments.get(5));
        for (String codec : arguments.get(3).split(",")) {
            Properties settings = strings(arguments.get(0));
            settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
            settings.put("enable.idempotence", "true");
            settings.put("compression.type", codec);
            settings.put("linger.ms", "5");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
                for (int end = number + count; number < end; number++) {
                    sent.add(send(producer, arguments.get(1), number));
                    if (pauseMs > 0) {
                        Thread.sleep(pauseMs);
                    }
                }
                producer.flush();
                for (Future<RecordMetadata> one : sent) {
                    one.get();
                }
            }
        }
    }

    private static Future<RecordMetadata> send(
            KafkaProducer<String, String> producer, String topic, int number) {
        String value = String.format("%08d", number) + ".".repeat(100);
        ProducerRecord<String, String> record = new ProducerRecord<>(
                topic, null, FIRST_TIMESTAMP + number * 1000L, Integer.toString(number), value);
        return producer.send(record, (metadata, problem) -> {
            if (problem == null) {
                say(metadata.partition() + " " + metadata.offset() + " " + value);
            } else {
                say("failed " + problem);
            }
        });
    }

    private static void consume(List<String> arguments) throws Exception {
        int count = Integer.parseInt(arguments.get(3));
        Properties settings = strings(arguments.get(0));
        settings.put("group.id", arguments.get(2));
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level",
                System.getenv().getOrDefault("STOCK_ISOLATION", "read_uncommitted"));
        String protocol = System.getenv().getOrDefault("STOCK_PROTOCOL", "classic");
        settings.put("group.protocol", protocol);
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", "300");
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException problem) {
                Thread.currentThread().interrupt();
            }
        }));
        try {
            consumer.subscribe(List.of(arguments.get(1)), new Announcer(consumer));
            int seen = 0;
            while (count == 0 || seen < count) {
                seen += step(consumer, count == 0 ? Integer.MAX_VALUE : count - seen);
            }
        } catch (WakeupException stopped) {
            // the test asked for the end
        } finally {
            consumer.close();
            closed.countDown();
        }
    }

    private static int step(KafkaConsumer<String, String> consumer, int most) {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
        Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();
        int seen = 0;
        for (ConsumerRecord<String, String> record : records) {
            if (seen++ == most) {
                seen = most;
                break;
            }
            say(record.partition() + " " + record.offset() + " " + record.value());
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            done.put(partition, new OffsetAndMetadata(record.offset() + 1));
        }
        if (!done.isEmpty()) {
            commit(consumer, done);
        }
        return seen;
    }

    private static void commit(
            KafkaConsumer<String, String> consumer, Map<TopicPartition, OffsetAndMetadata> done) {
        try {
            consumer.commitSync(done);
        } catch (CommitFailedException | RebalanceInProgressException problem) {
            System.err.println(problem); // whoever has the partition reads the records again
        } catch (WakeupException stopped) {
            commit(consumer, done); // what was printed is committed, also at the end
            throw stopped;
        }
    }

    private static void offset(List<String> arguments) {
        Properties settings = strings(arguments.get(0));
        TopicPartition partition =
                new TopicPartition(arguments.get(1), Integer.parseInt(arguments.get(2)));
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            for (String timestamp : arguments.get(3).split(",")) {
                OffsetAndTimestamp found =
                        consumer.offsetsForTimes(Map.of(partition, Long.valueOf(timestamp)))
                                .get(partition);
                say(Long.toString(found == null ? -1 : found.offset()));
            }
        }
    }

    private static KafkaProducer<String, String> transactional(String bootstrap, String name) {
        Properties settings = strings(bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("transactional.id", name);
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        producer.initTransactions();
        return producer;
    }

    private static ProducerRecord<String, String> record(String topic, int number) {
        String value = String.format("%08d", number) + ".".repeat(100);
        return new ProducerRecord<>(topic, number % 2, Integer.toString(number), value);
    }

    private static void transact(List<String> arguments) {
        String topic = arguments.get(1);
        String name = arguments.get(2);
        TopicPartition read = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = transactional(arguments.get(0), name)) {
            for (int number = 0; number < Integer.parseInt(arguments.get(3)); number++) {
                producer.beginTransaction();
                for (int one = number * 3; one < number * 3 + 3; one++) {
                    producer.send(record(topic, one));
                }
                producer.flush();
                producer.sendOffsetsToTransaction(
                        Map.of(read, new OffsetAndMetadata(number + 1)),
                        new ConsumerGroupMetadata(name));
                if (number % 3 == 2) {
                    producer.abortTransaction();
                    say("aborted " + number);
                } else {
                    producer.commitTransaction();
                    say("committed " + number);
                }
            }
        }
    }

    private static void zombie(List<String> arguments) throws Exception {
        KafkaProducer<String, String> producer =
                transactional(arguments.get(0), arguments.get(2));
        producer.beginTransaction();
        producer.send(record(arguments.get(1), 0)).get();
        Thread committing = new Thread(() -> {
            try {
                producer.commitTransaction();
                say("committed");
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                say("fenced");
            } catch (RuntimeException problem) {
                say(problem.toString());
            }
        });
        Runtime.getRuntime().addShutdownHook(committing);
        say("open");
        new CountDownLatch(1).await();
    }

    private static Properties strings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return settings;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private record Announcer(KafkaConsumer<String, String> consumer)
            implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            say("assigned " + consumer.assignment().stream()
                    .map(one -> Integer.toString(one.partition()))
                    .sorted()
                    .collect(Collectors.joining(" ")));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> lost) {
            // all that was printed is committed
        }
    }
}
