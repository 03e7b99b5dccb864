package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/view"
)

const dumpHelp = `Writes what a bug report needs into one file: the answers of status, check, doctor, rules, flows, counters and
ebpf as JSON, the records and settings, facts about the kernel, and the last lines of the logs.

It holds names of pods, namespaces, labels and policies, and addresses. With --redact each address is replaced by
a name that is the same throughout the bundle (ip4-1, ip6-2). It holds no credentials: CNI configurations, kubeconfigs
and environments are not in it.

What cannot be read is named in errors.txt; the exit code is 1 only if the bundle could not be written.`

// logLines is how many lines of each log are in a bundle.
const logLines = 2000

func (a *app) dump() *cobra.Command {
	var file string
	var redact bool
	c := &cobra.Command{
		Use:   "dump",
		Short: "A bundle for a bug report",
		Long:  dumpHelp,
		Example: `  latchctl dump
  latchctl dump --redact -o /tmp/latch.tar.gz`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if file == "" {
				file = "latch-dump-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			}
			b := &bundle{app: a}
			if redact {
				b.redactor = &redactor{}
			}
			if err := b.collect(c); err != nil {
				return err
			}
			if file == "-" {
				return b.write(a.out)
			}
			if err := b.save(file); err != nil {
				return err
			}
			fmt.Fprintf(a.out, "wrote %s, %s\n", file, plural(len(b.files), "file"))
			return nil
		},
	}
	// Its own -o: a bundle has no other format.
	c.Flags().StringVarP(&file, "output", "o", "", "file to write, - for standard output (default: latch-dump-TIME.tar.gz here)")
	c.Flags().BoolVar(&redact, "redact", false, "replace addresses")
	return c
}

// bundle is what goes into the file.
type bundle struct {
	*app
	redactor *redactor // nil: leave addresses
	files    []bundled
	errors   bytes.Buffer
}

type bundled struct {
	name    string
	content []byte
}

func (b *bundle) add(name string, content []byte) {
	if b.redactor != nil {
		content = b.redactor.redact(content)
	}
	b.files = append(b.files, bundled{name, content})
}

func (b *bundle) failed(what string, err error) { fmt.Fprintf(&b.errors, "%s: %v\n", what, err) }

func (b *bundle) collect(c *cobra.Command) error {
	b.command(c, "status")
	b.command(c, "check")
	b.command(c, "doctor")
	b.command(c, "flows")
	b.command(c, "counters")
	b.command(c, "ebpf", "progs")
	b.command(c, "ebpf", "maps")
	err := b.node(func(n *view.Node) error {
		pods, err := n.Pods()
		if err != nil {
			b.failed("pods", err)
		}
		for _, p := range pods {
			b.command(c, "rules", p.Key())
		}
		slots, err := n.Slots()
		if err != nil {
			b.failed("slots", err)
		}
		b.json("slots.json", slots)
		b.logs(n)
		return nil
	})
	if err != nil {
		b.failed("open node", err)
	}
	b.records()
	b.json("kernel.json", b.facts())
	return nil
}

// command adds the answer of another command.
func (b *bundle) command(c *cobra.Command, args ...string) {
	var out, errOut bytes.Buffer
	name := strings.ReplaceAll(strings.Join(args, "-"), "/", "_") + ".json"
	code := runContext(c.Context(), append(args, "-o", "json", "--bpffs", b.bpffs, "--state-dir", b.stateDir), strings.NewReader(""), &out, &errOut)
	if errOut.Len() > 0 {
		b.failed(strings.Join(args, " "), fmt.Errorf("exit code %d: %s", code, strings.TrimSpace(errOut.String())))
	}
	if out.Len() > 0 {
		b.add(name, out.Bytes())
	}
}

func (b *bundle) json(name string, v any) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		b.failed(name, err)
		return
	}
	b.add(name, raw)
}

// records adds the JSON files of the state folder. Locks are left out: their content is of no use later.
func (b *bundle) records() {
	err := filepath.WalkDir(b.stateDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".json" {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil // deleted meanwhile
		}
		name, _ := filepath.Rel(b.stateDir, path)
		b.add(filepath.Join("records", name), raw)
		return err
	})
	if err != nil {
		b.failed("records", err)
	}
}

func (b *bundle) logs(n *view.Node) {
	s, err := n.Store().ReadSettings()
	if err != nil {
		b.failed("settings", err)
	}
	for name, path := range map[string]string{"plugin": s.LogFile, "flows": s.FlowLog} {
		if !filepath.IsAbs(path) {
			continue
		}
		lines, err := view.Tail(path, logLines)
		if err != nil {
			b.failed(name+" log", err)
			continue
		}
		b.add("log/"+name+".log", append(bytes.Join(lines, []byte("\n")), '\n'))
	}
}

// facts are about the machine.
func (b *bundle) facts() map[string]any {
	var u unix.Utsname
	var info unix.Sysinfo_t
	if err := errors.Join(unix.Uname(&u), unix.Sysinfo(&info)); err != nil {
		b.failed("kernel", err)
	}
	facts := map[string]any{
		"latchctl": version, "arch": runtime.GOARCH, "cpus": runtime.NumCPU(), "release": unix.ByteSliceToString(u.Release[:]),
		"version": unix.ByteSliceToString(u.Version[:]), "memoryMiB": info.Totalram * uint64(info.Unit) >> 20, "uptimeSeconds": info.Uptime,
		"time": time.Now().UTC(), "redacted": b.redactor != nil,
	}
	for _, path := range []string{"net/core/bpf_jit_enable", "net/core/bpf_jit_harden", "kernel/unprivileged_bpf_disabled", "net/ipv4/ip_forward",
		"net/ipv4/conf/all/rp_filter", "net/ipv6/conf/all/forwarding"} {
		if raw, err := os.ReadFile("/proc/sys/" + path); err == nil {
			facts["sysctl "+path] = strings.TrimSpace(string(raw))
		}
	}
	return facts
}
