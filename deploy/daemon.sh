# Shell functions of the tests of the package and of the image, for a daemon in the background.
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true' EXIT
# Repeats a command while the daemon runs, for up to 60 s, until it succeeds.
repeat() {
  end=$(($(date +%s) + 60))
  until "$@" >/dev/null 2>&1; do
    if ! kill -0 "$daemon" || [ "$(date +%s)" -gt "$end" ]; then
      echo "failed: $*" >&2
      cat /tmp/log >&2
      exit 1
    fi
    sleep 0.1
  done
}
start() { # arguments of 'gabion serve'
  gabion serve "$@" 2>/tmp/log &
  daemon=$!
  repeat gabion pool list
}
stop() {
  kill "$daemon"
  wait "$daemon"
  daemon=
}
