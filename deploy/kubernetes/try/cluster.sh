#!/usr/bin/env bash
# Runs a cluster of one node on this machine, with a daemon, a pool on files, and the chart of the
# driver, and then a command; check.sh by default. Stops everything at the end.
#
#   cluster.sh [COMMAND...]
#
# The checks: check.sh, check-nodes.sh with values/nodes.yaml, check-network.sh with
# values/network.yaml. Needs root, the programs of build.sh, containerd, runc and the plugins of
# CNI, busybox, jq, openssl, iptables and mmdebstrap. The cluster has a network and mounts of its
# own, so that it does not disturb the machine; the kubelet sets three parameters of the kernel,
# which are restored at the end.
#
# GABION       the program                                        target/release/gabion
# TRY          directory with bin/ of build.sh and for all state  target/kubernetes
# TRY_VALUES   values of the chart                                values/local.yaml
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
export GABION=${GABION:-$root/target/release/gabion} TRY=${TRY:-$root/target/kubernetes}
if [ -z "${TRY_INSIDE:-}" ]; then
  for program in containerd ctr runc iptables jq openssl busybox mmdebstrap strip "$TRY"/bin/{kube-apiserver,kubelet,helm}; do
    command -v "$program" >/dev/null || { echo "cluster.sh: '$program' is not installed" >&2; exit 1; }
  done
  [ -x "$GABION" ] || { echo "cluster.sh: no program $GABION; set GABION" >&2; exit 1; }
  # As in deploy/image/Dockerfile. The network of the cluster does not reach the packages.
  if ! [ -d "$TRY/rootfs" ]; then
    rm -rf --one-file-system "$TRY/rootfs.new"
    mmdebstrap --quiet --variant=minbase --include=e2fsprogs,mount,util-linux,xfsprogs bookworm "$TRY/rootfs.new"
    mv "$TRY/rootfs.new" "$TRY/rootfs"
  fi
  # The tests of Kubernetes look for the mounts of the node in those of process 1.
  TRY_INSIDE=1 unshare --mount --propagation slave --net --pid --fork --kill-child=TERM --mount-proc "$0" "$@" &
  inside=$!
  # unshare ignores the signals of an interruption, and does not pass them on.
  trap 'pkill -TERM --parent "$inside" || true' INT TERM HUP
  result=0
  until wait "$inside"; do
    result=$?
    kill -0 "$inside" 2>/dev/null || exit "$result"
  done
  exit 0
fi
# Process 1 ignores signals otherwise.
trap 'exit 130' TERM HUP
values=${TRY_VALUES:-$here/values/local.yaml}
export PATH=$TRY/bin:$PATH NODE=node-1 NAMESPACE=gabion
state=$TRY/state logs=$TRY/logs
export KUBECONFIG=$state/admin.conf GABION_SOCKET=$state/gabion/gabion.sock
address=10.90.0.1 api=https://10.90.0.1:6443
containerd=$state/containerd.sock
parameters=(vm.overcommit_memory kernel.panic kernel.panic_on_oops)
started=()

# Starts a program with a log of its own.
start() {
  local name=$1
  shift
  "$@" >"$logs/$name.log" 2>&1 </dev/null &
  started+=("$!")
}

