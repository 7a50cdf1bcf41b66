import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Receives clients' metrics and fails over some: the Python twin is tests/server/receivers.py. */
public class Receiver implements MetricsReporter, ClientTelemetry {
    public void configure(Map<String, ?> configs) {}

    public void init(List<KafkaMetric> metrics) {}

    public void metricChange(KafkaMetric metric) {}

    public void metricRemoval(KafkaMetric metric) {}

    public void close() {}

    public ClientTelemetryReceiver clientReceiver() {
        return (AuthorizableRequestContext context, ClientTelemetryPayload payload) -> {
            byte[] data = new byte[payload.data().remaining()];
            payload.data().get(data);
            if (new String(data).equals("boom")) throw new IllegalStateException("boom");
        };
    }
}
