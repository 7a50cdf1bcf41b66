import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses by names, and tells what it was asked: the Python twin is tests/server/policies.py. */
public class NoForbidden {
    public static class Topics implements CreateTopicPolicy {
        public void configure(Map<String, ?> configs) {}

        public void close() {}

        public void validate(RequestMetadata asked) {
            if (asked.topic().startsWith("broken")) throw new IllegalStateException("broken policy");
            if (!asked.topic().startsWith("forbidden")) return;
            throw new PolicyViolationException(asked.topic() + " " + asked.numPartitions() + " "
                + asked.replicationFactor() + " " + asked.replicasAssignments() + " "
                + new java.util.TreeMap<>(asked.configs()));
        }
    }

    public static class Configs implements AlterConfigPolicy {
        public void configure(Map<String, ?> configs) {}

        public void close() {}

        public void validate(RequestMetadata asked) {
            if ("666".equals(asked.configs().get("retention.ms"))) throw new IllegalStateException("broken policy");
            if (!asked.resource().name().startsWith("guarded")) return;
            throw new PolicyViolationException(asked.resource().type() + " " + asked.resource().name()
                + " " + new java.util.TreeMap<>(asked.configs()));
        }
    }
}
