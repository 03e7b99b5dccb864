#!/usr/bin/env bash
# Build containerd, runc, crictl and the images that pods of tests run: build-runtime.sh DIR
# Does nothing when DIR has them in the wanted versions. Takes 10 CPU minutes on a new machine.
set -euo pipefail
out=$1
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
. "$here/runtime-versions"
[ "$(cat "$out/versions" 2>/dev/null)" = "$(cat "$here/runtime-versions")" ] && exit 0

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9 # one build at a time; the second finds everything there
[ "$(cat "$out/versions" 2>/dev/null)" = "$(cat "$here/runtime-versions")" ] && exit 0

need=()
command -v gcc >/dev/null || need+=(gcc libc6-dev)
[ -e /usr/lib/"$(uname -m)"-linux-gnu/pkgconfig/libseccomp.pc ] || need+=(libseccomp-dev)
command -v pkg-config >/dev/null || need+=(pkg-config)
[ -x /bin/busybox ] || need+=(busybox-static)
if [ ${#need[@]} -gt 0 ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi

# install with a version resolves the tools' own go.mod, and takes no part in ours.
cd /
export GOWORK=off GOFLAGS= GOBIN="$out"
for name in containerd containerd-shim-runc-v2 ctr; do
	CGO_ENABLED=0 go install -trimpath -ldflags "-s -w -X github.com/containerd/containerd/v2/version.Version=${containerd#v}" \
		"github.com/containerd/containerd/v2/cmd/$name@$containerd"
done
CGO_ENABLED=1 go install -trimpath -tags seccomp -ldflags '-s -w' "github.com/opencontainers/runc@$runc"
CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "sigs.k8s.io/cri-tools/cmd/crictl@$crictl"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -Os -static -s -o "$work/pause" "$here/pause.c"
"$here/mkimage.sh" "$out/pause.tar" local.test/pause:3.10 /bin/pause "$work/pause"
"$here/mkimage.sh" "$out/busybox.tar" local.test/busybox:1 /bin/sh /bin/busybox
cp "$here/runtime-versions" "$out/versions"
