"""Has browsers look at a page: `python -m scripts.benches.browsing ADDRESS NUMBER`, until its end.

Prints the seconds until each browser has shown the first table. The views are those that people keep open.
"""

import os
import shutil
import signal
import sys
import time

from playwright.sync_api import sync_playwright

VIEWS = ("/", "/runs", "/quarantine")
NAMES = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    address, number = sys.argv[1], int(sys.argv[2])
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []  # Chromium refuses root otherwise
        found = next(filter(None, map(shutil.which, NAMES)), None)
        browsers = [playwright.chromium.launch(executable_path=found, args=arguments) for _ in range(number)]
        for which, browser in enumerate(browsers):
            began = time.monotonic()
            tab = browser.new_page()
            tab.goto(address)
            tab.get_by_test_id("state").wait_for()
            print(f"{time.monotonic() - began:.2f}", flush=True)
            tab.goto(address.split("/?")[0] + VIEWS[which % len(VIEWS)])
        signal.sigwait({signal.SIGTERM})
        for browser in browsers:
            browser.close()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main()
