package state

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// NodeSettings are written by latchd for the plugin; keys of the plugin's own entry override them. An
// empty field is not set. Durations are strings that time.ParseDuration takes; whoever reads the
// settings validates them.
type NodeSettings struct {
	EnforcingMode string `json:"enforcingMode,omitempty"` // standard or strict
	PolicyWait    string `json:"policyWait,omitempty"`    // how long ADD waits for the pod's record
	UnknownPods   string `json:"unknownPods,omitempty"`   // retry or default
	LockTimeout   string `json:"lockTimeout,omitempty"`   // how long a writer waits for a lock
	AttachMode    string `json:"attachMode,omitempty"`    // auto, clsact or tcx
	AntiSpoof     *bool  `json:"antiSpoof,omitempty"`     // pods send from their own addresses only
	FlowTableSize int    `json:"flowTableSize,omitempty"` // IPv4 flows; half as many of IPv6
	Bpffs         string `json:"bpffs,omitempty"`         // folder of the bpffs
	LogFile       string `json:"logFile,omitempty"`
	LogLevel      string `json:"logLevel,omitempty"` // debug, info, warn or error

	// What latchd was told, for those who look at the node; the plugin has no use for it.
	FlowLog string `json:"flowLog,omitempty"` // file of verdicts, or stdout; empty = off
	ConfDir string `json:"confDir,omitempty"` // folder of CNI configurations that latchd keeps; empty = none
}

// WriteSettings writes the settings of the node.
func (s Store) WriteSettings(n NodeSettings) error {
	return write(filepath.Join(s.dir, fileSettings), n)
}

// ReadSettings returns the settings of the node, the zero value if there are none.
func (s Store) ReadSettings() (NodeSettings, error) {
	var n NodeSettings
	err := read(filepath.Join(s.dir, fileSettings), &n)
	if errors.Is(err, os.ErrNotExist) {
		return n, nil
	}
	return n, err
}

// DeleteSettings deletes the settings of the node. Nothing there is success.
func (s Store) DeleteSettings() error { return remove(filepath.Join(s.dir, fileSettings)) }

// Status is what latchd says about itself.
type Status struct {
	Ready      bool         `json:"ready"`
	Message    string       `json:"message,omitempty"`
	Known      bool         `json:"known,omitempty"`    // policy has been read since the node started, by this latchd or one before it
	Degraded   bool         `json:"degraded,omitempty"` // not ready because of single pods or identifiers only: others can be started
	Stopped    bool         `json:"stopped,omitempty"`  // the last word of a latchd that ended in order
	Arrived    time.Time    `json:"arrived,omitzero"`   // when Latch was installed on a node with running pods, until policy is known
	Node       string       `json:"node,omitempty"`
	Mode       string       `json:"mode,omitempty"` // enforcing mode
	Problems   []Problem    `json:"problems,omitempty"`
	NotAdopted []NotAdopted `json:"notAdopted,omitempty"`
	UpdatedAt  time.Time    `json:"updatedAt"`
}

// NotAdopted is a pod that runs without policy: it was there before Latch, and cannot be taken over.
type NotAdopted struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Reason    string `json:"reason"`
}

// ObjectConfiguration is what a problem with the node's CNI configuration is about, in place of an object.
const ObjectConfiguration = "CNI configuration"

// Problem is something in an object that could not be taken as it is.
type Problem struct {
	Object  string `json:"object"`          // kind namespace/name
	Field   string `json:"field,omitempty"` // path of the field in the object
	Message string `json:"message"`
}

// WriteStatus writes the status of latchd.
func (s Store) WriteStatus(st Status) error { return write(filepath.Join(s.dir, fileStatus), st) }

// ReadStatus returns the status of latchd. The error wraps os.ErrNotExist when latchd has never
// written one, or is uninstalled.
func (s Store) ReadStatus() (Status, error) {
	var st Status
	err := read(filepath.Join(s.dir, fileStatus), &st)
	return st, err
}

// DeleteStatus deletes the status of latchd. Nothing there is success.
func (s Store) DeleteStatus() error { return remove(filepath.Join(s.dir, fileStatus)) }
