"""./scripts/bench: what the design promises, measured on this machine.

options      which measurement, how large; every measurement is a module of its own name
targets      what is promised, each said once
result       figures with their verdicts, a small table for people, a JSON line in local/bench.jsonl for machines
page, plots  what was published: RESULTS.md and its pictures, out of results.jsonl
stand        a Spark session and lakes with the app's parts, for what needs no Kafka
servers      the app as a process, on a broker and a registry of the bench's own
frames       made-up records, framed by the official serializer, for a stand
events       events with the entropy of real ones, each but once
topics       records of them in Kafka, of any shape
progress     when a streaming query took its batches, read from its checkpoint
usage        CPU time of a process and of all below it, by the kernel's accounting; reaper where there is no cgroup
sides        who drains a topic, and what is promised against whom
rivals       what one would do instead of the app, each as a process of its own
bases        the app as it was at an earlier commit
"""
