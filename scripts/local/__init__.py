"""The stack on one machine, without Docker: real servers as local processes, the producer and the Spark app.

artifacts, downloads    jars.lock to verified files in .cache/jars
java                    which Java runs what
ports, server           what a server process needs: a free port, a start that is checked, a stop that is final
kafka, registry         the two servers; usable alone, as context managers (tests do)
program, attend         one supervised program: what to run, and the shim it runs under
supervision             supervisord: configuration, start, questions, stop
options, environment    ./scripts/run: what was asked for, and what producer and app are told
claim, bump, fresh      one stack per state folder; a word to the one that runs; moving an old one aside
stack, status, watch    bringing it up and down, what the app reports, knowing when it is done
table                   what the terminal shows meanwhile
command                 ./scripts/shell, status, settings, replay, rebuild, audit, doctor
resolve                 for maintainers: Maven to jars.lock
prepare.sh              sourced by every script: .venv from requirements.lock
"""