# Stops the pods and the programs, the newest first.
stop() {
  local index task
  kubectl delete daemonset,deployment,pod --all --all-namespaces --timeout=30s >/dev/null 2>&1 || true
  # Loop devices have no namespace. A device in use is detached by its last user.
  losetup --list --noheadings --output NAME,BACK-FILE |
    awk -v at="$state/" 'index($2, at) == 1 { print $1 }' | xargs --no-run-if-empty losetup --detach || true
  for ((index = ${#started[@]} - 1; index >= 0; index--)); do
    # The containers end before containerd.
    if [ "$index" = 0 ]; then
      for task in $(ctr --address "$containerd" --namespace k8s.io tasks list --quiet 2>/dev/null); do
        ctr --address "$containerd" --namespace k8s.io tasks delete --force "$task" >/dev/null 2>&1 || true
      done
    fi
    kill "${started[index]}" 2>/dev/null || true
    # The API server waits for its clients.
    timeout 5 tail --pid="${started[index]}" -f /dev/null || kill -KILL "${started[index]}" 2>/dev/null || true
  done
  sysctl --quiet --write "${kept[@]}"
}

# Repeats a command until it succeeds, for three minutes.
until_true() {
  local give_up=$((SECONDS + 180))
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS > give_up)); then
      echo "cluster.sh: gave up after three minutes: $*; the logs are in $logs" >&2
      return 1
    fi
    sleep 0.2
  done
}

# The addresses of the node and of the API server as the pods know it, without a kube-proxy.
network() {
  local chain
  ip link set lo up
  ip link add node0 type veth peer name node1
  ip address add "$address/24" dev node0
  ip link set node0 up
  ip link set node1 up
  ip route add default via 10.90.0.254
  sysctl --quiet --write net.ipv4.ip_forward=1
  for chain in OUTPUT PREROUTING; do
    iptables --table nat --append "$chain" --destination 10.96.0.1 --protocol tcp --dport 443 \
      --jump DNAT --to-destination "$address:6443"
  done
}

# Loads an image: name, directory, and the command.
load_image() {
  "$here/image.sh" "$1" "$2" "$state/image.tar" "${@:3}"
  ctr --address "$containerd" --namespace k8s.io images import "$state/image.tar" >/dev/null
  rm "$state/image.tar"
}

# The images of the chart, from the programs of build.sh.
images() {
  local directory=$state/image name image
  mkdir -p "$directory/bin"
  cp "$(command -v busybox)" "$directory/bin/busybox"
  "$directory/bin/busybox" --install -s "$directory/bin" 2>/dev/null || true
  find "$directory/bin" -type l -exec ln -sfn busybox {} \;
  load_image docker.io/library/busybox:try "$directory" /bin/sleep 1000000000
  for image in $(grep -o 'registry.k8s.io/sig-storage/[^ ]*' "$root/deploy/helm/gabion-csi/values.yaml"); do
    name=${image##*/} name=${name%:*}
    [ -x "$TRY/bin/$name" ] || continue
    rm -rf "$directory"
    mkdir -p "$directory"
    cp "$TRY/bin/$name" "$directory/$name"
    load_image "$image" "$directory" "/$name"
  done
  cp "$GABION" "$TRY/rootfs/usr/local/bin/gabion"
  strip "$TRY/rootfs/usr/local/bin/gabion"
  load_image docker.io/library/gabion:0.1.0 "$TRY/rootfs" gabion
  rm -rf "$directory"
}

runtime() {
  mkdir -p "$state/cni"
  cat >"$state/containerd.toml" <<TXT
version = 2
root = "$state/containerd"
state = "$state/containerd-state"
[grpc]
  address = "$containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/library/busybox:try"
  # A machine may not permit lower scores.
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "$state/cni"
TXT
  cat >"$state/cni/10-pods.conflist" <<TXT
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "dataDir": "$state/cni/addresses",
    "ranges": [[{"subnet": "10.91.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
TXT
  start containerd containerd --config "$state/containerd.toml"
  until_true ctr --address "$containerd" version
}

# Writes the configuration of a client with a token.
client_config() {
  kubectl config --kubeconfig="$1" set-cluster try --server="$api" \
    --certificate-authority="$state/pki/apiserver.crt" --embed-certs >/dev/null
  kubectl config --kubeconfig="$1" set-credentials user --token="$2" >/dev/null
  kubectl config --kubeconfig="$1" set-context try --cluster=try --user=user >/dev/null
  kubectl config --kubeconfig="$1" use-context try >/dev/null
}

control_plane() {
  local name
  mkdir -p "$state/pki"
  openssl genrsa -out "$state/pki/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$state/pki/accounts.key" -pubout -out "$state/pki/accounts.pub" 2>/dev/null
  cat >"$state/pki/tokens.csv" <<TXT
admin-token,admin,admin,system:masters
manager-token,system:kube-controller-manager,manager
scheduler-token,system:kube-scheduler,scheduler
kubelet-token,system:node:$NODE,kubelet,system:nodes
TXT
  start etcd etcd --data-dir "$state/etcd" --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379
  start kube-apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --bind-address="$address" --advertise-address="$address" --cert-dir="$state/pki" \
    --token-auth-file="$state/pki/tokens.csv" --service-account-issuer="$api" \
    --service-account-key-file="$state/pki/accounts.pub" \
    --service-account-signing-key-file="$state/pki/accounts.key" --service-cluster-ip-range=10.96.0.0/24 \
    --kubelet-preferred-address-types=InternalIP --authorization-mode=Node,RBAC \
    --enable-admission-plugins=NodeRestriction --allow-privileged
  until_true test -s "$state/pki/apiserver.crt"
  for name in admin manager scheduler kubelet; do
    client_config "$state/$name.conf" "$name-token"
  done
  until_true kubectl get --raw /readyz
  start kube-controller-manager kube-controller-manager --kubeconfig="$state/manager.conf" \
    --leader-elect=false --use-service-account-credentials --secure-port=0 \
    --service-account-private-key-file="$state/pki/accounts.key" --root-ca-file="$state/pki/apiserver.crt"
  start kube-scheduler kube-scheduler --kubeconfig="$state/scheduler.conf" --leader-elect=false --secure-port=0
  until_true kubectl get serviceaccount default
}

node() {
  cat >"$state/kubelet.yaml" <<TXT
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $address
authentication: { anonymous: { enabled: true }, webhook: { enabled: false } }
authorization: { mode: AlwaysAllow }
cgroupDriver: cgroupfs
clusterDNS: [10.96.0.10]
containerRuntimeEndpoint: unix://$containerd
enforceNodeAllocatable: []
# The disk of the machine may be fuller than a node's.
evictionHard: { memory.available: 50Mi }
imageGCHighThresholdPercent: 100
failSwapOn: false
# The kubelet looks for grown claims when it synchronizes a pod.
syncFrequency: 10s
volumePluginDir: $state/kubelet-plugins
TXT
  start kubelet kubelet --config="$state/kubelet.yaml" --kubeconfig="$state/kubelet.conf" \
    --root-dir="$state/kubelet" --hostname-override="$NODE" --node-ip="$address" --v=3
  until_true kubectl wait "node/$NODE" --for=condition=Ready --timeout=5s
}

daemon() {
  mkdir -p "$state/gabion" "$state/drives"
  # Variables override the configuration of this machine.
  start gabion env GABION_API_LISTEN="$address:9188" GABION_NVME_LISTEN="$address:4420" \
    GABION_CONFIG=/dev/null GABION_STATE_DIR="$state/gabion/state" \
    GABION_NBD_SOCKET="$state/gabion/nbd.sock" GABION_VHOST_DIRECTORY="$state/gabion/vhost" \
    GABION_FUSE_DIRECTORY="$state/gabion/fuse" GABION_UBLK_DIRECTORY="$state/gabion/ublk" "$GABION" serve
  until_true "$GABION" pool list
  "$GABION" pool create fast --scheme 2+1 --files "$state/drives" --file-size 4G --count 3 --quiet
}

snapshot_controller() {
  kubectl apply -f "$TRY/bin/snapshots" >/dev/null
  # The rights of its release do not suffice for --enable-distributed-snapshotting.
  kubectl create clusterrole snapshot-controller-nodes --verb=get,list,watch --resource=nodes
  kubectl create clusterrolebinding snapshot-controller-nodes --clusterrole=snapshot-controller-nodes \
    --serviceaccount=kube-system:snapshot-controller
  client_config "$state/snapshot-controller.conf" \
    "$(kubectl create token --namespace kube-system snapshot-controller --duration=24h)"
  start snapshot-controller snapshot-controller --kubeconfig="$state/snapshot-controller.conf" \
    --enable-distributed-snapshotting --feature-gates=CSIVolumeGroupSnapshot=true
}

driver() {
  local workload fingerprint more=()
  kubectl create namespace "$NAMESPACE"
  if grep -q '^attach: nvme-tcp' "$values"; then
    "$GABION" token create cluster --role operator --quiet >"$state/token"
    kubectl create secret generic storage-server --namespace "$NAMESPACE" --from-file=token="$state/token"
    fingerprint=$(openssl x509 -in "$state/gabion/state/certificate.pem" -noout -fingerprint -sha256 | cut -d = -f 2)
    more=(--set "server.url=https://$address:9188" --set "server.fingerprint=$fingerprint")
  fi
  helm install gabion "$root/deploy/helm/gabion-csi" --namespace "$NAMESPACE" --values "$values" \
    --set kubeletDir="$state/kubelet" --set runDir="$state/gabion" "${more[@]}"
  for workload in $(kubectl get daemonset,deployment --namespace "$NAMESPACE" --output name); do
    kubectl rollout status --namespace "$NAMESPACE" "$workload" --timeout=300s
  done
  until_true kubectl get csinode "$NODE" --output jsonpath='{.spec.drivers[?(@.name=="csi.gabion.io")].nodeID}'
}

mapfile -t kept < <(sysctl "${parameters[@]}" | tr -d ' ')
mount --make-rshared /
rm -rf --one-file-system "$state" "$logs"
mkdir -p "$state" "$logs"
trap stop EXIT
network
runtime
images
control_plane
node
daemon
snapshot_controller
driver
# A signal ends only a wait at once, and no program in the foreground.
"${@:-$here/check.sh}" &
wait "$!"
