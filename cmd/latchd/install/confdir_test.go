package install

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	multus   = `{"cniVersion":"1.0.0","name":"multus","type":"multus-shim"}`
	loopback = `{"cniVersion":"1.0.0","name":"lo","plugins":[{"type":"loopback"}]}`
	ptp      = `{"cniVersion":"1.0.0","name":"net","type":"ptp"}`
)

func TestPrimary(t *testing.T) {
	files := func(names ...string) map[string]string {
		m := map[string]string{}
		for _, n := range names {
			m[n] = conflist(vpc)
		}
		return m
	}
	tests := []struct {
		name    string
		files   map[string]string
		primary string // configured
		want    string
		hidden  string
	}{
		{name: "the first of the others", files: files("05-latch.conflist", "30-x.conflist", "10-aws.conflist"), want: "10-aws.conflist"},
		{name: "single plugins count", files: map[string]string{"10-a.conf": ptp, "20-b.json": ptp}, want: "10-a.conf"},
		{name: "other files do not", files: files("10-a.conflist.tmp", "09-b.yaml", "20-c.conflist", ".latch-1.tmp"), want: "20-c.conflist"},
		{name: "by name", files: files("10-a.conflist", "20-b.conflist"), primary: "20-b.conflist", want: "20-b.conflist"},
		{name: "by name, not there", files: files("10-a.conflist"), primary: "20-b.conflist"},
		{name: "none", files: files("05-latch.conflist")},
		{name: "multus and loopback are passed over", files: map[string]string{"00-multus.conf": multus, "10-lo.conflist": loopback, "20-a.conflist": conflist(vpc)}, want: "20-a.conflist"},
		{name: "a broken file is not", files: map[string]string{"10-a.conflist": "{", "20-b.conflist": conflist(vpc)}, want: "10-a.conflist"},
		{name: "before ours", files: files("01-a.conflist"), want: "01-a.conflist", hidden: "01-a.conflist sorts before 05-latch.conflist"},
		{name: "by name, another before ours", files: files("01-a.conflist", "10-b.conflist"), primary: "10-b.conflist", want: "10-b.conflist", hidden: "01-a.conflist sorts before"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGround(t)
			for name, text := range tt.files {
				g.write(name, text)
			}
			g.cfg.Primary = tt.primary
			cfg := g.cfg.withDefaults()
			got, err := cfg.primary()
			if got != tt.want || (err == nil) != (tt.want != "") || err != nil && !errors.Is(err, errNoPrimary) {
				t.Errorf("want %q, have %q, %v", tt.want, got, err)
			}
			if err := cfg.hidden(); (err == nil) != (tt.hidden == "") || err != nil && !strings.Contains(err.Error(), tt.hidden) {
				t.Errorf("hidden: want %q, have %v", tt.hidden, err)
			}
		})
	}
}

// A configuration of one plugin, and one whose plugins lie in a folder, become lists of which ours is last.
func TestOtherFormsOfConfiguration(t *testing.T) {
	tests := []struct {
		name, file, content string
		folder              map[string]string
		want                string
	}{
		{name: "one plugin", file: "10-a.conf", content: ptp,
			want: `{"cniVersion":"1.0.0","name":"net","plugins":[` + ptp + `,{"type":"latch"}]}`},
		{name: "plugins in a folder", file: "10-a.conflist", content: `{"cniVersion":"1.1.0","name":"net"}`,
			folder: map[string]string{"net/1.conf": ptp, "net/2.conf": portmap},
			want:   `{"cniVersion":"1.1.0","name":"net","loadOnlyInlinedPlugins":true,"plugins":[` + ptp + `,` + portmap + `,{"type":"latch"}]}`},
		{name: "plugins in a folder that is not used", file: "10-a.conflist", content: `{"cniVersion":"1.1.0","name":"net","loadOnlyInlinedPlugins":true,"plugins":[` + ptp + `]}`,
			folder: map[string]string{"net/2.conf": portmap},
			want:   `{"cniVersion":"1.1.0","name":"net","loadOnlyInlinedPlugins":true,"plugins":[` + ptp + `,{"type":"latch"}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGround(t)
			g.write(tt.file, tt.content)
			for name, text := range tt.folder {
				if err := os.MkdirAll(filepath.Dir(g.path(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				g.write(name, text)
			}
			if err := NewFollower(g.cfg).Look(); err != nil {
				t.Fatal(err)
			}
			wantJSON(t, tt.want, g.read(DefaultName))
		})
	}
}
