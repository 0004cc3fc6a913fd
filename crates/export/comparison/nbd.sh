#!/usr/bin/env bash
# Gabion's NBD export side by side with qemu-storage-daemon and nbdkit, by fio's nbd engine,
# interleaved. See README.md beside this file.
set -euo pipefail
rounds=5 seconds=3 size=1G where=${TMPDIR:-/var/tmp} gabion=target/release/gabion
usage() {
  echo "usage: $0 [--rounds N] [--seconds N] [--size 1G] [--dir DIR] [--gabion PROGRAM]"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --size) size=$2 ;;
    --dir) where=$2 ;;
    --gabion) gabion=$2 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
for program in "$gabion" fio qemu-storage-daemon nbdkit nbdcopy; do
  command -v "$program" >/dev/null || { echo "$program is not there" >&2; exit 1; }
done
gabion=$(realpath "$gabion")
dir=$(mktemp -d "$where/gabion-compare.XXXXXX")
running=()
finish() {
  [ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null || true
  wait
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM
cd "$dir"

wait_for() { # socket
  for _ in $(seq 100); do [ -S "$1" ] && return; sleep 0.1; done
  echo "nothing listens at $1" >&2
  return 1
}

echo "preparing $size of data four times below $where" >&2
mkdir drives
"$gabion" serve --config /dev/null --socket "$dir/g.sock" --state-dir "$dir/state" --nbd-socket "$dir/gabion.sock" >gabion.log 2>&1 &
running+=($!)
wait_for gabion.sock || { cat gabion.log >&2; exit 1; }
api() { "$gabion" --socket "$dir/g.sock" -q "$@"; }
api pool create p --scheme 4+1 --files "$dir/drives" --file-size "$size" --count 5
api volume create p/v --size "$size" --sector 4096
api export create p/v --nbd
head -c "$size" /dev/urandom >data
cp data qemu.img
cp data nbdkit.img
qemu-storage-daemon --blockdev driver=file,node-name=f,filename=qemu.img,cache.direct=on,aio=io_uring \
  --blockdev driver=raw,node-name=r,file=f --nbd-server addr.type=unix,addr.path="$dir/qemu.sock" \
  --export type=nbd,id=e,node-name=r,name=v,writable=on &
running+=($!)
nbdkit --foreground --unix "$dir/nbdkit.sock" file nbdkit.img &
running+=($!)
wait_for qemu.sock
wait_for nbdkit.sock
declare -A uri=(
  [gabion]="nbd+unix:///p/v?socket=$dir/gabion.sock"
  [qemu]="nbd+unix:///v?socket=$dir/qemu.sock"
  [nbdkit]="nbd+unix:///?socket=$dir/nbdkit.sock"
)

# One measurement: IOPS, bytes a second, mean and 99th percentile of the latency in microseconds.
measure() { # system pattern block depth
  fio --name=x --ioengine=nbd --uri="${uri[$1]}" --rw="$2" --bs="$3" --iodepth="$4" --size="$size" --time_based \
    --runtime="$seconds" --ramp_time=1 --refill_buffers=1 --randrepeat=0 --norandommap=1 --output-format=terse \
    --terse-version=3 2>/dev/null | awk -F';' -v what="$2" '/^3;/ {
      if (what ~ /read/) { iops = $8; bw = $7; mean = $40; p = $30 } else { iops = $49; bw = $48; mean = $81; p = $71 }
      sub(/.*=/, "", p); print iops, bw * 1024, mean, p }'
}

# The last is the first again, over what the random writes have left.
jobs=("read 1M 16" "write 1M 16" "randread 4k 32" "randwrite 4k 32" "randread 4k 1" "randwrite 4k 1" "read 1M 16 again")
systems=(gabion qemu nbdkit)
for round in $(seq "$rounds"); do
  for system in "${systems[@]}"; do nbdcopy --flush data "${uri[$system]}"; done
  sync
  for job in "${jobs[@]}"; do
    # Each round begins with another system.
    for turn in 0 1 2; do
      system=${systems[(turn + round) % 3]}
      # shellcheck disable=SC2086 # a job is three words
      result=$(measure "$system" $job)
      echo "$round ${job// /_} $system $result" >>raw
      echo "round $round of $rounds: $job $system: $result" >&2
    done
  done
done

echo "# round job system iops bytes_per_s mean_us p99_us"
cat raw
awk '
function median(list, count, values, i, j, t) {
  count = split(list, values, " ")
  for (i = 2; i <= count; i++) for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) { t = values[j]; values[j] = values[j - 1]; values[j - 1] = t }
  return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
}
{
  job = $2
  if (!(job in seen)) { seen[job] = 1; order[++jobs] = job }
  of[job, $3] = of[job, $3] " " $4
  p99[job, $3] = p99[job, $3] " " $7
  got[job, $3, $1] = $4
  if ($1 > rounds) rounds = $1
}
END {
  print ""
  print "| job | Gabion IOPS | qemu | nbdkit | Gabion / qemu | Gabion / nbdkit | p99 us: Gabion | qemu | nbdkit |"
  print "|---|---|---|---|---|---|---|---|---|"
  for (i = 1; i <= jobs; i++) {
    job = order[i]; q = ""; n = ""
    for (r = 1; r <= rounds; r++) {
      q = q " " got[job, "gabion", r] / got[job, "qemu", r]
      n = n " " got[job, "gabion", r] / got[job, "nbdkit", r]
    }
    printf "| %s | %d | %d | %d | %.2f | %.2f | %d | %d | %d |\n", job, median(of[job, "gabion"]), median(of[job, "qemu"]),
      median(of[job, "nbdkit"]), median(q), median(n), median(p99[job, "gabion"]), median(p99[job, "qemu"]), median(p99[job, "nbdkit"])
  }
}' raw
