package org.apache.kafka.connect.mirror;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.ConnectorConfig;

/** Prints the settings of the connectors, and what MirrorMaker makes of files: one on each line. */
public class MirrorTables {
    private static final Map<String, Class<?>> CONNECTORS = new LinkedHashMap<>();

    public static void main(String[] arguments) throws Exception {
        CONNECTORS.put("MirrorSource", MirrorSourceConnector.class);
        CONNECTORS.put("MirrorCheckpoint", MirrorCheckpointConnector.class);
        CONNECTORS.put("MirrorHeartbeat", MirrorHeartbeatConnector.class);
        table("MirrorSource", MirrorSourceConfig.CONNECTOR_CONFIG_DEF);
        table("MirrorCheckpoint", MirrorCheckpointConfig.CONNECTOR_CONFIG_DEF);
        table("MirrorHeartbeat", MirrorHeartbeatConfig.CONNECTOR_CONFIG_DEF);
        BufferedReader reader =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            Map<String, String> file = new HashMap<>();
            for (String pair : line.split("\t")) {
                int at = pair.indexOf('=');
                file.put(pair.substring(0, at), pair.substring(at + 1));
            }
            MirrorMakerConfig config = new MirrorMakerConfig(file);
            for (SourceAndTarget flow : config.clusterPairs()) {
                map("worker", flow, config.workerConfig(flow));
                CONNECTORS.forEach((name, type) ->
                    map(name, flow, config.connectorBaseConfig(flow, type)));
            }
            System.out.println("end");
        }
    }

    private static void table(String connector, ConfigDef definitions) {
        for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
            if (ConnectorConfig.configDef().names().contains(key.name)) continue;
            String fallback = "<required>";
            if (key.defaultValue != ConfigDef.NO_DEFAULT_VALUE)
                fallback = ConfigDef.convertToString(key.defaultValue, key.type);
            print("key", connector, key.name, key.type.name(), fallback, key.importance.name());
        }
    }

    private static void map(String kind, SourceAndTarget flow, Map<String, String> settings) {
        settings = new TreeMap<>(settings);
        StringBuilder text = new StringBuilder(kind + "\t" + flow);
        settings.forEach((name, value) -> text.append('\t').append(name).append('=').append(value));
        System.out.println(text);
    }

    private static void print(String... fields) {
        System.out.println(String.join("\t", fields));
    }
}
