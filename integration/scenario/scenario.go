package scenario

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Scenario is one file.
type Scenario struct {
	ID          string
	Source      string
	Description string
	Flags       []string
	Notes       []string
	Family      string // "ipv4" or "ipv6"
	HostIP      netip.Addr
	Pods        []Pod // as they are before the first step
	Steps       []Step

	File string `json:"-"`
}

// Pod is a pod of a scenario. Its address never changes.
type Pod struct {
	Namespace string
	Name      string
	Labels    map[string]string
	IP        netip.Addr
	Ports     []Port
}

// Port is a named port of a pod.
type Port struct {
	Name     string
	Port     uint16
	Protocol string
}

// Key is "namespace/name", as in the order of a table.
func (p Pod) Key() string { return p.Namespace + "/" + p.Name }

// Step is what a file says of one step. Objects are given in full; an absent list of objects is an
// empty one, while absent Pods are those of the step before.
type Step struct {
	Description               string
	Namespaces                map[string]map[string]string
	Pods                      []Pod
	NetworkPolicies           []json.RawMessage
	ClusterNetworkPolicies    []json.RawMessage
	PolicyEndpoints           []json.RawMessage
	ClusterPolicyEndpoints    []json.RawMessage
	Expect                    *Expect
	ExpectFromPolicyEndpoints *Expect
}

// Load reads and checks one file.
func Load(path string) (*Scenario, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	s, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", path, err)
	}
	s.File = path
	return s, nil
}

// LoadAll loads files, and every *.json of directories, sorted by id.
func LoadAll(paths ...string) ([]*Scenario, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("find scenarios: %w", err)
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		found, err := filepath.Glob(filepath.Join(p, "*.json"))
		if err != nil {
			return nil, fmt.Errorf("find scenarios: %w", err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("find scenarios: no *.json in %s", p)
		}
		files = append(files, found...)
	}
	all := make([]*Scenario, 0, len(files))
	for _, f := range files {
		s, err := Load(f)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Scenario) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Parse reads one scenario and checks it.
func Parse(raw []byte) (*Scenario, error) {
	s := new(Scenario)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if s.ID == "" {
		return nil, fmt.Errorf("no id")
	}
	if s.Family != "ipv4" && s.Family != "ipv6" {
		return nil, fmt.Errorf("family is %q, want ipv4 or ipv6", s.Family)
	}
	if !s.HostIP.IsValid() {
		return nil, fmt.Errorf("no hostIP")
	}
	for i := range s.Steps {
		if err := s.check(i); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return s, nil
}

func (s *Scenario) check(i int) error {
	pods := s.podsAt(i)
	known := map[string]bool{}
	for _, p := range pods {
		if !p.IP.IsValid() || p.IP.Is4() != (s.Family == "ipv4") {
			return fmt.Errorf("pod %s has address %v in a scenario of family %s", p.Key(), p.IP, s.Family)
		}
		if known[p.Key()] {
			return fmt.Errorf("pod %s is listed twice", p.Key())
		}
		known[p.Key()] = true
	}
	if s.Steps[i].Expect == nil {
		return fmt.Errorf("no expect")
	}
	for _, e := range []*Expect{s.Steps[i].Expect, s.Steps[i].ExpectFromPolicyEndpoints} {
		if e == nil {
			continue
		}
		if err := e.check(known); err != nil {
			return err
		}
	}
	return nil
}

// podsAt returns the pods after step i; the last list given so far counts.
func (s *Scenario) podsAt(i int) []Pod {
	for ; i >= 0; i-- {
		if s.Steps[i].Pods != nil {
			return s.Steps[i].Pods
		}
	}
	return s.Pods
}
