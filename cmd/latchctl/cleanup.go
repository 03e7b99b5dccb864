package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

func (a *app) cleanup() *cobra.Command {
	var yes, dry bool
	c := &cobra.Command{
		Use:   "cleanup",
		Short: "Take everything of Latch off this node; its pods are open then",
		Long: `Detaches the programs from every interface, and removes all pins, maps, records and locks. Pods keep running
and are no longer policed. Stop latchd first, and take latch out of the CNI configuration: both would
begin anew.

At a terminal it asks first, unless --yes is given. It may be called again at any time.`,
		Example: `  latchctl cleanup --dry-run
  latchctl cleanup --yes`,
		Args: args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			u, err := newUninstall(a.bpffs, a.stateDir)
			if err != nil {
				return err
			}
			found := u.inventory()
			if dry {
				return a.print(found, func(w io.Writer) { found.table(w) })
			}
			if !yes && a.atTerminal() && !found.empty() {
				found.table(a.err)
				if !a.confirmed("Remove all of this?") {
					return errors.New("nothing was removed")
				}
			}
			if err := u.run(c.Context()); err != nil {
				return err
			}
			return a.print(found, func(w io.Writer) { fmt.Fprintf(w, "removed: %s\n", found) })
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be removed, and remove nothing")
	return c
}

// atTerminal tells whether there is somebody to ask.
func (a *app) atTerminal() bool {
	f, ok := a.in.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

func (a *app) confirmed(question string) bool {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(a.in).ReadString('\n')
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(line)), "y")
}
