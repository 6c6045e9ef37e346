"""A process that the kernel kills when the thread that started it has ended, also by a kill -9.

    sh -c BOUND sh COMMAND

Start it from the main thread. Where setpriv cannot do that, as on macOS, it is a process like others.
"""

BOUND = 'setpriv --pdeathsig KILL true 2>/dev/null && exec setpriv --pdeathsig KILL "$@"; exec "$@"'
