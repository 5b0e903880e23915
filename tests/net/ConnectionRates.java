import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;

/**
 * Reads a line "limit CONNECTIONS-PER-SECOND", then the times of connections in milliseconds. Prints how many milliseconds
 * each is above the limit, as QuotaUtils.throttleTime of Apache Kafka computes it.
 */
public class ConnectionRates {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        MetricConfig config = new MetricConfig().samples(11).timeWindow(1, TimeUnit.SECONDS);
        Rate rate = null;
        double limit = 0;
        for (String line; (line = in.readLine()) != null; ) {
            if (line.startsWith("limit ")) {
                rate = new Rate();
                limit = Double.parseDouble(line.substring(6));
                continue;
            }
            long now = Long.parseLong(line);
            rate.record(config, 1.0, now);
            double above = rate.measure(config, now) - limit;
            System.out.println(above <= 0 ? 0.0 : above / limit * rate.windowSize(config, now));
        }
    }
}
