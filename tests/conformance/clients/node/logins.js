// kafkajs logs in; `clients/logins.py` says what is read and what is said.
'use strict';

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1';
const fs = require('fs');
const { Kafka, logLevel } = require('kafkajs');

const read = (path) => fs.readFileSync(path, 'utf8');
const retry = { retries: 1, initialRetryTime: 50 };

function settings([, protocol, mechanism, bootstrap, username, password, token, ca, cert, key]) {
  const made = { clientId: 'stock', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry };
  if (protocol.startsWith('SASL')) {
    made.sasl = mechanism === 'OAUTHBEARER'
      ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: read(token) }) }
      : { mechanism: mechanism.toLowerCase(), username, password };
  }
  if (protocol.endsWith('SSL')) {
    made.ssl = { ca: [read(ca)] };
    if (cert !== '-') Object.assign(made.ssl, { cert: read(cert), key: read(key) });
  }
  return made;
}

async function roundTrip(kafka, topic, value) {
  const producer = kafka.producer({ retry });
  await producer.connect();
  const [stored] = await producer.send({ topic, messages: [{ value, partition: 0 }] });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `logins-${value}`, maxWaitTimeInMs: 20, retry });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const found = await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer.run({
      eachMessage: async ({ message }) => {
        if (message.offset === stored.baseOffset) resolve(message.value.toString());
      },
    }).catch(reject);
  });
  await consumer.disconnect();
  return found;
}

async function main([file, topic]) {
  for (const line of read(file).trim().split('\n')) {
    const fields = line.split('\t');
    try {
      const value = await roundTrip(new Kafka(settings(fields)), topic, fields[0]);
      console.log(`${fields[0]} in ${value}`);
    } catch (problem) {
      console.log(`${fields[0]} refused ${problem.name}: ${problem.message}`.replaceAll('\n', ' '));
    }
  }
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (problem) => { console.error(problem); process.exit(1); },
);
