#!/usr/bin/env bash
# Build kube-apiserver, etcd, kubelet and kubectl from the Go module proxy for tests: build-k8s.sh DIR
# Builds what DIR lacks or has in another version. Takes 16 CPU minutes on a new machine.
#
# go install cannot build k8s.io/kubernetes, since its go.mod replaces the modules of its staging
# folder. A scratch module with its requirements, and with the published modules in their place, can.
set -euo pipefail
out=$1
version=$(cat "$(dirname "$0")/k8s-version")
has() { # file
	case $1 in
	etcd) [ -x "$out/etcd" ] && has kube-apiserver ;; # it is built before that, from the same module
	kubectl) [ "$("$out/kubectl" version --client 2>/dev/null | head -n 1)" = "Client Version: $version" ] ;;
	*) [ "$("$out/$1" --version 2>/dev/null)" = "Kubernetes $version" ] ;;
	esac
}
has etcd && has kubelet && has kubectl && exit 0

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9 # one build at a time; the second finds everything there
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOWORK=off GOFLAGS=-mod=mod CGO_ENABLED=0 # the same for all of them, or they share no compiled package

source=$(cd / && go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
sed -E "s#^module .*#module parts#; s#=> ./staging/src/(k8s.io/[a-z-]+)#=> \1 v0.${version#v1.}#" "$source/go.mod" >go.mod
cp "$source/go.sum" go.sum
chmod u+w go.mod go.sum
printf '//go:build tools\n\npackage parts\n\nimport (\n\t_ "k8s.io/kubernetes/cmd/kube-apiserver"\n\t_ "k8s.io/kubernetes/cmd/kubelet"\n\t_ "k8s.io/kubernetes/cmd/kubectl"\n)\n' >parts.go
go mod edit -require "k8s.io/kubernetes@$version"

minor=${version#v1.}
v=k8s.io/component-base/version
stamp="-X $v.gitVersion=$version -X $v.gitMajor=1 -X $v.gitMinor=${minor%%.*} -X k8s.io/client-go/pkg/version.gitVersion=$version"
build() { # file flags package; whole or not at all
	has "$1" && return
	go build -trimpath -ldflags="-s -w $2" -o "$out/.$1.new" "$3"
	mv "$out/.$1.new" "$out/$1"
}
build etcd "" go.etcd.io/etcd/server/v3
build kube-apiserver "$stamp" k8s.io/kubernetes/cmd/kube-apiserver
build kubelet "$stamp" k8s.io/kubernetes/cmd/kubelet
build kubectl "$stamp" k8s.io/kubernetes/cmd/kubectl
