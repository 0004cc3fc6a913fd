#!/usr/bin/env bash
# Runs the storage tests of Kubernetes (External.Storage) on the driver, in a cluster that
# cluster.sh runs with values/local.yaml. Prints each failure, and counts at the end; the results
# are in TRY/e2e.
#
#   e2e.sh [PATTERN]   the tests whose names match the pattern; all by default
#
# PROCESSES   tests at the same time    4
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
results=$TRY/e2e
for program in e2e.test ginkgo agnhost; do
  [ -x "$TRY/bin/$program" ] || { echo "e2e.sh: build '$program' with 'build.sh DIRECTORY e2e.test'" >&2; exit 1; }
done
rm -rf "$results"
mkdir -p "$results/image/bin"

# Loads an image of the tests, in all versions that they use: name, directory, and the command.
load() {
  local name names
  names=$("$TRY/bin/e2e.test" --list-images | grep "^registry.k8s.io/e2e-test-images/$1:")
  for name in $names; do
    "$here/image.sh" "$name" "$2" "$results/image.tar" "${@:3}"
    ctr --address "$TRY/state/containerd.sock" --namespace k8s.io images import "$results/image.tar" >/dev/null
  done
}
# Busybox of the distribution, the program of the tests with it, and two images of which the tests
# use only the shell.
cp "$(command -v busybox)" "$results/image/bin/busybox"
"$results/image/bin/busybox" --install -s "$results/image/bin" 2>/dev/null || true
find "$results/image/bin" -type l -exec ln -sfn busybox {} \;
load busybox "$results/image" /bin/sh
cp "$TRY/bin/agnhost" "$results/image/agnhost"
load agnhost "$results/image" /agnhost
load nginx "$TRY/rootfs" /bin/sh
load jessie-dnsutils "$TRY/rootfs" /bin/sh
rm -r "$results/image" "$results/image.tar"

# Runs the tests of a pattern, but for those of another one: name of the results, number of tests at
# the same time, and both patterns.
run_tests() {
  "$TRY/bin/ginkgo" --procs="$2" --focus="$3" --skip="$4" --timeout=6h --no-color \
    --output-dir="$results" --json-report="$1.json" "$TRY/bin/e2e.test" -- \
    -kubeconfig="$KUBECONFIG" -kubelet-root-dir="$TRY/state/kubelet" \
    -storage.testdriver="$here/../e2e-driver.yaml" >"$results/$1.log" 2>&1 || true
}
# Disruptive tests restart the kubelet by SSH and systemd. "Any data source" needs the images of
# other programs, a populator and a validator.
never='\[Disruptive\]|\[Feature:Windows\]|any volume data source'
run_tests parallel "${PROCESSES:-4}" "External.Storage.*${1:-}" "\[Serial\]|$never"
run_tests serial 1 "External.Storage.*${1:-}.*\[Serial\]" "$never"
jq -rs '[.[][].SpecReports[] | select(.LeafNodeType == "It" and .State != "skipped")] |
  (.[] | select(.State != "passed") | "\(.State): \(.ContainerHierarchyTexts | join(" ")) \(.LeafNodeText)"),
  (group_by(.State)[] | "\(length) \(.[0].State)")' "$results"/{parallel,serial}.json
# Fails if a test has failed, or if none has run.
jq -es '[.[][].SpecReports[] | select(.LeafNodeType == "It" and .State != "skipped") | .State == "passed"] |
  length > 0 and all' "$results"/{parallel,serial}.json >/dev/null
