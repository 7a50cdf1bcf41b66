// Sarama as a command; `clients/stock.py` says what the commands are.
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

	"github.com/IBM/sarama"
)

const firstTimestamp = 1_700_000_000_000

var codecs = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
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

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 100
	config.Metadata.Retry.Backoff = 100 * time.Millisecond
	return config
}

func produce(arguments []string) {
	topic, count, number := arguments[1], integer(arguments[2]), integer(arguments[4])
	pause := time.Duration(integer(arguments[5])) * time.Millisecond
	for _, codec := range strings.Split(arguments[3], ",") {
		config := settings()
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Compression = codecs[codec]
		config.Producer.Retry.Max = 100
		config.Producer.Return.Successes = true
		config.Producer.Flush.Frequency = 5 * time.Millisecond
		producer, problem := sarama.NewAsyncProducer(strings.Split(arguments[0], ","), config)
		check(problem)
		var waiting sync.WaitGroup
		waiting.Add(count)
		go announce(producer, &waiting)
		for end := number + count; number < end; number++ {
			producer.Input() <- &sarama.ProducerMessage{
				Topic:     topic,
				Key:       sarama.StringEncoder(strconv.Itoa(number)),
				Value:     sarama.StringEncoder(fmt.Sprintf("%08d", number) + strings.Repeat(".", 100)),
				Timestamp: time.UnixMilli(firstTimestamp + int64(number)*1000),
			}
			time.Sleep(pause)
		}
		waiting.Wait() // one that closes does not try again
		check(producer.Close())
	}
}

func announce(producer sarama.AsyncProducer, waiting *sync.WaitGroup) {
	go func() {
		for failed := range producer.Errors() {
			check(failed)
		}
	}()
	for sent := range producer.Successes() {
		value, problem := sent.Value.Encode()
		check(problem)
		say("%d %d %s", sent.Partition, sent.Offset, value)
		waiting.Done()
	}
}

// reader counts what all claims of a member gave, and stops the member at the last one wanted.
type reader struct {
	mutex sync.Mutex
	left  int
	stop  func()
}

func (r *reader) Setup(session sarama.ConsumerGroupSession) error {
	names := []string{"assigned"}
	for _, partitions := range session.Claims() {
		for _, partition := range partitions {
			names = append(names, strconv.Itoa(int(partition)))
		}
	}
	sort.Strings(names[1:])
	say("%s", strings.Join(names, " "))
	return nil
}

func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		if session.Context().Err() != nil || !r.take(message) {
			break
		}
		session.MarkMessage(message, "")
		if len(claim.Messages()) == 0 {
			session.Commit()
		}
	}
	session.Commit()
	return nil
}

func (r *reader) take(message *sarama.ConsumerMessage) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.left == 0 {
		return false
	}
	say("%d %d %s", message.Partition, message.Offset, message.Value)
	r.left--
	if r.left == 0 {
		r.stop()
	}
	return true
}

func consume(arguments []string) {
	count := integer(arguments[3])
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if os.Getenv("STOCK_ISOLATION") == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 20 * time.Millisecond // its commits wait behind its fetches
	config.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	group, problem := sarama.NewConsumerGroup(strings.Split(arguments[0], ","), arguments[2], config)
	check(problem)
	handler := &reader{left: count, stop: cancel}
	if count == 0 {
		handler.left = -1
	}
	for ctx.Err() == nil {
		if problem := group.Consume(ctx, []string{arguments[1]}, handler); problem != nil {
			fmt.Fprintln(os.Stderr, problem)
			time.Sleep(100 * time.Millisecond)
		}
	}
	check(group.Close())
}

func offset(arguments []string) {
	client, problem := sarama.NewClient(strings.Split(arguments[0], ","), settings())
	check(problem)
	defer client.Close()
	for _, timestamp := range strings.Split(arguments[3], ",") {
		partition := int32(integer(arguments[2]))
		found, problem := client.GetOffset(arguments[1], partition, int64(integer(timestamp)))
		check(problem)
		say("%d", found)
	}
}

func transactional(bootstrap string, name string) sarama.SyncProducer {
	config := settings()
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Retry.Max = 100
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = name
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, problem := sarama.NewSyncProducer(strings.Split(bootstrap, ","), config)
	check(problem)
	return producer
}

func numbered(topic string, number int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic:     topic,
		Partition: int32(number % 2),
		Key:       sarama.StringEncoder(strconv.Itoa(number)),
		Value:     sarama.StringEncoder(fmt.Sprintf("%08d", number) + strings.Repeat(".", 100)),
	}
}

func transact(arguments []string) {
	topic, name := arguments[1], arguments[2]
	producer := transactional(arguments[0], name)
	for number := 0; number < integer(arguments[3]); number++ {
		check(producer.BeginTxn())
		for one := number * 3; one < number*3+3; one++ {
			_, _, problem := producer.SendMessage(numbered(topic, one))
			check(problem)
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{
			topic: {{Partition: 0, Offset: int64(number + 1)}},
		}
		check(producer.AddOffsetsToTxn(offsets, name))
		if number%3 == 2 {
			check(producer.AbortTxn())
			say("aborted %d", number)
		} else {
			check(producer.CommitTxn())
			say("committed %d", number)
		}
	}
	check(producer.Close())
}

func zombie(arguments []string) {
	stopped, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	producer := transactional(arguments[0], arguments[2])
	check(producer.BeginTxn())
	_, _, problem := producer.SendMessage(numbered(arguments[1], 0))
	check(problem)
	say("open")
	<-stopped.Done()
	problem = producer.CommitTxn()
	switch {
	case problem == nil:
		say("committed")
	case errors.Is(problem, sarama.ErrProducerFenced),
		errors.Is(problem, sarama.ErrInvalidProducerEpoch),
		errors.Is(problem, sarama.ErrTransitionNotAllowed):
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
