"""Records at a steady rate: `python -m scripts.benches.steady BROKERS REGISTRY TOPIC SHAPE RATE`, until SIGTERM.

Input: the topic, as JSON of its `Shape`. Output: its records, all different, spread evenly over each tenth of a second;
at the end, on stdout, the number of acknowledged records.
"""

from __future__ import annotations

import json
import signal
import sys
import time

from confluent_kafka import Producer

from scripts.benches.shape import Shape
from scripts.benches.topics import maker

STEP_S = 0.1
LINGER_MS = 5


def main() -> None:
    brokers, registry, topic, shape, rate = sys.argv[1:]
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    records = maker(registry, topic, Shape(**json.loads(shape))).records()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": LINGER_MS, "compression.type": "lz4"})
    began, sent = time.monotonic(), 0
    while not stopped:
        due = int((time.monotonic() - began + STEP_S) * float(rate))
        for _ in range(due - sent):
            key, value, _ = next(records)
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:  # the broker is slow
                    producer.poll(STEP_S)
        producer.poll(0)
        sent = due
        time.sleep(STEP_S)
    print(sent - producer.flush(30), flush=True)


if __name__ == "__main__":
    main()
