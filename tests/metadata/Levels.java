import java.util.TreeMap;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/** Prints the levels of all features: their names, defaults and dependencies. */
public class Levels {
    public static void main(String[] args) {
        for (MetadataVersion v : MetadataVersion.values())
            System.out.println(v.featureLevel() + " " + v.version() + " " + v.didMetadataChange() + " " + v.isProduction()
                + " " + v.registerBrokerRecordVersion() + " " + v.partitionRecordVersion());
        for (Feature f : Feature.PRODUCTION_FEATURES) {
            System.out.println(f.featureName() + " 0 " + f.latestTesting() + " " + f.latestProduction());
            for (MetadataVersion v : MetadataVersion.values())
                System.out.println(f.featureName() + " " + v.featureLevel() + " " + f.defaultLevel(v));
            for (short level = 1; level <= f.latestTesting(); level++)
                System.out.println(f.featureName() + " " + level + " needs "
                    + new TreeMap<>(f.fromFeatureLevel(level, true).dependencies()));
        }
    }
}
