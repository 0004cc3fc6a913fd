#!/usr/bin/env bash
# Instructions of a 4 KiB read and write by number of disks, each on its own shard and core, counted
# by valgrind: all instructions, and the atomic ones, which lock a cache line against the other
# cores. README.md in this directory describes the method.
set -euo pipefail
gabion=target/release/gabion counts="1 4 16"
usage() {
  echo "usage: $0 [--gabion PROGRAM] [--counts \"1 4 16\", numbers of disks and cores]"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --gabion) gabion=$2 ;;
    --counts) counts=$2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
for program in "$gabion" valgrind objdump; do
  command -v "$program" >/dev/null || { echo "$program is not there" >&2; exit 1; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# An exchange with memory locks without saying so.
objdump -d --no-show-raw-insn "$gabion" |
  awk '$2 == "lock" || $2 == "xchg" && /\(/ { sub(":", "", $1); print "0x" $1 }' >"$dir/locks"

# All instructions of a run of so many requests on each disk, what comes before them included, and
# those that lock. Valgrind has one thread run at a time, so how many cores this machine has does
# not matter, nor which of them the reactors stay on; it lets them take turns in order, so that
# nobody waits for long.
count() { # requests disks read-percent
  local out="$dir/callgrind" cores core
  core=$(awk '/^Cpus_allowed_list/ { split($2, first, /[-,]/); print first[1] }' /proc/self/status)
  cores=$(seq "$2" | sed "s/.*/$core/" | paste -sd ,)
  timeout -k 5 600 valgrind --tool=callgrind --fair-sched=yes --max-threads=2000 --dump-instr=yes --compress-strings=no \
    --compress-pos=no --callgrind-out-file="$out" "$gabion" bench vhost --on-reactors --io threads --size 16M --drive-size 1000M --rounds 1 \
    --block 4K --depth 64 --requests "$1" --pool-cores "$cores" --disks "$2" --shards 1 --read-percent "$3" >"$dir/table" 2>"$dir/log" ||
    { cat "$dir/log" >&2; exit 1; }
  awk -v program="$(basename "$gabion")" '
    NR == FNR { locks[$1]; next }
    /^ob=/ { ours = index($0, program); next }
    /^calls=/ { getline; next }
    /^0x/ { all += $3; if (ours && $1 in locks) locked += $3 }
    END { printf "%.0f %.0f\n", all, locked }' "$dir/locks" "$out"
}

printf '%-8s %-20s %14s %10s\n' disks request instructions locking
for disks in $counts; do
  # Fewer for each the more there are: it takes long enough.
  few=$((4000 / disks + 500)) many=$((60000 / disks + 4000))
  for percent in 100 0; do
    read -r first first_locked < <(count "$few" "$disks" "$percent")
    read -r second second_locked < <(count "$many" "$disks" "$percent")
    more=$(((many - few) * disks))
    kind=$([ "$percent" = 100 ] && echo read || echo write)
    printf '%-8d %-20s %14d %10s\n' "$disks" "4 KiB $kind" $(((second - first) / more)) \
      "$(awk -v n=$((second_locked - first_locked)) -v d="$more" 'BEGIN { printf "%.1f", n / d }')"
  done
done
