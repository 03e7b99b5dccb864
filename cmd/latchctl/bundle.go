package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"time"
)

// save writes the bundle to a file that only its owner can read.
func (b *bundle) save(file string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return errors.Join(b.write(f), f.Close())
}

func (b *bundle) write(w io.Writer) error {
	if b.errors.Len() > 0 {
		b.add("errors.txt", b.errors.Bytes())
		b.errors.Reset()
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	now := time.Now()
	for _, f := range b.files {
		h := &tar.Header{Name: "latch-dump/" + f.name, Mode: 0o600, Size: int64(len(f.content)), ModTime: now, Typeflag: tar.TypeReg}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
		if _, err := t.Write(f.content); err != nil {
			return fmt.Errorf("write bundle: %w", err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// redactor replaces addresses by names, the same address by the same name.
type redactor struct {
	names map[netip.Addr]string
	count [2]int
}

// address is what may be an address: ParseAddr decides. Times have colons, too.
var address = regexp.MustCompile(`(?:::ffff:)?[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+|[0-9a-fA-F]*:[0-9a-fA-F]*:[0-9a-fA-F:]*`)

func (r *redactor) redact(content []byte) []byte {
	return address.ReplaceAllFunc(content, func(found []byte) []byte {
		a, err := netip.ParseAddr(string(found))
		if err != nil || a.IsUnspecified() || a.IsLoopback() {
			return found // says nothing about anybody
		}
		return []byte(r.name(a.Unmap()))
	})
}

func (r *redactor) name(a netip.Addr) string {
	if name, known := r.names[a]; known {
		return name
	}
	if r.names == nil {
		r.names = map[netip.Addr]string{}
	}
	family, i := 4, 0
	if a.Is6() {
		family, i = 6, 1
	}
	r.count[i]++
	r.names[a] = fmt.Sprintf("ip%d-%d", family, r.count[i])
	return r.names[a]
}
