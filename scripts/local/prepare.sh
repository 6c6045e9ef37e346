# Sourced by the scripts beside this folder: makes .venv hold exactly requirements.lock, then sets PYTHON to its Python.
# Needs Python 3.11 or newer and nothing else. Up to date costs a file comparison. Runs on bash 3.2 (macOS).
# shellcheck shell=bash

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
VENV="$ROOT/.venv"
PYTHON="$VENV/bin/python"
STAMP="$VENV/.requirements.lock"
PREPARING="$ROOT/.cache/prepare.lock"

fail() { # exit code, one line
  echo "$(basename "$0"): $2" >&2
  exit "$1"
}

# Prints the first Python that will do; PROTOLAKE_PYTHON names one.
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

# Prints the uv to install with: the machine's own, else the pinned one, put into .venv.
find_uv() {
  if command -v uv >/dev/null && uv --version >/dev/null 2>&1; then
    command -v uv
    return
  fi
  if [ ! -x "$VENV/bin/uv" ]; then
    "$PYTHON" -m pip --version >/dev/null 2>&1 || "$PYTHON" -m ensurepip >/dev/null 2>&1 ||
      fail 78 "$PYTHON has neither pip nor ensurepip: delete .venv and try again"
    "$PYTHON" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$ROOT/scripts/local/uv.requirements" >&2 ||
      fail 69 "cannot install uv (see above): check the network, then try again"
  fi
  echo "$VENV/bin/uv"
}

install_lock() {
  local uv
  echo "preparing .venv from requirements.lock (once, a minute or two) ..." >&2
  make_venv
  uv="$(find_uv)" || exit $?
  VIRTUAL_ENV="$VENV" "$uv" pip sync --quiet --require-hashes --python "$PYTHON" "$ROOT/requirements.lock" >&2 ||
    fail 69 "cannot install requirements.lock (see above): check the network and the disk, then try again"
  cp "$ROOT/requirements.lock" "$STAMP.$$" && mv "$STAMP.$$" "$STAMP"
}

# mkdir is the lock that every system has; the lock of a dead process is taken over.
lock_preparing() {
  local holder
  mkdir -p "$ROOT/.cache"
  until mkdir "$PREPARING" 2>/dev/null; do
    holder="$(cat "$PREPARING/pid" 2>/dev/null || true)"
    if [ -n "$holder" ] && ! kill -0 "$holder" 2>/dev/null; then
      rm -rf "$PREPARING"
    else
      sleep 1
    fi
  done
  echo $$ >"$PREPARING/pid"
  trap 'rm -rf "$PREPARING"' EXIT
}

prepare() {
  if ! is_prepared; then
    lock_preparing
    is_prepared || install_lock
    rm -rf "$PREPARING"
    trap - EXIT
  fi
  export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
}
