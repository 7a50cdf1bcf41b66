// Kafka's Java client logs in; `clients/logins.py` says what is read and what is said.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public final class LoginClient {
    private static final String MODULES = "org.apache.kafka.common.security.";

    public static void main(String[] arguments) throws Exception {
        List<String> logins = Files.readAllLines(Path.of(arguments[0]));
        String tokens = "";
        for (String login : logins) {
            String token = login.split("\t")[6];
            tokens += token.equals("-") ? "" : "," + Path.of(token).toUri();
        }
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", tokens);
        for (String login : logins) {
            String[] fields = login.split("\t");
            String said;
            try {
                said = "in " + roundTrip(settings(fields), arguments[1], fields[0]);
            } catch (Exception problem) {
                Throwable cause = problem.getCause() == null ? problem : problem.getCause();
                said = "refused " + cause.toString().replace('\n', ' ');
            }
            System.out.println(fields[0] + " " + said);
            System.out.flush();
        }
    }

    private static String roundTrip(Properties settings, String topic, String value) throws Exception {
        RecordMetadata stored;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            stored = producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, stored.offset());
            return consumer.poll(Duration.ofSeconds(10)).iterator().next().value();
        }
    }

    private static Properties settings(String[] fields) throws Exception {
        Properties settings = new Properties();
        settings.put("security.protocol", fields[1]);
        settings.put("bootstrap.servers", fields[3]);
        settings.put("max.block.ms", "10000");
        if (fields[1].startsWith("SASL")) {
            settings.put("sasl.mechanism", fields[2]);
            if (fields[2].equals("OAUTHBEARER")) {
                settings.put("sasl.jaas.config",
                        MODULES + "oauthbearer.OAuthBearerLoginModule required;");
                settings.put("sasl.login.callback.handler.class",
                        MODULES + "oauthbearer.OAuthBearerLoginCallbackHandler");
                settings.put("sasl.oauthbearer.token.endpoint.url",
                        Path.of(fields[6]).toUri().toString());
            } else {
                String module = fields[2].equals("PLAIN")
                        ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
                settings.put("sasl.jaas.config", String.format(
                        "%s%s required username=\"%s\" password=\"%s\";",
                        MODULES, module, fields[4], fields[5]));
            }
        }
        if (fields[1].endsWith("SSL")) {
            settings.put("ssl.truststore.type", "PEM");
            settings.put("ssl.truststore.location", fields[7]);
        }
        if (!fields[8].equals("-")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.certificate.chain", Files.readString(Path.of(fields[8])));
            settings.put("ssl.keystore.key", Files.readString(Path.of(fields[9])));
        }
        return settings;
    }
}
