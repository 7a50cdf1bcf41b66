// Prints what Kafka's own classes make of a series of events against a quota.
// A line on standard input: "rate|bucket samples sampleMs limit", then pairs "value@ms"; the answer
// is one line with the throttle time in ms after each event, as the quota managers compute it.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaUtils;

public class QuotaFigures {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        int number = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" "), number++));
        }
    }

    private static String answer(String[] words, int number) {
        boolean isRate = words[0].equals("rate");
        var config = new MetricConfig()
            .samples(Integer.parseInt(words[1]))
            .timeWindow(Long.parseLong(words[2]), TimeUnit.MILLISECONDS)
            .quota(new Quota(Double.parseDouble(words[3]), isRate));
        var metrics = new Metrics();
        Sensor sensor = metrics.sensor("sensor" + number);
        var name = new MetricName("figure", "test", "", java.util.Map.of());
        sensor.add(name, isRate ? new Rate() : new TokenBucket(), config);
        var told = new StringBuilder();
        for (int index = 4; index < words.length; index++) {
            String[] event = words[index].split("@");
            long nowMs = Long.parseLong(event[1]);
            long throttleMs = 0;
            try {
                sensor.record(Double.parseDouble(event[0]), nowMs, true);
            } catch (QuotaViolationException e) {
                throttleMs = isRate
                    ? QuotaUtils.throttleTime(e, nowMs)
                    : ControllerMutationQuotaManager.throttleTimeMs(e);
            }
            told.append(throttleMs).append(' ');
        }
        return told.toString().trim();
    }
}
