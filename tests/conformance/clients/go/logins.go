// franz-go logs in; `clients/logins.py` says what is read and what is said.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func logins(arguments []string) {
	listed, problem := os.ReadFile(arguments[0])
	check(problem)
	for _, line := range strings.Split(strings.TrimSpace(string(listed)), "\n") {
		fields := strings.Split(line, "\t")
		value, problem := roundTrip(fields, arguments[1])
		if problem != nil {
			say("%s refused %s", fields[0], strings.ReplaceAll(problem.Error(), "\n", " "))
		} else {
			say("%s in %s", fields[0], value)
		}
	}
}

func roundTrip(fields []string, topic string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RetryTimeout(2 * time.Second),
	}
	if fields[1] != "SSL" {
		options = append(options, kgo.SASL(mechanism(fields)))
	}
	if strings.HasSuffix(fields[1], "SSL") {
		options = append(options, kgo.DialTLSConfig(transport(fields)))
	}
	client := connect(fields[3], options...)
	defer client.Close()
	if problem := client.Ping(ctx); problem != nil {
		return "", problem
	}
	stored, problem := client.ProduceSync(
		ctx, &kgo.Record{Topic: topic, Partition: 0, Value: []byte(fields[0])},
	).First()
	if problem != nil {
		return "", problem
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{
		topic: {0: kgo.NewOffset().At(stored.Offset)},
	})
	fetched := client.PollRecords(ctx, 1)
	if problem := fetched.Err(); problem != nil {
		return "", problem
	}
	return string(fetched.Records()[0].Value), nil
}

func mechanism(fields []string) sasl.Mechanism {
	switch fields[2] {
	case "PLAIN":
		return plain.Auth{User: fields[4], Pass: fields[5]}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: fields[4], Pass: fields[5]}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: fields[4], Pass: fields[5]}.AsSha512Mechanism()
	default:
		token, problem := os.ReadFile(fields[6])
		check(problem)
		return oauth.Auth{Token: string(token)}.AsMechanism()
	}
}

func transport(fields []string) *tls.Config {
	authority, problem := os.ReadFile(fields[7])
	check(problem)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: trusted}
	if fields[8] != "-" {
		own, problem := tls.LoadX509KeyPair(fields[8], fields[9])
		check(problem)
		config.Certificates = []tls.Certificate{own}
	}
	return config
}
