import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.util.HashMap;
import java.util.Map;

/** Reads a map of byte arrays as FileOffsetBackingStore does, and writes it again. */
public class OffsetFile {
    public static void main(String[] args) throws Exception {
        try (ObjectInputStream in = new ObjectInputStream(new java.io.FileInputStream(args[0]));
                ObjectOutputStream out = new ObjectOutputStream(new java.io.FileOutputStream(args[1]))) {
            HashMap<?, ?> map = (HashMap<?, ?>) in.readObject();
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                byte[] key = (byte[]) entry.getKey();
                byte[] value = (byte[]) entry.getValue();
                System.out.println(new String(key) + " " + (value == null ? "null" : new String(value)));
            }
            out.writeObject(map);
        }
    }
}
