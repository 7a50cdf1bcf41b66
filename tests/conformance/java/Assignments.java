// Prints what Kafka's own assignors make of groups.
// A line on standard input: the assignor's name, topics "name:partitions,...", then members
// "id;instance;generation;topic,...;topic:partition,...;user data in hex" ("-" for none); the answer
// is one line with "id=topic:partition,..." of each member in the order given.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignments {
    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ")));
        }
    }

    private static String answer(String[] words) {
        var members = new ArrayList<String>();
        var subscriptions = new HashMap<String, Subscription>();
        for (int index = 2; index < words.length; index++) {
            String[] parts = words[index].split(";");
            members.add(parts[0]);
            subscriptions.put(parts[0], subscription(parts));
        }
        var assigned = assignor(words[0])
            .assign(cluster(words[1]), new GroupSubscription(subscriptions)).groupAssignment();
        var told = new ArrayList<String>();
        for (String member : members) {
            var places = new ArrayList<String>();
            for (TopicPartition one : assigned.get(member).partitions()) {
                places.add(one.topic() + ":" + one.partition());
            }
            told.add(member + "=" + String.join(",", places));
        }
        return String.join(" ", told);
    }

    private static Subscription subscription(String[] parts) {
        List<String> topics = parts[3].equals("-") ? List.of() : List.of(parts[3].split(","));
        var owned = new ArrayList<TopicPartition>();
        if (!parts[4].equals("-")) {
            for (String place : parts[4].split(",")) {
                String[] words = place.split(":");
                owned.add(new TopicPartition(words[0], Integer.parseInt(words[1])));
            }
        }
        ByteBuffer data = parts[5].equals("-") ? null : ByteBuffer.wrap(HexFormat.of().parseHex(parts[5]));
        var made = new Subscription(topics, data, owned, Integer.parseInt(parts[2]), Optional.empty());
        made.setGroupInstanceId(parts[1].equals("-") ? Optional.empty() : Optional.of(parts[1]));
        return made;
    }

    private static Cluster cluster(String text) {
        var node = new Node(1, "localhost", 1);
        Node[] all = {node};
        var partitions = new ArrayList<PartitionInfo>();
        for (String topic : text.split(",")) {
            String[] words = topic.split(":");
            for (int number = 0; number < Integer.parseInt(words[1]); number++) {
                partitions.add(new PartitionInfo(words[0], number, node, all, all));
            }
        }
        return new Cluster("id", List.of(node), partitions, Set.of(), Set.of());
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        Map<String, ConsumerPartitionAssignor> known = Map.of(
            "range", new RangeAssignor(),
            "roundrobin", new RoundRobinAssignor(),
            "sticky", new StickyAssignor(),
            "cooperative-sticky", new CooperativeStickyAssignor());
        return known.get(name);
    }
}
