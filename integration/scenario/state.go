package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State is the world after a step.
type State struct {
	Description string
	Namespaces  map[string]map[string]string
	Pods        []Pod
	Objects     []json.RawMessage // policies and endpoints objects, in the order of the file
	Expect      *Expect
}

// State returns the world after step i. What the endpoints objects say wins over what the policies
// say, where a file tells them apart: the endpoints objects are what is enforced.
func (s *Scenario) State(i int) State {
	step := s.Steps[i]
	expect := step.Expect
	if step.ExpectFromPolicyEndpoints != nil {
		expect = step.ExpectFromPolicyEndpoints
	}
	return State{
		Description: step.Description,
		Namespaces:  step.Namespaces,
		Pods:        s.podsAt(i),
		Objects: slices.Concat(step.NetworkPolicies, step.ClusterNetworkPolicies,
			step.PolicyEndpoints, step.ClusterPolicyEndpoints),
		Expect: expect,
	}
}

// Ground returns the world before step 0: its pods and namespaces and no policy at all, where
// everything reaches everything.
func (s *Scenario) Ground() State {
	g := State{Description: "no policies", Pods: s.Pods, Namespaces: map[string]map[string]string{}}
	if len(s.Steps) > 0 {
		g.Namespaces = s.Steps[0].Namespaces
	}
	return g
}

// UID is the uid of a pod's manifest: the same for the same pod with the same address, in whatever
// scenario, so that a sandbox can serve many scenarios.
func (p Pod) UID() string {
	h := sha256.Sum256([]byte(fmt.Sprintf("%q %q %v", p.Namespace, p.Name, p.IP)))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

type object = map[string]any

// Document is one object as the text of a manifest.
type Document struct {
	Name string // unique in its state, fit for a file name
	Raw  []byte
}

// Documents returns the objects of the state, namespaces and pods before policies. A Pod carries what
// the API server knows of it before its interface exists: labels, uid, node and no address.
func (st State) Documents(nodeName string) ([]Document, error) {
	var docs []Document
	add := func(o any) error {
		raw, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
		name, err := documentName(raw)
		if err != nil {
			return err
		}
		docs = append(docs, Document{name, raw})
		return nil
	}
	for _, ns := range slices.Sorted(maps.Keys(st.Namespaces)) {
		err := add(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": ns, "labels": st.Namespaces[ns]}})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range st.Pods {
		if err := add(p.manifest(nodeName)); err != nil {
			return nil, err
		}
	}
	for _, o := range st.Objects {
		if err := add(o); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// Join makes one multi-document text.
func Join(docs []Document) []byte {
	var out bytes.Buffer
	for _, d := range docs {
		out.WriteString("---\n")
		out.Write(d.Raw)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

func documentName(raw []byte) (string, error) {
	var o struct {
		Kind     string
		Metadata struct{ Namespace, Name string }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return "", fmt.Errorf("name manifest: %w", err)
	}
	return fmt.Sprintf("%s_%s_%s.yaml", strings.ToLower(o.Kind), o.Metadata.Namespace, o.Metadata.Name), nil
}

func (p Pod) manifest(nodeName string) object {
	ports := make([]object, 0, len(p.Ports))
	for _, port := range p.Ports {
		ports = append(ports, object{"name": port.Name, "containerPort": port.Port, "protocol": port.Protocol})
	}
	return object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"namespace": p.Namespace, "name": p.Name, "uid": p.UID(), "labels": p.Labels},
		"spec": object{"nodeName": nodeName,
			"containers": []object{{"name": "main", "image": "none", "ports": ports}}},
	}
}
