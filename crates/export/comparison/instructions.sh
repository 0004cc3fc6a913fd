#!/usr/bin/env bash
# Instructions that a request of a machine's disk takes, as valgrind counts them: those of so many
# requests more, divided by their number. See README.md beside this file.
set -euo pipefail
gabion=target/release/gabion keep=
usage() {
  echo "usage: $0 [--gabion PROGRAM] [--keep DIR, for what 'callgrind_annotate' reads]"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --gabion) gabion=$2 ;;
    --keep) keep=$2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
for program in "$gabion" valgrind callgrind_annotate; do
  command -v "$program" >/dev/null || { echo "$program is not there" >&2; exit 1; }
done
dir=$keep
if [ -n "$keep" ]; then
  mkdir -p "$keep"
else
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
fi

# Instructions of a run of so many requests, all that comes before them included: all, then those in
# functions of the load itself. It takes turns with the pool on one thread, which never waits:
# nothing is counted that only passes the time. I/O is by threads, because valgrind does not know
# that a thread sleeps in a ring.
count() { # requests options...
  local out="$dir/callgrind.$1.${*: -1}.$3"
  timeout -k 5 300 valgrind --tool=callgrind --callgrind-out-file="$out" "$gabion" bench vhost --on-reactors --io threads --size 64M \
    --drive-size 256M --rounds 1 --requests "$@" >"$dir/table" 2>"$dir/log" || { cat "$dir/log" >&2; exit 1; }
  callgrind_annotate --threshold=100 --auto=no --show-percs=no "$out" | tr -d , | awk '
    / PROGRAM TOTALS/ { all = $1 }
    /[0-9] .*:<?bench::/ { load += $1 }
    END { print all, load }'
}

printf '%-32s %10s %16s\n' "instructions a request" all "without the load"
job() { # name few many options...
  local name=$1 few=$2 many=$3 first second first_load second_load
  shift 3
  read -r first first_load < <(count "$few" "$@")
  read -r second second_load < <(count "$many" "$@")
  all=$(((second - first) / (many - few))) load=$(((second_load - first_load) / (many - few)))
  printf '%-32s %10d %16d\n' "$name" "$all" "$((all - load))"
}
job "4 KiB random read, depth 64" 20000 60000 --block 4K --depth 64 --read-percent 100
job "4 KiB random write, depth 64" 20000 60000 --block 4K --depth 64 --read-percent 0
job "1 MiB read, depth 16" 200 600 --block 1M --depth 16 --sequential --read-percent 100
job "1 MiB write, depth 16" 200 600 --block 1M --depth 16 --sequential --read-percent 0
