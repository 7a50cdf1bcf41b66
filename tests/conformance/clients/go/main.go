// franz-go as a command; `clients/stock.py` says what the commands are.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const firstTimestamp = 1_700_000_000_000

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var output sync.Mutex

func say(format string, arguments ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf(format+"\n", arguments...)
}

func check(problem error) {
	if problem != nil {
		fmt.Fprintln(os.Stderr, problem)
		os.Exit(1)
	}
}

func integer(text string) int {
	number, problem := strconv.Atoi(text)
	check(problem)
	return number
}

func connect(bootstrap string, options ...kgo.Opt) *kgo.Client {
	client, problem := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
	check(problem)
	return client
}

func produce(arguments []string) {
	topic, count, number := arguments[1], integer(arguments[2]), integer(arguments[4])
	pause := time.Duration(integer(arguments[5])) * time.Millisecond
	for _, codec := range strings.Split(arguments[3], ",") {
		client := connect(
			arguments[0],
			kgo.ProducerBatchCompression(codecs[codec]),
			kgo.ProducerLinger(5*time.Millisecond),
		)
		for end := number + count; number < end; number++ {
			record := &kgo.Record{
				Topic:     topic,
				Key:       []byte(strconv.Itoa(number)),
				Value:     []byte(fmt.Sprintf("%08d", number) + strings.Repeat(".", 100)),
				Timestamp: time.UnixMilli(firstTimestamp + int64(number)*1000),
			}
			client.Produce(context.Background(), record, func(record *kgo.Record, problem error) {
				check(problem)
				say("%d %d %s", record.Partition, record.Offset, record.Value)
			})
			time.Sleep(pause)
		}
		check(client.Flush(context.Background()))
		client.Close()
	}
}

// owned is what a cooperative member holds: it is told only of changes.
type owned struct {
	mutex      sync.Mutex
	topic      string
	partitions map[int32]bool
}

func (o *owned) change(changed map[string][]int32, holds bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	for _, partition := range changed[o.topic] {
		if holds {
			o.partitions[partition] = true
		} else {
			delete(o.partitions, partition)
		}
	}
	names := []string{"assigned"}
	for partition := range o.partitions {
		names = append(names, strconv.Itoa(int(partition)))
	}
	sort.Strings(names[1:])
	say("%s", strings.Join(names, " "))
}

func consume(arguments []string) {
	topic, count := arguments[1], integer(arguments[3])
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	holds := &owned{topic: topic, partitions: map[int32]bool{}}
	gains := func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		holds.change(changed, true)
	}
	loses := func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		holds.change(changed, false)
	}
	isolation := kgo.ReadUncommitted()
	if os.Getenv("STOCK_ISOLATION") == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	client := connect(
		arguments[0],
		kgo.FetchIsolationLevel(isolation),
		kgo.ConsumerGroup(arguments[2]),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(gains),
		kgo.OnPartitionsRevoked(loses),
		kgo.OnPartitionsLost(loses),
	)
	for seen := 0; ctx.Err() == nil && (count == 0 || seen < count); client.AllowRebalance() {
		most := 500
		if count > 0 {
			most = count - seen
		}
		records := client.PollRecords(ctx, most).Records()
		for _, record := range records {
			say("%d %d %s", record.Partition, record.Offset, record.Value)
		}
		seen += len(records)
		if len(records) > 0 {
			if problem := client.CommitRecords(context.Background(), records...); problem != nil {
				fmt.Fprintln(os.Stderr, problem) // the next commit is of later records
			}
		}
	}
	client.CloseAllowingRebalance()
}

func offset(arguments []string) {
	client := connect(arguments[0])
	defer client.Close()
	for _, timestamp := range strings.Split(arguments[3], ",") {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition = int32(integer(arguments[2]))
		partition.Timestamp = int64(integer(timestamp))
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = arguments[1]
		topic.Partitions = append(topic.Partitions, partition)
		request := kmsg.NewPtrListOffsetsRequest()
		request.ReplicaID = -1
		request.Topics = append(request.Topics, topic)
		response, problem := request.RequestWith(context.Background(), client)
		check(problem)
		answer := response.Topics[0].Partitions[0]
		check(kerr.ErrorForCode(answer.ErrorCode))
		say("%d", answer.Offset)
	}
}

func transactional(bootstrap string, name string) *kgo.Client {
	return connect(
		bootstrap, kgo.TransactionalID(name), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
}

func numbered(topic string, number int) *kgo.Record {
	return &kgo.Record{
		Topic:     topic,
		Partition: int32(number % 2),
		Key:       []byte(strconv.Itoa(number)),
		Value:     []byte(fmt.Sprintf("%08d", number) + strings.Repeat(".", 100)),
	}
}

// commitOffset adds an offset of a group without members to the open transaction.
func commitOffset(client *kgo.Client, name string, topic string, offset int) {
	ctx := context.Background()
	id, epoch, problem := client.ProducerID(ctx)
	check(problem)
	added := kmsg.NewPtrAddOffsetsToTxnRequest()
	added.TransactionalID, added.Group = name, name
	added.ProducerID, added.ProducerEpoch = id, epoch
	addition, problem := added.RequestWith(ctx, client)
	check(problem)
	check(kerr.ErrorForCode(addition.ErrorCode))
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Offset = int64(offset)
	committed := kmsg.NewTxnOffsetCommitRequestTopic()
	committed.Topic = topic
	committed.Partitions = append(committed.Partitions, partition)
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.TransactionalID, request.Group = name, name
	request.ProducerID, request.ProducerEpoch = id, epoch
	request.Topics = append(request.Topics, committed)
	answer, problem := request.RequestWith(ctx, client)
	check(problem)
	check(kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode))
}

func transact(arguments []string) {
	topic, name, ctx := arguments[1], arguments[2], context.Background()
	client := transactional(arguments[0], name)
	defer client.Close()
	for number := 0; number < integer(arguments[3]); number++ {
		check(client.BeginTransaction())
		for one := number * 3; one < number*3+3; one++ {
			check(client.ProduceSync(ctx, numbered(topic, one)).FirstErr())
		}
		commitOffset(client, name, topic, number+1)
		if number%3 == 2 {
			check(client.EndTransaction(ctx, kgo.TryAbort))
			say("aborted %d", number)
		} else {
			check(client.EndTransaction(ctx, kgo.TryCommit))
			say("committed %d", number)
		}
	}
}

func zombie(arguments []string) {
	stopped, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	client := transactional(arguments[0], arguments[2])
	check(client.BeginTransaction())
	check(client.ProduceSync(context.Background(), numbered(arguments[1], 0)).FirstErr())
	say("open")
	<-stopped.Done()
	problem := client.EndTransaction(context.Background(), kgo.TryCommit)
	switch {
	case problem == nil:
		say("committed")
	case errors.Is(problem, kerr.ProducerFenced), errors.Is(problem, kerr.InvalidProducerEpoch):
		say("fenced")
	default:
		say("%v", problem)
	}
}

func main() {
	commands := map[string]func([]string){
		"produce": produce, "consume": consume, "offset": offset,
		"transact": transact, "zombie": zombie, "logins": logins,
	}
	commands[os.Args[1]](os.Args[2:])
}
