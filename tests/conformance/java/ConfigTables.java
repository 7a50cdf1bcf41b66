// Prints Kafka's configuration tables and its opinions about given values.
// Lines on standard input: "value <tab> scope <tab> name <tab> text" or
// "broker <tab> name=text <tab> name=text ...". Answers come in the same order.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigTables {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigDef> scopes = new LinkedHashMap<>();
        scopes.put("broker", AbstractKafkaConfig.CONFIG_DEF);
        scopes.put("topic", LogConfig.configDefCopy());
        scopes.put("group", GroupConfig.CONFIG_DEF);
        scopes.put("producer", ProducerConfig.configDef());
        scopes.put("consumer", ConsumerConfig.configDef());
        scopes.put("admin", AdminClientConfig.configDef());
        for (Map.Entry<String, ConfigDef> scope : scopes.entrySet()) {
            for (ConfigDef.ConfigKey key : scope.getValue().configKeys().values()) {
                print("key", scope.getKey(), key.name, key.type.name(), defaultOf(key),
                    String.valueOf(key.internalConfig), key.importance.name());
            }
        }
        DynamicBrokerConfig.dynamicConfigUpdateModes().forEach((name, mode) -> print("mode", name, mode));
        DynamicConfig.Broker.names().forEach(name -> print("dynamic", name));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) ->
            print("synonym", name, String.join(",", synonyms.stream().map(one -> one.name()).toList())));
        BufferedReader reader =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            String[] parts = line.split("\t", -1);
            print("answer", parts[0].equals("value") ? value(scopes.get(parts[1]), parts) : broker(parts));
        }
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) return "<required>";
        String text = ConfigDef.convertToString(key.defaultValue, key.type);
        return text == null ? "<null>" : text;
    }

    private static String value(ConfigDef definition, String[] parts) {
        try {
            ConfigDef.ConfigKey key = definition.configKeys().get(parts[2]);
            Object parsed = ConfigDef.parseType(parts[2], parts[3], key.type);
            // as ConfigDef.parseValue, which is private: duplicates are removed first (KIP-1161)
            if (key.validator instanceof ConfigDef.ValidList && parsed instanceof List<?> entries)
                parsed = entries.stream().distinct().toList();
            if (key.validator != null) key.validator.ensureValid(parts[2], parsed);
            return "ok";
        } catch (Exception error) {
            return String.valueOf(error.getMessage()).replace("\n", " ");
        }
    }

    private static String broker(String[] parts) {
        Map<String, String> given = new HashMap<>();
        Arrays.stream(parts).skip(1).forEach(pair -> {
            int at = pair.indexOf('=');
            given.put(pair.substring(0, at), pair.substring(at + 1));
        });
        try {
            new kafka.server.KafkaConfig(new TreeMap<>(given), false);
            return "ok";
        } catch (Throwable error) {
            return String.valueOf(error.getMessage()).replace("\n", " ");
        }
    }

    private static void print(String... fields) {
        System.out.println(String.join("\t", fields));
    }
}
