import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Deletes a key of a running plane with Kafka's and Avro's own libraries and the folder schemas/released.
 *
 * <pre>java -cp kafka-clients.jar:avro.jar:... PlainProducer BROKERS SHARD SCHEMAS VOLUME BUCKET KEY</pre>
 *
 * plain_producer.py does the same in Python. Exit status: 0 deleted, 1 refused or not sent, 2 no answer.
 */
public final class PlainProducer {
    private static final String COMMAND_FILE = "metadata_command.v1.avsc";
    private static final Duration ANSWER_TIME = Duration.ofSeconds(30);

    /** The id of each schema file: index.txt has a line for each, its id, SHA-256 and name. */
    private static Map<String, Integer> schemaIds(Path folder) throws IOException {
        Map<String, Integer> ids = new HashMap<>();
        for (String line : Files.readAllLines(folder.resolve("index.txt"))) {
            String[] fields = line.split(" +");
            ids.put(fields[2], Integer.parseInt(fields[0]));
        }
        return ids;
    }

    private static Schema read(Path file) throws IOException {
        return new Schema.Parser().parse(Files.readString(file));
    }

    /** A message: a zero byte, the id of the schema in four bytes, and the Avro body. */
    private static byte[] message(Schema schema, int id, GenericRecord record) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        bytes.write(ByteBuffer.allocate(5).put((byte) 0).putInt(id).array());
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<GenericRecord>(schema).write(record, encoder);
        encoder.flush();
        return bytes.toByteArray();
    }

    private static GenericRecord deleteCommand(
            Schema schema, String client, long number, int shard, String volume, String bucket, String key) {
        Schema bodies = schema.getField("body").schema();
        Schema deleteKey = bodies.getTypes().get(bodies.getIndexNamed("deepclean.DeleteKey"));
        GenericRecord body = new GenericData.Record(deleteKey);
        body.put("volume", volume);
        body.put("bucket", bucket);
        body.put("key", key);
        GenericRecord command = new GenericData.Record(schema);
        for (Schema.Field field : schema.getFields()) {
            if (field.hasDefaultValue()) {
                command.put(field.name(), GenericData.get().getDefaultValue(field));
            }
        }
        command.put("shard", shard);
        command.put("client_id", client);
        command.put("number", number);
        command.put("body", body);
        command.put("wants_reply", true);
        return command;
    }

    /** The answer to one command, or null; everybody's answers come on this topic, so others are passed over. */
    private static GenericRecord awaitReply(
            KafkaConsumer<byte[], byte[]> replies, Map<Integer, Schema> writers, String client) throws IOException {
        long end = System.nanoTime() + ANSWER_TIME.toNanos();
        while (System.nanoTime() < end) {
            for (ConsumerRecord<byte[], byte[]> record : replies.poll(Duration.ofSeconds(1))) {
                ByteBuffer value = ByteBuffer.wrap(record.value());
                Schema writer = writers.get(value.getInt(1));
                GenericRecord reply = new GenericDatumReader<GenericRecord>(writer)
                        .read(null, DecoderFactory.get().binaryDecoder(value.array(), 5, value.capacity() - 5, null));
                if (client.equals(reply.get("client_id").toString())) {
                    return reply;
                }
            }
        }
        return null;
    }

    public static void main(String[] words) throws Exception {
        String brokers = words[0];
        int shard = Integer.parseInt(words[1]);
        Path folder = Path.of(words[2]);
        Map<String, Integer> ids = schemaIds(folder);
        Map<Integer, Schema> writers = new HashMap<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, "metadata_reply.v*.avsc")) {
            for (Path file : files) {
                writers.put(ids.get(file.getFileName().toString()), read(file));
            }
        }
        String client = "plain-producer-" + UUID.randomUUID(); // a new id with each start, then 1, 2, 3, ...
        Schema schema = read(folder.resolve(COMMAND_FILE));
        GenericRecord command = deleteCommand(schema, client, 1, shard, words[3], words[4], words[5]);
        byte[] message = message(schema, ids.get(COMMAND_FILE), command);

        Map<String, Object> settings = Map.of("bootstrap.servers", brokers);
        Map<String, Object> reading = Map.of("bootstrap.servers", brokers, "isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> replies =
                        new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            TopicPartition place = new TopicPartition("metadata.replies", shard);
            replies.assign(List.of(place));
            replies.seekToEnd(List.of(place));
            replies.position(place); // where the replies end before the command is sent
            producer.send(new ProducerRecord<>("metadata.commands", shard, null, message)).get();
            GenericRecord reply = awaitReply(replies, writers, client);
            if (reply == null) {
                System.out.println("no answer in time; the command is in the log and may still be applied");
                System.exit(2);
            }
            String error = reply.get("error").toString();
            if (!error.isEmpty()) {
                System.out.println(error + ": " + reply.get("message"));
                System.exit(1);
            }
            System.out.println("deleted at txn " + reply.get("txn") + "; its blocks go when no snapshot holds them");
        }
    }
}
