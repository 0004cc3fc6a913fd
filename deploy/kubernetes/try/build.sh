#!/usr/bin/env bash
# Builds the programs of the try-out cluster from source: Kubernetes, etcd and Helm by go.mod of
# this directory, the provisioner by its own, and the other sidecars by sidecars/go.mod.
#
#   build.sh [DIRECTORY]         target/kubernetes/bin by default
#   build.sh DIRECTORY e2e.test  only the programs of e2e.sh: the tests of Kubernetes (100 MB), that
#                                of their pods, and ginkgo, which runs several tests at once
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(realpath -m "${1:-$here/../../../target/kubernetes/bin}")
kubernetes=1.34.4
# The versions of the images in deploy/helm/gabion-csi/values.yaml.
provisioner=github.com/kubernetes-csi/external-provisioner/v6@v6.4.0
snapshotter=v8.7.0
mkdir -p "$bin"

# Builds a package in the directory of its module, without the C library, so that the program also
# runs in an image that is empty otherwise.
build() {
  printf '%s %s\n' "$(date +%T)" "$2"
  CGO_ENABLED=0 nice -n 5 go build -C "$1" -p 2 -trimpath -buildvcs=false -o "$bin/" "${@:3}" "$2"
}

# Prints the directory of a module.
module() {
  go mod download -json "$1" | jq -r .Dir
}

version=k8s.io/component-base/version
flags="-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=34"
if [ "${2:-}" = e2e.test ]; then
  CGO_ENABLED=0 nice -n 5 go test -C "$here" -c -vet=off -p 2 -trimpath -buildvcs=false -ldflags="$flags" \
    -o "$bin/e2e.test" k8s.io/kubernetes/test/e2e
  build "$here" k8s.io/kubernetes/test/images/agnhost -ldflags="-s -w"
  # The version that the tests use.
  GOBIN=$bin CGO_ENABLED=0 go install "github.com/onsi/ginkgo/v2/ginkgo@$(go list -C "$here" -m \
    -f '{{.Version}}' github.com/onsi/ginkgo/v2)"
  exit
fi
build "$here" go.etcd.io/etcd/server/v3 -ldflags="-s -w"
mv "$bin/v3" "$bin/etcd" 2>/dev/null || mv "$bin/server" "$bin/etcd"
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  build "$here" "k8s.io/kubernetes/cmd/$program" -ldflags="$flags"
done
# Its go.mod replaces libraries, which no other module may do for it.
build "$(module "$provisioner")" ./cmd/csi-provisioner -mod=readonly -ldflags="-s -w"
# Helm takes the version of Kubernetes of its library as that of a cluster it does not ask.
helm=helm.sh/helm/v3/pkg/chartutil.k8sVersion
build "$here" helm.sh/helm/v3/cmd/helm -ldflags="-s -w -X ${helm}Major=1 -X ${helm}Minor=34"
for program in kubelet kubectl; do
  build "$here" "k8s.io/kubernetes/cmd/$program" -ldflags="$flags"
done
for program in attacher/v4/cmd/csi-attacher resizer/v2/cmd/csi-resizer \
  snapshotter/v8/cmd/csi-snapshotter snapshotter/v8/cmd/snapshot-controller; do
  build "$here/sidecars" "github.com/kubernetes-csi/external-$program" -ldflags="-s -w"
done

# The custom resources of snapshots, and the rights of the snapshot controller.
client=$(module "github.com/kubernetes-csi/external-snapshotter/client/v8@$snapshotter")
controller=$(module "github.com/kubernetes-csi/external-snapshotter/v8@$snapshotter")
mkdir -p "$bin/snapshots"
cp "$client"/config/crd/*snapshot.storage.k8s.io_*.yaml \
  "$controller/deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml" "$bin/snapshots"
chmod u+w "$bin"/snapshots/*
