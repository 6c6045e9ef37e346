"""The stack on one machine, without Docker: real servers as local processes, the producer and the Spark app.

artifacts, downloads    jars.lock to verified files in .cache/jars
java                    the Java for each program
ports, server           the parts of a server process: a free port, a start that is checked, a stop that is final
kafka, registry,
objectstore             the servers; usable separately, as context managers (tests do)
spark_cluster           a Spark master and workers, for the executors
store_proxy             counts and spoils the requests to an object store
program, attend         one supervised program: its command, and the attendant that runs it
supervision             all programs of the stack: start, state, stop
lakes                   folder, bucket, or bucket in a store that the stack starts; notes for single commands
options, environment    command line, and environment of producer and app
claim, bump, fresh      the stack's lock; new variables for a running producer; moving an old lake away
stack, watch            start and stop, waiting for the end
status, reports         the app's status, and reading it again and again
table                   the live table on the terminal
command                 ./scripts/shell, status, settings, replay, rebuild, audit, doctor
resolve                 for maintainers: Maven to jars.lock
prepare.sh              sourced by every script: .venv from requirements.lock
"""
