import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Answers a question a line, in Base64 each: a word and its arguments; "!" where Kafka fails. */
public class SecurityNames {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                String text = answer(words);
                byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
                answer = "=" + Base64.getEncoder().encodeToString(bytes);
            } catch (Exception | StackOverflowError error) {
                answer = "!" + error.toString().replaceAll("[\\r\\n]", " ");
            }
            out.println(answer);
        }
        out.flush();
    }

    private static byte[] bytes(String word) {
        return Base64.getDecoder().decode(word);
    }

    private static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "subject":
                return new X500Principal(bytes(words[1])).getName();
            case "rules":
                return SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2]));
            case "kerberos":
                return KerberosShortNamer.fromUnparsedRules("REALM", Arrays.asList(text(words[1])))
                    .shortName(KerberosName.parse(text(words[2])));
            case "jaas":
                Map<String, Object> configs = new HashMap<>();
                configs.put("sasl.jaas.config", new Password(text(words[1])));
                AppConfigurationEntry entry =
                    JaasContext.loadClientContext(configs).configurationEntries().get(0);
                StringBuilder found = new StringBuilder(entry.getLoginModuleName());
                new TreeMap<>(entry.getOptions())
                    .forEach((name, value) -> found.append("\u0001").append(name)
                        .append("\u0002").append(value));
                return found.toString();
            default:
                throw new IllegalStateException(words[0]);
        }
    }
}
