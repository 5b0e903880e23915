import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;

/**
 * Reads files in hex, one on a line, by java.util.Properties.load(InputStream), and answers each with its keys and values as
 * "key,value key,value ..." in hex of UTF-16, or with "ERROR" where Java refuses the file.
 */
public class LoadProperties {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            Properties properties = new Properties();
            StringBuilder out = new StringBuilder();
            try {
                properties.load(new ByteArrayInputStream(HexFormat.of().parseHex(line)));
                for (Map.Entry<Object, Object> entry : properties.entrySet())
                    out.append(hex(entry.getKey())).append(',').append(hex(entry.getValue())).append(' ');
            } catch (IllegalArgumentException malformed) {
                out.append("ERROR");
            }
            System.out.println(out);
            System.out.flush();
        }
    }

    private static String hex(Object text) {
        return HexFormat.of().formatHex(((String) text).getBytes(StandardCharsets.UTF_16BE));
    }
}
