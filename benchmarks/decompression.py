"""Peak memory and time of checking batches that decompress to 100 MiB, four workers at once.

    scripts/bench decompression

Each line is a process of its own. The peak is the growth of its resident memory (VmHWM) over the
state with the batches made and nothing checked.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cramjam

from ottla.config.own import LimitSettings
from ottla.errors import KafkaError
from ottla.records.builder import assemble_batch
from ottla.records.codec_streams import CompressedStream, zstd
from ottla.records.compression import Compression
from ottla.records.scan import append_record
from ottla.records.validation_rules import OffloadRequired, ValidationRules
from ottla.server.requests.decompression import Decompression

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
OUTPUT_BYTES = 99 * MIB
WORKERS = 4
BATCHES = 8
LOADS = ("records of 100 B", "one record", "largest windows", "recompressed to zstd")


class LargestWindow:
    """Compresses so that the decoder needs as much memory as is accepted."""

    def __init__(self, codec: Compression) -> None:
        self._codec = codec
        options = {zstd.CompressionParameter.window_log: 23}
        self._zstd = zstd.ZstdCompressor(options=options)
        self._parts: list[bytes] = []
        self._plain = bytearray()

    def write(self, data: bytearray) -> None:
        """Take a piece."""
        if self._codec == Compression.ZSTD:
            self._parts.append(self._zstd.compress(data))
        else:
            self._plain += data

    def finish(self) -> bytes | bytearray:
        """Return one raw snappy block, lz4 blocks of 4 MiB, or zstd with a window of 8 MiB."""
        if self._codec == Compression.ZSTD:
            return b"".join([*self._parts, self._zstd.flush()])
        if self._codec == Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(self._plain))
        parts = [b"\x04\x22\x4d\x18\x60\x70\x73"]
        for start in range(0, len(self._plain), 4 * MIB):
            block = bytes(
                cramjam.lz4.compress_block(self._plain[start : start + 4 * MIB], store_size=False)
            )
            parts += [len(block).to_bytes(4, "little"), block]
        return b"".join(parts) + bytes(4)


def batch(codec: Compression, load: str) -> memoryview:
    """Return a batch whose records take OUTPUT_BYTES, or 15 MiB in one snappy block."""
    stream: CompressedStream | LargestWindow = CompressedStream(codec, None, 1 << 30)
    output_bytes = OUTPUT_BYTES
    if load == "largest windows":
        stream = LargestWindow(codec)
        output_bytes = 15 * MIB if codec == Compression.SNAPPY else OUTPUT_BYTES
    size = output_bytes if load == "one record" else 100
    value = os.urandom(min(size, 10_000)) * max(1, size // 10_000)
    count = max(1, output_bytes // (size + 12))
    piece = bytearray()
    for index in range(count):
        append_record(piece, 0, index, b"k", value, b"\0")
        if len(piece) > MIB:
            stream.write(piece)
            piece.clear()
    stream.write(piece)
    return memoryview(
        assemble_batch(
            stream.finish(),
            attributes=int(codec),
            record_count=count,
            last_offset_delta=count - 1,
            base_timestamp=0,
            max_timestamp=0,
        )
    )


def memory(name: str) -> float:
    """Return a figure of /proc/self/status in MiB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


def measure(codec: Compression, load: str) -> None:
    """Check BATCHES batches at once and print the peak."""
    target = Compression.ZSTD if load.startswith("recompressed") else None
    rules = ValidationRules(compression_type=target, max_message_bytes=200 * MIB)
    data = batch(codec, load)
    texts = {"decompression.max.cpu.ms": "60000"}
    settings = LimitSettings(LimitSettings.definitions.read(texts).values, texts)
    finished: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(WORKERS)

    def run(job: Callable[[], Any], done: Callable[[Any, Exception | None], None]) -> None:
        def work() -> None:
            result, error = None, None
            try:
                result = job()
            except KafkaError as failure:
                error = failure
            finished.put(lambda: done(result, error))

        pool.submit(work)

    node = Decompression(settings, run, time.thread_time)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets VmHWM
    before = memory("VmRSS")
    began = time.perf_counter()
    answers = [
        node.check(OffloadRequired(data, rules), now_ms=0, client="") for _ in range(BATCHES)
    ]
    at_once = 0
    for _ in answers:
        at_once = max(at_once, node.running_count)
        finished.get()()
    seconds = time.perf_counter() - began
    refused = next((one.error for one in answers if one.error is not None), None)
    print(
        f"{codec.name.lower():7} {load:21} {len(data) / MIB:6.2f} MiB received, "
        f"{at_once} at once, peak +{memory('VmHWM') - before:.1f} MiB, "
        f"{1000 * seconds / BATCHES:.0f} ms a batch" + (f", refused: {refused}" if refused else "")
    )


def main() -> None:
    """Measure all codecs and loads, each in a process."""
    if len(sys.argv) > 2:
        measure(Compression.from_name(sys.argv[1]), sys.argv[2])
        return
    for load in LOADS:
        for codec in Compression:
            if codec and not (load == "largest windows" and codec == Compression.GZIP):
                subprocess.run([sys.executable, __file__, codec.config_name, load], check=True)


if __name__ == "__main__":
    main()
