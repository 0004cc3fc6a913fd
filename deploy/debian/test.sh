#!/bin/sh
# Runs in a clean root: the package works, an upgrade and a removal keep the pool, and a purge keeps
# the state.
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
# A purge asks nothing if these are set.
unset DEBIAN_FRONTEND GABION_PURGE_STATE
dpkg -i /gabion.deb
getent group gabion >/dev/null
[ "$(id -gn gabion)" = gabion ]
mkdir -p /etc/gabion
printf '[daemon]\nsocket_group = "gabion"\nio = "threads"\n' >/etc/gabion/gabion.toml
. /daemon.sh
start
gabion pool create fast --level 5 --files /var/tmp/fast --file-size 64M --count 4
gabion volume create fast/vm01 --size 1G
[ "$(stat -c '%a %G' /run/gabion/gabion.sock)" = '660 gabion' ]
stop
dpkg -i /gabion.deb
start
repeat gabion volume list fast
[ "$(gabion volume list fast -q)" = fast/vm01 ]
stop
[ -s /usr/share/man/man1/gabion-pool-create.1.gz ] && [ -s /usr/share/bash-completion/completions/gabion ]
dpkg -r gabion
[ ! -e /usr/bin/gabion ] && [ -e /var/tmp/fast/fast-0.drive ] && [ -e /var/lib/gabion/state.json ]
dpkg -P gabion </dev/null
[ -e /var/lib/gabion/state.json ]
# On a terminal, a purge asks: the answers no and yes.
for answer in no yes; do
  dpkg -i /gabion.deb
  echo "$answer" | script --quiet --return --command 'dpkg -P gabion' /dev/null | tee /tmp/purge
  grep -q 'remove /var/lib/gabion' /tmp/purge
  [ "$answer" = yes ] || [ -e /var/lib/gabion/state.json ]
done
[ ! -e /var/lib/gabion ] && [ -e /var/tmp/fast/fast-0.drive ]
echo "the package is sound"
