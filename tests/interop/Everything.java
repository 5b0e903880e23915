import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.serialization.*;

/** Writes one of everything that a cluster keeps about entities ("write"), or prints all of it, sorted ("read"). */
public class Everything {
    static final String TOPIC = "entities";

    public static void main(String[] args) throws Exception {
        String bootstrap = args[1], sasl = args.length > 2 ? args[2] : null;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            if (args[0].equals("write")) write(admin, bootstrap, sasl);
            else read(admin, sasl);
        }
    }

    static Map<String, Object> saslConf(String sasl) {
        return Map.of("bootstrap.servers", sasl, "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN",
            "sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"alice\" password=\"alice-secret\";");
    }

    static void write(Admin admin, String bootstrap, String sasl) throws Exception {
        admin.createTopics(List.of(new NewTopic(TOPIC, 2, (short) 1))).all().get();
        admin.createAcls(List.of(
            new AclBinding(new ResourcePattern(ResourceType.TOPIC, TOPIC, PatternType.LITERAL),
                new AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW)),
            new AclBinding(new ResourcePattern(ResourceType.GROUP, "g", PatternType.PREFIXED),
                new AccessControlEntry("User:eve", "10.0.0.1", AclOperation.ALL, AclPermissionType.DENY)))).all().get();
        var doomed = new AclBinding(new ResourcePattern(ResourceType.TOPIC, "doomed", PatternType.LITERAL),
                new AccessControlEntry("User:x", "*", AclOperation.WRITE, AclPermissionType.ALLOW));
        admin.createAcls(List.of(doomed)).all().get();
        admin.deleteAcls(List.of(doomed.toFilter())).all().get();
        admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("user", "bob")),
                List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1048576.0), new ClientQuotaAlteration.Op("request_percentage", 12.5))),
            new ClientQuotaAlteration(new ClientQuotaEntity(new HashMap<String, String>() {{ put("user", null); put("client-id", "c"); }}),
                List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", 2048.0))),
            new ClientQuotaAlteration(new ClientQuotaEntity(Map.of("ip", "10.1.2.3")),
                List.of(new ClientQuotaAlteration.Op("connection_creation_rate", 7.0))))).all().get();
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("bob", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "pw"),
            new UserScramCredentialUpsertion("eve", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), "pw"))).all().get();
        Map<ConfigResource, Collection<AlterConfigOp>> configs = new HashMap<>();
        configs.put(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "metrics-all"), List.of(
            set("metrics", "org.apache.kafka.producer."), set("interval.ms", "12000"), set("match", "client_id=c.*")));
        configs.put(new ConfigResource(ConfigResource.Type.GROUP, "modern"), List.of(set("consumer.session.timeout.ms", "50000")));
        configs.put(new ConfigResource(ConfigResource.Type.BROKER, "1"), List.of(set("message.max.bytes", "2000000"), set("max.connections", "5000")));
        configs.put(new ConfigResource(ConfigResource.Type.BROKER, ""), List.of(set("log.retention.ms", "7200000000"), set("message.max.bytes", "2000000")));
        admin.incrementalAlterConfigs(configs).all().get();
        if (sasl != null) try (Admin alice = Admin.create(saslConf(sasl))) {
            alice.createDelegationToken(new CreateDelegationTokenOptions().maxLifetimeMs(86400000L)).delegationToken().get();
        }
        Map<String, Object> p = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "key.serializer", StringSerializer.class,
            "value.serializer", StringSerializer.class));
        try (var producer = new KafkaProducer<String, String>(p)) {
            for (int i = 0; i < 50; i++) producer.send(new ProducerRecord<>(TOPIC, i % 2, "k" + i, "v" + i));
        }
        p.put("transactional.id", "txn-1");
        try (var producer = new KafkaProducer<String, String>(p)) {
            producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(TOPIC, i % 2, "t" + i, "txn" + round + "-" + i));
                producer.flush();
                if (round % 2 == 0) producer.commitTransaction(); else producer.abortTransaction();
            }
        }
        consume(bootstrap, "modern", "consumer", 30);
        consume(bootstrap, "classic", "classic", 30);
        consume(bootstrap, "gone", "classic", 10);
        admin.deleteConsumerGroups(List.of("gone")).all().get();
        System.out.println("written");
    }

    static AlterConfigOp set(String key, String value) { return new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET); }

    static void consume(String bootstrap, String group, String protocol, int count) {
        Map<String, Object> c = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false", "isolation.level", "read_committed",
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class));
        try (var consumer = new KafkaConsumer<String, String>(c)) {
            consumer.subscribe(List.of(TOPIC));
            int seen = 0;
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (seen < count && System.nanoTime() < deadline) seen += consumer.poll(Duration.ofMillis(200)).count();
            if (seen < count) throw new IllegalStateException(group + " got " + seen);
            consumer.commitSync();
        }
    }

    static void read(Admin admin, String sasl) throws Exception {
        SortedSet<String> out = new TreeSet<>();
        for (AclBinding acl : admin.describeAcls(AclBindingFilter.ANY).values().get()) out.add("acl " + acl);
        admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((e, q) -> out.add("quota " + new TreeMap<>(e.entries()) + " " + new TreeMap<>(q)));
        admin.describeUserScramCredentials().all().get().forEach((u, d) -> out.add("scram " + u + " " + d.credentialInfos()));
        for (ConfigResource r : admin.listConfigResources().all().get()) {
            if (r.type() == ConfigResource.Type.BROKER_LOGGER || r.type() == ConfigResource.Type.TOPIC) continue;
            for (ConfigEntry e : admin.describeConfigs(List.of(r)).all().get().get(r).entries())
                if (e.source().name().startsWith("DYNAMIC")) out.add("config " + r + " " + e.name() + "=" + e.value() + " " + e.source());
        }
        for (GroupListing g : admin.listGroups().all().get()) {
            out.add("group " + g.groupId() + " " + g.type() + " " + g.groupState());
            admin.listConsumerGroupOffsets(g.groupId()).partitionsToOffsetAndMetadata().get()
                .forEach((tp, o) -> out.add("offset " + g.groupId() + " " + tp + " " + (o == null ? null : o.offset())));
        }
        for (int p = 0; p < 2; p++) {
            TopicPartition tp = new TopicPartition(TOPIC, p);
            for (var iso : IsolationLevel.values()) out.add("end " + tp + " " + iso + " " + admin.listOffsets(Map.of(tp, OffsetSpec.latest()),
                new ListOffsetsOptions(iso)).all().get().get(tp).offset());
        }
        for (TransactionListing t : admin.listTransactions().all().get()) out.add("txn " + t);
        if (sasl != null) try (Admin alice = Admin.create(saslConf(sasl))) {
            for (var t : alice.describeDelegationToken().delegationTokens().get()) out.add("token " + t.tokenInfo());
        }
        out.forEach(System.out::println);
    }
}
