// Sarama logs in; `clients/logins.py` says what is read and what is said.
package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
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
	client, problem := sarama.NewClient([]string{fields[3]}, secured(fields))
	if problem != nil {
		return "", problem
	}
	defer client.Close()
	producer, problem := sarama.NewSyncProducerFromClient(client)
	if problem != nil {
		return "", problem
	}
	defer producer.Close()
	_, offset, problem := producer.SendMessage(
		&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fields[0])},
	)
	if problem != nil {
		return "", problem
	}
	consumer, problem := sarama.NewConsumerFromClient(client)
	if problem != nil {
		return "", problem
	}
	defer consumer.Close()
	partition, problem := consumer.ConsumePartition(topic, 0, offset)
	if problem != nil {
		return "", problem
	}
	defer partition.Close()
	select {
	case message := <-partition.Messages():
		return string(message.Value), nil
	case <-time.After(10 * time.Second):
		return "", fmt.Errorf("no record")
	}
}

func secured(fields []string) *sarama.Config {
	config := settings()
	config.Metadata.Retry.Max = 1
	config.Producer.Return.Successes = true
	config.Consumer.MaxWaitTime = 20 * time.Millisecond
	config.Producer.Partitioner = sarama.NewManualPartitioner
	if fields[1] != "SSL" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Handshake = true
		config.Net.SASL.User, config.Net.SASL.Password = fields[4], fields[5]
		config.Net.SASL.Mechanism = sarama.SASLMechanism(fields[2])
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient {
			return &proof{hash: hashes[fields[2]]}
		}
		config.Net.SASL.TokenProvider = tokenFile(fields[6])
	}
	if strings.HasSuffix(fields[1], "SSL") {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = transport(fields)
	}
	return config
}

var hashes = map[string]scram.HashGeneratorFcn{
	"SCRAM-SHA-256": sha256.New,
	"SCRAM-SHA-512": sha512.New,
}

// proof is the part of SCRAM that sarama leaves to its users.
type proof struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (p *proof) Begin(user, password, authorization string) error {
	client, problem := p.hash.NewClient(user, password, authorization)
	if problem == nil {
		p.conversation = client.NewConversation()
	}
	return problem
}

func (p *proof) Step(challenge string) (string, error) { return p.conversation.Step(challenge) }

func (p *proof) Done() bool { return p.conversation.Done() }

type tokenFile string

func (t tokenFile) Token() (*sarama.AccessToken, error) {
	token, problem := os.ReadFile(string(t))
	return &sarama.AccessToken{Token: string(token)}, problem
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
