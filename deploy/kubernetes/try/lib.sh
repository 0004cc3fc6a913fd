# Functions of the checks: steps, claims, pods, and the pool.
wait_for="--timeout=180s"

step() {
  printf '\n== %s\n' "$*"
}

fail() {
  echo "${0##*/}: $*" >&2
  kubectl get events --sort-by=.lastTimestamp >&2 | tail -n 15
  exit 1
}

# Repeats a command until its output is this text, for three minutes.
until_is() {
  local wanted=$1 printed give_up=$((SECONDS + 180))
  shift
  until printed=$("$@" 2>/dev/null) && [ "$printed" = "$wanted" ]; do
    ((SECONDS < give_up)) || fail "'$*' printed '$printed', not '$wanted'"
    sleep 0.2
  done
}

# Applies the manifest of a claim: name, size, and the other fields of its spec in JSON.
claim() {
  local more=${3:-}
  jq -n --arg name "$1" --arg size "$2" --argjson more "${more:-null}" '{apiVersion: "v1",
    kind: "PersistentVolumeClaim", metadata: {name: $name, labels: {app: "try"}},
    spec: ({storageClassName: "gabion", accessModes: ["ReadWriteOnce"],
    resources: {requests: {storage: $size}}} + $more)}' | kubectl apply -f -
}

# Applies a pod with claims: file systems at the names of the claims.
pod() {
  jq -n --arg name "$1" --args '{apiVersion: "v1", kind: "Pod", metadata: {name: $name}, spec: {
    terminationGracePeriodSeconds: 0, containers: [{name: "main", image: "busybox:try",
    volumeMounts: [$ARGS.positional[] | {name: ., mountPath: ("/" + .)}]}],
    volumes: [$ARGS.positional[] | {name: ., persistentVolumeClaim: {claimName: .}}]}}' "${@:2}" |
    kubectl apply -f -
}

# Applies a pod with a claim as a raw block device, /dev/volume.
block_pod() {
  jq -n --arg name "$1" --arg claim "$2" '{apiVersion: "v1", kind: "Pod", metadata: {name: $name}, spec: {
    terminationGracePeriodSeconds: 0, containers: [{name: "main", image: "busybox:try",
    volumeDevices: [{name: "volume", devicePath: "/dev/volume"}]}],
    volumes: [{name: "volume", persistentVolumeClaim: {claimName: $claim}}]}}' | kubectl apply -f -
}

# Runs a shell command in a pod.
in_pod() {
  kubectl exec "$1" -- sh -c "$2"
}

wait_running() {
  kubectl wait "pod/$1" --for=condition=Ready "$wait_for" || fail "pod $1 does not run"
}

wait_bound() {
  kubectl wait "pvc/$1" --for=jsonpath='{.status.phase}'=Bound "$wait_for" || fail "claim $1 is not bound"
}

# Prints the volume of the pool of a claim.
volume_of() {
  kubectl get pv "$(kubectl get pvc "$1" -o jsonpath='{.spec.volumeName}')" -o jsonpath='{.spec.csi.volumeHandle}'
}

# Prints a field of a volume of the pool.
in_pool() {
  "$GABION" volume list --json | jq -r --arg name "$1" ".[] | select(.pool + \"/\" + .name == \$name) | $2"
}

expect() {
  [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"
  echo "$1: $2"
}

# Deleted snapshots whose blocks are shared by clones are not counted.
count_volumes() {
  "$GABION" volume list --snapshots --json | jq '[.[] | select(.deleting | not)] | length'
}

# Waits until the pool has this many volumes and snapshots.
wait_volumes() {
  until_is "$1" count_volumes
  echo "volumes and snapshots of the pool: $1"
}

count_attached() {
  kubectl get volumeattachments -o json | jq '[.items[] | select(.status.attached)] | length'
}

grow() {
  kubectl patch pvc "$1" --patch "{\"spec\": {\"resources\": {\"requests\": {\"storage\": \"$2\"}}}}"
  kubectl wait pv "$(kubectl get pvc "$1" -o jsonpath='{.spec.volumeName}')" \
    --for=jsonpath='{.spec.capacity.storage}'="$2" "$wait_for" || fail "$1 does not grow"
  expect "size in the pool" "$(in_pool "$(volume_of "$1")" '.size / 1073741824 | tostring + "Gi"')" "$2"
}

# Sets the limits of a claim by a class: 500 operations per second and 50 MiB/s.
limit() {
  kubectl patch pvc "$1" --patch "{\"spec\": {\"volumeAttributesClassName\": \"$2\"}}"
  kubectl wait "pvc/$1" --for=jsonpath='{.status.currentVolumeAttributesClassName}'="$2" "$wait_for" ||
    fail "$1 has no limits"
  expect "limits in the pool" "$(in_pool "$(volume_of "$1")" '"\(.qos.iops) \(.qos.bandwidth)"')" "500 $((50 << 20))"
}

snapshot() {
  jq -n --arg name "$1" --arg claim "$2" '{apiVersion: "snapshot.storage.k8s.io/v1", kind: "VolumeSnapshot",
    metadata: {name: $name}, spec: {volumeSnapshotClassName: "gabion",
    source: {persistentVolumeClaimName: $claim}}}' | kubectl apply -f -
  kubectl wait "volumesnapshot/$1" --for=jsonpath='{.status.readyToUse}'=true "$wait_for" || fail "no snapshot $1"
}

# Takes snapshots of all claims at one point in time.
group_snapshot() {
  jq -n --arg name "$1" '{apiVersion: "groupsnapshot.storage.k8s.io/v1", kind: "VolumeGroupSnapshot",
    metadata: {name: $name}, spec: {volumeGroupSnapshotClassName: "gabion",
    source: {selector: {matchLabels: {app: "try"}}}}}' | kubectl apply -f -
  kubectl wait "volumegroupsnapshot/$1" --for=jsonpath='{.status.readyToUse}'=true "$wait_for" || fail "no group $1"
}
