import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads lines "class, version, version to write, hex" and answers each with "hex, tab, JSON", as the classes of Apache
 * Kafka write it. Instead of hex, "default" stands for an instance as it is constructed.
 */
public class Echo {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        for (String line; (line = lines.readLine()) != null; ) {
            String[] part = line.split(" ");
            try {
                out.println(echo(Class.forName(part[0]), Short.parseShort(part[1]), Short.parseShort(part[2]),
                    part.length > 3 ? part[3] : ""));
            } catch (Throwable thrown) {
                Throwable cause = thrown;
                while (cause.getCause() != null) cause = cause.getCause();
                out.println("ERROR\t" + cause);
            }
        }
        out.flush();
    }

    private static String echo(Class<?> type, short read, short version, String hex) throws Exception {
        Message message;
        if (hex.equals("default")) {
            message = (Message) type.getConstructor().newInstance();
        } else {
            ByteBuffer in = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
            message = (Message) type.getConstructor(org.apache.kafka.common.protocol.Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(in), read);
            if (in.hasRemaining()) throw new IllegalStateException(in.remaining() + " bytes left");
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(out), cache, version);
        JsonNode json = (JsonNode) Class.forName(type.getName() + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class).invoke(null, message, version, true);
        return HexFormat.of().formatHex(out.array()) + "\t" + json;
    }
}
