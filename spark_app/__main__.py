import os
import signal
import sys


def main() -> None:
    if sys.argv[1:2] == ["run"]:  # who stops the app while it is still being loaded gets the same answer as later
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from spark_app.app.cli import entry

    entry.main()


if __name__ == "__main__":
    main()
