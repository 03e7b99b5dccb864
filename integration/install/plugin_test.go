package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
)

// plugins are the CNI plugins that the test binary is when it is called by their names. They pass
// prevResult on.
var plugins = map[string]func(conf conf) error{
	"record": record,
	"spoil":  spoil,
}

// conf is what the plugins get on stdin.
type conf struct {
	File       string          `json:"file"`
	PrevResult json.RawMessage `json:"prevResult"`
}

func plugin(run func(conf) error) int {
	raw, err := io.ReadAll(os.Stdin)
	var c conf
	if err := errors.Join(err, json.Unmarshal(raw, &c)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if os.Getenv("CNI_COMMAND") != "ADD" {
		return 0
	}
	if err := run(c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = os.Stdout.Write(c.PrevResult)
	return 0
}

// record keeps what the plugin after it gets.
func record(c conf) error { return os.WriteFile(c.File, c.PrevResult, 0o600) }

// spoil makes an interface to which nothing can be attached by clsact.
func spoil(c conf) error {
	var r current.Result
	if err := json.Unmarshal(c.PrevResult, &r); err != nil {
		return err
	}
	for _, i := range r.Interfaces {
		if i.Sandbox != "" {
			continue
		}
		link, err := netlink.LinkByName(i.Name)
		if err != nil {
			return err
		}
		return netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}})
	}
	return errors.New("no host interface")
}
