package metrics

import "strings"

// Kinds of divergences.
const (
	kindHook    = "hook"           // a program was not attached, or another ran in front of it
	kindBinding = "orphan-binding" // an interface was bound, and no record knew it
	kindLink    = "orphan-link"    // a pin of a link whose interface is gone
	kindSlots   = "orphan-slots"   // a rule set of an identifier that nobody knows
	kindGone    = "gone"           // an interface went and no DEL came
	kindOther   = "other"
)

var kinds = []string{kindHook, kindBinding, kindLink, kindSlots, kindGone, kindOther}

// kindOf sorts what the write path says of its repairs, which is for people.
func kindOf(what string) string {
	switch {
	case strings.HasSuffix(what, "was not in force"):
		return kindHook
	case strings.HasPrefix(what, "binding of"):
		return kindBinding
	case strings.HasPrefix(what, "link pin"):
		return kindLink
	case strings.HasPrefix(what, "slots of"):
		return kindSlots
	case what == "attachment without interface":
		return kindGone
	}
	return kindOther
}
