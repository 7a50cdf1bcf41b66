// The load generator of the benchmarks against real Kafka: one compiled program, the same for both.
//
//	load produce -brokers HOST:PORT -topic T -clients 8 -requests 20000 -batch 1 -size 100
//	load consume -brokers HOST:PORT -topic T -records 1000000
//
// It prints one JSON line: records, seconds, and for produce the latency of a request.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type result struct {
	Records int     `json:"records"`
	Bytes   int     `json:"bytes"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func codec(name string) kgo.CompressionCodec {
	switch name {
	case "gzip":
		return kgo.GzipCompression()
	case "snappy":
		return kgo.SnappyCompression()
	case "lz4":
		return kgo.Lz4Compression()
	case "zstd":
		return kgo.ZstdCompression()
	}
	return kgo.NoCompression()
}

func acks(name string) kgo.Acks {
	if name == "all" {
		return kgo.AllISRAcks()
	}
	return kgo.LeaderAck()
}

// payload is half random, so that compression has something to do and something to leave.
func payload(size int) []byte {
	value := make([]byte, size)
	_, err := rand.Read(value[:size/2])
	fail(err)
	return value
}

type producing struct {
	brokers, topic, codec, acks           string
	clients, requests, batch, size, parts int
	rate                                  float64
}

func (p producing) client() *kgo.Client {
	options := []kgo.Opt{
		kgo.SeedBrokers(p.brokers), kgo.DefaultProduceTopic(p.topic), kgo.RequiredAcks(acks(p.acks)),
		kgo.ProducerBatchCompression(codec(p.codec)), kgo.ProducerLinger(0),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1 << 20),
	}
	if p.acks != "all" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	fail(err)
	return client
}

func (p producing) run() result {
	clients := make([]*kgo.Client, p.clients)
	for i := range clients {
		clients[i] = p.client()
		fail(clients[i].Ping(context.Background()))
	}
	each := p.requests / p.clients
	latencies := make([][]time.Duration, p.clients)
	start := time.Now()
	var group sync.WaitGroup
	for i, client := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			latencies[i] = p.one(client, i, each, start)
		}()
	}
	group.Wait()
	seconds := time.Since(start).Seconds()
	var all []time.Duration
	for _, some := range latencies {
		all = append(all, some...)
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	count := each * p.clients * p.batch
	return result{count, count * p.size, seconds, at(all, 0.5), at(all, 0.99)}
}

func (p producing) one(client *kgo.Client, number, each int, start time.Time) []time.Duration {
	value := payload(p.size)
	times := make([]time.Duration, 0, each)
	for n := range each {
		if p.rate > 0 {
			due := time.Duration(float64(n*p.clients+number) / p.rate * float64(time.Second))
			time.Sleep(time.Until(start.Add(due)))
		}
		records := make([]*kgo.Record, p.batch)
		for j := range records {
			records[j] = &kgo.Record{Value: value, Partition: int32((n*p.clients + number) % p.parts)}
		}
		began := time.Now()
		fail(client.ProduceSync(context.Background(), records...).FirstErr())
		times = append(times, time.Since(began))
	}
	return times
}

func at(sorted []time.Duration, quantile float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(float64(len(sorted)-1)*quantile)].Microseconds()) / 1000
}

func consume(brokers, topic string, records int) result {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxPartitionBytes(1<<20),
	)
	fail(err)
	defer client.Close()
	start := time.Now()
	seen, bytes := 0, 0
	for seen < records {
		fetches := client.PollFetches(context.Background())
		fail(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { seen++; bytes += len(r.Value) })
	}
	return result{seen, bytes, time.Since(start).Seconds(), 0, 0}
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("say produce or consume"))
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	var p producing
	flags.StringVar(&p.brokers, "brokers", "127.0.0.1:9092", "where the broker is")
	flags.StringVar(&p.topic, "topic", "bench", "topic, already there")
	flags.StringVar(&p.codec, "codec", "none", "none, gzip, snappy, lz4, zstd")
	flags.StringVar(&p.acks, "acks", "1", "1 or all")
	flags.IntVar(&p.clients, "clients", 8, "connections, each with one request at a time")
	flags.IntVar(&p.requests, "requests", 10000, "requests in all")
	flags.IntVar(&p.batch, "batch", 1, "records a request")
	flags.IntVar(&p.size, "size", 100, "bytes a record")
	flags.IntVar(&p.parts, "partitions", 1, "partitions to spread over")
	flags.Float64Var(&p.rate, "rate", 0, "requests a second in all; 0 is as fast as it goes")
	records := flags.Int("records", 100000, "records to consume")
	repeats := flags.Int("repeats", 1, "clients that consume them, one after the other")
	fail(flags.Parse(os.Args[2:]))
	var done result
	switch os.Args[1] {
	case "produce":
		done = p.run()
	case "consume":
		for range *repeats {
			one := consume(p.brokers, p.topic, *records)
			done.Records += one.Records
			done.Bytes += one.Bytes
			done.Seconds += one.Seconds
		}
	default:
		fail(fmt.Errorf("say produce or consume, not %s", os.Args[1]))
	}
	fail(json.NewEncoder(os.Stdout).Encode(done))
}
