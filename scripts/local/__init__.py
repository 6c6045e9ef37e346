"""The stack on one machine, without Docker: real servers as local processes, the producer and the Spark app.

artifacts, downloads    jars.lock to verified files in .cache/jars
java                    the Java for each program
ports, server           the parts of a server process: a free port, a start that is checked, a stop that is final
kafka, registry         the two servers; usable separately, as context managers (tests do)
objectstore             a third one, for lakes in a bucket; store_proxy counts and spoils its requests
program, attend         one supervised program: its command, and the attendant that runs it
supervision             all programs of the stack: start, state, stop
options, environment    command line, and environment of producer and app
claim, bump, fresh      the stack's lock; new variables for a running producer; moving an old lake away
stack, status, watch    start and stop, the app's status, waiting for the end
table                   the live table on the terminal
command                 ./scripts/shell, status, settings, replay, rebuild, audit, doctor
resolve                 for maintainers: Maven to jars.lock
prepare.sh              sourced by every script: .venv from requirements.lock
"""
