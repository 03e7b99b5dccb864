package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latch-cni/latch/shared/state"
	"github.com/latch-cni/latch/shared/view"
)

// Exit codes. They are an interface.
const (
	exitOK        = 0
	exitError     = 1
	exitUsage     = 2
	exitUnhealthy = 3 // something is not in force, or what was asked for is not on this node
	exitDenied    = 4 // explain: the flow is denied
)

const longHelp = `Shows which network policy is in force on this node, as the kernel holds it.

All commands but cleanup only read: they take no lock, change nothing, and work with latchd down.
Pods are named NAMESPACE/POD.

Exit codes:
  0  done; everything asked about is in force
  1  an error: permissions, an unreadable record
  2  wrong usage
  3  something is not in force, or what was asked for is not on this node
  4  explain: the flow is denied`

// app is what all commands share.
type app struct {
	bpffs, stateDir string
	output          string

	in       io.Reader
	out, err io.Writer
}

// usageError is a mistake in the command line.
type usageError struct{ error }

// status is an exit code without anything to say: the output has said it.
type status int

func (s status) Error() string { return fmt.Sprintf("exit %d", int(s)) }

func run(args []string, in io.Reader, out, errOut io.Writer) int {
	return runContext(context.Background(), args, in, out, errOut)
}

func runContext(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	code := exitCode(err)
	var quiet status
	if err != nil && !errors.As(err, &quiet) {
		fmt.Fprintf(errOut, "latchctl: %v\n", err)
	}
	if code == exitUsage {
		fmt.Fprintf(errOut, "see: %s --help\n", cmd.CommandPath())
	}
	return code
}

func exitCode(err error) int {
	var usage usageError
	var code status
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, view.ErrNoPod), errors.Is(err, view.ErrNotPinned), errors.Is(err, view.ErrFlowLogOff):
		return exitUnhealthy
	}
	return exitError
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "latchctl",
		Short:   "What network policy is in force on this node",
		Long:    longHelp,
		Version: version,
		Example: `  latchctl status
  latchctl status shop/db
  latchctl explain --from shop/web --to shop/db --port 5432/TCP`,
		Args:              args(0, 0),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.prepare() },
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	f := root.PersistentFlags()
	f.StringVar(&a.bpffs, "bpffs", "", "mount point of bpffs (default: what latchd recorded, or /sys/fs/bpf)")
	f.StringVar(&a.stateDir, "state-dir", "/run/latch", "records and locks")
	f.StringVarP(&a.output, "output", "o", "table", "table, json or yaml")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	root.AddCommand(a.status(), a.rules(), a.explain(), a.flows(), a.events(), a.top(), a.counters(), a.check(), a.doctor(), a.ebpf(), a.dump(), a.cleanup())
	return root
}

func (a *app) prepare() error {
	switch a.output {
	case "table", "json", "yaml":
	default:
		return usageError{fmt.Errorf("--output %q: use table, json or yaml", a.output)}
	}
	if a.bpffs == "" {
		a.bpffs = "/sys/fs/bpf"
		if s, err := state.New(a.stateDir).ReadSettings(); err == nil && s.Bpffs != "" {
			a.bpffs = s.Bpffs
		}
	}
	return nil
}

// args checks the number of arguments, as a usage error.
func args(atLeast, atMost int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0 && !c.HasParent():
			return usageError{fmt.Errorf("unknown command %q%s", args[0], meant(c, args[0]))}
		case len(args) > atMost:
			return usageError{fmt.Errorf("unexpected argument %q", args[atMost])}
		case len(args) < atLeast:
			return usageError{errors.New("which pod? NAMESPACE/POD")}
		}
		return nil
	}
}

// meant asks whether a mistyped command was meant to be one that there is.
func meant(c *cobra.Command, word string) string {
	c.SuggestionsMinimumDistance = 2 // else only beginnings of commands are
	if known := c.SuggestionsFor(word); len(known) > 0 {
		return fmt.Sprintf("; did you mean %q?", known[0])
	}
	return ""
}

// podArg takes a pod's name apart.
func podArg(arg string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usageError{fmt.Errorf("%q is not NAMESPACE/POD", arg)}
	}
	return namespace, name, nil
}

// node opens the node, and calls fn with it.
func (a *app) node(fn func(*view.Node) error) error {
	n, err := view.Open(a.bpffs, a.stateDir)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			err = fmt.Errorf("%w (latchctl needs root)", err)
		}
		return err
	}
	return errors.Join(fn(n), n.Close())
}

// pods returns the attachments of the pod in args, or nil for all.
func pods(n *view.Node, args []string) ([]view.Pod, error) {
	if len(args) == 0 {
		return nil, nil
	}
	namespace, name, err := podArg(args[0])
	if err != nil {
		return nil, err
	}
	return n.Pod(namespace, name)
}

// completePod offers the node's pods.
func (a *app) completePod(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || a.prepare() != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	store := state.New(a.stateDir)
	var names []string
	attachments, _ := store.ListAttachments()
	for _, at := range attachments {
		names = append(names, at.PodNamespace+"/"+at.PodName)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
