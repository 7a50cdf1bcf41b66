import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after another in one JVM, each as if it were alone.
 *
 * A line of standard input is {"class": …, "arguments": […], "stdin": …}; the answer is a line
 * {"status": …, "out": …, "err": …}. A tool that exits is parked there: nothing that stands behind
 * the exit may run. A tool that ends the JVM itself leaves a last answer without a status, which is
 * then the JVM's.
 */
public class ToolRunner {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;
    private static volatile ByteArrayOutputStream out;
    private static volatile ByteArrayOutputStream err;

    public static void main(String[] ignored) throws Exception {
        Runtime.getRuntime().addShutdownHook(new Thread(() -> answer(null)));
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answer(run(JSON.readTree(line)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(Integer status) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", status);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        try {
            OUT.println(JSON.writeValueAsString(answer));
        } catch (JsonProcessingException impossible) {
            throw new IllegalStateException(impossible);
        }
        OUT.flush();
    }

    /** Runs one tool and returns its exit status, -1 when it did not end in time. */
    private static int run(JsonNode call) throws Exception {
        out = new ByteArrayOutputStream();
        err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        byte[] stdin = call.path("stdin").asText("").getBytes(StandardCharsets.UTF_8);
        System.setIn(new ByteArrayInputStream(stdin));
        CompletableFuture<Integer> ended = new CompletableFuture<>();
        List<Runnable> hooks = new CopyOnWriteArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        Exit.Procedure exit = (status, message) -> {
            hooks.forEach(Runnable::run);
            ended.complete(status);
            while (true) LockSupport.park();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        String[] arguments = JSON.convertValue(call.get("arguments"), String[].class);
        Class<?> tool = Class.forName(call.get("class").asText());
        Thread thread = new Thread(() -> {
            try {
                tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
                hooks.forEach(Runnable::run);
                ended.complete(0);
            } catch (java.lang.reflect.InvocationTargetException thrown) {
                System.err.print("Exception in thread \"main\" ");
                thrown.getCause().printStackTrace();
                ended.complete(1);
            } catch (ReflectiveOperationException wrong) {
                ended.completeExceptionally(wrong);
            }
        }, "main");
        thread.setDaemon(true);
        thread.start();
        try {
            return ended.get(call.path("timeout_s").asInt(60), TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            return -1;
        }
    }
}
