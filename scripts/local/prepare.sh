# Sourced by the scripts beside this folder: makes .venv hold exactly requirements.lock, then sets PYTHON to its Python.
# Needs only Python 3.11 to 3.14. An up-to-date .venv costs a file comparison. Runs on bash 3.2 (macOS).
# shellcheck shell=bash

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
STAMP="$VENV/.requirements.lock"
PREPARING="$ROOT/.cache/preparing"

fail() { # exit code, one line
  echo "$(basename "$0"): $2" >&2
  exit "$1"
}

# Prints the first suitable Python; PROTOLAKE_PYTHON names one.
find_python() {
  local name
  for name in "${PROTOLAKE_PYTHON:-}" python3.13 python3.12 python3.11 python3.14 python3 python; do
    if [ -n "$name" ] && "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
      command -v "$name"
      return
    fi
  done
  fail 78 "no Python 3.11 to 3.14 found: install one, or name it with PROTOLAKE_PYTHON=/path/to/python"
}

is_prepared() { [ -x "$PYTHON" ] && cmp -s "$ROOT/requirements.lock" "$STAMP"; }

make_venv() {
  local base
  [ -x "$PYTHON" ] && "$PYTHON" -c '' 2>/dev/null && return
  base="$(find_python)" || exit $?
  "$base" -m venv --clear "$VENV" >/dev/null 2>&1 ||
    fail 78 "$base cannot make a virtual environment: install its venv and ensurepip (Debian, Ubuntu: python3-venv)"
}

# Prints the uv to install with: the machine's own, otherwise the pinned one, installed into .venv.
find_uv() {
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    command -v uv
    return
  fi
  if [ ! -x "$VENV/bin/uv" ]; then
    echo "fetching uv (25 MB), which installs them ..." >&2
    "$PYTHON" -m pip --version >/dev/null 2>&1 || "$PYTHON" -m ensurepip >/dev/null 2>&1 ||
      fail 78 "$PYTHON has neither pip nor ensurepip: delete .venv and try again"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$ROOT/scripts/local/uv.requirements" >&2 ||
      fail 69 "cannot install uv (see above): check the network, then try again"
  fi
  echo "$VENV/bin/uv"
}

install_lock() {
  local uv
  echo "preparing .venv: $(grep -c '^[^ #].*==' "$ROOT/requirements.lock") packages, once; a minute or two, most of it for 800 MB of downloads unless uv has them ..." >&2
  make_venv
  uv="$(find_uv)" || exit $?
  # uv's messages about its steps, without the list of all packages at the end.
  VIRTUAL_ENV="$VENV" "$uv" pip sync --require-hashes --python "$PYTHON" "$ROOT/requirements.lock" 2>&1 |
    sed '/^ [+-] /d' >&2 ||
    fail 69 "cannot install requirements.lock (see above): check the network and the disk, then try again"
  cp "$ROOT/requirements.lock" "$STAMP.$$" && mv "$STAMP.$$" "$STAMP"
}

# Python takes a kernel lock on this shell's file descriptor 9. The kernel releases the lock when the last process with
# the descriptor ends, so no stale lock remains.
lock_preparing() {
  local base why
  base="$(find_python)" || exit $?
  why="$({ mkdir -p "${PREPARING%/*}" && : >>"$PREPARING"; } 2>&1)" ||
    fail 78 "cannot write $PREPARING (${why##*: }): let user $(id -u) write there, then try again"
  exec 9>>"$PREPARING"
  "$base" -c "$TAKE_LOCK" "$PREPARING" || fail 78 "cannot lock $PREPARING (see above): put this folder on a local disk"
}

TAKE_LOCK='
import fcntl, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    holder = open(sys.argv[1]).read().strip().splitlines()[-1:] or ["unknown"]
    print(f"process {holder[0]} is preparing .venv: waiting for it ...", file=sys.stderr, flush=True)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError as error:
    sys.exit(str(error))
'

prepare() {
  if ! is_prepared; then
    lock_preparing
    echo $$ >"$PREPARING"
    is_prepared || install_lock
    exec 9>&-
  fi
  export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
  # Without bytecode on disk, each process of the app compiles anew what it imports, which makes every start slower.
  unset PYTHONDONTWRITEBYTECODE
}
