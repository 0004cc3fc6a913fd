#!/bin/sh
# Runs in a container of the image: the daemon serves a pool, a remote client with a token reads it,
# and a restart keeps it.
set -eu
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
start() {
  gabion serve --io threads --api-listen 127.0.0.1:9188 2>/tmp/log &
  daemon=$!
  repeat gabion pool list
}
stop() {
  kill "$daemon"
  wait "$daemon"
  daemon=
}
gabion version
for program in mkfs.ext4 mkfs.xfs mount smartctl; do command -v "$program" >/dev/null; done
start
gabion pool create fast --level 5 --files /var/tmp/fast --file-size 64M --count 4
gabion volume create fast/vm01 --size 1G
gabion export create fast/vm01 --nbd
(umask 077; gabion token create reader --role viewer >/tmp/token)
stop
start
repeat gabion volume list fast
gabion volume list fast -q --server https://localhost:9188 --token-file /tmp/token \
  --ca-file /var/lib/gabion/certificate.pem | grep -x fast/vm01
gabion export list
stop
gabion csi --help >/dev/null
echo "the image is sound"
