import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Answers one line a question. "encode CLASS VERSION JSON": the bytes that Kafka writes, in hex;
 * "encode CLASS VERSION/OTHER JSON": the JSON is of that other version.
 * "decode CLASS VERSION HEX": how many bytes Kafka leaves, what it writes again, its JSON.
 */
public class MessageOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 4);
            String answer;
            try {
                String payload = words.length > 3 ? words[3] : "";
                String[] versions = words[2].split("/");
                short version = Short.parseShort(versions[0]);
                short of = Short.parseShort(versions[versions.length - 1]);
                answer = words[0].equals("encode")
                    ? encode(words[1], version, of, payload) : decode(words[1], version, payload);
            } catch (InvocationTargetException e) {
                answer = "error " + e.getCause();
            } catch (Exception e) {
                answer = "error " + e;
            }
            out.println(answer.replace('\n', ' '));
        }
        out.flush();
    }

    private static String encode(String name, short version, short of, String json)
        throws Exception {
        Message message = (Message) Class.forName(name + "JsonConverter")
            .getMethod("read", JsonNode.class, short.class)
            .invoke(null, JSON.readTree(json), of);
        return write(message, version);
    }

    private static String write(Message message, short version) {
        ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }

    private static String decode(String name, short version, String hex) throws Exception {
        Class<?> type = Class.forName(name);
        Message message = (Message) type.getConstructor().newInstance();
        var bytes = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        message.read(bytes, version);
        Object json = Class.forName(name + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false);
        return bytes.remaining() + " " + write(message, version) + " " + JSON.writeValueAsString(json);
    }
}
