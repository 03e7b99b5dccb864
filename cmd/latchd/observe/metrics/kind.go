package metrics

import "strings"

// kinds are the kinds of divergences, each with what the write path's words for it begin or end with.
// Those words are for people; here they are only sorted.
var kinds = []struct{ kind, prefix, suffix string }{
	{"hook", "", "was not in force"},             // a program was not attached, or another ran in front of it
	{"binding", "pod_state of", ""},              // an interface was bound to other rules, or to none
	{"rules", "rules of slot", ""},               // rules were not those of their hash
	{"slot", "slot ", ""},                        // a rule set was not complete, or another's, or had another's generation
	{"node", "record of the last", ""},           // the numbers of pods and generations were behind
	{"node", "node settings", ""},                // addresses, switches or timeouts were changed
	{"record", "record of", ""},                  // a record was lost, or could not be read
	{"pins", "pinned objects", ""},               // pins were gone, or named objects of others
	{"orphan-binding", "binding of", ""},         // an interface was bound, and no record knew it
	{"orphan-link", "link pin", ""},              // a pin of a link whose interface is gone
	{"orphan-slots", "slots of", ""},             // rule sets of an identifier that nobody knows
	{"gone", "attachment without interface", ""}, // an interface went and no DEL came
	{"other", "", ""},                            // last: everything
}

// kindOf sorts what the write path says of its repairs.
func kindOf(what string) string {
	for _, k := range kinds {
		if strings.HasPrefix(what, k.prefix) && strings.HasSuffix(what, k.suffix) {
			return k.kind
		}
	}
	return "other"
}
