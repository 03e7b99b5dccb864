package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/latch-cni/latch/shared/cleanup"
	"github.com/latch-cni/latch/shared/lock"
)

func (a *app) cleanup() *cobra.Command {
	var yes, dry, force bool
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
			u, err := cleanup.New(a.bpffs, a.stateDir)
			if err != nil {
				return err
			}
			found := u.Inventory()
			if dry {
				return a.print(found, func(w io.Writer) { inventoryTable(w, found) })
			}
			if !yes && a.atTerminal() && !found.Empty() {
				inventoryTable(a.err, found)
				if !a.confirmed("Remove all of this?") {
					return errors.New("nothing was removed")
				}
			}
			release, err := lock.Folder(a.stateDir)
			switch {
			case errors.Is(err, lock.ErrHeld) && !force:
				return errors.New("latchd is running and would pin everything again, without its pods: stop it first, or say --force")
			case err == nil:
				defer release()
			case !errors.Is(err, lock.ErrHeld) && !errors.Is(err, fs.ErrNotExist):
				return err
			}
			if err := u.Run(c.Context()); err != nil {
				return err
			}
			return a.print(found, func(w io.Writer) { fmt.Fprintf(w, "removed: %s\n", summary(found)) })
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	c.Flags().BoolVar(&force, "force", false, "also while latchd is running")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be removed, and remove nothing")
	return c
}

func inventoryTable(w io.Writer, i cleanup.Inventory) {
	if i.Empty() {
		fmt.Fprintln(w, "nothing of Latch is here")
	}
	for _, a := range i.Attachments {
		fmt.Fprintf(w, "attachment  %s\n", a)
	}
	for _, l := range i.Layouts {
		fmt.Fprintf(w, "pins        %s\n", l)
	}
	if i.Records > 0 {
		fmt.Fprintf(w, "records     %s in %s\n", plural(i.Records, "file"), i.StateDir)
	}
}

func summary(i cleanup.Inventory) string {
	if i.Empty() {
		return "nothing, there was nothing"
	}
	return fmt.Sprintf("%s, %s of pins, %s", plural(len(i.Attachments), "attachment"), plural(len(i.Layouts), "layout"), plural(i.Records, "record"))
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
