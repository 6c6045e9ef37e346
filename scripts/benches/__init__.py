"""./scripts/bench: measures the performance targets on this machine.

options      the command line; every measurement is a module of its own name
targets      the performance targets
result       figures with their verdicts, a table on the terminal, a JSON line in local/bench.jsonl
page, plots  the published results: RESULTS.md and its pictures, from results.jsonl
stand        a Spark session and lakes with the app's parts, for measurements without Kafka
servers      the app as a process, on a broker and a registry of the bench
cases        batches into a lake of a stand, timed; counting counts requests to an object store
frames       made-up records, framed by the official serializer, for a stand
events       events with realistic entropy
topics       records of them in Kafka, of any shape
progress     start and end of a streaming query's batches, read from its checkpoint
usage        CPU time of a process and its descendants, by the kernel's accounting; reaper without a cgroup
sides        the contenders of a drain, and the targets against each
rivals       alternatives to the app, each a separate process
bases        the app at an earlier commit
"""
