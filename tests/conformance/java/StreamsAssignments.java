import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * Assigns tasks as Kafka's group coordinator does. A line: the number of standby replicas,
 * subtopologies as id:count:stateful, members as id;process;active;standby with tasks as id_number;
 * answers with id=active;standby.
 */
public final class StreamsAssignments {
    private record Described(TreeMap<String, String[]> parts) implements TopologyDescriber {
        @Override
        public List<String> subtopologies() {
            return new ArrayList<>(parts.keySet());
        }

        @Override
        public int maxNumInputPartitions(String id) {
            return Integer.parseInt(parts.get(id)[1]);
        }

        @Override
        public boolean isStateful(String id) {
            return parts.get(id)[2].equals("1");
        }
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String one : text.split(",")) {
            if (one.equals("-")) {
                continue;
            }
            String[] pair = one.split("_");
            found.computeIfAbsent(pair[0], key -> new HashSet<>()).add(Integer.parseInt(pair[1]));
        }
        return found;
    }

    private static String text(Map<String, Set<Integer>> tasks) {
        List<String> words = new ArrayList<>();
        new TreeMap<>(tasks).forEach((id, numbers) ->
            new TreeSet<>(numbers).forEach(number -> words.add(id + "_" + number)));
        return words.isEmpty() ? "-" : String.join(",", words);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ");
            TreeMap<String, String[]> parts = new TreeMap<>();
            for (String one : words[1].split(",")) {
                parts.put(one.split(":")[0], one.split(":"));
            }
            Map<String, AssignmentMemberSpec> members = new HashMap<>();
            for (int index = 2; index < words.length; index++) {
                String[] member = words[index].split(";");
                members.put(member[0], new AssignmentMemberSpec(
                    Optional.empty(), Optional.empty(), tasks(member[2]), tasks(member[3]), Map.of(),
                    member[1], Map.of(), Map.of(), Map.of()));
            }
            Map<String, String> settings = Map.of("num.standby.replicas", words[0]);
            Map<String, MemberAssignment> result = new StickyTaskAssignor()
                .assign(new GroupSpecImpl(members, settings), new Described(parts)).members();
            List<String> answers = new ArrayList<>();
            new TreeMap<>(result).forEach((id, one) ->
                answers.add(id + "=" + text(one.activeTasks()) + ";" + text(one.standbyTasks())));
            System.out.println(String.join(" ", answers));
        }
    }
}
