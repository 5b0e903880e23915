import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.ConfigKey;

/** Prints the configuration keys that Apache Kafka defines: of brokers, topics, groups and client metrics. */
public class ConfigDefs {
    public static void main(String[] args) {
        print("broker", org.apache.kafka.server.config.AbstractKafkaConfig.CONFIG_DEF,
            org.apache.kafka.server.config.DynamicBrokerConfig.dynamicConfigUpdateModes());
        print("topic", new ConfigDef(org.apache.kafka.storage.internals.log.LogConfig.configDefCopy()), Map.of());
        print("group", org.apache.kafka.coordinator.group.GroupConfig.CONFIG_DEF, Map.of());
        print("client-metrics", org.apache.kafka.server.metrics.ClientMetricsConfigs.configDef(), Map.of());
        print("dynamic-only", org.apache.kafka.server.config.QuotaConfig.brokerQuotaConfigs(),
            org.apache.kafka.server.config.DynamicBrokerConfig.dynamicConfigUpdateModes());
    }

    static void print(String what, ConfigDef def, Map<String, String> dynamic) {
        for (ConfigKey key : new TreeMap<>(def.configKeys()).values()) {
            String value = !key.hasDefault() ? "(required)" : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.println(String.join("\t", what, key.name, key.type.toString(), String.valueOf(value),
                String.valueOf(key.validator).strip(), key.importance.toString(),
                String.valueOf(key.internalConfig), dynamic.getOrDefault(key.name, "read-only")));
        }
    }
}
