import java.io.*;
import java.util.*;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.slf4j.LoggerFactory;

/** Prints what Apache Kafka throws about files: arguments are pairs of a kind and a path. */
public class Doctor {
    public static void main(String[] args) {
        for (int i = 0; i < args.length; i += 2) {
            String answer = "ok";
            try {
                read(args[i], new File(args[i + 1]));
            } catch (Throwable e) {
                answer = e.getClass().getName() + ": " + e.getMessage();
            }
            System.out.println("ANSWER " + answer.replace("\n", "\\n"));
        }
    }

    static void read(String kind, File path) throws Exception {
        switch (kind) {
            case "config" -> config(path);
            case "directories" -> KafkaRaftServer.initializeLogDirs(config(path), LoggerFactory.getLogger("doctor"), "");
            case "quorum-state" -> new FileQuorumStateStore(path).readElectionState();
            case "topic-id" -> new PartitionMetadataFile(path, new LogDirFailureChannel(1)).read();
            case "name" -> UnifiedLog.parseTopicPartitionName(path);
            default -> throw new IllegalArgumentException(kind);
        }
    }

    static KafkaConfig config(File path) throws Exception {
        Properties properties = new Properties();
        try (InputStream in = new FileInputStream(path)) {
            properties.load(in);
        }
        return KafkaConfig.fromProps(properties, false);
    }
}
