package bpf

import "github.com/cilium/ebpf"

// VerifierStats loads the programs and returns what the verifier has to say of each when it is done.
func VerifierStats(sizes Sizes) (map[string]string, error) {
	spec, err := prepare(sizes)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}})
	if err != nil {
		return nil, err
	}
	defer coll.Close()
	stats := map[string]string{}
	for name, p := range coll.Programs {
		stats[name] = p.VerifierLog
	}
	return stats, nil
}
