package announce

import corev1 "k8s.io/api/core/v1"

// Reasons of Events. They are an interface.
const (
	ReasonNotEnforced = "PolicyNotEnforced"
	ReasonEnforced    = "PolicyEnforced"
	ReasonRepaired    = "PolicyRepaired"
	ReasonSetupFailed = "PolicySetupFailed"
	ReasonNotApplied  = "PolicyNotApplied"
	ReasonIncomplete  = "PolicyIncomplete"
	ReasonPending     = "PolicyPending"
)

// EventReason is a reason, for people.
type EventReason struct{ Reason, On, Type, Meaning, Do string }

// EventReasons lists every reason.
func EventReasons() []EventReason {
	const warning, normal = corev1.EventTypeWarning, corev1.EventTypeNormal
	return []EventReason{
		{ReasonNotEnforced, "Pod", warning, "the pod is not judged by the newest policy: its rules cannot be put into the kernel, or the kernel does not do what is recorded, or nothing is known about the pod, or it was there before Latch",
			"the message says why; `latchctl status POD`"},
		{ReasonEnforced, "Pod", normal, "it was announced that the pod is not judged by the newest policy, and now it is", ""},
		{ReasonRepaired, "Pod", warning, "the kernel did not do what is recorded for the pod, and was mended", "somebody else changes the interface or the maps: `latchctl doctor`"},
		{ReasonSetupFailed, "Pod", warning, "the pod cannot start: the plugin could not enforce its policy", "the message is the plugin's; [operations.md](../operations.md), *Pods do not start*"},
		{ReasonNotApplied, "policy", warning, "the policy cannot be applied, it is too big: its pods keep the rules that they have", "name fewer single ports, or fewer blocks inside others"},
		{ReasonIncomplete, "policy", warning, "parts of the policy are malformed or not supported, and were left out", "the message names the fields"},
		{ReasonPending, "policy", warning, "what the policy allows is not known, or an older version of it is in force: its endpoints objects are missing, or have not followed it", "does the policy controller run?"},
	}
}

// Reasons of the condition. They are an interface.
const (
	ConditionEnforced   = "Enforced"
	ConditionNotSubject = "NotSubject"
	ConditionNotInForce = "NotInForce"
	ConditionNotAdopted = "NotAdopted"
	ConditionStale      = "Stale"
	ConditionUnknown    = "PodUnknown"
	ConditionChanging   = "Changing"
	ConditionSettling   = "Settling"
	ConditionPending    = "PolicyPending"
)

// ConditionReason is a reason of the condition, for people.
type ConditionReason struct{ Reason, Status, Meaning string }

// ConditionReasons lists every reason of the condition.
func ConditionReasons() []ConditionReason {
	yes, no := string(corev1.ConditionTrue), string(corev1.ConditionFalse)
	return []ConditionReason{
		{ConditionEnforced, yes, "the kernel judges the pod by the newest policy that is known"},
		{ConditionNotSubject, yes, "the pod has the network of the node, and no policy applies to it; only written if it has the readiness gate"},
		{ConditionNotInForce, no, "the kernel does not do what is recorded; the audit mends it"},
		{ConditionNotAdopted, no, "the pod was there before Latch, and runs without policy"},
		{ConditionStale, no, "judged by older rules: the newest cannot be put into the kernel"},
		{ConditionUnknown, no, "nothing was known about the pod when it started, it is bound to a default"},
		{ConditionChanging, no, "a change of policy or labels is not in force yet"},
		{ConditionSettling, no, "a policy has changed and may not be complete: running pods wait for the rest ([decisions.md](../decisions.md), D6)"},
		{ConditionPending, no, "what a policy that selects the pod allows is not known (D15)"},
	}
}
