package plugin

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// pod is who the attachment belongs to, as the runtime says in CNI_ARGS.
type pod struct {
	Namespace string
	Name      string
	UID       string // "" if the runtime does not say
	SandboxID string // "" if the runtime does not say
}

func (p pod) String() string {
	if p.UID == "" {
		return p.Namespace + "/" + p.Name
	}
	return p.Namespace + "/" + p.Name + " (uid " + p.UID + ")"
}

// podArgs has the spelling that LoadArgs looks for.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE          types.UnmarshallableString
	K8S_POD_NAME               types.UnmarshallableString
	K8S_POD_UID                types.UnmarshallableString
	K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
}

// parsePodArgs reads CNI_ARGS. The order of the pairs changes from call to call, and runtimes add keys
// of their own, which are ignored unless IgnoreUnknown forbids it.
func parsePodArgs(args string) (pod, error) {
	parsed := podArgs{CommonArgs: types.CommonArgs{IgnoreUnknown: true}}
	if err := types.LoadArgs(strings.Trim(args, ";"), &parsed); err != nil {
		return pod{}, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("parse CNI_ARGS: %v", err), "")
	}
	var missing []string
	if parsed.K8S_POD_NAMESPACE == "" {
		missing = append(missing, "K8S_POD_NAMESPACE")
	}
	if parsed.K8S_POD_NAME == "" {
		missing = append(missing, "K8S_POD_NAME")
	}
	if len(missing) > 0 {
		return pod{}, types.NewError(types.ErrInvalidEnvironmentVariables,
			"CNI_ARGS lacks "+strings.Join(missing, " and "),
			"without them the pod, and so its policy, is not known")
	}
	return pod{
		Namespace: string(parsed.K8S_POD_NAMESPACE),
		Name:      string(parsed.K8S_POD_NAME),
		UID:       string(parsed.K8S_POD_UID),
		SandboxID: string(parsed.K8S_POD_INFRA_CONTAINER_ID),
	}, nil
}
