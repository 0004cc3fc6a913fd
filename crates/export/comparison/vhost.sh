#!/usr/bin/env bash
# Gabion's vhost-user-blk export side by side with that of qemu-storage-daemon, by gabion's own
# load, interleaved. See README.md beside this file.
set -euo pipefail
rounds=5 seconds=1 where=/dev/shm gabion=target/release/gabion load_core=0 back_core=1 options=()
usage() {
  echo "usage: $0 [--rounds N] [--seconds N] [--dir DIR on a tmpfs] [--gabion PROGRAM] [--load-core N] [--back-core N]"
  echo "          [-- options of 'gabion bench vhost']"
}
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --dir) where=$2 ;;
    --gabion) gabion=$2 ;;
    --load-core) load_core=$2 ;;
    --back-core) back_core=$2 ;;
    --help | -h) usage; exit 0 ;;
    --) shift; options=("$@"); break ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
for program in "$gabion" qemu-storage-daemon taskset; do
  command -v "$program" >/dev/null || { echo "$program is not there" >&2; exit 1; }
done
gabion=$(realpath "$gabion")
dir=$(mktemp -d "$where/gabion-compare.XXXXXX")
daemon=
finish() {
  [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
  wait
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

# One file in memory; its I/O on a thread of its own, which polls for as long as it is told to.
truncate -s 1G "$dir/disk.img"
taskset -c "$back_core" qemu-storage-daemon --object iothread,id=t,poll-max-ns=1000000 \
  --blockdev driver=file,node-name=f,filename="$dir/disk.img",aio=io_uring --blockdev driver=raw,node-name=r,file=f \
  --export type=vhost-user-blk,id=e,node-name=r,writable=on,iothread=t,num-queues=1,addr.type=unix,addr.path="$dir/qemu.sock" &
daemon=$!
for _ in $(seq 100); do [ -S "$dir/qemu.sock" ] && break; sleep 0.1; done
[ -S "$dir/qemu.sock" ] || { echo "qemu-storage-daemon does not serve" >&2; exit 1; }
"$gabion" bench vhost --core "$load_core" --pool-cores "$back_core" --against "$dir/qemu.sock" --overwrite \
  --rounds "$rounds" --seconds "$seconds" "${options[@]}"
