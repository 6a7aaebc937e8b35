// Plainproducer deletes a key of a running plane with a Kafka client, an Avro library and the folder schemas/released.
//
//	go run . BROKERS SHARD SCHEMAS VOLUME BUCKET KEY
//
// plain_producer.py does the same in Python. Exit status: 0 deleted, 1 refused or not sent, 2 no answer.
package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hamba/avro/v2"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	commands    = "metadata.commands"
	replies     = "metadata.replies"
	commandFile = "metadata_command.v1.avsc"
	answerTime  = 30 * time.Second
)

var errNoAnswer = errors.New("no answer in time; the command is in the log and may still be applied")

// request says what to delete, and where.
type request struct {
	shard               int32
	volume, bucket, key string
}

// schemaIDs returns the id of each schema file: index.txt has a line for each, its id, SHA-256 and name.
func schemaIDs(folder string) (map[string]uint32, error) {
	index, err := os.ReadFile(filepath.Join(folder, "index.txt"))
	if err != nil {
		return nil, err
	}
	ids := map[string]uint32{}
	for line := range strings.Lines(string(index)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("index.txt has no id, SHA-256 and name in the line %q", line)
		}
		id, err := strconv.ParseUint(fields[0], 10, 32)
		if err != nil {
			return nil, err
		}
		ids[fields[2]] = uint32(id)
	}
	return ids, nil
}

// read parses a schema file. Each file is complete, so no other file's types may be used for it.
func read(file string) (avro.Schema, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return avro.ParseBytesWithCache(text, "", &avro.SchemaCache{})
}

// message returns the bytes of a command: a zero byte, the id of the schema in four bytes, and the Avro body.
func message(schema avro.Schema, id uint32, client string, wanted request) ([]byte, error) {
	body, err := avro.Marshal(schema, map[string]any{
		"shard":     wanted.shard,
		"client_id": client,
		"number":    int64(1),
		"body": map[string]any{"deepclean.DeleteKey": map[string]any{
			"volume": wanted.volume, "bucket": wanted.bucket, "key": wanted.key,
		}},
		"sender":      "", // services name themselves here; a client does not
		"wants_reply": true,
	})
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, id), body...), nil
}

// awaitReply returns the answer to the command, or errNoAnswer. All clients' answers come on this topic, so others are
// passed over.
func awaitReply(
	ctx context.Context, kafka *kgo.Client, writers map[uint32]avro.Schema, client string,
) (map[string]any, error) {
	for {
		fetches := kafka.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil, errNoAnswer
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		for record := range fetches.RecordsAll() {
			if len(record.Value) < 5 {
				continue
			}
			writer, isKnown := writers[binary.BigEndian.Uint32(record.Value[1:5])]
			if !isKnown {
				return nil, fmt.Errorf("the answer at offset %d is of a newer schema", record.Offset)
			}
			var reply map[string]any
			if err := avro.Unmarshal(writer, record.Value[5:], &reply); err != nil {
				return nil, err
			}
			if reply["client_id"] == client {
				return reply, nil
			}
		}
	}
}

// endOfReplies returns the offset behind the shard's last answer.
func endOfReplies(ctx context.Context, kafka *kgo.Client, shard int32) (int64, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = shard, -1 // the end
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic, topic.Partitions = replies, append(topic.Partitions, partition)
	asked := kmsg.NewPtrListOffsetsRequest()
	asked.Topics = append(asked.Topics, topic)
	answer, err := asked.RequestWith(ctx, kafka)
	if err != nil {
		return 0, err
	}
	found := answer.Topics[0].Partitions[0]
	return found.Offset, kerr.ErrorForCode(found.ErrorCode)
}

// send publishes the command; the client then reads the shard's answers from where they ended before.
func send(ctx context.Context, kafka *kgo.Client, shard int32, value []byte) error {
	end, err := endOfReplies(ctx, kafka, shard)
	if err != nil {
		return err
	}
	kafka.AddConsumePartitions(map[string]map[int32]kgo.Offset{replies: {shard: kgo.NewOffset().At(end)}})
	return kafka.ProduceSync(ctx, &kgo.Record{Topic: commands, Partition: shard, Value: value}).FirstErr()
}

// deleteKey sends one command and returns its answer.
func deleteKey(ctx context.Context, brokers, schemas string, wanted request) (map[string]any, error) {
	ids, err := schemaIDs(schemas)
	if err != nil {
		return nil, err
	}
	writers, err := replySchemas(schemas, ids)
	if err != nil {
		return nil, err
	}
	schema, err := read(filepath.Join(schemas, commandFile))
	if err != nil {
		return nil, err
	}
	client := "plain-producer-" + rand.Text() // a new id with each start, then 1, 2, 3, ...
	value, err := message(schema, ids[commandFile], client, wanted)
	if err != nil {
		return nil, err
	}
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), // idempotence and acks=all are this library's defaults
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),   // answers may be in transactions
	)
	if err != nil {
		return nil, err
	}
	defer kafka.Close()
	if err := send(ctx, kafka, wanted.shard, value); err != nil {
		return nil, fmt.Errorf("the broker did not take the command: %w", err)
	}
	return awaitReply(ctx, kafka, writers, client)
}

// replySchemas returns the schemas of answers by their ids.
func replySchemas(folder string, ids map[string]uint32) (map[uint32]avro.Schema, error) {
	files, err := filepath.Glob(filepath.Join(folder, "metadata_reply.v*.avsc"))
	if err != nil {
		return nil, err
	}
	schemas := map[uint32]avro.Schema{}
	for _, file := range files {
		if schemas[ids[filepath.Base(file)]], err = read(file); err != nil {
			return nil, err
		}
	}
	return schemas, nil
}

func main() {
	if len(os.Args) != 7 {
		log.Fatal("usage: plainproducer BROKERS SHARD SCHEMAS VOLUME BUCKET KEY")
	}
	shard, err := strconv.ParseInt(os.Args[2], 10, 32)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	wanted := request{int32(shard), os.Args[4], os.Args[5], os.Args[6]}
	reply, err := deleteKey(ctx, os.Args[1], os.Args[3], wanted)
	switch {
	case errors.Is(err, errNoAnswer):
		fmt.Println(err)
		os.Exit(2)
	case err != nil:
		log.Fatal(err)
	case reply["error"] != "":
		fmt.Printf("%s: %s\n", reply["error"], reply["message"])
		os.Exit(1)
	}
	fmt.Printf("deleted at txn %d; its blocks go when no snapshot holds them\n", reply["txn"])
}
