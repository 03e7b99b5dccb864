#!/usr/bin/env bash
# Make an image of one layer from static binaries, without any builder, as a docker archive:
# mkimage.sh OUT.tar NAME:TAG ENTRYPOINT FILE...
set -euo pipefail
out=$1 name=$2 entrypoint=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/rootfs
mkdir -p "$root"/{bin,etc,tmp,run}
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
cp "$@" "$root/bin/"
if [ -e "$root/bin/busybox" ]; then
	for applet in sh ls cat ip nc ping sleep wget; do ln -s busybox "$root/bin/$applet"; done
fi
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$work/layer.tar" .
digest=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
arch=$(go env GOARCH)
cat >"$work/config.json" <<J
{"architecture":"$arch","os":"linux","created":"1970-01-01T00:00:00Z","config":{"Entrypoint":["$entrypoint"],"Env":["PATH=/bin"],"WorkingDir":"/"},"rootfs":{"type":"layers","diff_ids":["sha256:$digest"]},"history":[{"created":"1970-01-01T00:00:00Z"}]}
J
cat >"$work/manifest.json" <<J
[{"Config":"config.json","RepoTags":["$name"],"Layers":["layer.tar"]}]
J
tar -C "$work" -cf "$out" manifest.json config.json layer.tar
