package plugin

import (
	"strings"
	"testing"
)

// A value of the wrong type is told by its key, by what it is and by what it should be, in JSON's words.
func TestValuesOfTheWrongType(t *testing.T) {
	for text, want := range map[string]string{
		`{"antiSpoof":"yes"}`:      `decode configuration: antiSpoof: "yes" is not true or false`,
		`{"policyWait":2}`:         "policyWait: 2 is not a string",
		`{"logLevel":["debug"]}`:   `logLevel: ["debug"] is not a string`,
		`{"flowTableSize":"many"}`: `flowTableSize: "many" is not a whole number`,
		`{"flowTableSize":1.5}`:    "flowTableSize: 1.5 is not a whole number",
		`[1]`:                      "decode configuration: [1] is not an object",
		`{"prevResult":5}`:         "decode prevResult: 5 is not an object",
		`{"cniVersion":"1.0.0","prevResult":{"cniVersion":"1.0.0","ips":5}}`: "could not parse prevResult: ips: 5 is not a list",
		`{"cni.dev/valid-attachments":5}`:                                    "decode cni.dev/valid-attachments: 5 is not a list",
		`{"cni.dev/valid-attachments":[{"containerID":5}]}`:                  "containerID: a number is not a string",
	} {
		_, err := parseConfig([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "json:") {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
