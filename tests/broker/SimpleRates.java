import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.SimpleRate;

/** Reads a line "samples window-seconds", then lines "record VALUE TIME-MS" and "measure TIME-MS". Prints each rate. */
public class SimpleRates {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        MetricConfig config = null;
        SimpleRate rate = null;
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "record" -> rate.record(config, Double.parseDouble(words[1]), Long.parseLong(words[2]));
                case "measure" -> System.out.println(rate.measure(config, Long.parseLong(words[1])));
                default -> {
                    config = new MetricConfig()
                        .samples(Integer.parseInt(words[0]))
                        .timeWindow(Long.parseLong(words[1]), TimeUnit.SECONDS);
                    rate = new SimpleRate();
                }
            }
        }
    }
}
