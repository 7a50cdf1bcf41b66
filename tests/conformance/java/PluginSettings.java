// Prints the definitions of settings: of SINK and SOURCE, those of all connectors, else of the
// plug-ins whose classes the arguments name.
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;

public class PluginSettings {
    public static void main(String[] names) throws Exception {
        for (String name : names) {
            for (ConfigDef.ConfigKey key : definitions(name).configKeys().values()) {
                boolean hasDocument = !name.equals("SINK") && !name.equals("SOURCE");
                Stream<Object> parts = Stream.of(
                    Stream.of(name, key.name, key.type, !key.hasDefault(), defaultOf(key), key.importance),
                    hasDocument ? Stream.of(key.documentation) : Stream.of(),
                    Stream.of(String.valueOf(key.group), key.orderInGroup, key.width, key.displayName)
                ).flatMap(it -> it);
                System.out.println(parts.map(String::valueOf).collect(Collectors.joining("\t")));
            }
        }
    }

    private static ConfigDef definitions(String name) throws Exception {
        if (name.equals("SINK")) return SinkConnectorConfig.configDef();
        if (name.equals("SOURCE")) return SourceConnectorConfig.configDef();
        Object plugin = Class.forName(name).getDeclaredConstructor().newInstance();
        return (ConfigDef) plugin.getClass().getMethod("config").invoke(plugin);
    }

    private static String defaultOf(ConfigDef.ConfigKey key) {
        if (key.defaultValue == ConfigDef.NO_DEFAULT_VALUE) return "null";
        return String.valueOf(ConfigDef.convertToString(key.defaultValue, key.type));
    }
}
