// kafkajs as a command; `clients/stock.py` says what the commands are.
'use strict';

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1';
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs');
const SnappyCodec = require('kafkajs-snappy');
const lz4 = require('lz4js');
const xxh32 = require('lz4js/xxh32.js');
const zstd = require('@bokuweb/zstd-wasm');

const FIRST_TIMESTAMP = 1700000000000;
const retry = { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 };

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => compressLz4(encoder.buffer),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

// Kafka reads frames of independent blocks alone, and lz4js does not say that its one block is.
function compressLz4(buffer) {
  const frame = Buffer.from(lz4.compress(buffer));
  frame[4] |= 0x20;
  frame[6] = (xxh32.hash(0, frame, 4, 2) >>> 8) & 0xff;
  return frame;
}

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function connect(bootstrap) {
  return new Kafka({ clientId: 'stock', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING, retry });
}

async function produce(bootstrap, topic, count, codecNames, first, pauseMs) {
  const producer = connect(bootstrap).producer({ idempotent: true, maxInFlightRequests: 1, retry });
  await producer.connect();
  let number = Number(first);
  for (const codec of codecNames.split(',')) {
    const size = Number(pauseMs) > 0 ? 1 : Math.min(10, Number(count));
    for (const end = number + Number(count); number < end; number += size) {
      await send(producer, topic, codecs[codec], number, size);
      await sleep(Number(pauseMs));
    }
  }
  await producer.disconnect();
}

async function send(producer, topic, compression, first, size) {
  const messages = Array.from({ length: size }, (_, index) => ({
    key: String(first + index),
    value: String(first + index).padStart(8, '0') + '.'.repeat(100),
    timestamp: String(FIRST_TIMESTAMP + (first + index) * 1000),
  }));
  await producer.send({ topic, compression, acks: -1, messages });
  for (const message of messages) {
    console.log(`acknowledged ${message.value}`);
  }
}

async function consume(bootstrap, topic, groupId, count) {
  const wanted = Number(count) || Infinity;
  const consumer = connect(bootstrap).consumer({
    groupId, readUncommitted: process.env.STOCK_ISOLATION !== 'read_committed', heartbeatInterval: 300, sessionTimeout: 6000, maxWaitTimeInMs: 500, retry,
  });
  let stop;
  const stopped = new Promise((resolve) => { stop = resolve; });
  process.on('SIGTERM', stop);
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const partitions = payload.memberAssignment[topic] || [];
    console.log(['assigned', ...partitions.sort()].join(' '));
  });
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    if (payload.restart) return;
    console.error(payload.error);
    process.exit(1);
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let seen = 0;
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
      let next = null;
      for (const message of batch.messages) {
        if (seen >= wanted) break;
        seen += 1;
        console.log(`${batch.partition} ${message.offset} ${message.value}`);
        resolveOffset(message.offset);
        next = String(Number(message.offset) + 1);
      }
      if (next !== null) {
        await consumer.commitOffsets([{ topic, partition: batch.partition, offset: next }]);
      }
      await heartbeat();
      if (seen >= wanted) stop();
    },
  });
  await stopped;
  await consumer.disconnect();
}

async function offset(bootstrap, topic, partition, timestamps) {
  const admin = connect(bootstrap).admin();
  await admin.connect();
  for (const timestamp of timestamps.split(',')) {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, Number(timestamp));
    console.log(found.find((one) => one.partition === Number(partition)).offset);
  }
  await admin.disconnect();
}

async function transactional(bootstrap, transactionalId) {
  const producer = connect(bootstrap).producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, retry });
  await producer.connect();
  return producer;
}

const numbered = (number) => ({
  key: String(number),
  value: String(number).padStart(8, '0') + '.'.repeat(100),
  partition: number % 2,
});

async function transact(bootstrap, topic, name, count) {
  const producer = await transactional(bootstrap, name);
  for (let number = 0; number < Number(count); number += 1) {
    const transaction = await producer.transaction();
    await transaction.send({ topic, acks: -1, messages: [0, 1, 2].map((one) => numbered(number * 3 + one)) });
    await transaction.sendOffsets({
      consumerGroupId: name,
      topics: [{ topic, partitions: [{ partition: 0, offset: String(number + 1) }] }],
    });
    if (number % 3 === 2) {
      await transaction.abort();
      console.log(`aborted ${number}`);
    } else {
      await transaction.commit();
      console.log(`committed ${number}`);
    }
  }
  await producer.disconnect();
}

async function zombie(bootstrap, topic, name) {
  const stopped = new Promise((resolve) => process.on('SIGTERM', resolve));
  const producer = await transactional(bootstrap, name);
  const transaction = await producer.transaction();
  await transaction.send({ topic, acks: -1, messages: [numbered(0)] });
  console.log('open');
  await Promise.race([stopped, sleep(60000)]);
  try {
    await transaction.commit();
    console.log('committed');
  } catch (problem) {
    const fenced = ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'].includes(problem.type);
    console.log(fenced ? 'fenced' : String(problem));
  }
}

async function main([command, ...rest]) {
  await zstd.init();
  await { produce, consume, offset, transact, zombie }[command](...rest);
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (problem) => { console.error(problem); process.exit(1); },
);
